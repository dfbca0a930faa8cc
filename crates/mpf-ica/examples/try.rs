#![allow(missing_docs, clippy::print_stdout)]
use mpf_ica::dead_leaves::DeadLeaves;
use mpf_ica::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: f64| {
        a.iter()
            .position(|x| x == k)
            .map_or(d, |i| a[i + 1].parse().unwrap())
    };
    let seed = get("seed", 0.0) as u64;
    let n = get("n", 100000.0) as usize;
    let data = if get("synth", 0.0) > 0.0 {
        let d = get("synth", 0.0) as usize;
        let truth = Filters::random(d, seed + 77);
        let x = truth
            .draw(n, &mut mpf_core::rng::stream(seed + 5, 0))
            .unwrap();
        let w = Whitening::new(x.view(), whiten::Method::Zca).unwrap();
        w.apply(x.view()).unwrap()
    } else {
        let images = DeadLeaves::default().draw(seed).unwrap();
        let p = patches::draw_patches(&images, 10, n, seed).unwrap();
        patches::prepare(p.view(), get("norm", 0.0) > 0.0)
            .unwrap()
            .0
    };
    println!("data {:?}", data.dim());
    let mut s = Stochastic::default();
    s.batch = get("batch", 2500.0) as usize;
    s.rate = get("rate", 1.0);
    s.last_rate = get("last", 0.01);
    s.momentum = get("mom", 0.9);
    s.steady_steps = get("steady", 400.0) as usize;
    s.falling_steps = get("falling", 600.0) as usize;
    s.averaged_steps = get("avg", 100.0) as usize;
    s.trajectory.step_size = get("eps", 0.05);
    if get("k", 5.0) == 0.0 {
        s.metropolis = None
    } else {
        let m = s.metropolis.as_mut().unwrap();
        m.transitions = get("k", 5.0) as usize;
        m.rate = get("mrate", 0.3);
        m.steps = get("msteps", 300.0) as usize;
    }
    let mut alt = Alternating::default();
    alt.rounds = get("rounds", 60.0) as usize;
    alt.inner_iterations = get("inner", 10.0) as usize;
    let mut list = vec![];
    if get("alt", 0.0) > 0.0 {
        list.push(Trainer::Alternating(alt));
    }
    if get("sto", 1.0) > 0.0 {
        list.push(Trainer::Stochastic(s));
    }
    if get("ml", 1.0) > 0.0 {
        list.push(Trainer::MaximumLikelihood {
            max_iterations: get("mlit", 300.0) as usize,
        });
    }
    for t in list {
        let every = (t.n_steps() / 20).max(1);
        let fit = Fitter::new(FitOptions {
            trainer: t,
            seed,
            ..Default::default()
        })
        .unwrap()
        .fit_observed(data.view(), |p| {
            if p.step % every == 0 {
                println!("{} {:.1}s {:.4}", p.step, p.seconds, p.log_likelihood)
            }
        })
        .unwrap();
        println!(
            "LL {:.4} {} steps {} {:.1}s acc {:?} clip {:.2e} rescued {:?} smin {:.3} med {:.3}",
            fit.log_likelihood,
            fit.stop,
            fit.steps,
            fit.seconds,
            fit.acceptance,
            fit.clipped_fraction,
            fit.rescued,
            fit.smallest_singular_value,
            fit.median_singular_value
        );
    }
}
