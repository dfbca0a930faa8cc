//! Forged chains in a checkpoint: refused where their shape is wrong, trusted where their numbers
//! are, and never a panic.

use mpf_core::rng::stream;
use mpf_ising::{Boundary, Couplings, Lattice};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, Error, ExactEnumeration, ExactLattice, Gibbs, Hmc,
    HmcOptions, Scan, SmoothEnergy, SwendsenWang, Tempering,
};
use mpf_testkit::{StopAfter, in_memory};
use ndarray::Array2;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

// The stored chains, field by field. A test that stores them without a change fails when these
// fall out of step.

#[derive(Serialize, Deserialize)]
struct Stored<S, D, I> {
    steps: usize,
    state: S,
    rng: [u64; 4],
    draws: D,
    info: I,
}

#[derive(Serialize, Deserialize)]
struct Rows {
    n_units: usize,
    bits: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct GibbsStored {
    row: Vec<u64>,
    local: Local,
}

#[derive(Serialize, Deserialize)]
enum Local {
    Number(Vec<u8>),
    LogOdds { values: Vec<f64>, sweeps: u32 },
}

#[derive(Serialize, Deserialize)]
struct TemperingStored {
    replicas: Vec<GibbsStored>,
    at_level: Vec<usize>,
    heated: Vec<bool>,
    odd: bool,
}

#[derive(Serialize, Deserialize)]
struct Swaps {
    steps: u64,
    attempts: Vec<u64>,
    accepted: Vec<u64>,
    acceptance: Vec<f64>,
    round_trips: u64,
}

#[derive(Serialize, Deserialize)]
struct Point {
    position: Vec<f64>,
    momentum: Vec<f64>,
    potential: f64,
    gradient: Vec<f64>,
}

type Chains<S, D, I> = Vec<Stored<S, D, I>>;

fn options() -> ChainOptions {
    ChainOptions {
        n_chains: 2,
        n_draws: 4,
        burn_in: 2,
        thinning: 2,
        ..Default::default()
    }
}

/// Stops a run after 7 of 10 steps, changes the stored chains and resumes. Returns whether they
/// were accepted.
#[track_caller]
fn resumed<S, M>(sampler: &S, change: impl Fn(&mut M)) -> bool
where
    S: ChainSampler,
    M: Serialize + DeserializeOwned + Send + 'static,
{
    let file = StopAfter::new(7);
    let first = ChainOptions {
        checkpoint: file.checkpoint(),
        cancel: file.cancel().clone(),
        ..options()
    };
    let checkpoint = first.checkpoint.clone();
    let run = ChainRunner::new(first).unwrap().run(sampler).unwrap();
    assert!(run.cancelled);
    let mut stored: M = checkpoint.resume().unwrap().expect("chains were kept");
    change(&mut stored);
    let second = ChainOptions {
        checkpoint: in_memory(stored),
        ..options()
    };
    match ChainRunner::new(second).unwrap().run(sampler) {
        Ok(run) => {
            assert!(!run.cancelled);
            true
        }
        Err(Error::Core(mpf_core::Error::Checkpoint { .. })) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Makes the mistakes that chains of packed states share.
fn wrong_units<S, T, I>(sampler: &S)
where
    S: ChainSampler,
    T: Serialize + DeserializeOwned + Send + 'static,
    I: Serialize + DeserializeOwned + Send + 'static,
{
    type Edit<T, I> = fn(&mut Chains<T, Rows, I>);
    assert!(resumed(sampler, |_: &mut Chains<T, Rows, I>| {}));
    let edits: [Edit<T, I>; 9] = [
        |s| _ = s.pop(),
        Vec::clear,
        |s| s[1].steps = 0,
        |s| s[1].steps = usize::MAX,
        |s| _ = s[0].draws.bits.pop(),
        |s| s[0].draws.bits.push(0),
        |s| s[1].draws.n_units += 1,
        |s| s[0].draws.n_units = 0,
        |s| s[0].draws.bits[0] = u64::MAX,
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        assert!(!resumed(sampler, edit), "edit {number}");
    }
    // A stream that stands still, and numbers instead of chains.
    assert!(resumed(sampler, |s: &mut Chains<T, Rows, I>| s[0].rng = [0; 4]));
    let second = ChainOptions {
        checkpoint: in_memory(0.5),
        ..options()
    };
    assert!(ChainRunner::new(second).unwrap().run(sampler).is_err());
}

/// A model with too many neighbours for a table.
fn dense() -> Couplings {
    let j = Array2::from_shape_fn((9, 9), |(i, j)| 0.1 * ((i * j) % 5) as f64 - 0.21);
    Couplings::new(j).unwrap()
}

fn glass() -> (Couplings, Lattice) {
    let lattice = Lattice::new(3, 3, Boundary::Open).unwrap();
    (lattice.spin_glass(1.0, &mut stream(1, 0)).unwrap(), lattice)
}

#[test]
fn gibbs_by_table() {
    let gibbs = Gibbs::new(&glass().0).unwrap();
    wrong_units::<_, GibbsStored, [u64; 2]>(&gibbs);
    type Edit = fn(&mut Chains<GibbsStored, Rows, [u64; 2]>);
    let edits: [Edit; 9] = [
        |s| s[0].state.row.clear(),
        |s| s[0].state.row.push(0),
        |s| s[0].state.row[0] |= 1 << 9,
        |s| s[0].state.row[0] ^= 1,
        |s| s[1].state.local = Local::Number(vec![]),
        |s| s[1].state.local = Local::Number(vec![255; 9]),
        |s| s[1].state.local = Local::Number(vec![0; 8]),
        |s| s[1].state.local = Local::Number(vec![0; 100]),
        |s| {
            s[1].state.local = Local::LogOdds {
                values: vec![0.0; 9],
                sweeps: 0,
            };
        },
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        assert!(!resumed(&gibbs, edit), "edit {number}");
    }
    // Counts saturate.
    let most: Edit = |s| s[0].info = [u64::MAX; 2];
    assert!(resumed(&gibbs, most));
}

#[test]
fn gibbs_by_log_odds() {
    let gibbs = Gibbs::new(&dense()).unwrap();
    wrong_units::<_, GibbsStored, [u64; 2]>(&gibbs);
    type Stored = Chains<GibbsStored, Rows, [u64; 2]>;
    fn odds(s: &mut Stored) -> (&mut Vec<f64>, &mut u32) {
        match &mut s[0].state.local {
            Local::LogOdds { values, sweeps } => (values, sweeps),
            Local::Number(_) => panic!("no table"),
        }
    }
    assert!(!resumed(&gibbs, |s: &mut Stored| _ = odds(s).0.pop()));
    assert!(!resumed(&gibbs, |s: &mut Stored| odds(s).0.push(0.0)));
    assert!(!resumed(&gibbs, |s: &mut Stored| {
        s[0].state.local = Local::Number(vec![0; 9]);
    }));
    for value in [f64::NAN, f64::INFINITY, 1e300] {
        assert!(resumed(&gibbs, |s: &mut Stored| odds(s).0[3] = value));
    }
    assert!(resumed(&gibbs, |s: &mut Stored| *odds(s).1 = u32::MAX));
}

#[test]
fn clusters() {
    let sampler = SwendsenWang::new(&glass().0).unwrap();
    wrong_units::<_, Vec<u64>, [u64; 4]>(&sampler);
    type Stored = Chains<Vec<u64>, Rows, [u64; 4]>;
    assert!(!resumed(&sampler, |s: &mut Stored| s[0].state.clear()));
    assert!(!resumed(&sampler, |s: &mut Stored| s[0].state[0] = u64::MAX));
}

#[test]
fn tempering() {
    let sampler = Tempering::new(&glass().0, &[1.0, 0.5, 0.2], Scan::Sequential).unwrap();
    wrong_units::<_, TemperingStored, Swaps>(&sampler);
    type Edit = fn(&mut Chains<TemperingStored, Rows, Swaps>);
    let refused: [Edit; 9] = [
        |s| s[0].state.at_level = vec![0, 1],
        |s| s[0].state.at_level = vec![0, 1, 3],
        |s| s[0].state.at_level = vec![0, 1, 1],
        |s| s[0].state.at_level = vec![0, 1, 2, 2],
        |s| s[0].state.at_level.clear(),
        |s| _ = s[0].state.heated.pop(),
        |s| _ = s[0].state.replicas.pop(),
        |s| s[0].state.replicas[2].row[0] = u64::MAX,
        |s| s[0].state.replicas[1].local = Local::Number(vec![64; 9]),
    ];
    for (number, edit) in refused.into_iter().enumerate() {
        assert!(!resumed(&sampler, edit), "edit {number}");
    }
    let trusted: [Edit; 5] = [
        |s| _ = s[0].info.attempts.pop(),
        |s| s[0].info.accepted.push(1),
        |s| s[0].info.acceptance.clear(),
        |s| s[0].info.acceptance[0] = f64::NAN,
        |s| s.iter_mut().for_each(|c| c.info.round_trips = u64::MAX),
    ];
    for (number, edit) in trusted.into_iter().enumerate() {
        assert!(resumed(&sampler, edit), "edit {number}");
    }
}

#[test]
fn exact_draws() {
    let (model, lattice) = glass();
    let exact = ExactLattice::new(&model, &lattice).unwrap();
    let enumerated = ExactEnumeration::new(&model).unwrap();
    wrong_units::<_, Vec<u64>, ()>(&exact);
    wrong_units::<_, Vec<u64>, ()>(&enumerated);
    type Stored = Chains<Vec<u64>, Rows, ()>;
    assert!(!resumed(&exact, |s: &mut Stored| s[0].state.clear()));
    assert!(!resumed(&enumerated, |s: &mut Stored| s[0].state.clear()));
    assert!(!resumed(&exact, |s: &mut Stored| s[0].state[0] = u64::MAX));
}

struct Bowl;

impl SmoothEnergy for Bowl {
    fn n_dims(&self) -> usize {
        2
    }

    fn energy_and_gradient(&self, q: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.copy_from_slice(q);
        0.5 * q.iter().map(|q| q * q).sum::<f64>()
    }
}

#[test]
fn hamiltonian_chains() {
    let hmc = Hmc::new(Bowl, HmcOptions::default()).unwrap();
    type Edit = fn(&mut Chains<(Point, Point), Array2<f64>, (u64, u64, f64, u64, u64)>);
    let trusted: [Edit; 6] = [
        |_| {},
        // The proposal is overwritten before it is read.
        |s| s[0].state.1.position = vec![f64::NAN; 9],
        |s| s[0].state.0.position[0] = f64::NAN,
        |s| s[0].state.0.position[0] = f64::MAX,
        |s| s[0].state.0.potential = f64::NAN,
        |s| s[0].state.0.gradient[1] = f64::INFINITY,
    ];
    for (number, edit) in trusted.into_iter().enumerate() {
        assert!(resumed(&hmc, edit), "edit {number}");
    }
    let refused: [Edit; 5] = [
        |s| _ = s[0].state.0.position.pop(),
        |s| s[0].state.0.gradient.push(0.0),
        |s| s[0].state.0.momentum.clear(),
        |s| s[1].draws = Array2::zeros((2, 3)),
        |s| s[1].draws = Array2::zeros((1, 2)),
    ];
    for (number, edit) in refused.into_iter().enumerate() {
        assert!(!resumed(&hmc, edit), "edit {number}");
    }
}

#[test]
fn starts_and_chains_of_another_model() {
    let gibbs = Gibbs::new(&glass().0).unwrap();
    let small = Gibbs::new(&Couplings::zeros(3).unwrap()).unwrap();
    let other = Gibbs::new(&dense()).unwrap();
    for foreign in [&small, &other] {
        let file = StopAfter::new(3);
        let mut options = options();
        options.checkpoint = file.checkpoint();
        options.cancel = file.cancel().clone();
        let runner = ChainRunner::new(options.clone()).unwrap();
        assert!(runner.run(foreign).unwrap().cancelled);
        options.checkpoint = file.resumed().1;
        let error = ChainRunner::new(options).unwrap().run(&gibbs).unwrap_err();
        assert!(error.to_string().contains("another model"), "{error}");

        let own = gibbs.random_start(&mut stream(1, 0)).unwrap();
        let start = foreign.random_start(&mut stream(1, 0)).unwrap();
        let error = runner
            .run_from(&gibbs, vec![own, start], |_| {})
            .unwrap_err();
        assert_eq!(error, Error::ForeignStart { chain: 1 });
    }
}
