//! Tuning of the ladder of temperatures (Syed, Bouchard-Côté, Deligiannidis & Doucet 2022).
//!
//! The rejection rates of the swaps, added up along β, are the barrier Λ(β). Levels are placed at
//! equal distances in Λ, about 2 Λ of them.

use super::{SwapCount, Tempering};
use crate::Result;
use crate::gibbs::{Gibbs, Scan};
use crate::sampler::{ChainSampler, Heated, Sampler, Tally};
use mpf_core::rng::stream;
use mpf_core::{Cancel, check_option};
use mpf_ising::Couplings;

/// Options of [`Tempering::tune`], unchecked.
#[derive(Clone, Debug)]
pub struct TemperingOptions {
    /// The smallest β of the ladder: one where Gibbs mixes within a few sweeps. Default 0.1.
    pub hottest: f64,
    /// The number of levels; `None`, the default, chooses it by the measured barrier.
    pub n_levels: Option<usize>,
    /// Steps of warm-up in which the ladder is tuned. Default 2000.
    pub warm_up: usize,
    /// The order of the Gibbs sweeps.
    pub scan: Scan,
    /// The seed of the warm-up. Default 0.
    pub seed: u64,
    /// Stops the warm-up. Default: nothing does.
    pub cancel: Cancel,
}

impl Default for TemperingOptions {
    fn default() -> Self {
        Self {
            hottest: 0.1,
            n_levels: None,
            warm_up: 2000,
            scan: Scan::Sequential,
            seed: 0,
            cancel: Cancel::new(),
        }
    }
}

impl Tempering {
    /// Tunes a ladder in a warm-up and freezes it.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a `hottest` outside 0 ≤ β < 1 or so close to 1 that two
    /// levels coincide, fewer than 2 or more than 128 levels, or a warm-up
    /// of fewer than 100 steps;
    /// [`Error::CouplingsTooLarge`](crate::Error::CouplingsTooLarge); [`mpf_core::Error::Cancelled`].
    pub fn tune(couplings: &Couplings, options: &TemperingOptions) -> Result<Self> {
        Self::tune_levels(options, |beta| {
            Gibbs::at_inverse_temperature(couplings, options.scan, beta)
        })
    }
}

/// Most levels of a tuned ladder.
const MAX_LEVELS: usize = 128;

impl<G: Heated> Tempering<G> {
    /// As [`Tempering::tune`], for any sampler that `level` makes for a β.
    ///
    /// # Errors
    /// As [`Tempering::tune`], and those of `level`.
    pub fn tune_levels(
        options: &TemperingOptions,
        level: impl Fn(f64) -> Result<G>,
    ) -> Result<Self> {
        let hottest = options.hottest;
        let holds = (0.0..1.0).contains(&hottest);
        check_option("hottest", hottest, "0 ≤ β < 1", holds)?;
        let n_levels = options.n_levels.unwrap_or(10);
        let holds = (2..=MAX_LEVELS).contains(&n_levels);
        check_option("n_levels", n_levels as f64, "between 2 and 128", holds)?;
        let warm_up = options.warm_up;
        check_option("warm_up", warm_up as f64, "at least 100", warm_up >= 100)?;
        let mut ladder: Vec<f64> = (0..n_levels)
            .map(|k| 1.0 - k as f64 / (n_levels - 1) as f64)
            // Denser towards the hot end: near β = 0 the energy changes fastest with β.
            .map(|share| hottest + (1.0 - hottest) * share * share)
            .collect();
        let on = |ladder: &[f64]| -> Result<Self> {
            let levels = ladder.iter().map(|&beta| level(beta));
            Self::of_levels(levels.collect::<Result<_>>()?)
        };
        let mut rng = stream(options.seed, 0);
        // Every round is twice as long as the one before and runs on the ladder which that one
        // improved; the five of them are the warm-up.
        for round in 0..5 {
            let sampler = on(&ladder)?;
            let steps = warm_up.saturating_mul(1 << round) / 31;
            let mut state = sampler.random_start(&mut rng)?;
            let mut swaps = SwapCount::default();
            for step in 0..steps {
                options.cancel.check()?;
                let info = sampler.step(&mut state, &mut rng);
                if step >= steps / 4 {
                    swaps.add(info);
                }
            }
            let rejections: Vec<f64> = swaps.acceptance_rates().iter().map(|a| 1.0 - a).collect();
            let barrier: f64 = rejections.iter().sum();
            let wanted = (2.0 * barrier).ceil() as usize + 1;
            let n_levels = options.n_levels.unwrap_or(wanted.clamp(2, MAX_LEVELS));
            ladder = equal_rejections(&ladder, &rejections, n_levels);
        }
        on(&ladder)
    }
}

/// Returns the ladder of `n_levels` between the same ends with equal shares of the rejections,
/// assuming that they are spread evenly between two levels.
fn equal_rejections(ladder: &[f64], rejections: &[f64], n_levels: usize) -> Vec<f64> {
    // A little everywhere makes β fall strictly even where nothing was rejected.
    let total: f64 = rejections.iter().sum::<f64>() + 1e-3;
    let floor = 1e-3 / rejections.len() as f64;
    let mut found = vec![ladder[0]];
    let (mut pair, mut below) = (0, 0.0);
    for level in 1..n_levels - 1 {
        let target = total * level as f64 / (n_levels - 1) as f64;
        while pair + 1 < rejections.len() && below + rejections[pair] + floor < target {
            below += rejections[pair] + floor;
            pair += 1;
        }
        let share = ((target - below) / (rejections[pair] + floor)).clamp(0.0, 1.0);
        found.push(ladder[pair] + share * (ladder[pair + 1] - ladder[pair]));
    }
    found.push(ladder[ladder.len() - 1]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_move_to_where_swaps_are_rejected() {
        // All rejections lie between the first two levels, and so do all new levels but the last.
        let ladder = equal_rejections(&[1.0, 0.5, 0.1], &[0.8, 0.0], 5);
        assert_eq!(ladder.len(), 5);
        assert_eq!((ladder[0], ladder[4]), (1.0, 0.1));
        for (k, expected) in [0.875, 0.75, 0.625].into_iter().enumerate() {
            // The floor of 1e-3 moves them by about that share.
            assert!((ladder[k + 1] - expected).abs() < 1e-3, "{ladder:?}");
        }
    }

    #[test]
    fn tuning_can_be_stopped() {
        let options = TemperingOptions::default();
        options.cancel.cancel();
        let model = Couplings::zeros(3).unwrap();
        let outcome = Tempering::tune(&model, &options);
        assert!(matches!(
            outcome,
            Err(crate::Error::Core(mpf_core::Error::Cancelled))
        ));
    }

    #[test]
    fn equal_rejections_are_left_alone() {
        let ladder = [1.0, 0.6, 0.3, 0.1];
        let found = equal_rejections(&ladder, &[0.4, 0.4, 0.4], 4);
        assert!(
            ladder
                .iter()
                .zip(&found)
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
        // Nothing rejected at all: equal steps of β, strictly falling.
        let free = equal_rejections(&ladder, &[0.0; 3], 7);
        assert!(free.windows(2).all(|w| w[1] < w[0]));
    }
}
