//! Mean field theory: naive, and with the TAP correction (paper, Appendix E, "Mean Field Theory").
//!
//! ```text
//! χ_ij = ⟨x_i x_j⟩ − ⟨x_i⟩⟨x_j⟩        A = (χᵀχ + λI)⁺χᵀ        m_i = 2⟨x_i⟩ − 1
//! C = 4χ is the covariance of the spins s = 2x − 1, and C⁻¹ = A/4
//!
//! naive:  K_ij = −(C⁻¹)_ij                           h_i = atanh m_i − Σ_j K_ij m_j
//! TAP:    −K_ij − 2 K_ij² m_i m_j = (C⁻¹)_ij         h_i = atanh m_i − Σ_j K_ij m_j
//!                                                          + m_i Σ_j K_ij² (1 − m_j²)
//! ```
//!
//! TAP is the second order of Plefka's expansion in K, solved for K on the branch that goes
//! through the naive solution as m → 0. Where its discriminant 1 − 8 m_i m_j (C⁻¹)_ij is
//! negative no K solves it; the discriminant is then clipped at zero, and the result names those
//! pairs.
//!
//! No iteration: one eigen-decomposition, O(d³). Excellent for weak couplings. Not for strong
//! ones (the paper's σ² = 10), where χ is nearly singular and the answer is decided by λ; compare
//! Ĵ = 0 before believing it.

use crate::Result;
use crate::error::Error;
use crate::independent::independent_bias;
use crate::method::{Description, Method, MethodOptions, Observer, Takes};
use mpf_core::linalg::{symmetric_eigen, symmetric_pseudo_inverse};
use mpf_core::{Cancel, Stopwatch, check_not_negative};
use mpf_ising::{Couplings, Data, Fit, Samples, SpinCouplings, Support, Warning};
use ndarray::{Array1, Array2};
use serde::Serialize;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How far the expansion in the couplings goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expansion {
    /// To first order: naive mean field.
    Naive,
    /// To second order: Thouless, Anderson & Palmer, as in the paper.
    #[default]
    Tap,
}

/// Mean field fits with a checked λ.
///
/// ```
/// use mpf_baselines::{Expansion, MeanField};
/// use mpf_ising::{Data, Couplings, Exact, Samples, States};
/// use ndarray::array;
///
/// let truth = Couplings::new(array![[0.3, -0.1], [-0.1, 0.2]])?;
/// let mut states = States::new(2)?;
/// (0..4).for_each(|x| states.push(&[x]));
/// let samples = Samples::weighted(&states, &Exact::new(&truth)?.probabilities())?;
/// let found = MeanField::new(Expansion::Tap, 0.0)?.fit(&samples)?;
/// assert!(found.fit.couplings.mean_square_error(&truth) < 1e-6);
/// # Ok::<(), mpf_baselines::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanField {
    expansion: Expansion,
    lambda: f64,
}

/// What mean field theory makes of a data set.
#[derive(Clone, Debug, Serialize)]
#[must_use = "look at `clipped` and the warnings before using the couplings"]
pub struct MeanFieldFit {
    /// The fit. It minimises nothing: its value is 0.
    pub fit: Fit,
    /// The pairs whose TAP equation has no solution: their discriminant was clipped at zero.
    pub clipped: Vec<(usize, usize)>,
    /// The fraction of all pairs that were clipped.
    pub clipped_fraction: f64,
    /// The smallest eigenvalue of χ, over the units that vary.
    pub smallest_eigenvalue: f64,
}

impl MeanField {
    /// Checks λ, the damping of the paper's pseudo-inverse: 0 for none. In units of χ², whose
    /// largest eigenvalue is 1/16 for fair independent units.
    ///
    /// # Errors
    /// [`mpf_core::Error::Option`] for a λ that is negative or not finite.
    pub fn new(expansion: Expansion, lambda: f64) -> Result<Self> {
        check_not_negative("lambda", lambda)?;
        Ok(Self { expansion, lambda })
    }

    /// Fits. With λ > 0 a constant unit gets no couplings and the bias of half a pseudo-count, as
    /// in every fit, and a warning.
    ///
    /// # Errors
    /// With λ = 0, [`Error::ConstantUnit`] and [`Error::SingularSusceptibility`]. With a λ so small
    /// that a coupling or a field overflows, [`mpf_ising::Error::NotFinite`] and
    /// [`mpf_ising::Error::TooLarge`].
    pub fn fit(&self, samples: &Samples) -> Result<MeanFieldFit> {
        self.fit_cancellable(samples, &Cancel::new())
    }

    /// As [`MeanField::fit`], until `cancel` is set. The decomposition then goes on in a thread of
    /// its own, to no purpose, until it ends or the program does.
    ///
    /// # Errors
    /// Also [`mpf_core::Error::Cancelled`].
    pub fn fit_cancellable(&self, samples: &Samples, cancel: &Cancel) -> Result<MeanFieldFit> {
        let clock = Stopwatch::start();
        let d = samples.n_units();
        let pair_means = samples.pair_means();
        let means = pair_means.diag().to_vec();
        let is_constant = |i: usize| means[i] <= 0.0 || means[i] >= 1.0;
        if self.lambda == 0.0
            && let Some(unit) = (0..d).find(|&i| is_constant(i))
        {
            return Err(Error::ConstantUnit {
                unit,
                value: u8::from(means[unit] >= 1.0),
            });
        }
        let units: Vec<usize> = (0..d).filter(|&i| !is_constant(i)).collect();
        let mut spins = SpinCouplings {
            fields: means
                .iter()
                .map(|&mean| -0.5 * independent_bias(mean, samples.total_weight()))
                .collect(),
            couplings: Array2::zeros((d, d)),
        };
        let mut clipped = Vec::new();
        let mut smallest_eigenvalue = 0.0;
        if !units.is_empty() {
            let (inverse, smallest) = self.inverse_susceptibility(&pair_means, &units, cancel)?;
            smallest_eigenvalue = smallest;
            let magnetisation = Array1::from_shape_fn(d, |i| 2.0 * means[i] - 1.0);
            for (a, &i) in units.iter().enumerate() {
                for (b, &j) in units.iter().enumerate().skip(a + 1) {
                    let m = magnetisation[i] * magnetisation[j];
                    let (k, was_clipped) = self.coupling(0.25 * inverse[[a, b]], m);
                    spins.couplings[[i, j]] = k;
                    spins.couplings[[j, i]] = k;
                    if was_clipped {
                        clipped.push((i, j));
                    }
                }
            }
            // The fields so far are atanh m_i = ½ ln(p/(1 − p)).
            for &i in &units {
                let row = spins.couplings.row(i);
                let mut field = spins.fields[i] - row.dot(&magnetisation);
                if self.expansion == Expansion::Tap {
                    let reaction: f64 = row
                        .iter()
                        .zip(&magnetisation)
                        .map(|(k, m)| k * k * (1.0 - m * m))
                        .sum();
                    field += magnetisation[i] * reaction;
                }
                spins.fields[i] = field;
            }
        }
        let couplings = Couplings::from_spins(&spins)?;
        let pairs = Support::Full.pairs(d)?;
        let weight = samples.total_weight();
        let warnings = Warning::constant_units(&means)
            .into_iter()
            .chain(Warning::run_away(&couplings, &pairs, weight))
            .chain(Warning::run_away_fields(&couplings, &means, weight))
            .collect();
        Ok(MeanFieldFit {
            fit: Fit::closed_form(couplings, 0.0, clock.seconds(), warnings),
            clipped_fraction: clipped.len() as f64 / pairs.len().max(1) as f64,
            clipped,
            smallest_eigenvalue,
        })
    }

    /// Returns A over `units`, and the smallest eigenvalue of χ there.
    fn inverse_susceptibility(
        &self,
        pair_means: &Array2<f64>,
        units: &[usize],
        cancel: &Cancel,
    ) -> Result<(Array2<f64>, f64)> {
        let n = units.len();
        let chi = Array2::from_shape_fn((n, n), |(a, b)| {
            let (i, j) = (units[a], units[b]);
            pair_means[[i, j]] - pair_means[[i, i]] * pair_means[[j, j]]
        });
        let eigen = until_cancelled(cancel, move || symmetric_eigen(chi.view()))??;
        let smallest = eigen.0[0];
        // χ is a difference of numbers up to 1, so its entries err by ε and its eigenvalues by n·ε.
        if self.lambda == 0.0 && smallest <= 4.0 * n as f64 * f64::EPSILON {
            let direction = eigen.1.column(0);
            let heaviest = (0..n)
                .max_by(|&a, &b| direction[a].abs().total_cmp(&direction[b].abs()))
                .expect("there are units");
            return Err(Error::SingularSusceptibility {
                unit: units[heaviest],
                eigenvalue: smallest,
            });
        }
        Ok((symmetric_pseudo_inverse(&eigen, self.lambda), smallest))
    }

    /// Returns K from (C⁻¹)_ij and m_i m_j, and whether its discriminant was clipped.
    fn coupling(&self, inverse: f64, m: f64) -> (f64, bool) {
        match self.expansion {
            Expansion::Naive => (-inverse, false),
            // K = (√D − 1)/(4 m_i m_j), without the division by what may be zero.
            Expansion::Tap => {
                let discriminant = 1.0 - 8.0 * m * inverse;
                let root = discriminant.max(0.0).sqrt();
                (-2.0 * inverse / (1.0 + root), discriminant < 0.0)
            }
        }
    }
}

/// Runs `work` in another thread, and waits for it until `cancel` is set.
fn until_cancelled<T: Send + 'static>(
    cancel: &Cancel,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    const PATIENCE: Duration = Duration::from_millis(50);
    let (sender, result) = sync_channel(1);
    // Nobody may be waiting any more.
    let worker = std::thread::spawn(move || drop(sender.send(work())));
    loop {
        match result.recv_timeout(PATIENCE) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                return Err(mpf_core::Error::Cancelled.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Ok(()) => unreachable!("the result is sent before the thread ends"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

/// [`MeanField`] with the TAP correction as one of the methods.
pub(crate) struct Tap;

impl Method for Tap {
    fn describe(&self) -> Description {
        Description {
            takes: &[Takes::Damping],
            ..Description::new("tap", "TAP", "Mean field theory with the TAP correction")
        }
    }

    fn fit(&self, data: Data<'_>, options: &MethodOptions, _: Observer<'_>) -> Result<Fit> {
        let mean_field = MeanField::new(Expansion::Tap, options.damping)?;
        let cancel = &options.minimizer.cancel;
        let samples = self.in_memory(data)?;
        Ok(mean_field.fit_cancellable(samples, cancel)?.fit)
    }
}
