//! The numbers of an evaluation, and the warnings that they give rise to.

use super::{BLOCK_TIMES, MIN_BLOCKS};
use crate::data::Raster;
use crate::draw::How;
use crate::failure::Failure;
use crate::methods::name_of;
use crate::model::Model;
use mpf_baselines::{Agreement, GoodnessOfFit};
use mpf_ising::{BlockMean, Samples, States, block_mean};
use mpf_report::text::{Table, digits};
use mpf_samplers::diagnostics::RunDiagnostics;
use serde::Serialize;
use std::f64::consts::LN_2;
use std::fmt;
use std::path::Path;

/// The fewest effective draws of a model that a verdict is based on.
const FEWEST_DRAWS: f64 = MIN_BLOCKS as f64 * BLOCK_TIMES;

/// The moments of a model beside those of data. Triplets are left out: there are too many.
#[derive(Serialize)]
pub(super) struct Evaluation {
    pub(super) model: String,
    pub(super) data: String,
    /// Whether the model was fitted to these very data.
    pub(super) same_data: Option<bool>,
    pub(super) n_samples: usize,
    pub(super) units: Vec<String>,
    /// `enumeration`, or the sampler.
    pub(super) model_moments_by: String,
    pub(super) verdict: Verdict,
    pub(super) agreement: Agreements,
    pub(super) means: Vec<Compared>,
    pub(super) pairs: Vec<ComparedPair>,
    pub(super) n_active: Vec<Compared>,
    /// Up to 20 units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exact: Option<ExactScores>,
    pub(super) mean_square_error_of_couplings: Option<f64>,
    pub(super) diagnostics: Option<RunDiagnostics>,
    pub(super) warnings: Vec<String>,
}

/// Scores that need ln Z, from a sum over all states; in bits per sample.
#[derive(Serialize)]
pub(super) struct ExactScores {
    /// ⟨log₂ p(x)⟩ over the data.
    pub(super) log_likelihood: BlockMean,
    /// Its like for independent units with the means of the data.
    pub(super) independent_log_likelihood: f64,
    /// The entropy of the observed frequencies.
    pub(super) data_entropy: f64,
    /// Σ p̂ log₂(p̂/p) for the observed frequencies p̂: `−data_entropy − log_likelihood`.
    pub(super) kl_data_model: f64,
    /// By how much chance alone makes that too large: (distinct states − 1)/(2 M ln 2), or more.
    pub(super) kl_bias: f64,
    /// The model's share of what independent units miss.
    pub(super) multi_information_share: Option<f64>,
}

impl ExactScores {
    /// Scores a model with this energy of a state, and this ln Z.
    pub(super) fn new(
        energy: impl Fn(&[u64]) -> f64,
        log_z: f64,
        states: &States,
        block_length: usize,
    ) -> Result<Self, Failure> {
        let samples = Samples::new(states)?;
        let bits: Vec<f64> = states
            .rows()
            .map(|row| -(energy(row) + log_z) / LN_2)
            .collect();
        let log_likelihood = block_mean(&bits, block_length)?;
        let own = |p: f64| if p > 0.0 { -p * p.log2() } else { 0.0 };
        let total = samples.total_weight();
        let seen = 0..samples.n_distinct();
        let data_entropy: f64 = seen.map(|m| own(samples.weight(m) / total)).sum();
        let means = samples.means();
        let of_units: f64 = means.iter().map(|&m| own(m) + own(1.0 - m)).sum();
        let kl_data_model = -data_entropy - log_likelihood.value;
        let information = of_units - data_entropy;
        Ok(Self {
            log_likelihood,
            independent_log_likelihood: -of_units,
            data_entropy,
            kl_data_model,
            kl_bias: (samples.n_distinct() - 1) as f64 / (2.0 * total * LN_2),
            multi_information_share: (information > 1e-9)
                .then(|| 1.0 - kl_data_model / information),
        })
    }

    /// Returns a table with a row for every score.
    pub(super) fn table(&self) -> Table {
        let mut rows = vec![
            ("log₂-likelihood", with_error(self.log_likelihood)),
            (
                "of independent units",
                digits(self.independent_log_likelihood),
            ),
            ("KL(data ‖ model)", digits(self.kl_data_model)),
            ("of it by chance, about", digits(self.kl_bias)),
        ];
        if let Some(share) = self.multi_information_share {
            let share = format!("{:.1} %", 100.0 * share);
            rows.push(("multi-information explained", share));
        }
        let rows = rows.into_iter().map(|(name, value)| [name.into(), value]);
        Table::new(["over all states, exactly", "bits per sample"], rows)
    }

    /// Says what the divergence is worth.
    pub(super) fn remark(&self) -> String {
        format!(
            "KL(data ‖ model) compares the model with the observed frequencies of whole states. It \
             is never zero for finite data: the true model itself would have about {} bits, more if \
             states are missing from the data. Judge a model that was fitted to these very data by \
             held-out samples instead.",
            digits(self.kl_bias)
        )
    }
}

/// Formats a mean with its standard error.
pub(crate) fn with_error(mean: BlockMean) -> String {
    format!("{} ± {}", digits(mean.value), digits(mean.standard_error))
}

/// Whether the model agrees with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Agrees,
    Disagrees,
    /// The model's moments are not known well enough.
    CannotJudge,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "verdict: the model agrees with the data",
            Self::Disagrees => "verdict: the model does not agree with the data",
            Self::CannotJudge => {
                "verdict: cannot judge, as the draws from the model are too few or do not agree with \
                 each other"
            }
        })
    }
}

#[derive(Serialize)]
pub(super) struct Agreements {
    pub(super) means: Agreement,
    pub(super) pairs: Agreement,
    pub(super) triplets: Option<Agreement>,
    pub(super) n_active: Agreement,
}

/// Where the moments of a model come from, with what else is known then.
pub(super) enum Source {
    Enumeration(ExactScores),
    Draws(Box<How>),
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Compared {
    pub(crate) model: f64,
    pub(crate) model_error: f64,
    pub(crate) data: f64,
    pub(crate) data_error: f64,
}

#[derive(Serialize)]
pub(super) struct ComparedPair {
    pub(super) i: usize,
    pub(super) j: usize,
    #[serde(flatten)]
    pub(super) covariance: Compared,
}

pub(super) fn compared((model, data): (&BlockMean, &BlockMean)) -> Compared {
    Compared {
        model: model.value,
        model_error: model.standard_error,
        data: data.value,
        data_error: data.standard_error,
    }
}

impl Evaluation {
    /// Compares the moments in `goodness`, of the model in `file` and of `raster`.
    pub(super) fn new(
        file: &Path,
        model: &Model,
        raster: &Raster,
        truth: Option<&Model>,
        goodness: &GoodnessOfFit,
        source: Source,
    ) -> Self {
        let (how, exact) = match source {
            Source::Draws(how) => (Some(how), None),
            Source::Enumeration(scores) => (None, Some(scores)),
        };
        let record = raster.record();
        let same_data = model
            .data
            .as_ref()
            .map(|d| d.fingerprint == record.fingerprint);
        let fit = model.fit.as_ref();
        let mut warnings = fit.map_or_else(Vec::new, |fit| fit.warnings.clone());
        let mut trusted = true;
        if let Some(how) = &how {
            warnings.extend(how.remark.clone());
            warnings.extend(how.diagnostics.iter().flat_map(|d| d.warnings.clone()));
            trusted = how.diagnostics.as_ref().is_some_and(|found| found.agree)
                && how.effective_draws() >= FEWEST_DRAWS;
        }
        let missed = disagreements(goodness, model.hidden.is_some());
        let verdict = match (trusted, missed.is_empty()) {
            (false, _) => Verdict::CannotJudge,
            (true, true) => Verdict::Agrees,
            (true, false) => Verdict::Disagrees,
        };
        if trusted {
            warnings.extend(missed);
        } else {
            warnings.push(
                "cannot judge whether the model agrees with the data: its moments are from draws \
                 that do not agree with each other, or too few; ask for more with --draws"
                    .into(),
            );
        }
        let beside =
            |a: &[BlockMean], b: &[BlockMean]| a.iter().zip(b).map(compared).collect::<Vec<_>>();
        let places = mpf_baselines::pairs(model.names.len());
        Self {
            model: file.display().to_string(),
            data: raster.file.clone(),
            same_data,
            n_samples: record.total_count.map_or(record.n_samples, |n| n as usize),
            units: model.names.clone(),
            model_moments_by: match &how {
                None => "enumeration".into(),
                Some(how) => format!("draws by --sampler {}", name_of(how.sampler)),
            },
            verdict,
            agreement: Agreements {
                means: goodness.means,
                pairs: goodness.pairs,
                triplets: (!goodness.data.triplets.is_empty()).then_some(goodness.triplets),
                n_active: goodness.n_active,
            },
            means: beside(&goodness.model.means, &goodness.data.means),
            pairs: beside(&goodness.model.pairs, &goodness.data.pairs)
                .into_iter()
                .zip(places)
                .map(|(covariance, (i, j))| ComparedPair { i, j, covariance })
                .collect(),
            n_active: beside(&goodness.model.n_active, &goodness.data.n_active),
            exact,
            mean_square_error_of_couplings: truth
                .map(|truth| model.couplings.mean_square_error(&truth.couplings)),
            diagnostics: how.and_then(|how| how.diagnostics),
            warnings,
        }
    }

    /// Returns a table with a row for every kind of moment.
    pub(super) fn table(&self) -> Table {
        let agreement = &self.agreement;
        let mut kinds = vec![("means", agreement.means), ("pairs", agreement.pairs)];
        kinds.extend(agreement.triplets.map(|t| ("triplets", t)));
        kinds.push(("P(n active)", agreement.n_active));
        Table::of(
            &kinds,
            &[
                ("model − data", &|k| k.0.to_owned()),
                ("rms difference", &|k| digits(k.1.rms_difference)),
                ("rms error", &|k| digits(k.1.rms_error)),
                ("within 2 errors", &|k| {
                    format!("{:.1} %", 100.0 * k.1.within_two_errors)
                }),
                ("largest z", &|k| digits(k.1.largest_z)),
            ],
        )
    }
}

/// Lists the kinds of moments that the model misses by more than chance.
fn disagreements(goodness: &GoodnessOfFit, has_hidden_units: bool) -> Vec<String> {
    let limit = goodness.chance_limit();
    let fitted = "the model does not reproduce what it was fitted to";
    let predicted = if has_hidden_units {
        "these hidden units do not explain all of these data"
    } else {
        "pairwise couplings do not explain all of these data"
    };
    let kinds = [
        ("means", &goodness.means, fitted),
        ("pairs", &goodness.pairs, fitted),
        ("triplets", &goodness.triplets, predicted),
        ("chances of n active units", &goodness.n_active, predicted),
    ];
    let missed = kinds.into_iter().filter(|(_, of, _)| of.largest_z > limit);
    missed
        .map(|(what, of, meaning)| {
            format!(
                "the {what} differ from the data's by up to {} standard errors (up to {} by \
                 chance); {:.0} % are within two: {meaning}",
                digits(of.largest_z),
                digits(limit),
                100.0 * of.within_two_errors
            )
        })
        .collect()
}
