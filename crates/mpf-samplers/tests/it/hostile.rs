//! Chains that were stored, changed and given a new checksum: refused, and never a panic.

use mpf_core::checkpoint::{open, seal};
use mpf_core::rng::stream;
use mpf_ising::{Boundary, Couplings, Lattice, States};
use mpf_samplers::{
    ChainOptions, ChainRunner, ChainSampler, Chains, Error, ExactEnumeration, ExactLattice, Gibbs,
    Hmc, HmcOptions, Scan, SmoothEnergy, SwendsenWang, Tally, Tempering,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

// What is stored, field by field. A test that reads back what it wrote without a change fails
// when these fall out of step.

#[derive(Serialize, Deserialize)]
struct Stored<S, D, I> {
    chains: Vec<StoredChain<S, D, I>>,
}

#[derive(Serialize, Deserialize)]
struct StoredChain<S, D, I> {
    steps: usize,
    state: S,
    rng: [u64; 4],
    draws: D,
    info: I,
    n_draws: usize,
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
struct ClustersStored {
    row: Vec<u64>,
    parent: Vec<u32>,
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

type Units<S, I> = Stored<S, Rows, I>;

fn runner() -> ChainRunner {
    ChainRunner::new(ChainOptions {
        n_chains: 2,
        n_draws: 4,
        burn_in: 2,
        thinning: 2,
        ..Default::default()
    })
    .unwrap()
}

/// Runs chains half-way, stores them, changes what is stored, reads it again and goes on.
fn resumed<S, M>(sampler: &S, change: impl Fn(&mut M)) -> Result<(), String>
where
    S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    Chains<S::State, S::Draws, S::Info>: Serialize + DeserializeOwned,
    M: Serialize + DeserializeOwned,
{
    let runner = runner();
    let mut chains = runner.begin(sampler).unwrap();
    runner.advance(sampler, &mut chains, 7, |_| {}).unwrap();
    let mut stored: M = open(&seal(&chains).unwrap()).unwrap();
    change(&mut stored);
    let mut chains: Chains<S::State, S::Draws, S::Info> =
        open(&seal(&stored).unwrap()).map_err(|e| e.to_string())?;
    let told = runner.advance(sampler, &mut chains, usize::MAX, |_| {});
    match told {
        Ok(()) => Ok(()),
        Err(Error::ForeignChain { .. } | Error::Count { .. }) => Err(told.unwrap_err().to_string()),
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn refused<S, M>(sampler: &S, words: &str, change: impl Fn(&mut M))
where
    S: ChainSampler<Draws: Send, Info: Tally + Send, State: Send> + Sync,
    Chains<S::State, S::Draws, S::Info>: Serialize + DeserializeOwned,
    M: Serialize + DeserializeOwned,
{
    let message = resumed(sampler, change).expect_err(words);
    assert!(message.contains(words), "{message}");
}

/// What can be wrong with any chain of packed states.
fn wrong_units<S, T, I>(sampler: &S)
where
    S: ChainSampler<Draws = States, Info: Tally + Send, State: Send> + Sync,
    Chains<S::State, S::Draws, S::Info>: Serialize + DeserializeOwned,
    T: Serialize + DeserializeOwned,
    I: Serialize + DeserializeOwned,
{
    type Edit<T, I> = Box<dyn Fn(&mut Units<T, I>)>;
    assert_eq!(resumed(sampler, |_: &mut Units<T, I>| {}), Ok(()));
    let edits: Vec<(&str, Edit<T, I>)> = vec![
        ("chains: found 1", Box::new(|s| _ = s.chains.pop())),
        ("chains: found 0", Box::new(|s| s.chains.clear())),
        ("than its steps", Box::new(|s| s.chains[1].steps = 0)),
        (
            "more steps than were asked for",
            Box::new(|s| s.chains[1].steps = usize::MAX),
        ),
        ("than its steps", Box::new(|s| s.chains[0].n_draws += 1)),
        ("stands still", Box::new(|s| s.chains[0].rng = [0; 4])),
        (
            "than it says",
            Box::new(|s| _ = s.chains[0].draws.bits.pop()),
        ),
        (
            "of other units",
            Box::new(|s| s.chains[1].draws.n_units += 1),
        ),
        ("no", Box::new(|s| s.chains[0].draws.n_units = 0)),
        (
            "are not those",
            Box::new(|s| s.chains[0].draws.bits[0] = u64::MAX),
        ),
    ];
    for (words, edit) in edits {
        let message = resumed(sampler, edit).expect_err(words);
        assert!(words == "no" || message.contains(words), "{message}");
    }
}

fn dense() -> Couplings {
    // Eight neighbours each: too many for a table.
    let j = ndarray::Array2::from_shape_fn((9, 9), |(i, j)| 0.1 * ((i * j) % 5) as f64 - 0.21);
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
    type S = Units<GibbsStored, [u64; 2]>;
    refused(&gibbs, "state of other units", |s: &mut S| {
        s.chains[0].state.row = vec![];
    });
    refused(&gibbs, "state of other units", |s: &mut S| {
        s.chains[0].state.row.push(0);
    });
    refused(&gibbs, "state of other units", |s: &mut S| {
        s.chains[0].state.row[0] |= 1 << 9;
    });
    refused(&gibbs, "surroundings", |s: &mut S| {
        s.chains[0].state.row[0] ^= 1;
    });
    for numbers in [vec![], vec![255; 9], vec![0; 8], vec![0; 100]] {
        refused(&gibbs, "surroundings", move |s: &mut S| {
            s.chains[1].state.local = Local::Number(numbers.clone());
        });
    }
    refused(&gibbs, "surroundings", |s: &mut S| {
        s.chains[1].state.local = Local::LogOdds {
            values: vec![0.0; 9],
            sweeps: 0,
        };
    });
    // Counts may be anything: they are not the state. They stop at their largest number.
    let most = resumed(&gibbs, |s: &mut S| s.chains[0].info = [u64::MAX; 2]);
    assert_eq!(most, Ok(()));
}

#[test]
fn gibbs_by_log_odds() {
    let gibbs = Gibbs::new(&dense()).unwrap();
    wrong_units::<_, GibbsStored, [u64; 2]>(&gibbs);
    type S = Units<GibbsStored, [u64; 2]>;
    fn odds(s: &mut S) -> (&mut Vec<f64>, &mut u32) {
        match &mut s.chains[0].state.local {
            Local::LogOdds { values, sweeps } => (values, sweeps),
            Local::Number(_) => panic!("no table"),
        }
    }
    for value in [f64::NAN, f64::INFINITY, 1e300, 1e-3] {
        refused(&gibbs, "surroundings", move |s: &mut S| {
            odds(s).0[3] = value;
        });
    }
    refused(&gibbs, "surroundings", |s: &mut S| _ = odds(s).0.pop());
    refused(&gibbs, "surroundings", |s: &mut S| odds(s).0.push(0.0));
    refused(&gibbs, "surroundings", |s: &mut S| *odds(s).1 = u32::MAX);
    refused(&gibbs, "surroundings", |s: &mut S| {
        s.chains[0].state.local = Local::Number(vec![0; 9]);
    });
}

#[test]
fn clusters() {
    let sampler = SwendsenWang::new(&glass().0).unwrap();
    wrong_units::<_, ClustersStored, [u64; 4]>(&sampler);
    type S = Units<ClustersStored, [u64; 4]>;
    refused(&sampler, "state of other units", |s: &mut S| {
        s.chains[0].state.row = vec![];
    });
    refused(&sampler, "state of other units", |s: &mut S| {
        s.chains[0].state.row[0] = u64::MAX;
    });
    refused(&sampler, "clusters", |s: &mut S| {
        _ = s.chains[0].state.parent.pop();
    });
    // A step begins by forgetting them.
    let wild = resumed(&sampler, |s: &mut S| {
        s.chains[0].state.parent.fill(u32::MAX);
    });
    assert_eq!(wild, Ok(()));
}

#[test]
fn tempering() {
    let sampler = Tempering::new(&glass().0, &[1.0, 0.5, 0.2], Scan::Sequential).unwrap();
    wrong_units::<_, TemperingStored, Swaps>(&sampler);
    type S = Units<TemperingStored, Swaps>;
    for at_level in [
        vec![0, 1],
        vec![0, 1, 3],
        vec![0, 1, 1],
        vec![0, 1, 2, 2],
        vec![],
    ] {
        refused(&sampler, "levels", move |s: &mut S| {
            s.chains[0].state.at_level.clone_from(&at_level);
        });
    }
    refused(&sampler, "levels", |s: &mut S| {
        _ = s.chains[0].state.heated.pop();
    });
    refused(&sampler, "levels", |s: &mut S| {
        _ = s.chains[0].state.replicas.pop();
    });
    refused(&sampler, "state of other units", |s: &mut S| {
        s.chains[0].state.replicas[2].row[0] = u64::MAX;
    });
    refused(&sampler, "surroundings", |s: &mut S| {
        s.chains[0].state.replicas[1].local = Local::Number(vec![64; 9]);
    });
    refused(&sampler, "swaps", |s: &mut S| {
        _ = s.chains[0].info.attempts.pop();
    });
    refused(&sampler, "swaps", |s: &mut S| {
        s.chains[0].info.accepted.push(1);
    });
    refused(&sampler, "swaps", |s: &mut S| {
        s.chains[0].info.acceptance.clear();
    });
    for value in [f64::NAN, -1.0, 1e300] {
        refused(&sampler, "swaps", move |s: &mut S| {
            s.chains[1].info.acceptance[0] = value;
        });
    }
    let most = resumed(&sampler, |s: &mut S| {
        s.chains[0].info.attempts[0] = u64::MAX;
    });
    assert_eq!(most, Ok(()));
}

#[test]
fn exact_draws() {
    let (model, lattice) = glass();
    let exact = ExactLattice::new(&model, &lattice).unwrap();
    let enumerated = ExactEnumeration::new(&model).unwrap();
    wrong_units::<_, Vec<u64>, ()>(&exact);
    wrong_units::<_, Vec<u64>, ()>(&enumerated);
    type S = Units<Vec<u64>, ()>;
    refused(&exact, "state of other units", |s: &mut S| {
        s.chains[0].state.clear();
    });
    refused(&enumerated, "state of other units", |s: &mut S| {
        s.chains[0].state.clear();
    });
    refused(&exact, "state of other units", |s: &mut S| {
        s.chains[0].state[0] = u64::MAX;
    });
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

/// Draws of HMC cannot be stored, but its states can.
#[test]
fn hamiltonian_states() {
    let hmc = Hmc::new(Bowl, HmcOptions::default()).unwrap();
    let state = hmc.random_start(&mut stream(1, 0)).unwrap();
    let bytes = seal(&state).unwrap();
    let resumed = |change: &dyn Fn(&mut Point, &mut Point)| {
        let (mut point, mut proposal): (Point, Point) = open(&bytes).unwrap();
        change(&mut point, &mut proposal);
        let changed = open(&seal(&(point, proposal)).unwrap()).unwrap();
        let run = runner().run_from(&hmc, vec![state.clone(), changed], |_| {});
        run.map_err(|error| error.to_string())
    };
    assert!(resumed(&|_, _| {}).is_ok());
    // The proposal is overwritten before it is read.
    assert!(resumed(&|_, proposal| proposal.position = vec![f64::NAN; 9]).is_ok());
    type Edit = fn(&mut Point);
    let edits: [(&str, Edit); 8] = [
        ("dimensions", |p| _ = p.position.pop()),
        ("dimensions", |p| p.gradient.push(0.0)),
        ("dimensions", |p| p.momentum.clear()),
        ("not finite", |p| p.position[0] = f64::NAN),
        ("not finite", |p| p.position[0] = f64::MAX),
        ("not that of its state", |p| p.potential = f64::NAN),
        ("not that of its state", |p| p.potential = -1e300),
        ("not that of its state", |p| p.gradient[1] = f64::INFINITY),
    ];
    for (words, edit) in edits {
        let message = resumed(&|point, _| edit(point)).expect_err(words);
        assert!(
            message.contains("chain 1") && message.contains(words),
            "{message}"
        );
    }
}

#[test]
fn starts_and_chains_of_another_model() {
    let (model, _) = glass();
    let gibbs = Gibbs::new(&model).unwrap();
    let small = Gibbs::new(&Couplings::zeros(3).unwrap()).unwrap();
    let other = Gibbs::new(&dense()).unwrap();
    let runner = runner();
    for foreign in [&small, &other] {
        let mut chains = runner.begin(foreign).unwrap();
        let error = runner.advance(&gibbs, &mut chains, 0, |_| {}).unwrap_err();
        assert!(
            matches!(error, Error::ForeignChain { chain: 0, .. }),
            "{error}"
        );
        let start = foreign.random_start(&mut stream(1, 0)).unwrap();
        let starts = vec![start.clone(), start];
        let error = runner.run_from(&gibbs, starts, |_| {}).unwrap_err();
        assert!(
            matches!(error, Error::ForeignChain { chain: 0, .. }),
            "{error}"
        );
    }
}
