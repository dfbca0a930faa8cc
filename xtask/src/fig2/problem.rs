//! A spin glass with its samples and true correlations, and a start for all methods.

use super::results::{Data, NoCouplings, Point};
use super::{Args, Free, Source, Start};
use crate::correlations::{Estimate, PairMeans, mean_square_spin_error};
use crate::glass::symmetric;
use crate::{Result, progress};
use mpf_core::{Cancel, rng};
use mpf_ising::{Boundary, Couplings, Lattice, Samples, States, Support};
use mpf_samplers::{ChainOptions, ChainRunner, ExactLattice, SwendsenWang, diagnostics};
use ndarray::Array2;
use rand_distr::{Distribution, Normal};

pub(super) struct Model<'a> {
    pub(super) args: &'a Args,
    pub(super) cancel: Cancel,
    pub(super) seed: u64,
    pub(super) lattice: Lattice,
    pub(super) truth: Couplings,
    pub(super) pair_means: Array2<f64>,
    /// The samples that all methods learn from, then those of the chain beside exact draws.
    pub(super) drawn: Vec<Drawn>,
}

pub(super) struct Drawn {
    source: Source,
    pub(super) states: States,
    samples: Samples,
}

impl<'a> Model<'a> {
    pub(super) fn new(args: &'a Args, seed: u64, cancel: Cancel) -> Result<Self> {
        let lattice = Lattice::new(args.lattice, args.lattice, Boundary::Open)?;
        let truth = lattice.spin_glass(args.variance, &mut rng::stream(seed, 0))?;
        let bar = progress::spinner(&format!("model {seed}: samples and true correlations"));
        let sampling = rng::next_seed(seed);
        let mut drawn = Vec::new();
        for source in args.sampler.sources() {
            let states = match source {
                Source::Exact => ExactLattice::new(&truth, &lattice)?.draw(args.samples, sampling),
                Source::SwendsenWang => {
                    let runner = ChainRunner::new(ChainOptions {
                        seed: sampling,
                        n_chains: 1,
                        n_draws: args.samples,
                        burn_in: args.samples / 10,
                        thinning: 1,
                        cancel: cancel.clone(),
                        ..Default::default()
                    })?;
                    let run = runner.run(&SwendsenWang::new(&truth)?)?;
                    if run.cancelled {
                        return Err(mpf_core::Error::Cancelled.into());
                    }
                    run.pooled()
                }
            };
            drawn.push(Drawn {
                source: *source,
                samples: Samples::new(&states)?,
                states,
            });
        }
        let long = ChainOptions {
            n_draws: 10 * args.correlation_draws,
            seed: rng::next_seed(sampling),
            cancel: cancel.clone(),
            ..args.chains_at_the_end()
        };
        let known = PairMeans::of(&truth, &lattice, long)?;
        bar.finish_and_clear();
        Ok(Self {
            args,
            cancel,
            seed,
            lattice,
            truth,
            pair_means: known.mean(),
            drawn,
        })
    }

    /// Measures ε_corr.
    pub(super) fn eps_corr(&self, couplings: &Couplings, chains: ChainOptions) -> Result<Estimate> {
        let chains = ChainOptions {
            seed: rng::next_seed(rng::next_seed(self.seed)),
            cancel: self.cancel.clone(),
            ..chains
        };
        let means = PairMeans::of(couplings, &self.lattice, chains)?;
        Ok(means.estimate(|found| mean_square_spin_error(found, &self.pair_means)))
    }

    /// Returns the samples that all methods learn from.
    pub(super) fn samples(&self) -> &Samples {
        &self.drawn[0].samples
    }

    pub(super) fn samples_of(&self, source: Source) -> &Samples {
        let mut drawn = self.drawn.iter();
        let found = drawn.find(|drawn| drawn.source == source);
        &found.expect("paths are of the samplers").samples
    }

    pub(super) fn data(&self) -> Result<Vec<Data>> {
        let of_source = |drawn: &Drawn| {
            let (states, samples) = (&drawn.states, &drawn.samples);
            let energies: Vec<f64> = states.rows().map(|row| self.truth.energy(row)).collect();
            let tau_energy = diagnostics::integrated_autocorrelation_time(&[energies])?;
            Ok(Data {
                distinct_samples: samples.n_distinct(),
                tau_energy,
                effective_samples: states.n_samples() as f64 / tau_energy.max(1.0),
                eps_corr: mean_square_spin_error(&samples.pair_means(), &self.pair_means),
            })
        };
        self.drawn.iter().map(of_source).collect()
    }

    pub(super) fn no_couplings(&self) -> Result<NoCouplings> {
        let d = self.lattice.n_units();
        let fair = Array2::from_shape_fn((d, d), |(i, j)| if i == j { 0.5 } else { 0.25 });
        Ok(NoCouplings {
            eps_j: Couplings::zeros(d)?.mean_square_error(&self.truth),
            eps_corr: mean_square_spin_error(&fair, &self.pair_means),
        })
    }
}

/// A model to learn with one choice of free parameters.
pub(super) struct Problem<'a> {
    pub(super) model: &'a Model<'a>,
    pub(super) free: Free,
    pub(super) support: Support,
    pub(super) start: Couplings,
    pub(super) start_eps_corr: Estimate,
}

impl<'a> Problem<'a> {
    pub(super) fn new(model: &'a Model<'a>, free: Free) -> Result<Self> {
        let support = match free {
            Free::Full => Support::Full,
            Free::Lattice => Support::lattice(&model.lattice),
        };
        let d = model.lattice.n_units();
        let start = match model.args.start {
            Start::Random => random_start(d, &support, model.seed)?,
            Start::Zero => Couplings::zeros(d)?,
        };
        Ok(Self {
            start_eps_corr: model.eps_corr(&start, model.args.chains_on_the_way())?,
            model,
            free,
            support,
            start,
        })
    }

    /// Returns the first point of every trace, without ε_corr.
    pub(super) fn at_start(&self) -> Point {
        Point {
            gradient_norm: f64::NAN,
            eps_j: self.start.mean_square_error(&self.model.truth),
            ..Default::default()
        }
    }

    /// Sets couplings that are not free to zero.
    pub(super) fn on_support(&self, couplings: &Couplings) -> Result<Couplings> {
        let d = couplings.n_units();
        let places = (0..d).map(|i| (i, i)).chain(self.support.pairs(d)?);
        let kept = symmetric(d, places, |i, j| couplings.get(i, j));
        Ok(Couplings::new(kept)?)
    }
}

/// Draws free parameters from N(0, .01).
fn random_start(d: usize, support: &Support, seed: u64) -> Result<Couplings> {
    let mut rng = rng::stream(seed, 1);
    let normal = Normal::new(0.0, 0.1)?;
    let places = (0..d).map(|i| (i, i)).chain(support.pairs(d)?);
    let j = symmetric(d, places, |_, _| normal.sample(&mut rng));
    Ok(Couplings::new(j)?)
}

/// Returns the part of ε_J that comes from the biases.
pub(super) fn diagonal_error(fitted: &Couplings, truth: &Couplings) -> f64 {
    let d = truth.n_units();
    let sum: f64 = (0..d)
        .map(|i| (fitted.get(i, i) - truth.get(i, i)).powi(2))
        .sum();
    sum / (d * d) as f64
}
