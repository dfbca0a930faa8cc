//! Numbers at the edge of `f64` and degenerate data through the public interface of this crate:
//! results are finite, documented not to be, or typed errors. Nothing panics or loops for ever.

use crate::common::{MetropolisNeighbours, PlainTrajectories, WithMomentum, extended_neighbours};
use mpf_core::rng::stream;
use mpf_core::{CheckpointStore, EnergyModel, Objective, SampledConnectivity};
use mpf_ica::internal::{covariance, normalise_contrast};
use mpf_ica::{
    Alternating, DeadLeaves, Filters, Fit, FitOptions, Fitter, HamiltonianNeighbours, Image,
    LaplaceIca, Metropolis, NegativeLogLikelihood, NeighbourFlow, NeighbourRule, Neighbours,
    NoiseNeighbours, Stochastic, Trainer, Trajectory, Whitening, WhiteningMethod, amari_index,
    draw_patches, log_likelihood, match_filters, prepare_patches,
};
use mpf_samplers::{HmcOptions, SmoothEnergy};
use mpf_testkit::{StopAfter, all_finite, few, in_memory, number};
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use proptest::collection::vec;
use proptest::prelude::*;

/// Mostly `usual`, sometimes any number.
fn mostly(usual: f64) -> impl Strategy<Value = f64> {
    prop_oneof![5 => Just(usual), 1 => number()]
}

/// A matrix of `rows` × `columns`, from numbers of `entry`.
fn matrix(
    rows: usize,
    columns: usize,
    entry: impl Strategy<Value = f64>,
) -> impl Strategy<Value = Array2<f64>> {
    vec(entry, rows * columns)
        .prop_map(move |v| Array2::from_shape_vec((rows, columns), v).unwrap())
}

/// Data of every awkward kind in `d` dimensions: one sample, equal rows, constant and repeated
/// columns, every corner of a cube, numbers at the edge.
fn data(d: usize) -> impl Strategy<Value = Array2<f64>> {
    let plain = (1..12usize).prop_flat_map(move |m| matrix(m, d, -3.0..3.0f64));
    let edge = (1..8usize).prop_flat_map(move |m| matrix(m, d, number()));
    let equal = (1..8usize, matrix(1, d, number()))
        .prop_map(|(m, row)| Array2::from_shape_fn((m, row.ncols()), |(_, k)| row[[0, k]]));
    let twins = (2..12usize).prop_flat_map(move |m| {
        matrix(m, 1, -3.0..3.0f64)
            .prop_map(move |c| Array2::from_shape_fn((c.nrows(), d), |(j, _)| c[[j, 0]]))
    });
    let constant = (
        (2..12usize).prop_flat_map(move |m| matrix(m, d, -3.0..3.0f64)),
        number(),
    )
        .prop_map(|(mut data, value)| {
            data.column_mut(0).fill(value);
            data
        });
    let corners = Just(Array2::from_shape_fn((1 << d, d), |(j, k)| {
        f64::from((j >> k) as u8 & 1)
    }));
    prop_oneof![3 => plain, 2 => edge, 1 => equal, 1 => twins, 1 => constant, 1 => corners]
}

/// Entries of filters, valid or not: plain ones, numbers at the edge, and all of one scale.
fn filters(d: usize) -> impl Strategy<Value = Array2<f64>> {
    let scales = proptest::sample::select(vec![1.0, 1e-310, 1e-200, 1e150, 1e300]);
    let scaled = (matrix(d, d, -4.0..4.0f64), scales).prop_map(|(j, scale)| j * scale);
    prop_oneof![2 => matrix(d, d, -4.0..4.0f64), 1 => matrix(d, d, number()), 2 => scaled]
}

fn trajectory() -> impl Strategy<Value = Trajectory> {
    (mostly(0.3), mostly(0.1), mostly(0.5), mostly(1.5)).prop_map(
        |(step_size, jitter, shortest, longest)| Trajectory {
            step_size,
            jitter,
            shortest,
            longest,
        },
    )
}

fn is_finite(data: &Array2<f64>) -> bool {
    data.iter().all(|v| v.is_finite())
}

fn whole(fit: &Fit) -> Result<(), TestCaseError> {
    all_finite("J", fit.filters.as_array())?;
    all_finite(
        "fit",
        [
            &fit.log_likelihood,
            &fit.seconds,
            &fit.clipped_fraction,
            &fit.smallest_singular_value,
            &fit.median_singular_value,
        ],
    )?;
    all_finite("acceptance", &fit.acceptance)?;
    for point in &fit.trace {
        all_finite("trace", [&point.log_likelihood, &point.seconds])?;
    }
    for rescue in &fit.rescued {
        all_finite(
            "rescue",
            [
                &rescue.smallest_singular_value,
                &rescue.median_singular_value,
            ],
        )?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(few(400))]

    #[test]
    fn models_are_finite_or_refused(
        (j, other, data, theta) in (1..4usize).prop_flat_map(|d| {
            (filters(d), filters(d), data(d), vec(number(), d * d))
        }),
        seed in any::<u64>(),
    ) {
        let d = j.nrows();
        let Ok(model) = Filters::new(j.clone()) else {
            prop_assert!(!is_finite(&j));
            return Ok(());
        };
        all_finite("σ", &model.singular_values().unwrap_or_default())?;
        if let Ok((log_determinant, inverse)) = model.log_determinant_and_inverse() {
            all_finite("inverse", inverse.iter().chain([&log_determinant]))?;
        }
        if let Ok(draws) = model.draw(3, &mut stream(seed, 0)) {
            all_finite("draws", &draws)?;
        }
        if let Ok(value) = log_likelihood(&model, data.view()) {
            all_finite("likelihood", [&value])?;
        }
        let mut grad = vec![0.0; d * d];
        if let Ok(mut likelihood) = NegativeLogLikelihood::new(data.view()) {
            let _ = likelihood.value_and_gradient(&theta, &mut grad);
        }
        if let Ok(index) = amari_index(&model, other.view()) {
            prop_assert!((-1e-12..=1.0 + 1e-12).contains(&index), "{index}");
        }
        if let Ok(other) = Filters::new(other) {
            for pair in match_filters(&model, &other).unwrap() {
                prop_assert!((0.0..=1.0 + 1e-12).contains(&pair.similarity), "{pair:?}");
            }
            // A filter is like itself, whatever its length.
            let same = match_filters(&model, &model).unwrap();
            let zero = |k: usize| j.row(k).iter().all(|v| *v == 0.0);
            prop_assert!(same.iter().all(|m| m.similarity > 0.99 || zero(m.first)));
        }
        let x = data.row(0).to_vec();
        let energy = LaplaceIca::new(d).energy(&theta, &x);
        prop_assert!(energy >= 0.0 || energy.is_nan());
        let pair = [x.clone(), x.clone()].concat();
        let _ = WithMomentum(LaplaceIca::new(d)).energy(&theta, &pair);
        let _ = model.energy_and_gradient(&x, &mut vec![0.0; d]);
    }

    #[test]
    fn whitening_is_finite_or_refused(
        (data, other) in (1..4usize).prop_flat_map(|d| (data(d), data(d))),
        scale in proptest::sample::select(vec![1.0, 1e-300, 1e-160, 1e-150, 1e150, 1e154, 1e300]),
    ) {
        let data = data * scale;
        for method in [WhiteningMethod::Zca, WhiteningMethod::Pca] {
            let Ok(whitening) = Whitening::new(data.view(), method) else { continue };
            all_finite("T", whitening.transform())?;
            all_finite("T⁻¹", whitening.inverse())?;
            all_finite("mean", whitening.mean())?;
            let white = whitening.apply(data.view()).unwrap();
            all_finite("white", &white)?;
            // Rounding has its say where the covariance is nearly singular.
            let variance = white.map_axis(Axis(0), |c| c.dot(&c) / c.len() as f64);
            prop_assert!(variance.iter().all(|v| (v - 1.0).abs() < 0.3), "{variance}");
            let others = [whitening.apply(other.view()), whitening.invert(other.view())];
            for other in others.into_iter().flatten() {
                all_finite("applied", &other)?;
            }
        }
        for normalise in [false, true] {
            if let Ok((white, _)) = prepare_patches(data.view(), normalise) {
                all_finite("prepared", &white)?;
            }
        }
        let mut normal = data.clone();
        normalise_contrast(&mut normal);
        if is_finite(&data) {
            all_finite("normalised", &normal)?;
            let loud = |row: ArrayView2<'_, f64>| row.iter().any(|v| v.abs() > 1.0);
            for (before, after) in data.outer_iter().zip(normal.outer_iter()) {
                let before = before.insert_axis(Axis(0));
                prop_assert!(!loud(before) || after.dot(&after) > 0.5, "{before} {after}");
            }
        }
        let mean = data.mean_axis(Axis(0)).unwrap();
        let c = covariance(data.view(), &mean);
        if data.iter().all(|v| v.abs() < 1e150) {
            all_finite("covariance", &c)?;
        }
    }

    #[test]
    fn patches_are_what_the_pixels_are(
        (rows, columns) in (0..7usize, 0..7usize),
        pixels in vec(number(), 36),
        (size, n, seed) in (0..5usize, 0..6usize, any::<u64>()),
    ) {
        let pixels = Array2::from_shape_fn((rows, columns), |(i, j)| pixels[i * 6 + j.min(5) * (i < 6) as usize]);
        let plain = is_finite(&pixels);
        let image = Image::new("any", pixels);
        let gentle = image.pixels().iter().all(|v| v.abs() < 1e300);
        if gentle {
            all_finite("halved", image.halved().pixels())?;
        }
        let images = [image.halved(), image];
        for images in [&images[..0], &images[1..], &images[..]] {
            if let Ok(patches) = draw_patches(images, size, n, seed)
                && plain && gentle
            {
                all_finite("patches", &patches)?;
            }
        }
    }

    #[test]
    fn neighbours_are_finite_or_the_flow_refuses_them(
        (j, data, theta) in (1..4usize).prop_flat_map(|d| {
            (filters(d), data(d), vec(number(), d * d))
        }),
        trajectory in trajectory(),
        (reach, per_sample, seed) in (mostly(0.5), 0..4usize, any::<u64>()),
    ) {
        let d = j.nrows();
        let mut rng = stream(seed, 0);
        let (step, n_steps) = trajectory.draw(&mut rng);
        prop_assert!((1..=100_000).contains(&n_steps), "{n_steps}");
        if trajectory.check().is_ok() && trajectory.step_size < 1e300 {
            all_finite("ε", [&step])?;
        }
        let Ok(filters) = Filters::new(j) else { return Ok(()) };
        let hmc = HmcOptions { step_size: trajectory.step_size, ..Default::default() };
        let metropolis = MetropolisNeighbours::new(filters.clone(), hmc, 2);
        let rule = HamiltonianNeighbours { filters, trajectory };
        let extended = concatenate![Axis(1), data, data];
        let data = data.view();
        let mut all = vec![
            Neighbours::hamiltonian(&rule, data, seed),
            extended_neighbours(&PlainTrajectories(rule.clone()), extended.view(), seed),
            Neighbours::draw(&NoiseNeighbours::Gaussian { scale: reach }, data, per_sample, seed),
            Neighbours::draw(&NoiseNeighbours::Cube { side: reach }, data, per_sample, seed),
        ];
        if let Ok(rule) = metropolis {
            rule.draw_neighbours(
                &data.row(0).to_vec(), &mut vec![0.0; d], &mut rng, |_, _| {},
            );
            all.push(Neighbours::draw(&rule, data, per_sample, seed));
        }
        let first = data.slice(s![..1, ..]);
        all.push(Neighbours::hamiltonian(&rule, first, seed));
        for neighbours in &all {
            let Ok(mut flow) = NeighbourFlow::new(data, neighbours) else { continue };
            all_finite("data", data)?;
            all_finite("positions", &neighbours.positions)?;
            let mut grad = vec![0.0; d * d];
            let value = flow.value_and_gradient(&theta, &mut grad);
            // −∞: no sample has a neighbour.
            let calm = theta.iter().chain(data).chain(&neighbours.positions).all(|v| v.abs() < 1e150);
            prop_assert!(!calm || value < f64::INFINITY, "ln K = {value}");
            if value.is_finite() && calm {
                all_finite("gradient", &grad)?;
            }
        }
        let none = Array2::zeros((0, d));
        let nobody = Neighbours::hamiltonian(&rule, none.view(), seed);
        prop_assert!(NeighbourFlow::new(none.view(), &nobody).is_err());
    }
}

proptest! {
    #![proptest_config(few(600))]

    #[test]
    fn dead_leaves_are_finite_or_refused(
        (n_images, size, oversampling) in (0..3usize, 0..9usize, 0..3usize),
        (smallest, largest) in (mostly(1.0), mostly(4.0)),
        noise in mostly(0.02),
        seed in any::<u64>(),
    ) {
        let leaves = DeadLeaves { n_images, size, smallest, largest, oversampling, noise };
        for image in leaves.draw(seed).unwrap_or_default() {
            all_finite("pixels", image.pixels())?;
        }
    }
}

/// The state of maximum likelihood, which is the minimiser's, as it is written.
type Written = (
    Vec<(usize, f64, f64)>,
    (Vec<f64>, f64, Vec<f64>, Vec<f64>, f64, f64, usize),
    (usize, usize, usize, bool, f64),
    Vec<mpf_core::TracePoint>,
    (Option<Vec<u8>>, bool),
);

proptest! {
    #![proptest_config(few(300))]

    #[test]
    fn fits_are_finite_or_refused(
        (data, start) in (1..4usize).prop_flat_map(|d| {
            (data(d), proptest::option::of(filters(d)))
        }),
        (batch, rate, last_rate, momentum, clip) in
            (1..9usize, mostly(0.2), mostly(0.01), mostly(0.9), mostly(5.0)),
        (transitions, leapfrog_steps, step_size, metropolis_rate) in
            (1..3usize, 1..4usize, mostly(0.1), mostly(0.3)),
        trajectory in trajectory(),
        (kind, reach, averaged) in (0..3usize, mostly(0.5), prop_oneof![0..4usize, Just(usize::MAX)]),
        max_seconds in mostly(f64::INFINITY),
        (seed, damage) in (any::<u64>(), number()),
    ) {
        let start = match start.map(Filters::new) {
            Some(Err(_)) => return Ok(()),
            Some(Ok(start)) => Some(start),
            None => None,
        };
        let stochastic = Stochastic {
            batch,
            steady_steps: 4,
            falling_steps: 2,
            rate,
            last_rate,
            momentum,
            averaged_steps: averaged,
            clip,
            trajectory,
            metropolis: Some(Metropolis {
                steps: 2,
                transitions,
                step_size,
                leapfrog_steps,
                rate: metropolis_rate,
            }),
        };
        let noise = |noise| NeighbourRule::Noise { noise, per_sample: 2 };
        let rule = match kind {
            0 => NeighbourRule::Hamiltonian(trajectory),
            1 => noise(NoiseNeighbours::Gaussian { scale: reach }),
            _ => noise(NoiseNeighbours::Cube { side: reach }),
        };
        let alternating = Alternating {
            rounds: 3,
            inner_iterations: 3,
            averaged_rounds: averaged,
            rule,
        };
        for trainer in [
            Trainer::Stochastic(stochastic),
            Trainer::Alternating(alternating),
            Trainer::MaximumLikelihood { max_iterations: 8 },
        ] {
            let likelihood = matches!(trainer, Trainer::MaximumLikelihood { .. });
            let options = FitOptions {
                trainer,
                start: start.clone(),
                seed,
                report_every: 2,
                max_seconds,
                ..Default::default()
            };
            let Ok(fitter) = Fitter::new(options.clone()) else { continue };
            let Ok(fit) = fitter.fit(data.view()) else { continue };
            whole(&fit)?;
            let file = StopAfter::new(2);
            let first = FitOptions {
                cancel: file.cancel().clone(),
                checkpoint: file.checkpoint(),
                ..options.clone()
            };
            let _ = Fitter::new(first).unwrap().fit(data.view());
            if file.read().unwrap().is_none() {
                continue;
            }
            let (_, checkpoint) = file.resumed();
            let resume = |checkpoint| {
                let options = FitOptions { checkpoint, ..options.clone() };
                Fitter::new(options).unwrap().fit(data.view())
            };
            let damaged = if likelihood {
                let mut written: Written = checkpoint.resume().unwrap().expect("it was written");
                if damage > 0.0 { written.2.4 = damage } else { written.3[0].seconds = damage }
                Some(written)
            } else {
                None
            };
            let resumed = resume(checkpoint).unwrap();
            whole(&resumed)?;
            if max_seconds == f64::INFINITY {
                prop_assert_eq!(&resumed.filters, &fit.filters);
            }
            if let Some(damaged) = damaged {
                let _ = resume(in_memory(damaged));
            }
        }
    }
}
