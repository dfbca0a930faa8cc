//! `mpf dca`: contacts of a family of aligned sequences.

mod args;
mod page;

pub use args::DcaArgs;
use args::{AmbiguousName, MethodName, ModeName, UnitsName};

use crate::console::Console;
use crate::data::Source;
use crate::failure::{Failure, NOT_CONVERGED};
use crate::fit::{Bars, Show, Step};
use crate::memory::{self, Room, Text, product};
use crate::methods::name_of;
use crate::npz::ArchiveWriter;
use crate::output::{self, MARK, Output};
use mpf_core::{Cancel, StopReason};
use mpf_potts::{
    Alignment, Alphabet, Ambiguous, ContactRule, Distances, Fit, FitOptions, FitProgress, Loss,
    Mode, Pair, Penalties, ReadOptions, Scores, Sequences, bytes_of_fit, fit, judged, precision,
    seconds_of_iteration, sequence_weights,
};
use mpf_report::text::{Table, digits, duration};
use serde_json::{Value, json};
use std::io::{self, Cursor};
use std::path::Path;
use std::time::Instant;

/// The iterations that fits usually take, for the estimate of the time.
fn usual_iterations(loss: Loss) -> f64 {
    match loss {
        Loss::Pseudolikelihood => 35.0,
        Loss::Flow => 42.0,
    }
}

/// What a run found, for all outputs.
struct Outcome {
    alignment: Alignment,
    sequences: Sequences,
    options: FitOptions,
    fit: Fit,
    scores: Scores,
    ranked: Vec<Pair>,
    distances: Option<Distances>,
    judged: Option<Vec<(Pair, bool)>>,
    rule: ContactRule,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Wrong inputs, and those of the file system.
pub fn run(args: &DcaArgs, console: Console, cancel: &Cancel) -> Result<u8, Failure> {
    let console = match args
        .output
        .iter()
        .find(|path| crate::data::is_standard(path))
    {
        Some(path) => console.beside(path)?,
        None => console,
    };
    check_files(args)?;
    let outcome = explore(args, console, cancel)?;
    let summary = outcome.summary(args);
    for path in &args.output {
        outcome.write(path, &summary)?;
    }
    if let Some(path) = &args.mutations {
        outcome.write_mutations(path, args.alignment.ignore_gaps)?;
    }
    console.result(&outcome.text(args))?;
    console.json(&summary)?;
    let effective = outcome.sequences.total_weight();
    let sites = outcome.sequences.n_sites();
    if effective < sites as f64 {
        console.warning(&format!(
            "{} effective sequences for {sites} sites: most of the ranking is noise; several \
             sequences for each site are usual",
            digits(effective)
        ));
    }
    let stop = outcome.fit.stop;
    if stop.is_converged() {
        return Ok(0);
    }
    console.warning(&format!("the fit did not converge: {stop}"));
    Ok(NOT_CONVERGED)
}

/// What `mpf dca` would write.
pub struct Contacts {
    /// The summary, in JSON.
    pub summary: String,
    /// The ranked pairs, as .csv.
    pub table: String,
    /// Scores and parameters, as .npz.
    pub archive: Vec<u8>,
    /// The report.
    pub page: String,
}

/// Runs the command without writing anything. `args.output` is only a name.
///
/// # Errors
/// Those of the command.
///
/// # Panics
/// Never: an archive in memory can be written.
pub fn contacts(args: &DcaArgs, cancel: &Cancel) -> Result<Contacts, Failure> {
    let outcome = explore(args, Console::silent(), cancel)?;
    let summary = outcome.summary(args);
    Ok(Contacts {
        page: page::html(&outcome, &summary)?,
        summary: output::json_report(&summary),
        table: outcome.table(),
        archive: outcome.archive().expect("memory can be written"),
    })
}

/// Fits rows of states that are in memory as an alignment is fitted; without weights, relatives share
/// theirs.
///
/// # Errors
/// Those of the command, and codes that are no states.
pub fn fit_codes(
    args: &DcaArgs,
    codes: &[u8],
    (n_sites, n_states): (usize, usize),
    weights: Option<&[f64]>,
    cancel: &Cancel,
    show: Show<'_>,
) -> Result<Fit, Failure> {
    let wrong = |error: mpf_potts::Error| Failure::input(error.to_string());
    args.check()?;
    let weights = weights.map_or_else(
        || sequence_weights(codes, n_sites, args.alignment.theta),
        <[f64]>::to_vec,
    );
    let sequences = Sequences::new(codes, n_sites, n_states, &weights).map_err(wrong)?;
    let options = fit_options(args, &sequences, cancel)?;
    let found = fit(&sequences, &options, |at| show(&step(at))).map_err(wrong)?;
    match found.stop {
        StopReason::Cancelled => Err(Failure::interrupted()),
        _ => Ok(found),
    }
}

/// Describes where a fit is.
fn step(at: FitProgress) -> Step {
    match at {
        FitProgress::Joint {
            iteration,
            value,
            gradient,
        } => Step {
            name: "fit",
            done: Some(iteration),
            total: None,
            message: Some(format!(
                "{iteration} iterations, objective {value:.6}, gradient {gradient:.1e}"
            )),
        },
        FitProgress::Nodes { done, all } => Step {
            name: "sites",
            done: Some(done),
            total: Some(all),
            message: None,
        },
    }
}

/// Reads the alignment and fits.
fn explore(args: &DcaArgs, console: Console, cancel: &Cancel) -> Result<Outcome, Failure> {
    args.check()?;
    let structure = args.structure.as_deref();
    let distances = structure.map(|path| read_distances(path, args));
    let distances = distances.transpose()?;
    let begun = Instant::now();
    let alignment = read_alignment(args, cancel)?;
    let start = Instant::now();
    let weights = alignment.weights(args.alignment.theta);
    let wrong = |error: mpf_potts::Error| Failure::at(&args.family, error);
    let sequences = alignment
        .sequences(&weights, args.alignment.ignore_gaps)
        .map_err(wrong)?;
    console.stage("weights", start.elapsed());
    let options = fit_options(args, &sequences, cancel)?;
    announce(&alignment, &sequences, &options, (console, begun));

    let fit = run_fit(&sequences, &options, console)?;
    if fit.stop == StopReason::Cancelled {
        return Err(Failure::interrupted());
    }
    let gap = (alignment.alphabet.has_gap() && !args.alignment.ignore_gaps).then_some(0);
    let scores = Scores::new(&fit.model, gap);
    let rule = ContactRule {
        nearer_than: args.distance,
        separation: args.separation,
    };
    let judged = distances.as_ref();
    let judged = judged.map(|d| judged_pairs(args, &scores, &alignment, d, rule, console));
    Ok(Outcome {
        judged: judged.transpose()?,
        ranked: scores.ranked(),
        alignment,
        sequences,
        options,
        fit,
        scores,
        distances,
        rule,
    })
}

fn check_files(args: &DcaArgs) -> Result<(), Failure> {
    for path in args.output.iter().filter(|p| !crate::data::is_standard(p)) {
        output::check_extension(path, &["csv", "npz", "html", "svg", "json"])?;
    }
    let mut outputs = output::reports(&args.output);
    if let Some(path) = &args.mutations {
        output::check_extension(path, &["csv"])?;
        outputs.push(Output::Report(path));
    }
    let mut inputs = vec![args.family.as_path()];
    inputs.extend(args.structure.as_deref());
    output::check(&inputs, &outputs, args.force)
}

fn read_distances(path: &Path, args: &DcaArgs) -> Result<Distances, Failure> {
    let text = memory::read_text(path, None)?;
    let is_pdb = matches!(output::extension(path).as_str(), "pdb" | "ent");
    let distances = if is_pdb {
        Distances::from_pdb(&text, args.chain)
    } else {
        Distances::from_list(&text)
    };
    distances.map_err(|error| {
        Failure::at(path, error).hint(
            "a structure is a PDB file (.pdb or .ent), or lines of two numbers and a distance; \
             mmCIF is not read",
        )
    })
}

/// Bytes of a sequence while it is read, beside its letters: twice a name and a list.
const SEQUENCE: u64 = 180;
/// Those of a sequence that is kept.
const NAMED: u64 = 100;

/// Returns how many sequences a text has at most: its names or, if it has none, its lines.
fn most_sequences(text: &[u8]) -> u64 {
    let lines = || text.split(|byte| *byte == b'\n');
    let names = lines().filter(|line| line.starts_with(b">")).count();
    match names {
        0 => lines().count() as u64,
        _ => names as u64,
    }
}

fn read_alignment(args: &DcaArgs, cancel: &Cancel) -> Result<Alignment, Failure> {
    let wrong = |error: mpf_potts::Error| Failure::at(&args.family, error);
    let read = &args.alignment;
    let alphabet = read.alphabet.as_deref().map(|name| match name {
        "protein" => Ok(Alphabet::protein()),
        "rna" => Ok(Alphabet::rna()),
        "dna" => Ok(Alphabet::dna()),
        "binary" => Ok(Alphabet::binary()),
        letters => Alphabet::custom(letters).map_err(|error| {
            Failure::input(error.to_string())
                .hint("name protein, rna, dna or binary, or list the letters with the gap first")
        }),
    });
    let options = ReadOptions {
        alphabet: alphabet.transpose()?,
        focus: read.focus.clone(),
        most_gaps_in_column: read.column_gaps,
        most_gaps_in_sequence: read.sequence_gaps,
        ambiguous: match read.ambiguous {
            AmbiguousName::Gap => Ambiguous::Gap,
            AmbiguousName::Drop => Ambiguous::Drop,
        },
    };
    let room = Room::new(args.memory.bytes());
    let source = Source::open(&args.family, cancel);
    let text = source.and_then(|source| room.read_whole(&args.family, Text(source.bytes)));
    if cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    let text = text?;
    let sequences = product(&[SEQUENCE, most_sequences(&text)]);
    room.check(
        &format!("the sequences of {}", args.family.display()),
        sequences.saturating_add(product(&[3, text.len() as u64])),
        "read fewer sequences; --memory-limit sets another limit",
    )?;
    Alignment::read(&text, &options).map_err(|error| match error {
        mpf_potts::Error::Letter { .. } => wrong(error).hint(
            "--alphabet takes protein, rna, dna, binary or the letters themselves, the gap first: \
             --alphabet -ABC",
        ),
        _ => wrong(error),
    })
}

fn name_of_mode(mode: Mode) -> String {
    name_of(match mode {
        Mode::Joint => ModeName::Joint,
        Mode::NodeWise => ModeName::NodeWise,
    })
}

/// Returns the options of the fit, whose memory was checked.
fn fit_options(
    args: &DcaArgs,
    sequences: &Sequences,
    cancel: &Cancel,
) -> Result<FitOptions, Failure> {
    let loss = match args.method {
        MethodName::Pl => Loss::Pseudolikelihood,
        MethodName::Mpf => Loss::Flow,
    };
    let mut options = FitOptions::new(loss, sequences);
    let defaults = options.penalties;
    options.penalties = match args.units {
        UnitsName::Mean => Penalties {
            couplings: args.l2.unwrap_or(defaults.couplings),
            fields: args.l2_fields.unwrap_or(defaults.fields),
            group: args.group,
        },
        UnitsName::Plmc => {
            let (Some(couplings), Some(fields)) = (args.l2, args.l2_fields) else {
                return Err(Failure::input("--units plmc needs --l2 and --l2-fields")
                    .hint("plmc's own example has --l2 16 --l2-fields 0.01"));
            };
            Penalties::from_plmc(couplings, fields, args.group, sequences.total_weight())
        }
    };
    let penalties = options.penalties;
    for (name, value) in [
        ("--l2", penalties.couplings),
        ("--l2-fields", penalties.fields),
        ("--group", penalties.group),
    ] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Failure::input(format!("{name} is {value}"))
                .hint("a penalty is finite and not negative"));
        }
    }
    options.minimizer.gradient_tolerance = args.tolerance;
    options.minimizer.max_iterations = args.max_iterations;
    options.minimizer.cancel = cancel.clone();
    let bytes = |mode| bytes_of(sequences, mode, &options);
    let room = Room::new(args.memory.bytes());
    let (joint, node_wise) = (bytes(Mode::Joint), bytes(Mode::NodeWise));
    options.mode = match args.mode {
        Some(ModeName::Joint) => Mode::Joint,
        Some(ModeName::NodeWise) => Mode::NodeWise,
        None if joint <= room.bytes => Mode::Joint,
        None => Mode::NodeWise,
    };
    match options.mode {
        Mode::Joint => room.check(
            "a joint fit",
            joint,
            "leave out --mode joint: node-wise fits take less",
        )?,
        Mode::NodeWise => room.check(
            "this fit",
            node_wise,
            "fewer sites take less: --focus, --column-gaps 0.5, or --ignore-gaps",
        )?,
    }
    Ok(options)
}

/// Returns the bytes of the program with sequences, their names, and a fit of them.
fn bytes_of(sequences: &Sequences, mode: Mode, options: &FitOptions) -> u64 {
    let (n, q) = (sequences.n_sites(), sequences.n_states());
    let held = product(&[sequences.n_distinct() as u64, NAMED + 2 * n as u64]);
    let fit = bytes_of_fit(n, q, mode, options.minimizer.memory) as u64;
    memory::of_program()
        .saturating_add(held)
        .saturating_add(fit)
}

/// Announces the fit of a command that began at `begun`.
fn announce(
    alignment: &Alignment,
    sequences: &Sequences,
    options: &FitOptions,
    (console, begun): (Console, Instant),
) {
    if !console.has_notes() {
        return;
    }
    let dropped = alignment.n_read - alignment.n_sequences();
    if dropped > 0 {
        console.note(&format!(
            "{dropped} of {} sequences are left out",
            alignment.n_read
        ));
    }
    let (n, q) = (sequences.n_sites(), sequences.n_states());
    let mode = name_of_mode(options.mode);
    let bytes = bytes_of(sequences, options.mode, options);
    let seconds = usual_iterations(options.loss) * seconds_of_iteration(sequences, options)
        + begun.elapsed().as_secs_f64();
    console.note(&format!(
        "{} sequences ({} effective) × {n} sites × {q} states; {mode} fit: about {}, {}",
        alignment.n_sequences(),
        digits(sequences.total_weight()),
        memory::expected_in_words(bytes),
        duration(seconds),
    ));
}

fn run_fit(sequences: &Sequences, options: &FitOptions, console: Console) -> Result<Fit, Failure> {
    let bars = Bars::new(console);
    let found = fit(sequences, options, |at| bars.show(&step(at)));
    bars.clear();
    let fit = found.map_err(|error| {
        Failure::system(error.to_string()).hint("try a larger --l2 or --l2-fields")
    })?;
    console.note(&format!(
        "{} after {} iterations, {}",
        fit.stop,
        fit.iterations,
        duration(fit.seconds)
    ));
    Ok(fit)
}

/// Judges the pairs, and refuses a structure that shares no sites with the alignment.
fn judged_pairs(
    args: &DcaArgs,
    scores: &Scores,
    alignment: &Alignment,
    distances: &Distances,
    rule: ContactRule,
    console: Console,
) -> Result<Vec<(Pair, bool)>, Failure> {
    let (known, same) = distances.agreement(&alignment.sites);
    if 2 * same < known {
        console.warning(&format!(
            "the structure has the letters of the alignment at only {same} of {known} sites: are its \
             residues numbered otherwise, or is it another chain?"
        ));
    }
    let judged = judged(scores, &alignment.sites, distances, rule);
    if judged.is_empty() {
        let path = args.structure.as_deref().unwrap_or(Path::new(""));
        return Err(
            Failure::at(path, "it knows no distance of two sites of the model")
                .hint("its numbers must be those of the residues of --focus, or of the columns"),
        );
    }
    Ok(judged)
}

impl Outcome {
    fn write(&self, path: &Path, summary: &Value) -> Result<(), Failure> {
        let contents = match output::extension(path).as_str() {
            "npz" => self.archive().map_err(|e| Failure::unwritten(path, &e))?,
            "html" => page::html(self, summary)?.into_bytes(),
            "svg" => output::marked_svg(&page::contact_map(self)?).into_bytes(),
            "json" => output::json_report(summary).into_bytes(),
            _ => self.table().into_bytes(),
        };
        output::write(path, &contents)
    }

    fn site(&self, k: usize) -> mpf_potts::Site {
        self.alignment.sites[k]
    }

    /// Returns the ranked pairs as a table, after a comment that says who wrote it.
    fn table(&self) -> String {
        let mut header = vec![
            "rank", "i", "letter_i", "j", "letter_j", "column_i", "column_j", "norm", "score",
        ];
        if self.distances.is_some() {
            header.push("distance");
        }
        let rows = self.ranked.iter().enumerate().map(|(k, pair)| {
            let (i, j) = (self.site(pair.i), self.site(pair.j));
            let mut row = vec![
                (k + 1).to_string(),
                i.number.to_string(),
                i.letter.to_string(),
                j.number.to_string(),
                j.letter.to_string(),
                i.column.to_string(),
                j.column.to_string(),
                format!("{:.6}", pair.norm),
                format!("{:.6}", pair.score),
            ];
            if let Some(distances) = &self.distances {
                let distance = distances.get(i.number, j.number);
                row.push(distance.map_or(String::new(), |d| format!("{d:.3}")));
            }
            row
        });
        marked_csv(&Table::new(header, rows))
    }

    /// Returns `scores` (L × L), `fields` (L × q), `couplings` (pairs × q × q) with their `pairs`, and
    /// what the sites and states are.
    fn archive(&self) -> io::Result<Vec<u8>> {
        let model = self.fit.model.zero_sum();
        let (n, q) = (model.n_sites(), model.n_states());
        let mut matrix = vec![0.0; n * n];
        for pair in &self.ranked {
            matrix[pair.i * n + pair.j] = pair.score;
            matrix[pair.j * n + pair.i] = pair.score;
        }
        let pairs = mpf_baselines::pairs(n).flat_map(|(i, j)| [i as f64, j as f64]);
        let pairs: Vec<f64> = pairs.collect();
        let numbers = self.alignment.sites.iter().map(|site| site.number as f64);
        let numbers: Vec<f64> = numbers.collect();
        let letters = self.alignment.alphabet.letters();
        let states = &letters[letters.len() - q..];
        let mut archive = ArchiveWriter::new(Cursor::new(Vec::new()));
        archive.numbers("scores", &[n, n], &matrix)?;
        archive.numbers("fields", &[n, q], model.fields())?;
        archive.numbers("couplings", &[pairs.len() / 2, q, q], model.couplings())?;
        archive.numbers("pairs", &[pairs.len() / 2, 2], &pairs)?;
        archive.numbers("numbers", &[n], &numbers)?;
        archive.texts("states", &[], &[states])?;
        Ok(archive.finish()?.into_inner())
    }

    /// Returns the precision at L/5, L/2, L and 2L, as far as so many pairs can be judged.
    fn precisions(&self) -> Vec<(&'static str, usize, f64)> {
        let n = self.scores.n_sites();
        let Some(judged) = &self.judged else {
            return Vec::new();
        };
        let ranks = [("L/5", n / 5), ("L/2", n / 2), ("L", n), ("2L", 2 * n)].into_iter();
        let known = |(name, rank)| Some((name, rank, precision(judged, rank)?));
        ranks.filter_map(known).collect()
    }

    fn summary(&self, args: &DcaArgs) -> Value {
        let penalties = self.options.penalties;
        let top = self.ranked.iter().take(20).map(|pair| {
            let (i, j) = (self.site(pair.i), self.site(pair.j));
            json!({"i": i.number, "letter_i": i.letter, "j": j.number, "letter_j": j.letter, "score": pair.score})
        });
        let precisions = self
            .precisions()
            .into_iter()
            .map(|(name, rank, part)| json!({"at": name, "rank": rank, "precision": part}));
        json!({
            "family": args.family.display().to_string(),
            "method": name_of(args.method),
            "mode": name_of_mode(self.options.mode),
            "n_read": self.alignment.n_read,
            "n_sequences": self.alignment.n_sequences(),
            "n_effective": self.sequences.total_weight(),
            "n_sites": self.sequences.n_sites(),
            "n_states": self.sequences.n_states(),
            "alphabet": self.alignment.alphabet.letters(),
            "theta": args.alignment.theta,
            "ignore_gaps": args.alignment.ignore_gaps,
            "l2": penalties.couplings,
            "l2_fields": penalties.fields,
            "group": penalties.group,
            "stop": self.fit.stop,
            "iterations": self.fit.iterations,
            "evaluations": self.fit.evaluations,
            "gradient": self.fit.gradient,
            "seconds": self.fit.seconds,
            "top": top.collect::<Vec<_>>(),
            "precision": precisions.collect::<Vec<_>>(),
        })
    }

    fn text(&self, args: &DcaArgs) -> String {
        let mut text = String::new();
        for path in &args.output {
            text += &format!("{}\n", path.display());
        }
        let best = self.ranked.iter().take(5).map(|pair| {
            let (i, j) = (self.site(pair.i), self.site(pair.j));
            format!(
                "{}{}-{}{} {:.3}",
                i.letter, i.number, j.letter, j.number, pair.score
            )
        });
        text += &format!("best pairs: {}\n", best.collect::<Vec<_>>().join(", "));
        for (name, rank, part) in self.precisions() {
            text += &format!("precision of the first {name} = {rank}: {part:.3}\n");
        }
        text
    }

    /// Writes E(mutant) − E(focus) of every site and letter.
    fn write_mutations(&self, path: &Path, ignore_gaps: bool) -> Result<(), Failure> {
        let Some(focus) = self.alignment.focus() else {
            return Err(Failure::input(
                "the focus sequence was left out for its letters or gaps",
            ));
        };
        let states = self.alignment.states(focus, ignore_gaps);
        let q = self.fit.model.n_states();
        let letters = self.alignment.alphabet.letters();
        let letters: Vec<char> = letters[letters.len() - q..].chars().collect();
        let changes = self.fit.model.mutations(&states);
        let sites = self.alignment.sites.iter().zip(changes.chunks_exact(q));
        let rows = sites.flat_map(|(site, changes)| {
            let others = letters.iter().zip(changes);
            let others = others.filter(move |(letter, _)| **letter != site.letter);
            others.map(move |(letter, change)| {
                vec![
                    site.number.to_string(),
                    site.letter.to_string(),
                    letter.to_string(),
                    format!("{change:.6}"),
                ]
            })
        });
        let table = marked_csv(&Table::new(["site", "from", "to", "energy_change"], rows));
        output::write(path, table.as_bytes())
    }
}

fn marked_csv(table: &Table) -> String {
    format!("# {MARK} {}\n{}", env!("CARGO_PKG_VERSION"), table.csv())
}
