//! Runs `mpf` on random data with random options, kills it and lets it resume, until time is up.
//!
//! Every exit code must be a documented one, every model finite and the same with and without kills,
//! and nothing may be left behind. The seed of a round is printed if something is wrong, and its
//! folder is kept.

use crate::{Result, program};
use mpf_core::{Cancel, rng};
use mpf_report::progress;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

#[derive(clap::Args)]
pub struct Args {
    /// Minutes to go on for; the round under way is finished.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of the first round; the following rounds have the following seeds. By default taken from
    /// the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of rounds; by default as many as fit into the time.
    #[arg(long)]
    rounds: Option<u64>,
}

/// No run of this size takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// More open files than any run needs.
const MOST_OPEN_FILES: usize = 48;
/// Kills per run.
const MOST_KILLS: usize = 5;
/// Done, failed, wrong input, not converged, a later step failed, interrupted.
const EXIT_CODES: [i32; 6] = [0, 1, 2, 3, 4, 130];

/// Options of `mpf fit`; a run has a few of them, and not all go together.
const OPTIONS: [&str; 40] = [
    "--method mpf",
    "--method pl",
    "--method rise",
    "--method logrise",
    "--method cd --updates 20",
    "--method tap",
    "--method ml",
    "--method independent",
    "--refine none",
    "--refine pl",
    "--refine ml",
    "--l1 0.01",
    "--l1 auto",
    "--l2 0",
    "--l2 0.3",
    "--l2 auto",
    "--rule 1se",
    "--rule ebic",
    "--folds 3",
    "--neighbours single+all",
    "--neighbours non-data",
    "--nodewise",
    "--tolerance 1e-3",
    "--tolerance 1e-14",
    "--max-iterations 1",
    "--max-iterations 7",
    "--seed 5",
    "--held-out 0",
    "--held-out 0.4",
    "--polish 0",
    "--polish 30",
    "--errors sandwich",
    "--errors bootstrap --resamples 5",
    "--block-length 3",
    "--threads 1",
    "--threads 3",
    "--spins",
    "--transpose",
    "--memory-limit 500",
    "--json",
];

#[derive(Default)]
struct Counts {
    rounds: u64,
    runs: u64,
    kills: u64,
    models: u64,
    most_open_files: usize,
}

pub fn run(args: &Args, cancel: &Cancel) -> Result {
    let mpf = program::build()?;
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let first = args.seed.unwrap_or(clock.as_secs());
    println!("seed {first}");
    let deadline = Instant::now() + Duration::try_from_secs_f64(args.minutes * 60.0)?;
    let bar = progress::spinner("soak");
    let mut counts = Counts::default();
    let asked = args.rounds.unwrap_or(u64::MAX);
    while counts.rounds < asked && Instant::now() < deadline && !cancel.is_cancelled() {
        let seed = first.wrapping_add(counts.rounds);
        let mut round = Round {
            mpf: &mpf,
            folder: tempfile::tempdir()?,
            random: rng::stream(seed, 0),
            counts: &mut counts,
        };
        if let Err(error) = round.run() {
            let kept = round.folder.keep();
            let again = format!("cargo xtask soak --seed {seed} --rounds 1");
            return Err(format!("{error}\n{again}\nfiles: {}", kept.display()).into());
        }
        counts.rounds += 1;
        bar.set_message(format!("{} rounds", counts.rounds));
        bar.tick();
    }
    bar.finish_and_clear();
    println!(
        "{} rounds: {} runs, {} models, {} kills, at most {} open files, nothing wrong",
        counts.rounds, counts.runs, counts.models, counts.kills, counts.most_open_files
    );
    Ok(())
}

/// One data set, and what is done with it.
struct Round<'a> {
    mpf: &'a Path,
    folder: tempfile::TempDir,
    random: Xoshiro256PlusPlus,
    counts: &'a mut Counts,
}

/// The end of a run.
struct Ended {
    command: String,
    code: i32,
    stderr: String,
    time: Duration,
}

impl Ended {
    fn check(&self, holds: bool, what: &str) -> Result {
        if holds {
            return Ok(());
        }
        let (command, code, stderr) = (&self.command, self.code, &self.stderr);
        Err(format!("{command}: {what} (exit code {code})\n{stderr}").into())
    }

    fn has_model(&self) -> bool {
        matches!(self.code, 0 | 3 | 4)
    }
}

impl Round<'_> {
    fn run(&mut self) -> Result {
        let data = self.write_data()?;
        let options = self.options();
        let fit = format!("fit {data} {options} -o m.json");
        let ended = self.run_to_the_end(&fit)?;
        ended.check(ended.code != 130, "nobody interrupted it")?;
        self.check_left(&ended, &[&data, "m.json"])?;
        let model = self.model_at("m.json", &ended)?;
        self.counts.models += u64::from(model.is_some());

        let killed = format!("fit {data} {options} -o k.json --checkpoint c --checkpoint-every 0");
        let again = self.kill_and_resume(&killed, ended.time)?;
        again.check(again.code == ended.code, "kills changed its exit code")?;
        // A run that fails keeps the checkpoint of the one that was killed.
        let kept = if again.has_model() { "k.json" } else { "c" };
        self.check_left(&again, &[&data, "m.json", kept])?;
        let resumed = self.model_at("k.json", &again)?;
        again.check(resumed == model, "kills changed the model")?;

        if model.is_some() {
            let sample = self.run_to_the_end("sample m.json -n 30 -o s.npy")?;
            sample.check(sample.code == 0, "its own model was refused")?;
            let convert = self.run_to_the_end("convert m.json -o m.npz")?;
            convert.check(convert.code == 0, "its own model was refused")?;
            let layout = options.split_whitespace();
            let layout: Vec<&str> = layout
                .filter(|o| ["--spins", "--transpose"].contains(o))
                .collect();
            let evaluate = format!(
                "evaluate m.json {data} {} --draws 100 -o r.html",
                layout.join(" ")
            );
            let evaluate = self.run_to_the_end(&evaluate)?;
            let outputs = [&data, "m.json", "k.json", "s.npy", "m.npz", "r.html"];
            self.check_left(&evaluate, &outputs)?;
        }
        Ok(())
    }

    fn options(&mut self) -> String {
        let n = self.random.random_range(0..5);
        let chosen: Vec<&str> = OPTIONS.sample(&mut self.random, n).copied().collect();
        chosen.join(" ")
    }

    /// Writes data, odd ones often and wrong ones at times; returns the name of the file.
    fn write_data(&mut self) -> Result<String> {
        let random = &mut self.random;
        let (rows, units) = (random.random_range(1..120), random.random_range(1..8));
        let means: Vec<f64> = (0..units)
            .map(|_| {
                *[0.0, 0.02, 0.3, 0.5, 0.9, 1.0]
                    .choose(random)
                    .expect("some")
            })
            .collect();
        let copied = random.random_bool(0.2);
        let mut lines: Vec<Vec<String>> = Vec::new();
        for _ in 0..rows {
            let mut line: Vec<String> = means
                .iter()
                .map(|&mean| u8::from(random.random_bool(mean)).to_string())
                .collect();
            if copied {
                line[units - 1] = line[0].clone();
            }
            lines.push(line);
        }
        if random.random_bool(0.15) {
            let wrong = ["2", "NaN", "", "x", "-1", "1e400", "\u{1b}[31m"];
            let (row, unit) = (random.random_range(0..rows), random.random_range(0..units));
            lines[row][unit] = (*wrong.choose(random).expect("some")).to_owned();
        }
        let text: Vec<String> = lines.iter().map(|line| line.join(",")).collect();
        let mut text = text.join("\n");
        if random.random_bool(0.05) {
            text.truncate(text.floor_char_boundary(text.len() / 2));
        }
        fs::write(self.folder.path().join("x.csv"), text)?;
        Ok("x.csv".into())
    }

    fn start(&mut self, arguments: &str) -> Result<Child> {
        self.counts.runs += 1;
        let mut command = Command::new(self.mpf);
        command.args(arguments.split_whitespace());
        command.current_dir(self.folder.path());
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Waits until the run ends or `limit` has passed; returns its status if it ended.
    fn wait(&mut self, child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            let open = fs::read_dir(format!("/proc/{}/fd", child.id()));
            let open = open.map_or(0, Iterator::count);
            self.counts.most_open_files = self.counts.most_open_files.max(open);
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if began.elapsed() >= limit {
                return Ok(None);
            }
            sleep(Duration::from_millis(2));
        }
    }

    fn run_to_the_end(&mut self, arguments: &str) -> Result<Ended> {
        let began = Instant::now();
        let mut child = self.start(arguments)?;
        let status = self.wait(&mut child, PATIENCE)?;
        self.end(arguments, child, status, began)
    }

    fn end(
        &mut self,
        arguments: &str,
        mut child: Child,
        status: Option<ExitStatus>,
        began: Instant,
    ) -> Result<Ended> {
        if status.is_none() {
            child.kill()?;
            child.wait()?;
        }
        let mut stderr = Vec::new();
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_end(&mut stderr)?;
        }
        let ended = Ended {
            command: format!("mpf {arguments}"),
            code: status.and_then(|s| s.code()).unwrap_or(-1),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            time: began.elapsed(),
        };
        ended.check(status.is_some(), "it did not end")?;
        ended.check(EXIT_CODES.contains(&ended.code), "an unknown end")?;
        ended.check(!ended.stderr.contains("panicked"), "it panicked")?;
        let escapes = ended.stderr.contains('\u{1b}');
        ended.check(!escapes, "it wrote control characters to a pipe")?;
        let open = self.counts.most_open_files;
        ended.check(open <= MOST_OPEN_FILES, "it opened too many files")?;
        Ok(ended)
    }

    /// Kills the run at random times of its length, resumes it each time, and lets it end.
    fn kill_and_resume(&mut self, arguments: &str, length: Duration) -> Result<Ended> {
        let resume = format!("{arguments} --resume");
        for _ in 0..self.random.random_range(0..=MOST_KILLS) {
            let began = Instant::now();
            let mut child = self.start(&resume)?;
            let limit = length.mul_f64(self.random.random_range(0.0..1.5));
            let mut status = self.wait(&mut child, limit)?;
            let is_killed = status.is_none();
            if is_killed {
                self.counts.kills += 1;
                if self.random.random_bool(0.5) {
                    child.kill()?;
                    child.wait()?;
                    continue;
                }
                let pid = child.id().to_string();
                Command::new("kill").args(["-TERM", &pid]).status()?;
                status = self.wait(&mut child, PATIENCE)?;
                // Before the program handles signals, they kill it.
                if status.is_some_and(|status| status.code().is_none()) {
                    continue;
                }
            }
            let ended = self.end(&resume, child, status, began)?;
            if !(is_killed && ended.code == 130) {
                return Ok(ended);
            }
        }
        self.run_to_the_end(&resume)
    }

    /// Checks that there are no files but the `known` ones.
    fn check_left(&self, ended: &Ended, known: &[&str]) -> Result {
        for entry in fs::read_dir(self.folder.path())? {
            let name = entry?.file_name();
            let expected = known.iter().any(|known| name == *known);
            ended.check(expected, &format!("it left {}", name.display()))?;
        }
        Ok(())
    }

    /// Reads couplings and error bars of the model that a run wrote; it must be there if, and only
    /// if, its exit code says so.
    fn model_at(&self, name: &str, ended: &Ended) -> Result<Option<Value>> {
        let path: PathBuf = self.folder.path().join(name);
        ended.check(
            path.exists() == ended.has_model(),
            "no model, or one too many",
        )?;
        if !ended.has_model() {
            return Ok(None);
        }
        let mut model: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
        let finite = |row: &Value| {
            row.as_array()
                .is_some_and(|r| r.iter().all(Value::is_number))
        };
        let couplings = model["couplings"].as_array();
        let is_finite = couplings.is_some_and(|rows| rows.iter().all(finite));
        ended.check(is_finite, "the couplings are not finite")?;
        let parts = ["couplings", "standard_errors"].map(|key| model[key].take());
        Ok(Some(Value::from_iter(parts)))
    }
}
