//! A method of one's own is one implementation of `Method`: it then enters tournaments and recipes
//! like those of this crate.

use mpf_baselines::{
    Contender, Criterion, Description, Error, ErrorBarsBy, Method, MethodOptions, Methods,
    Observer, Recipe, Result, Takes, Tournament, TrainingData,
};
use mpf_core::Objective;
use mpf_ising::{
    CrossValidation, Data, Estimator, Exact, Fit, Fitter, MarginLoss, MarginSum, PathOptions,
    PathProgress, PenaltyPath, Samples, States, Terms,
};
use mpf_testkit::{random_couplings, seed};

/// The flow plus the pseudolikelihood.
struct Both<'a>([MarginSum<'a>; 2]);

impl Objective for Both<'_> {
    fn n_params(&self) -> usize {
        self.0[0].n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let [flow, pl] = &mut self.0;
        let mut other = vec![0.0; grad.len()];
        let value = flow.value_and_gradient(theta, grad) + pl.value_and_gradient(theta, &mut other);
        grad.iter_mut().zip(other).for_each(|(g, o)| *g += o);
        value
    }
}

#[derive(Clone, Copy)]
struct Toy;

impl Estimator for Toy {
    fn objective<'a>(&self, terms: Terms<'a>) -> Box<dyn Objective + 'a> {
        let losses = [MarginLoss::FLOW, MarginLoss::Logistic];
        Box::new(Both(losses.map(|loss| MarginSum::new(terms.clone(), loss))))
    }
}

impl Method for Toy {
    fn describe(&self) -> Description {
        Description {
            takes: &[Takes::Penalties],
            is_local: true,
            ..Description::new("toy", "toy", "The flow plus the pseudolikelihood")
        }
    }

    fn fit(&self, data: Data<'_>, options: &MethodOptions, observer: Observer<'_>) -> Result<Fit> {
        let options = options.fit_options(data.n_effective());
        Ok(Fitter::new(*self, options)?.fit_observed(data, observer)?)
    }

    fn cross_validate(
        &self,
        path: &PenaltyPath,
        states: &States,
        options: &MethodOptions,
        observer: &mut dyn FnMut(&PathProgress),
    ) -> Result<CrossValidation> {
        let fitter = Fitter::new(*self, options.fit_options(states.n_samples() as f64))?;
        Ok(path.cross_validate(&fitter, states, observer)?)
    }
}

fn methods() -> Methods {
    Methods::default().with(&Toy)
}

fn draws() -> States {
    let truth = random_couplings(5, 0.8, 7);
    Exact::new(&truth).unwrap().draw(800, seed())
}

#[test]
fn it_enters_the_tournament() {
    let states = draws();
    let competing: Vec<Contender> = methods()
        .iter()
        .filter(|method| method.describe().competes)
        .map(|method| Contender::alone(method, MethodOptions::default()))
        .collect();
    let found = Tournament::default()
        .run(&competing, &states, |_, _| {})
        .unwrap();
    assert!(found.dropouts.is_empty());
    let at = |name: &str| found.entrants.iter().position(|e| e.name == name).unwrap();
    let (toy, null) = (at("toy"), at("independent"));
    assert_eq!(found.entrants[toy].own, None);
    let better = found
        .difference(toy, null, Criterion::LogLikelihood)
        .unwrap()
        .unwrap();
    assert!(better.value > 2.0 * better.standard_error, "{better:?}");
    assert!(found.to_string().contains("toy"));
}

#[test]
fn its_penalty_is_chosen_by_cross_validation() {
    let states = draws();
    let samples = Samples::new(&states).unwrap();
    let choose = PathOptions {
        n_lambdas: 6,
        ..Default::default()
    };
    let toy = methods().find("toy").unwrap();
    let recipe = Recipe {
        choose: Some(choose.clone()),
        ..Recipe::alone(toy, MethodOptions::default())
    };
    let data = TrainingData {
        samples: &samples,
        states: Some(&states),
    };
    let trained = recipe.run(data, &|_| {}).unwrap();
    let plain = Fitter::new(Toy, MethodOptions::default().fit_options(800.0)).unwrap();
    let path = PenaltyPath::new(choose).unwrap();
    let by_hand = path.cross_validate(&plain, &states, |_| {}).unwrap();
    assert_eq!(trained.options.l1, by_hand.chosen().lambda);
    assert_eq!(trained.fit.couplings, by_hand.chosen().fit.couplings);
    assert_ne!(trained.options.l1, 0.0);

    // What it does not offer is refused in its name, and its fit is not lost.
    let bars = Recipe {
        errors: ErrorBarsBy::Sandwich,
        choose: None,
        ..recipe
    };
    let trained = bars.run(data, &|_| {}).unwrap();
    assert!(trained.errors.is_none());
    assert!(matches!(
        trained.failures[0].error,
        Error::Ising(mpf_ising::Error::NotOffered { method: "toy", .. })
    ));
}
