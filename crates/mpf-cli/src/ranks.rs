//! One process, or several that `mpirun` started and that share a fit or the chains of a sampler.
//!
//! Rank 0 fits, prints and writes. The others add up their parts of the data. Before the first sum
//! or draw all ranks compare what they were asked for and what they see.

#[cfg(feature = "mpi")]
mod world;

#[cfg(feature = "mpi")]
use crate::console::Console;
use crate::failure::Failure;
use mpf_core::{OneProcess, Ranks, Settings, TreeSum};
use mpf_ising::internal::Vectors;
use std::sync::Arc;

/// Bytes of a complaint that rank 0 hears of.
const COMPLAINT: usize = 400;

/// Returns how many processes were started together, as Open MPI, MPICH and Slurm say it.
pub fn n_launched() -> usize {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    let found = names.iter().find_map(|name| std::env::var(name).ok());
    found.and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Refuses several processes that would all do the same.
///
/// # Errors
/// A [`Failure`] for commands that processes cannot share, and for a program without MPI.
pub fn check(is_shared: bool) -> Result<(), Failure> {
    let n = n_launched();
    if n == 1 || (is_shared && cfg!(feature = "mpi")) {
        return Ok(());
    }
    let failure = Failure::input(format!("{n} processes would all do the same"));
    Err(if is_shared {
        failure.hint("this mpf knows no MPI: cargo install --path crates/mpf-cli --features mpi")
    } else {
        failure.hint("only `mpf fit` of packed files, which `mpf pack` makes, and `mpf sample` can be shared")
    })
}

/// The processes of this run.
pub struct Job {
    /// How they add up.
    pub ranks: Arc<dyn Ranks>,
    #[cfg(feature = "mpi")]
    universe: Option<mpi::environment::Universe>,
}

impl Job {
    /// Joins the other processes, if there are any.
    ///
    /// # Errors
    /// When MPI cannot be started.
    pub fn start() -> Result<Self, Failure> {
        #[cfg(feature = "mpi")]
        if n_launched() > 1 {
            let Some(universe) = mpi::initialize() else {
                return Err(Failure::system("MPI has been started already"));
            };
            return Ok(Self {
                ranks: Arc::new(world::World::new()),
                universe: Some(universe),
            });
        }
        Ok(Self {
            ranks: Arc::new(OneProcess),
            #[cfg(feature = "mpi")]
            universe: None,
        })
    }

    /// Ends the work of this rank. The others cannot go on without one that failed: it says why, and
    /// ends them all.
    ///
    /// # Errors
    /// That of the work of a single process.
    pub fn end(self, outcome: Result<u8, Failure>) -> Result<u8, Failure> {
        #[cfg(feature = "mpi")]
        if let Some(universe) = self.universe {
            use mpi::traits::Communicator;
            match outcome {
                Ok(code) => {
                    drop(universe);
                    return Ok(if self.ranks.rank() == 0 { code } else { 0 });
                }
                Err(mut failure) => {
                    failure.message = format!("rank {}: {}", self.ranks.rank(), failure.message);
                    Console::failure(&failure);
                    universe.world().abort(failure.code.into());
                }
            }
        }
        outcome
    }
}

/// Compares the settings of all ranks, or hears why one of them has none.
///
/// # Errors
/// A [`Failure`] on every rank if one differs; that of rank 0 names them and says what differs.
pub fn agree(
    ranks: &dyn Ranks,
    own: Result<impl Fn() -> Settings, Failure>,
) -> Result<(), Failure> {
    let n = ranks.n_ranks();
    if n == 1 {
        return own.map(|_| ());
    }
    let describe = |settings: &Settings| {
        let vectors = Vectors::default().to_string();
        let vectors = [("the vector instructions".to_owned(), vectors)];
        let entries = settings.entries().iter().chain(&vectors);
        let lines = entries.map(|(name, value)| format!("{name}\t{value}"));
        lines.collect::<Vec<String>>().join("\n")
    };
    let described = own.map(|settings| describe(&settings()));
    let numbers = |text: &str| text.bytes().map(f64::from).collect::<Vec<f64>>();
    let text = |numbers: &[f64]| {
        let bytes = numbers.iter().map(|byte| *byte as u8);
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let of_first = ranks.tell(numbers(described.as_deref().unwrap_or_default()));
    let of_first = text(&of_first);
    let complaint = match &described {
        Err(failure) => failure.message.clone(),
        Ok(text) => {
            let differs = text.lines().zip(of_first.lines()).find(|(a, b)| a != b);
            differs.map_or_else(String::new, |(own, first)| {
                let value = |line: &str| line.split_once('\t').map_or("", |l| l.1).to_owned();
                let name = own.split('\t').next().unwrap_or_default();
                format!("{name} is {}, and on rank 0 {}", value(own), value(first))
            })
        }
    };
    // Every rank fills a place of its own: the sum is all of them.
    let mut own = numbers(&complaint);
    own.resize(COMPLAINT, 0.0);
    let mut places = vec![vec![0.0; COMPLAINT]; n];
    places[ranks.rank()] = own;
    let mut sum = TreeSum::default();
    sum.push(ranks.rank(), places.concat());
    let all = ranks.add_up(sum).unwrap_or_default();
    let complaints = all.chunks(COMPLAINT).map(text).enumerate();
    let complaints: Vec<String> = complaints
        .filter(|(_, text)| !text.is_empty())
        .map(|(rank, text)| format!("rank {rank}: {text}"))
        .collect();
    let n_wrong = ranks.tell(vec![complaints.len() as f64])[0];
    if n_wrong == 0.0 {
        return Ok(());
    }
    Err(Failure::input(complaints.join("; "))
        .hint("all ranks need the same program, options and files"))
}
