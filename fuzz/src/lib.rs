//! What every fuzz target does with its bytes. Readers and fits end with something whole and
//! finite or with a typed error; everything else is a panic, which is what is looked for.

use mpf_baselines::{ContrastiveOptions, Expansion, Method, MethodSnapshot, Objectives};
use mpf_cli::internal::parse_edges;
use mpf_cli::internal::{Convention, Model};
use mpf_cli::internal::{DataArgs, Raster};
use mpf_core::{Form, MinimizerOptions, checkpoint};
use mpf_ising::{
    Biases, Couplings, FitOptions, Fitter, FoldAssignment, Folds, Mode, Mpf, Neighbourhood,
    PathOptions, PathSnapshot, PenaltyPath, Preflight, Samples, States, Support,
};
use mpf_samplers::{ChainOptions, ChainRunner, Chains, Gibbs, Sampler};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

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
        };
        let Ok(raster) = Raster::from_reader(&args, Cursor::new(bytes), bytes.len() as u64) else {
            continue;
        };
        let (rows, units) = (raster.states.n_samples(), raster.states.n_units());
        assert!(rows > 0 && units > 0);
        // A compressed archive is the one thing that holds more entries than bytes.
        assert!(rows * units <= 1032 * bytes.len());
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

/// A checkpoint: as it is, and with the bytes as the contents of one whose header is right. What
/// can be read is resumed.
pub fn checkpoint(bytes: &[u8]) {
    const HEADER: usize = 28;
    resume(bytes);
    let contents = match bytes.strip_prefix(b"mpf-ckpt") {
        Some(_) => bytes.get(HEADER..).unwrap_or_default(),
        None => bytes,
    };
    let mut sealed = b"mpf-ckpt".to_vec();
    sealed.extend_from_slice(&checkpoint::VERSION.to_le_bytes());
    sealed.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    let sum = sealed[8..]
        .iter()
        .chain(contents)
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    sealed.extend_from_slice(&sum.to_le_bytes());
    sealed.extend_from_slice(contents);
    resume(&sealed);
}

/// What the checkpoints among the seeds are of.
pub struct Checkpointed {
    pub states: States,
    pub samples: Samples,
    pub fit: FitOptions,
    pub updates: ContrastiveOptions,
    pub path: PenaltyPath,
    pub folds: Folds,
    pub gibbs: Gibbs,
    pub runner: ChainRunner,
}

/// Chains of Gibbs sweeps that are under way.
pub type Sweeps = Chains<<Gibbs as Sampler>::State, States, <Gibbs as Sampler>::Info>;

#[allow(clippy::new_without_default)] // It is the one that the seeds are of, not a default.
impl Checkpointed {
    pub fn new() -> Self {
        let mut states = States::new(3).expect("three units");
        for row in [0b001, 0b011, 0b110, 0b000, 0b101, 0b111, 0b000] {
            states.push(&[row]);
        }
        let path = PathOptions {
            lambdas: Some(vec![0.2, 0.1]),
            ..Default::default()
        };
        let chains = ChainOptions {
            n_chains: 2,
            n_draws: 4,
            burn_in: 1,
            thinning: 2,
            ..Default::default()
        };
        let couplings = Couplings::unpack(3, &[0.5, -0.25, 0.125, 1.0, 0.75, -0.5]);
        Self {
            samples: Samples::new(&states).expect("there are samples"),
            fit: FitOptions {
                minimizer: MinimizerOptions {
                    max_iterations: 20,
                    snapshots: true,
                    ..Default::default()
                },
                ..Default::default()
            },
            updates: ContrastiveOptions {
                updates: 6,
                batch_size: Some(3),
                persistent: true,
                ..Default::default()
            },
            path: PenaltyPath::new(path).expect("two penalties"),
            folds: Folds::new(states.n_samples(), 2, FoldAssignment::Blocks).expect("two folds"),
            gibbs: Gibbs::new(&couplings.expect("finite")).expect("three units"),
            runner: ChainRunner::new(chains).expect("a few steps"),
            states,
        }
    }

    /// The fit, row by row.
    pub fn by_rows(&self) -> FitOptions {
        FitOptions {
            mode: Mode::NodeWise,
            ..self.fit.clone()
        }
    }
}

/// Goes on with what these bytes hold, whatever that is.
fn resume(bytes: &[u8]) {
    static WORK: LazyLock<Checkpointed> = LazyLock::new(Checkpointed::new);
    let work = &*WORK;
    if let Ok(snapshot) = checkpoint::open::<MethodSnapshot>(bytes) {
        for method in [
            Method::Mpf(work.fit.clone()),
            Method::Mpf(work.by_rows()),
            Method::ContrastiveDivergence(work.updates.clone()),
        ] {
            let resumed = method.resumed(Some(snapshot.clone()));
            if let Ok(fitted) = resumed.and_then(|m| m.fit(&work.samples)) {
                assert!(fitted.couplings.as_array().iter().all(|j| j.is_finite()));
            }
        }
    }
    if let Ok(snapshot) = checkpoint::open::<PathSnapshot>(bytes) {
        let fitter = Fitter::new(work.fit.clone()).expect("options that can be");
        let found = work.path.cross_validate_from(
            Some(snapshot),
            &fitter,
            &Mpf::default(),
            &work.states,
            &work.folds,
            |_, _| {},
        );
        for point in found.iter().flat_map(|f| &f.path) {
            let couplings = &point.fit.couplings;
            assert!(couplings.as_array().iter().all(|j| j.is_finite()));
        }
    }
    if let Ok(mut chains) = checkpoint::open::<Sweeps>(bytes)
        && work
            .runner
            .advance(&work.gibbs, &mut chains, 9, |_| {})
            .is_ok()
    {
        let run = work.runner.finish(chains);
        assert_eq!(run.pooled().n_samples(), 8);
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
        neighbourhood: match how >> 6 {
            0 => Neighbourhood::OutsideData,
            1 => Neighbourhood::SingleFlipsAndComplement,
            _ => Neighbourhood::SingleFlips,
        },
        form: if extra & 32 == 0 {
            Form::Sum
        } else {
            Form::Log
        },
        mode: match which & 16 {
            0 => Mode::Joint,
            _ => Mode::NodeWise,
        },
        support: support.clone(),
        biases: biases.clone(),
        start: start.clone(),
        minimizer: MinimizerOptions {
            gradient_tolerance: 1e-4,
            max_iterations: 8,
            ..Default::default()
        },
        ..Default::default()
    };
    let method = match which & 15 {
        0..4 => Method::Mpf(options),
        4..7 => Method::Pseudolikelihood(options),
        7 => Method::Rise {
            lambda: options.l1,
            options,
        },
        8 => Method::LogRise {
            lambda: options.l1,
            options,
        },
        9 => Method::MaximumLikelihood(options),
        10 => Method::Independent,
        11 => Method::MeanField {
            expansion: Expansion::Tap,
            lambda: options.l1,
        },
        12 => Method::MeanField {
            expansion: Expansion::Naive,
            lambda: options.l1,
        },
        _ => Method::ContrastiveDivergence(ContrastiveOptions {
            updates: 3,
            persistent: extra & 64 != 0,
            batch_size: (extra & 128 != 0).then_some(3),
            support,
            biases,
            start,
            ..Default::default()
        }),
    };
    if extra & 32 != 0 {
        let preflight = Preflight::new(&samples, None).expect("there is nothing to refuse");
        assert!(preflight.seconds.is_finite());
    }
    let Ok(fitted) = method.fit(&samples) else {
        return;
    };
    let numbers = fitted.couplings.as_array().iter().copied();
    let course = fitted.course.iter().flat_map(|c| [c.value, c.kkt_residual]);
    for number in numbers.chain(course) {
        assert!(number.is_finite(), "{}: {number}", method.name());
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
