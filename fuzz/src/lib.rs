//! What every fuzz target does with its bytes. Readers and fits end with something whole and
//! finite or with a typed error; everything else is a panic, which is what is looked for.

use mpf_baselines::{
    ContrastiveDivergence, ContrastiveOptions, Expansion, MaximumLikelihood, MeanField, Objectives,
    Pseudolikelihood, independent, log_rise, rise,
};
use mpf_cli::internal::{Convention, DataArgs, Missing, Model, Raster, parse_edges};
use mpf_core::{Cancel, Checkpoint, CheckpointStore, FlowForm, Fnv1a, MinimizerOptions, Settings};
use mpf_ising::{
    Biases, CountPotential, Couplings, Estimator, Fit, FitOptions, Fitter, Mode, Mpf,
    Neighbourhood, PathOptions, PenaltyPath, Preflight, Samples, States, Support,
};
use mpf_samplers::{ChainOptions, ChainRunner, Gibbs};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// An array in a file of its own.
pub fn npy(bytes: &[u8]) {
    raster("data.npy", bytes);
}

/// An archive of arrays.
pub fn npz(bytes: &[u8]) {
    raster("data.npz", bytes);
}

/// Numbers between commas, tabs or blanks.
pub fn text(bytes: &[u8]) {
    let names = ["data.csv", "data.tsv", "data.txt"];
    raster(names[usize::from(mixed(bytes)) % 3], bytes);
}

/// Bytes of memory that a reader may take.
const ROOM: u64 = 1 << 20;

/// Reads with plain options, and with some that depend on the bytes.
fn raster(name: &str, bytes: &[u8]) {
    let options = mixed(bytes);
    let counts = ["0", "1", "b", "99"][usize::from(options >> 6)];
    for odd in [false, true] {
        let on = |bit: u8| odd && options & bit != 0;
        let args = DataArgs {
            data: PathBuf::from(name),
            transpose: on(1),
            spins: on(2),
            counts: on(4).then(|| counts.to_owned()),
            header: on(8),
            array: on(16).then(|| "x".to_owned()),
            index: on(32),
            binarize: on(2).then_some(0.5).filter(|_| !on(1)),
            missing: match options % 3 {
                0 => None,
                1 => Some(Missing::Drop),
                _ => Some(Missing::Mask),
            },
            drop: if on(64) {
                vec!["b".into(), "2".into()]
            } else {
                Vec::new()
            },
            ..Default::default()
        };
        let length = Some(bytes.len() as u64).filter(|_| !on(128));
        let Ok(raster) = Raster::from_reader(&args, bytes, length, Some(ROOM)) else {
            continue;
        };
        let (rows, units) = (raster.states.n_samples(), raster.states.n_units());
        assert!(rows > 0 && units > 0);
        // What is packed or sparse holds more entries than bytes, but no more than there is room for.
        assert!((rows * units) as u64 <= 8 * ROOM);
        if let Some(unknown) = &raster.unknown {
            assert_eq!((unknown.n_samples(), unknown.n_units()), (rows, units));
        }
        assert!(raster.names.as_ref().is_none_or(|n| n.len() == units));
        assert_eq!(raster.record().n_samples, rows);
        if let Ok(samples) = raster.samples() {
            assert!(samples.means().iter().all(|m| (0.0..=1.0).contains(m)));
        }
    }
}

/// A list of edges between five units.
pub fn edges(bytes: &[u8]) {
    let names = ["a", "b", "c", "unit 3", "0"].map(str::to_owned);
    let text = String::from_utf8_lossy(bytes);
    if let Ok(support) = parse_edges(&text, &names) {
        let pairs = support.pairs(names.len()).expect("edges are of the units");
        assert!(pairs.iter().all(|(i, j)| i < j && *j < names.len()));
    }
}

/// A model file in each of its forms. What is read can be written and read again.
pub fn model(bytes: &[u8]) {
    let assumed = match mixed(bytes) % 3 {
        0 => None,
        1 => Some(Convention::Binary),
        _ => Some(Convention::Spins),
    };
    for name in ["m.json", "m.npz", "m.csv"] {
        let Ok(model) = Model::from_bytes(Path::new(name), bytes, assumed) else {
            continue;
        };
        assert!(model.couplings.as_array().iter().all(|j| j.is_finite()));
        for convention in [Convention::Binary, Convention::Spins] {
            let json = model.to_json(convention);
            let back = Model::from_bytes(Path::new("m.json"), json.as_bytes(), None)
                .expect("what was written is read");
            assert_eq!(back.couplings, model.couplings);
            assert_eq!(back.to_json(convention), json);
        }
    }
}

/// A checkpoint file: as it is, and with a header that fits its contents. Every kind of work tries
/// to resume it.
pub fn checkpoint(bytes: &[u8]) {
    /// The magic word and the version.
    static BEGINNING: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let file = Memory::default();
        file.checkpoint(Duration::ZERO).write().expect("memory");
        file.writes()[0][..12].to_vec()
    });
    const HEADER: usize = 28;
    resume(bytes);
    let contents = match bytes.strip_prefix(&BEGINNING[..8]) {
        Some(_) => bytes.get(HEADER..).unwrap_or_default(),
        None => bytes,
    };
    let mut sealed = BEGINNING.clone();
    sealed.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    let mut sum = Fnv1a::default();
    sum.add(&sealed[8..]);
    sum.add(contents);
    sealed.extend_from_slice(&sum.value().to_le_bytes());
    sealed.extend_from_slice(contents);
    resume(&sealed);
}

fn resume(bytes: &[u8]) {
    static WORK: LazyLock<LongWork> = LazyLock::new(LongWork::new);
    let file = Memory::new(bytes);
    // Nothing is written: that would only take time.
    let checkpoint = file.checkpoint(Duration::MAX);
    if !matches!(checkpoint.load(), Ok(true)) {
        return;
    }
    for kind in LongWork::KINDS {
        if let Ok(numbers) = WORK.run(kind, &checkpoint) {
            assert!(numbers.iter().all(|number| number.is_finite()), "{kind}");
        }
    }
}

/// A checkpoint file in memory, with everything that was ever written to it.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Vec<Vec<u8>>>>);

impl Memory {
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(Mutex::new(vec![bytes.to_vec()])))
    }

    pub fn checkpoint(&self, every: Duration) -> Checkpoint {
        Checkpoint::new(self.clone(), Settings::new("fuzz"), every, &Cancel::new())
    }

    pub fn writes(&self) -> Vec<Vec<u8>> {
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.clone()
    }
}

impl CheckpointStore for Memory {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.writes().pop())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(bytes.to_vec());
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The work that the checkpoints among the seeds were left by.
pub struct LongWork {
    states: States,
    samples: Samples,
    gibbs: Gibbs,
}

impl LongWork {
    pub const KINDS: [&str; 5] = ["fit", "rows", "updates", "path", "chains"];

    #[allow(clippy::new_without_default)] // The seeds are of these data; they are no default.
    pub fn new() -> Self {
        let mut states = States::new(3).expect("three units");
        for row in [0b001, 0b011, 0b110, 0b000, 0b101, 0b111, 0b000] {
            states.push(&[row]);
        }
        let couplings = Couplings::unpack(3, &[0.5, -0.25, 0.125, 1.0, 0.75, -0.5]);
        Self {
            samples: Samples::new(&states).expect("there are samples"),
            gibbs: Gibbs::new(&couplings.expect("finite")).expect("three units"),
            states,
        }
    }

    /// Runs or resumes one kind of work; returns the numbers that it finds.
    pub fn run(&self, kind: &str, checkpoint: &Checkpoint) -> mpf_baselines::Result<Vec<f64>> {
        let checkpoint = checkpoint.entry("work");
        if kind == "chains" {
            let runner = ChainRunner::new(ChainOptions {
                n_chains: 2,
                n_draws: 4,
                burn_in: 1,
                thinning: 2,
                checkpoint,
                ..Default::default()
            })?;
            let draws = runner.run(&self.gibbs)?.pooled();
            assert_eq!(draws.n_samples(), 8);
            return Ok((0..8).map(|m| draws.row(m)[0] as f64).collect());
        }
        if kind == "updates" {
            let learner = ContrastiveDivergence::new(ContrastiveOptions {
                updates: 6,
                batch_size: Some(3),
                persistent: true,
                checkpoint,
                ..Default::default()
            })?;
            return Ok(learner.fit(&self.samples)?.couplings.pack());
        }
        let mode = match kind {
            "rows" => Mode::NodeWise,
            _ => Mode::Joint,
        };
        let options = FitOptions {
            mode,
            minimizer: MinimizerOptions {
                max_iterations: 20,
                checkpoint,
                ..Default::default()
            },
            ..Default::default()
        };
        let fitter = Fitter::new(Mpf::default(), options)?;
        if kind == "path" {
            let path = PenaltyPath::new(PathOptions {
                lambdas: Some(vec![0.2, 0.1]),
                n_folds: 2,
                ..Default::default()
            })?;
            let found = path.cross_validate(&fitter, &self.states, |_| {})?;
            let points = found.path.iter().map(|point| point.fit.couplings.pack());
            return Ok(points.collect::<Vec<_>>().concat());
        }
        Ok(fitter.fit(&self.samples)?.couplings.pack())
    }
}

/// A fit of at most eight samples of at most four units, with any options and any weights.
pub fn fit(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let d = 1 + usize::from(bytes.byte() % 4);
    let n_samples = 1 + usize::from(bytes.byte() % 8);
    let [which, how, extra] = [bytes.byte(), bytes.byte(), bytes.byte()];
    let mut states = States::new(d).expect("there are units");
    for _ in 0..n_samples {
        states.push(&[u64::from(bytes.byte()) & ((1 << d) - 1)]);
    }
    let samples = if extra & 1 == 0 {
        Samples::new(&states)
    } else {
        let weights: Vec<f64> = (0..n_samples).map(|_| bytes.number()).collect();
        Samples::weighted(&states, &weights)
    };
    let Ok(samples) = samples else { return };
    let start = (extra & 2 != 0).then(|| {
        let packed: Vec<f64> = (0..d * (d + 1) / 2).map(|_| bytes.number()).collect();
        Couplings::unpack(d, &packed)
    });
    let Ok(start) = start.transpose() else { return };
    let support = match how & 3 {
        0 => Support::Edges(vec![(0, 1), (1, 2)]),
        _ => Support::Full,
    };
    let biases = match (how >> 2) & 7 {
        0 => Biases::Fixed((0..d).map(|_| bytes.number()).collect()),
        1 => Biases::FixedFields((0..d).map(|_| bytes.number()).collect()),
        _ => Biases::Free,
    };
    let options = FitOptions {
        l1: if extra & 4 == 0 { 0.0 } else { bytes.number() },
        l2: if extra & 8 == 0 { 0.0 } else { bytes.number() },
        l2_on_fields: extra & 16 != 0,
        mode: match which & 16 {
            0 => Mode::Joint,
            _ => Mode::NodeWise,
        },
        support: support.clone(),
        biases,
        potential: (extra & 64 != 0).then(CountPotential::default),
        start: start.clone(),
        minimizer: MinimizerOptions {
            gradient_tolerance: 1e-4,
            max_iterations: 8,
            ..Default::default()
        },
    };
    let mpf = Mpf {
        neighbourhood: match how >> 6 {
            0 => Neighbourhood::OutsideData,
            1 => Neighbourhood::SingleFlipsAndComplement,
            _ => Neighbourhood::SingleFlips,
        },
        form: if extra & 32 == 0 {
            FlowForm::Sum
        } else {
            FlowForm::Log
        },
    };
    if extra & 32 != 0 {
        let preflight = Preflight::new(&samples, None).expect("there is nothing to refuse");
        assert!(preflight.seconds_per_evaluation.is_finite());
    }
    let lambda = options.l1;
    let mean_field = |expansion| Ok(MeanField::new(expansion, lambda)?.fit(&samples)?.fit);
    let fitted = match which & 15 {
        0..4 => fit_by(mpf, options, &samples),
        4..7 => fit_by(Pseudolikelihood, options, &samples),
        7 => rise(lambda, options).and_then(|fitter| Ok(fitter.fit(&samples)?)),
        8 => log_rise(lambda, options).and_then(|fitter| Ok(fitter.fit(&samples)?)),
        9 => fit_by(MaximumLikelihood, options, &samples),
        10 => independent(&samples),
        11 => mean_field(Expansion::Tap),
        12 => mean_field(Expansion::Naive),
        _ => ContrastiveDivergence::new(ContrastiveOptions {
            updates: 3,
            persistent: extra & 64 != 0,
            batch_size: (extra & 128 != 0).then_some(3),
            support,
            start,
            ..Default::default()
        })
        .and_then(|learner| learner.fit(&samples)),
    };
    let Ok(fitted) = fitted else { return };
    let numbers = fitted.couplings.as_array().iter().copied();
    for number in numbers.chain([fitted.value, fitted.kkt_residual]) {
        assert!(number.is_finite(), "method {}: {number}", which & 15);
    }
    if let Ok(values) = Objectives::of(&fitted.couplings, &samples) {
        let all =
            values
                .rise
                .iter()
                .chain([&values.mpf, &values.pseudolikelihood, &values.log_rise]);
        assert!(all.chain(&values.log_likelihood).all(|v| !v.is_nan()));
    }
}

fn fit_by<E: Estimator>(
    estimator: E,
    options: FitOptions,
    samples: &Samples,
) -> mpf_baselines::Result<Fit> {
    Ok(Fitter::new(estimator, options)?.fit(samples)?)
}

/// Bytes one after the other; zeros when there are no more.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// A number that is plain, small, odd, or anything.
    fn number(&mut self) -> f64 {
        let kind = self.byte();
        match kind {
            0..100 => f64::from(kind) / 16.0,
            100..200 => (f64::from(kind) - 150.0) / 8.0,
            200 => f64::NAN,
            201 => f64::INFINITY,
            202 => f64::NEG_INFINITY,
            203 => f64::MIN_POSITIVE / 8.0,
            204 => 1e300,
            205 => -1e300,
            206 => f64::MAX,
            207 => 1e16,
            208 => -0.0,
            209..240 => f64::from(kind),
            240.. => f64::from_bits(u64::from_le_bytes([(); 8].map(|()| self.byte()))),
        }
    }
}

/// A number that every byte has a part in.
fn mixed(bytes: &[u8]) -> u8 {
    bytes.iter().fold(7, |sum: u8, byte| {
        sum.wrapping_mul(31).wrapping_add(*byte).rotate_left(3)
    })
}
