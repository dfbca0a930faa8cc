//! `mpf fit --model rbm|srbm`: machines with hidden units.

use super::messages::{grouped, held_out_in_words, refuse_shape};
use super::{FitArgs, Show, Step, time, write};
use crate::console::Console;
use crate::data::{DataRecord, Raster};
use crate::failure::Failure;
use crate::memory::{self, FitBytes, product};
use crate::model::{FitRecord, Hidden, Model};
use mpf_baselines::{
    HeldOut, Machine, MachineFit, MachineOptions, MachineProgress, MachineWarning, Polish, Stage,
    block_length,
};
use mpf_core::{Cancel, StopReason};
use mpf_ising::{Preflight, Samples};
use mpf_report::text::{digits, duration};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Instant;

/// Bytes per parameter of a checkpoint.
const CHECKPOINT: u64 = 900;

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    n_hidden: usize,
    findings: Vec<String>,
    fit: &'a FitRecord,
}

impl FitArgs {
    /// Refuses options that machines do not have.
    fn check_machine(&self, raster: &Raster) -> Result<(), Failure> {
        let polish = !matches!(self.polish, Polish::IfDrifting | Polish::Updates(0));
        let given = [
            (self.support.is_some(), "--support"),
            (self.errors != super::args::ErrorsName::None, "--errors"),
            (polish, "--polish"),
            (raster.unknown.is_some(), "--missing mask"),
        ];
        Failure::given(
            &given,
            |option| format!("machines with hidden units have no {option}"),
            "leave it out, or use --model ising",
        )
    }

    /// Returns the bytes of the fit; refuses what does not fit into memory.
    fn check_machine_memory(
        &self,
        options: &MachineOptions,
        raster: &Raster,
        samples: &Samples,
    ) -> Result<u64, Failure> {
        let n_parameters = options.n_parameters(samples.n_units())?;
        let mut fit = memory::of_machine(samples, options)?;
        if self.checkpoint.is_given() {
            fit = fit.saturating_add(product(&[CHECKPOINT, n_parameters as u64]));
        }
        let data = FitBytes::new(raster, samples, 1);
        if self.held_out > 0.0 {
            // The first part in both forms; its fit is like the one before.
            fit = fit.saturating_add(data.samples);
        }
        let needed = data.before().saturating_add(fit);
        memory::check(
            "this fit",
            needed,
            self.memory.bytes(),
            "use fewer --hidden units or samples; --memory-limit sets another limit",
        )?;
        Ok(needed)
    }
}

/// Returns what is fitted, after checking the options.
pub(super) fn options(
    args: &FitArgs,
    raster: &Raster,
    cancel: &Cancel,
) -> Result<MachineOptions, Failure> {
    args.check_machine(raster)?;
    args.options.machine(&args.method, cancel)
}

/// A model, and what the program says about it.
pub(super) struct Made {
    pub(super) model: Model,
    pub(super) findings: Vec<String>,
    fit: MachineFit,
    is_unchecked: bool,
}

/// Fits, and reports on the data before.
pub(super) fn make(
    args: &FitArgs,
    options: &MachineOptions,
    raster: &Raster,
    data: DataRecord,
    samples: &Samples,
    (console, start): (Console, Instant),
    show: Show<'_>,
) -> Result<Made, Failure> {
    refuse_shape(raster, samples, args.force)?;
    let needed = args.check_machine_memory(options, raster, samples)?;
    let cancel = &options.minimizer.cancel;
    let preflight = Preflight::cancellable(samples, raster.names.as_deref(), cancel)?;
    console.note(&format!(
        "{}: {} samples × {} units, {} distinct, {:.1} % silent; {} hidden units",
        raster.file,
        preflight.n_samples,
        preflight.n_units,
        preflight.n_distinct,
        100.0 * preflight.silent_fraction,
        options.n_hidden
    ));
    // Trials take time: none where nobody hears of them.
    if console.has_notes() {
        let limit = args.options.limit();
        let (expected, log_z) = time::of_machine(options, samples, args.held_out, limit)?;
        let scored = if args.held_out > 0.0 { log_z } else { 0.0 };
        let before = start.elapsed().as_secs_f64();
        console.note(&format!(
            "this fit takes about {} and {}",
            duration((before + expected + scored).min(limit)),
            memory::expected_in_words(needed)
        ));
    }
    let findings = grouped(&preflight.findings);
    for finding in &findings {
        console.note(&format!("note: {finding}"));
    }
    let fit = options.fit(samples, &mut |at| show(&step(options, at)))?;
    let (held_out, failure) = match held_out(args, options, raster, &fit, show) {
        Ok(found) => (found, None),
        Err(failure) if cancel.reason() == Some(StopReason::Cancelled) => {
            return Err(failure);
        }
        Err(failure) => (None, Some(failure)),
    };
    let mut record = record(args, &fit, held_out);
    if let Some(failure) = &failure {
        let why = match cancel.is_cancelled() {
            true => "the time limit was reached",
            false => &failure.message,
        };
        let warning = format!("the check on held-out samples failed: {why}");
        record.warnings.push(warning);
    }
    Ok(Made {
        model: model(&fit.machine, raster, data, record)?,
        findings,
        fit,
        is_unchecked: failure.is_some(),
    })
}

/// Writes the model and prints a summary; returns the exit code.
pub(super) fn deliver(args: &FitArgs, made: Made, console: Console) -> Result<u8, Failure> {
    let record = made.model.record();
    let report = Report {
        model: args.output.display().to_string(),
        n_hidden: made.fit.machine.hidden_biases().len(),
        findings: made.findings,
        fit: record,
    };
    let text = summary(args, &made.fit, record);
    write(
        args,
        &made.model,
        &text,
        &report,
        made.is_unchecked,
        console,
    )
}

/// Describes the step that a fit is at: a bar of the updates, or a line of the start under way.
fn step(options: &MachineOptions, at: MachineProgress) -> Step {
    match at.objective {
        None => Step {
            name: "updates",
            done: Some(at.iteration),
            total: Some(options.updates),
            message: None,
        },
        Some((value, gradient)) => Step {
            name: "machine",
            done: Some(at.iteration),
            total: None,
            message: Some(format!(
                "start {} of {}, {} iterations, objective {value:.6}, gradient {gradient:.1e}",
                at.start + 1,
                options.starts,
                at.iteration
            )),
        },
    }
}

fn held_out(
    args: &FitArgs,
    options: &MachineOptions,
    raster: &Raster,
    fit: &MachineFit,
    show: Show<'_>,
) -> Result<Option<HeldOut>, Failure> {
    // Rows with counts are in no order: there is no last part of a recording.
    if raster.weights.is_some() || args.held_out == 0.0 {
        return Ok(None);
    }
    if options.minimizer.cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    show(&Step {
        name: "held-out check",
        done: None,
        total: None,
        message: None,
    });
    let length = match args.block_length {
        Some(length) => length,
        None => block_length(&raster.states)?,
    };
    Ok(options.held_out(fit, &raster.states, args.held_out, length)?)
}

fn record(args: &FitArgs, fit: &MachineFit, held_out: Option<HeldOut>) -> FitRecord {
    let is_done = |w: &MachineWarning| !matches!(w, MachineWarning::NotConverged { .. });
    let mut record = FitRecord {
        method: args.method.clone(),
        l2: fit.l2,
        seed: args.options.seed,
        tolerance: args.options.tolerance(),
        neighbours: "single".into(),
        n_free_couplings: fit.machine.theta().len(),
        stop: Some(fit.stop.to_string()),
        converged: fit.warnings.iter().all(is_done),
        value: fit.value,
        kkt_residual: fit.kkt_residual,
        iterations: fit.iterations,
        evaluations: fit.evaluations,
        seconds: fit.seconds,
        warnings: fit.warnings.iter().map(ToString::to_string).collect(),
        starts: fit.starts.clone(),
        stages: vec![Stage {
            name: format!("start {}", fit.best),
            stop: fit.stop,
            iterations: fit.iterations,
            evaluations: fit.evaluations,
            seconds: fit.seconds,
        }],
        held_out,
        ..FitRecord::default()
    };
    record.set_trace(&fit.trace);
    record
}

fn model(
    machine: &Machine,
    raster: &Raster,
    data: DataRecord,
    record: FitRecord,
) -> Result<Model, Failure> {
    Ok(Model {
        hidden: Some(Hidden {
            weights: machine.weights().map(<[f64]>::to_vec).collect(),
            biases: machine.hidden_biases().to_vec(),
        }),
        fit: Some(record),
        data: Some(data),
        ..Model::unfitted(machine.visible()?, raster.names_or_numbers())
    })
}

fn summary(args: &FitArgs, fit: &MachineFit, record: &FitRecord) -> String {
    let mut text = format!(
        "{}: {}, {}, {}\n",
        record.method,
        args.output.display(),
        fit.stop,
        duration(fit.seconds)
    );
    if let (Some(value), Some(residual)) = (fit.value, fit.kkt_residual) {
        let _ = writeln!(
            text,
            "objective {value:.6}, gradient {residual:.1e}, λ₂ = {}",
            digits(fit.l2)
        );
    }
    if fit.starts.len() > 1 {
        let values: Vec<String> = fit.starts.iter().map(|v| format!("{v:.6}")).collect();
        let _ = writeln!(
            text,
            "start {} is the best of {}: {}",
            fit.best + 1,
            fit.starts.len(),
            values.join(", ")
        );
    }
    if let Some(held_out) = &record.held_out {
        let _ = writeln!(text, "{}", held_out_in_words(held_out));
    }
    text
}
