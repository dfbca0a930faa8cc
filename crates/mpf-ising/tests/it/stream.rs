//! Streamed samples: the numbers of samples in memory, to the same bits for any memory, threads and
//! ranks, and an error if they cannot be read.

use mpf_core::rng::stream;
use mpf_core::{OneProcess, Ranks, TreeSum};
use mpf_ising::{
    CountPotential, Couplings, Error, FitOptions, Fitter, Mode, Mpf, Neighbourhood, PathOptions,
    PenaltyPath, RowSource, Samples, States, Stream, Support, serve,
};
use mpf_testkit::{random_couplings, seed_or};
use rand::RngExt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Rows of a chain of units, each of which often copies the one before it.
fn chain(n: usize, d: usize, active: f64, seed: u64) -> States {
    let mut rng = stream(seed, 0);
    let mut states = States::new(d).unwrap();
    for _ in 0..n {
        let mut row = vec![0u64; states.words_per_row()];
        let mut last = false;
        for unit in 0..d {
            if rng.random::<f64>() > 0.3 {
                last = rng.random::<f64>() < active;
            }
            row[unit / 64] |= u64::from(last) << (unit % 64);
        }
        states.push(&row);
    }
    states
}

fn one_process(states: &States, memory: usize) -> Stream {
    Stream::new(Arc::new(states.clone()), Arc::new(OneProcess), memory).unwrap()
}

fn fitter(change: impl FnOnce(&mut FitOptions)) -> Fitter {
    let mut options = FitOptions {
        l2: 1e-3,
        ..Default::default()
    };
    change(&mut options);
    Fitter::new(Mpf::default(), options).unwrap()
}

fn largest_difference(a: &Couplings, b: &Couplings) -> f64 {
    let difference = a.as_array() - b.as_array();
    difference.iter().fold(0.0, |m, e| m.max(e.abs()))
}

/// The bits of J and V.
fn bits(couplings: &Couplings) -> Vec<u64> {
    let potential = couplings.potential().unwrap_or(&[]);
    let numbers = couplings.as_array().iter().chain(potential);
    numbers.map(|v| v.to_bits()).collect()
}

/// The largest difference of numbers that two fits of the same samples find. Both searches take the
/// same steps, and the rounding of their sums, 1e-16, grows a little with each: 6e-12 was seen after
/// 44 steps on 40,000 rows of 50 neurons.
const SAME: f64 = 1e-9;

/// Edges of a chain: thin enough for sums row by row.
fn edges(d: usize) -> Support {
    Support::Edges((1..d).map(|i| (i - 1, i)).collect())
}

#[test]
fn values_and_slopes_are_those_of_samples_in_memory() {
    // Tables, lists of set bits and rows; 65 units take two words; the last tile is short.
    for (d, active, support) in [
        (65, 0.5, Support::Full),
        (33, 0.08, Support::Full),
        (40, 0.5, edges(40)),
    ] {
        let states = chain(20_001, d, active, seed_or(3));
        let (samples, streamed) = (Samples::new(&states).unwrap(), one_process(&states, 0));
        assert_eq!(streamed.means(), samples.means());
        assert_eq!(streamed.n_effective(), samples.n_effective());
        let mut couplings = random_couplings(d, 0.2, 5);
        if support != Support::Full {
            // The objective is a sum over the couplings that are there.
            let thin = ndarray::Array2::from_shape_fn((d, d), |(i, j)| {
                if i.abs_diff(j) <= 1 {
                    couplings.get(i, j)
                } else {
                    0.0
                }
            });
            couplings = Couplings::new(thin).unwrap();
        }
        let fitter = fitter(|o| o.support = support.clone());
        let held = fitter.objective_value(&couplings, &samples).unwrap();
        let value = fitter.objective_value(&couplings, &streamed).unwrap();
        // Sums of 10⁶ terms of one sign in another order.
        assert!((value / held - 1.0).abs() < 1e-12, "{value} {held}");
        let held = fitter.coupling_slopes(&couplings, &samples).unwrap();
        let found = fitter.coupling_slopes(&couplings, &streamed).unwrap();
        assert_eq!(held.len(), found.len());
        for ((pair, a), (other, b)) in held.iter().zip(&found) {
            assert_eq!(pair, other);
            assert!((a - b).abs() < 1e-11 * value, "{pair:?}: {a} {b}");
        }
    }
}

#[test]
fn fits_are_those_of_samples_in_memory() {
    let d = 20;
    let states = chain(17_000, d, 0.4, seed_or(4));
    let samples = Samples::new(&states).unwrap();
    let streamed = one_process(&states, 0);
    let changes: [&dyn Fn(&mut FitOptions); 4] =
        [&|_| {}, &|o| o.l1 = 0.01, &|o| o.support = edges(d), &|o| {
            o.potential = Some(CountPotential { smoothness: 0.1 });
        }];
    for change in changes {
        let fitter = fitter(change);
        let held = fitter.fit(&samples).unwrap();
        let found = fitter.fit(&streamed).unwrap();
        assert!(held.stop.is_converged() && found.stop.is_converged());
        let off = largest_difference(&held.couplings, &found.couplings);
        assert!(off < SAME, "{off}");
        assert!((held.value - found.value).abs() < 1e-12 * held.value);
        let zeros = |j: &Couplings| j.as_array().iter().filter(|v| **v == 0.0).count();
        assert_eq!(zeros(&held.couplings), zeros(&found.couplings));
        // V where a hundred samples show it: so few determine it worse than all of them do J. Beyond, it
        // comes from particles, of which a last digit can choose others.
        if let (Some(a), Some(b)) = (held.couplings.potential(), found.couplings.potential()) {
            let active = |row: &[u64]| row.iter().map(|w| w.count_ones() as usize).sum::<usize>();
            let shown = |n: usize| states.rows().filter(|row| active(row) == n).count();
            let seen: Vec<usize> = (0..=d).filter(|&n| shown(n) >= 100).collect();
            assert!(seen.len() > 5, "{seen:?}");
            for n in seen {
                assert!((a[n] - b[n]).abs() < 100.0 * SAME, "{n}: {} {}", a[n], b[n]);
            }
        }
    }
}

#[test]
fn steps_in_single_precision_are_those_of_samples_in_memory() {
    // Two tiles of a stream; in memory, another number of chunks.
    let states = chain(13_000, 260, 0.4, seed_or(12));
    let fitter = fitter(|_| {});
    let held = fitter.fit(&Samples::new(&states).unwrap()).unwrap();
    let found = fitter.fit(&one_process(&states, 0)).unwrap();
    assert!(held.single_precision_evaluations > 2);
    assert_eq!(
        held.single_precision_evaluations,
        found.single_precision_evaluations
    );
    let off = largest_difference(&held.couplings, &found.couplings);
    assert!(off < SAME, "{off}");
}

#[test]
fn paths_are_those_of_samples_in_memory() {
    let states = chain(17_000, 18, 0.4, seed_or(5));
    let streamed = one_process(&states, 1 << 30);
    let fitter = fitter(|o| o.l2 = 0.0);
    let path = PenaltyPath::new(PathOptions {
        n_lambdas: 4,
        smallest: 0.01,
        n_folds: 3,
        ..Default::default()
    })
    .unwrap();
    let held = path.cross_validate(&fitter, &states, |_| {}).unwrap();
    let found = path
        .cross_validate_stream(&fitter, &streamed, |_| {})
        .unwrap();
    assert_eq!(held.path.len(), found.path.len());
    assert!((held.chosen().lambda / found.chosen().lambda - 1.0).abs() < SAME);
    for (a, b) in held.path.iter().zip(&found.path) {
        assert_eq!(a.n_couplings, b.n_couplings);
        assert!((a.objective - b.objective).abs() < SAME);
        assert!((a.ebic.unwrap() / b.ebic.unwrap() - 1.0).abs() < SAME);
    }
    for (a, b) in held.scores.iter().zip(&found.scores) {
        assert!((a.mean - b.mean).abs() < SAME, "{} {}", a.mean, b.mean);
    }
}

/// The sum of a rank, with its number.
type Part = (usize, TreeSum);

/// Threads as ranks: rank 0 talks to each of the others, and they to it.
#[derive(Debug)]
struct Threads {
    rank: usize,
    n_ranks: usize,
    to: Vec<Mutex<Sender<Vec<f64>>>>,
    from: Mutex<Receiver<Vec<f64>>>,
    sums: Mutex<(Sender<Part>, Receiver<Part>)>,
}

impl Threads {
    fn new(n_ranks: usize) -> Vec<Self> {
        let (messages, inboxes): (Vec<_>, Vec<_>) = (0..n_ranks).map(|_| channel()).unzip();
        let (to_root, mut at_root) = channel();
        let rank = |(rank, from)| {
            let (_, nothing) = channel();
            Self {
                rank,
                n_ranks,
                to: messages.iter().cloned().map(Mutex::new).collect(),
                from: Mutex::new(from),
                sums: Mutex::new((to_root.clone(), std::mem::replace(&mut at_root, nothing))),
            }
        };
        inboxes.into_iter().enumerate().map(rank).collect()
    }
}

impl Ranks for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    fn add_up(&self, own: TreeSum) -> Option<Vec<f64>> {
        let sums = self.sums.lock().unwrap();
        if self.rank > 0 {
            sums.0.send((self.rank, own)).unwrap();
            return None;
        }
        let mut others: Vec<_> = (1..self.n_ranks).map(|_| sums.1.recv().unwrap()).collect();
        others.sort_by_key(|(rank, _)| *rank);
        let mut all = own;
        others.into_iter().for_each(|(_, sum)| all.append(sum));
        all.finish()
    }

    fn tell(&self, message: Vec<f64>) -> Vec<f64> {
        if self.rank > 0 {
            return self.from.lock().unwrap().recv().unwrap();
        }
        for to in &self.to[1..] {
            to.lock().unwrap().send(message.clone()).unwrap();
        }
        message
    }
}

#[test]
fn memory_threads_and_ranks_change_no_bit() {
    let d = 19;
    let states = chain(60_000, d, 0.4, seed_or(6));
    let fitter = fitter(|o| {
        o.l1 = 0.002;
        o.potential = Some(CountPotential::default());
        o.minimizer.max_iterations = 8;
    });
    let expected = bits(&fitter.fit(&one_process(&states, 0)).unwrap().couplings);
    for (memory, threads) in [(100_000, 1), (1 << 30, 2), (0, 3)] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let fit = pool.install(|| fitter.fit(&one_process(&states, memory)).unwrap());
        assert_eq!(
            bits(&fit.couplings),
            expected,
            "{memory} bytes, {threads} threads"
        );
    }
    for n_ranks in [2, 3, 4, 9] {
        let mut ranks = Threads::new(n_ranks).into_iter();
        let first = ranks.next().unwrap();
        let found = std::thread::scope(|scope| {
            for rank in ranks {
                let source = Arc::new(states.clone());
                scope.spawn(move || serve(source, Arc::new(rank), 1 << 20).unwrap());
            }
            let stream = Stream::new(Arc::new(states.clone()), Arc::new(first), 0).unwrap();
            let fit = fitter.fit(&stream).unwrap();
            // Another objective over a part of the rows, then the first again.
            let (rest, out) = stream.split(10_000..25_000).unwrap();
            let part = fitter.objective_value(&fit.couplings, &out).unwrap();
            let other = fitter.objective_value(&fit.couplings, &rest).unwrap();
            let whole = fitter.objective_value(&fit.couplings, &stream).unwrap();
            let mean = (15.0 * part + 45.0 * other) / 60.0;
            assert!((whole - mean).abs() < 1e-12 * whole, "{whole} {mean}");
            stream.dismiss();
            bits(&fit.couplings)
        });
        assert_eq!(found, expected, "{n_ranks} ranks");
    }
}

/// Weighted rows, whose source fails after some reads.
struct Failing {
    states: States,
    reads: AtomicUsize,
}

impl RowSource for Failing {
    fn n_units(&self) -> usize {
        self.states.n_units()
    }

    fn n_samples(&self) -> usize {
        self.states.n_samples()
    }

    fn has_weights(&self) -> bool {
        true
    }

    fn read(
        &self,
        rows: Range<usize>,
        states: &mut States,
        weights: &mut Vec<f64>,
    ) -> Result<(), String> {
        if self.reads.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(format!("row {} is gone", rows.start));
        }
        weights.extend(rows.clone().map(|row| (row % 4) as f64));
        self.states.read(rows, states, &mut Vec::new())
    }
}

#[test]
fn weights_count_and_what_cannot_be_read_is_an_error() {
    let states = chain(20_000, 17, 0.4, seed_or(8));
    let source = |reads: usize| Failing {
        states: states.clone(),
        reads: AtomicUsize::new(reads),
    };
    let weights: Vec<f64> = (0..20_000).map(|row| (row % 4) as f64).collect();
    let samples = Samples::weighted(&states, &weights).unwrap();
    let stream = Stream::new(Arc::new(source(1_000_000)), Arc::new(OneProcess), 0).unwrap();
    assert_eq!(stream.n_observed(), 15_000);
    assert_eq!(stream.n_effective(), samples.total_weight());
    let fitter = fitter(|_| {});
    let held = fitter.fit(&samples).unwrap();
    let found = fitter.fit(&stream).unwrap();
    assert!(largest_difference(&held.couplings, &found.couplings) < SAME);

    for reads in [0, 2, 4, 9] {
        let stream = Stream::new(Arc::new(source(reads)), Arc::new(OneProcess), 0);
        let error = match stream {
            Err(error) => error,
            Ok(stream) => fitter.fit(&stream).unwrap_err(),
        };
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        assert!(error.to_string().ends_with("is gone"), "{error}");
    }
}

#[test]
fn what_needs_all_samples_at_once_is_refused() {
    let states = chain(100, 17, 0.4, 9);
    let stream = one_process(&states, 0);
    let by_node = fitter(|o| o.mode = Mode::NodeWise);
    let outside = Mpf {
        neighbourhood: Neighbourhood::OutsideData,
        ..Mpf::default()
    };
    let outside = Fitter::new(outside, FitOptions::default()).unwrap();
    for fitter in [by_node, outside] {
        let error = fitter.fit(&stream).unwrap_err();
        assert!(matches!(error, Error::NotOffered { .. }), "{error}");
    }
    let empty = Stream::new(Arc::new(States::new(3).unwrap()), Arc::new(OneProcess), 0);
    assert!(matches!(empty.err(), Some(Error::NoData { .. })));
}
