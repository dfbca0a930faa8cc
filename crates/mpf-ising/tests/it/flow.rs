//! The fast flow against the plain one of `mpf-core`, and what must hold of both.

use mpf_core::gradient_error;
use mpf_core::rng::stream;
use mpf_core::{Connectivity, Flow, FlowForm, Objective, OutsideData};
use mpf_ising::internal::{
    Algorithm, Kernel, Precision, Vectors, last_word_mask, n_packed, packed_index,
};
use mpf_ising::{
    Couplings, IsingFlow, IsingModel, MarginLoss, MarginSum, Neighbourhood, Samples, States, Terms,
    flip_bit,
};
use mpf_testkit::exact_samples;
use proptest::prelude::*;
use rand::RngExt;

/// All states one bit flip away (Eq. `g_ij_ising`), and on request the state with every bit
/// flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitFlips {
    /// The number of units of a state.
    pub n_units: usize,
    /// Whether the complement of the state is a neighbour too.
    pub complement: bool,
}

impl Connectivity<[u64]> for BitFlips {
    fn for_each_neighbour(
        &self,
        _sample: usize,
        x: &[u64],
        scratch: &mut [u64],
        mut visit: impl FnMut(&[u64], f64),
    ) {
        scratch.copy_from_slice(x);
        for unit in 0..self.n_units {
            flip_bit(scratch, unit);
            visit(scratch, 0.0);
            flip_bit(scratch, unit);
        }
        if self.complement {
            for word in scratch.iter_mut() {
                *word = !*word;
            }
            scratch[x.len() - 1] &= last_word_mask(self.n_units);
            visit(scratch, 0.0);
        }
    }
}

#[test]
fn neighbours_differ_by_one_bit_or_by_all() {
    let rule = BitFlips {
        n_units: 70,
        complement: true,
    };
    let x = [0x5555_u64, 0b10_1010];
    let mut distances = Vec::new();
    rule.for_each_neighbour(0, &x, &mut [0; 2], |y, ln_weight| {
        assert_eq!(ln_weight, 0.0);
        assert_eq!(y[1] >> 6, 0);
        distances.push((x[0] ^ y[0]).count_ones() + (x[1] ^ y[1]).count_ones());
    });
    assert_eq!(distances.len(), 71);
    assert!(distances[..70].iter().all(|&d| d == 1));
    assert_eq!(distances[70], 70);
}

fn random_states(n: usize, d: usize, active: f64, seed: u64) -> States {
    let mut rng = stream(seed, 0);
    let data = ndarray::Array2::from_shape_simple_fn((n, d), || rng.random::<f64>() < active);
    States::from_binary(data.view()).unwrap()
}

fn random_theta(d: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 1);
    (0..n_packed(d))
        .map(|_| scale * rng.random_range(-1.0..1.0))
        .collect()
}

/// The plain objective over the rows one by one, repeats included.
fn plain(
    states: &States,
    weights: &[f64],
    neighbourhood: Neighbourhood,
    form: FlowForm,
    theta: &[f64],
) -> (f64, Vec<f64>) {
    let d = states.n_units();
    let model = IsingModel::new(d);
    let flips = BitFlips {
        n_units: d,
        complement: neighbourhood == Neighbourhood::SingleFlipsAndComplement,
    };
    let rows: Vec<Vec<u64>> = states.rows().map(<[u64]>::to_vec).collect();
    let mut grad = vec![0.0; theta.len()];
    let value = if neighbourhood == Neighbourhood::OutsideData {
        let rule = OutsideData::new(flips, rows.clone());
        let mut flow = Flow::new(&model, &rule, &rows).unwrap();
        flow = flow.weighted(weights).unwrap().form(form);
        flow.value_and_gradient(theta, &mut grad)
    } else {
        let mut flow = Flow::new(&model, &flips, &rows).unwrap();
        flow = flow.weighted(weights).unwrap().form(form);
        flow.value_and_gradient(theta, &mut grad)
    };
    (value, grad)
}

/// Both are sums of about M·d positive terms in another order: relative errors of a few hundred ε
/// at most. The plain one also takes differences of energies, which are sums of couplings, err by
/// ε Σ|J|, and stand in an exponent. The gradient is compared relative to the largest of it.
fn assert_close(fast: &(f64, Vec<f64>), plain: &(f64, Vec<f64>), theta: &[f64], form: FlowForm) {
    // A logarithm near zero is as good as its argument near one.
    let floor = if form == FlowForm::Log { 1.0 } else { 0.0 };
    let energies: f64 = theta.iter().map(|t| t.abs()).sum();
    let tolerance = f64::EPSILON * (1000.0 + energies);
    let close = |a: f64, b: f64, scale: f64| (a - b).abs() <= tolerance * scale;
    assert!(
        close(fast.0, plain.0, plain.0.abs().max(floor)),
        "{:e} against {:e}",
        fast.0,
        plain.0
    );
    let scale = plain.1.iter().fold(plain.0.abs(), |m, g| m.max(g.abs()));
    for (k, (a, b)) in fast.1.iter().zip(&plain.1).enumerate() {
        assert!(close(*a, *b, scale), "entry {k}: {a:e} against {b:e}");
    }
}

fn fast(
    samples: &Samples,
    neighbourhood: Neighbourhood,
    form: FlowForm,
    theta: &[f64],
) -> (f64, Vec<f64>) {
    fast_by(Kernel::default(), samples, neighbourhood, form, theta)
}

fn fast_by(
    kernel: Kernel,
    samples: &Samples,
    neighbourhood: Neighbourhood,
    form: FlowForm,
    theta: &[f64],
) -> (f64, Vec<f64>) {
    let mut flow = IsingFlow::with_kernel(samples, neighbourhood, form, kernel).unwrap();
    let mut grad = vec![0.0; theta.len()];
    let value = flow.value_and_gradient(theta, &mut grad);
    (value, grad)
}

/// Every algorithm with every kind of vectors that the machine has.
fn kernels(d: usize) -> Vec<Kernel> {
    let mut algorithms = vec![
        Algorithm::Auto,
        Algorithm::Dense,
        Algorithm::Sparse,
        Algorithm::Rows,
    ];
    if d <= 11 {
        algorithms.push(Algorithm::Patterns);
    }
    let each = |algorithm| {
        Vectors::available().map(move |vectors| Kernel {
            algorithm,
            vectors,
            serial: vectors == Vectors::Portable,
            ..Kernel::default()
        })
    };
    algorithms.into_iter().flat_map(each).collect()
}

fn neighbourhoods() -> [Neighbourhood; 3] {
    [
        Neighbourhood::SingleFlips,
        Neighbourhood::SingleFlipsAndComplement,
        Neighbourhood::OutsideData,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_kernel_equals_the_plain_sum(
        d in prop::sample::select(vec![1usize, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 129]),
        n in prop::sample::select(vec![1usize, 2, 63, 64, 65]),
        active in prop::sample::select(vec![0.0, 0.03, 0.5, 1.0]),
        which in 0..3usize,
        log in any::<bool>(),
        scale in prop::sample::select(vec![0.1, 1.0, 20.0, 300.0]),
        seed in any::<u64>(),
    ) {
        let states = random_states(n, d, active, seed);
        let mut rng = stream(seed, 2);
        let weights: Vec<f64> = (0..n).map(|_| rng.random_range(0.5..3.0)).collect();
        let samples = Samples::weighted(&states, &weights).unwrap();
        let theta = random_theta(d, scale / (d as f64).sqrt(), seed);
        let neighbourhood = neighbourhoods()[which];
        let form = if log { FlowForm::Log } else { FlowForm::Sum };
        if IsingFlow::new(&samples, neighbourhood, form).is_ok() {
            let plain = plain(&states, &weights, neighbourhood, form, &theta);
            for kernel in kernels(d) {
                let fast = fast_by(kernel, &samples, neighbourhood, form, &theta);
                if plain.0.is_finite() {
                    assert_close(&fast, &plain, &theta, form);
                } else {
                    assert_eq!(fast.0, plain.0);
                }
            }
        }
    }
}

#[test]
fn every_kernel_equals_the_plain_sum_over_many_tiles() {
    // The plain sum takes n d³ steps.
    for (n, d, active) in [
        (1000, 1, 0.5),
        (1000, 10, 0.5),
        (1000, 63, 0.03),
        (600, 65, 0.5),
        (300, 100, 0.05),
        (300, 129, 0.5),
    ] {
        let states = random_states(n, d, active, d as u64);
        let samples = Samples::new(&states).unwrap();
        let theta = random_theta(d, 3.0 / (d as f64).sqrt(), 1);
        for neighbourhood in neighbourhoods() {
            if IsingFlow::new(&samples, neighbourhood, FlowForm::Sum).is_err() {
                // One unit: both states are data.
                continue;
            }
            let weights = vec![1.0; n];
            let plain = plain(&states, &weights, neighbourhood, FlowForm::Sum, &theta);
            for kernel in kernels(d) {
                let fast = fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta);
                assert_close(&fast, &plain, &theta, FlowForm::Sum);
            }
        }
    }
}

/// A support's objective is the full one with zeros elsewhere.
fn check_support(d: usize, edges: Vec<(usize, usize)>, expected: Algorithm) {
    let states = random_states(500, d, 0.4, 3);
    let mut rng = stream(4, 0);
    let weights: Vec<f64> = (0..500).map(|_| rng.random_range(0.5..3.0)).collect();
    let samples = Samples::weighted(&states, &weights).unwrap();
    let mut draw = || rng.random_range(-0.5..0.5);
    let fields: Vec<f64> = (0..d).map(|_| draw()).collect();
    let couplings: Vec<f64> = edges.iter().map(|_| draw()).collect();

    let mut spins = mpf_ising::SpinCouplings {
        fields: fields.clone().into(),
        couplings: ndarray::Array2::zeros((d, d)),
    };
    for (&(i, j), &k) in edges.iter().zip(&couplings) {
        spins.couplings[[i, j]] = k;
        spins.couplings[[j, i]] = k;
    }
    let theta = Couplings::from_spins(&spins).unwrap().pack();
    let neighbourhood = Neighbourhood::SingleFlips;
    let (value, grad) = plain(&states, &weights, neighbourhood, FlowForm::Sum, &theta);

    let terms = Terms::new(&samples, 0..d, edges.clone()).unwrap();
    let mut sum = MarginSum::new(terms, MarginLoss::FLOW);
    assert_eq!(sum.algorithm(), expected);
    let mut thin_grad = vec![0.0; d + edges.len()];
    let params: Vec<f64> = fields.into_iter().chain(couplings).collect();
    let thin = sum.value_and_gradient(&params, &mut thin_grad);
    assert!((thin / value - 1.0).abs() < 1e-12);
    // ∂/∂h_i = −2 ∂/∂J_ii and ∂/∂K_ij = −2 (∂/∂J_ij − ∂/∂J_ii − ∂/∂J_jj).
    let bias = |i: usize| grad[packed_index(d, i, i)];
    for (i, field) in thin_grad[..d].iter().enumerate() {
        assert!((field + 2.0 * bias(i)).abs() < 1e-11 * value);
    }
    for (q, &(i, j)) in edges.iter().enumerate() {
        let full = -2.0 * (grad[packed_index(d, i, j)] - bias(i) - bias(j));
        assert!((thin_grad[d + q] - full).abs() < 1e-11 * value);
    }
}

#[test]
fn thin_supports_are_summed_by_patterns_or_rows() {
    let lattice = mpf_ising::Lattice::new(6, 7, mpf_ising::Boundary::Open).unwrap();
    check_support(42, lattice.edges(), Algorithm::Patterns);
    // A hub with 15 neighbours has too many patterns to count.
    check_support(40, (1..16).map(|j| (0, j)).collect(), Algorithm::Rows);
}

#[test]
fn the_gradient_is_the_gradient() {
    let samples = Samples::new(&random_states(40, 6, 0.4, 1)).unwrap();
    let theta = random_theta(6, 1.0, 2);
    for neighbourhood in [
        Neighbourhood::SingleFlips,
        Neighbourhood::SingleFlipsAndComplement,
        Neighbourhood::OutsideData,
    ] {
        for form in [FlowForm::Sum, FlowForm::Log] {
            let mut flow = IsingFlow::new(&samples, neighbourhood, form).unwrap();
            // Richardson differences at 1e-3 err by h⁴ ~ 1e-12 and rounding ε/h ~ 1e-13.
            assert!(gradient_error(&mut flow, &theta, 1e-3) < 1e-10);
        }
    }
}

#[test]
fn the_truth_is_stationary_under_exact_weights() {
    let d = 5;
    let truth = Couplings::unpack(d, &random_theta(d, 1.5, 3)).unwrap();
    let samples = exact_samples(&truth);
    for neighbourhood in [
        Neighbourhood::SingleFlips,
        Neighbourhood::SingleFlipsAndComplement,
    ] {
        let (_, grad) = fast(&samples, neighbourhood, FlowForm::Sum, &truth.pack());
        assert!(grad.iter().all(|g| g.abs() < 1e-12));
    }
}

#[test]
fn a_single_unit_by_hand() {
    // d = 1, three ones and one zero, J = [[b]]: E(1) = b, so the ones leave at e^{b/2} and the
    // zero at e^{−b/2}; the flow is (3 e^{b/2} + e^{−b/2})/4.
    let data = ndarray::array![[1u8], [1], [0], [1]];
    let samples = Samples::from_binary(data.view()).unwrap();
    let b: f64 = -0.7;
    let (value, grad) = fast(&samples, Neighbourhood::SingleFlips, FlowForm::Sum, &[b]);
    let (up, down) = ((b / 2.0).exp(), (-b / 2.0).exp());
    assert!((value - (3.0 * up + down) / 4.0).abs() < 1e-15);
    assert!((grad[0] - (3.0 * up - down) / 8.0).abs() < 1e-15);
}

#[test]
fn the_logarithm_survives_couplings_whose_exponentials_overflow() {
    let states = random_states(50, 20, 0.5, 4);
    let samples = Samples::new(&states).unwrap();
    let theta = random_theta(20, 1e3, 5);
    let (sum, _) = fast(&samples, Neighbourhood::SingleFlips, FlowForm::Sum, &theta);
    assert_eq!(sum, f64::INFINITY);
    let weights = vec![1.0; 50];
    for neighbourhood in [
        Neighbourhood::SingleFlips,
        Neighbourhood::SingleFlipsAndComplement,
    ] {
        let fast = fast(&samples, neighbourhood, FlowForm::Log, &theta);
        assert!(fast.0.is_finite() && fast.0 > 700.0);
        let plain = plain(&states, &weights, neighbourhood, FlowForm::Log, &theta);
        assert_close(&fast, &plain, &theta, FlowForm::Log);
    }
}

/// The plain sum would take minutes here; rows are tested against it above.
#[test]
#[expect(clippy::print_stdout, reason = "the log should say what was run")]
fn wide_tables_in_either_precision_equal_rows() {
    // Passes that end within words and groups, of columns and of samples, and tiles that end early.
    for (d, n) in [(70, 1500), (130, 4500), (410, 2503)] {
        let samples = Samples::new(&random_states(n, d, 0.5, d as u64)).unwrap();
        let theta = random_theta(d, 2.0 / (d as f64).sqrt(), 3);
        let by = |kernel| {
            fast_by(
                kernel,
                &samples,
                Neighbourhood::SingleFlips,
                FlowForm::Sum,
                &theta,
            )
        };
        let rows = by(Kernel {
            algorithm: Algorithm::Rows,
            ..Kernel::default()
        });
        for vectors in Vectors::available() {
            println!("{vectors} vectors, d = {d}");
            let dense = |precision| {
                by(Kernel {
                    algorithm: Algorithm::Dense,
                    vectors,
                    precision,
                    ..Kernel::default()
                })
            };
            assert_close(&dense(Precision::Double), &rows, &theta, FlowForm::Sum);
            let single = dense(Precision::Single);
            // A product of d/5 table rows, each right to a few roundings.
            let tolerance = f64::from(f32::EPSILON) * (d as f64).sqrt();
            assert!((single.0 / rows.0 - 1.0).abs() < tolerance);
            let largest = rows.1.iter().fold(0.0f64, |m, g| m.max(g.abs()));
            for (a, b) in single.1.iter().zip(&rows.1) {
                assert!((a - b).abs() < tolerance * largest, "{a} against {b}");
            }
            // Not the same code by mistake.
            assert_ne!(single.0, dense(Precision::Double).0);
        }
    }
}

/// Small, and without threads: the test of memory accesses, under Miri and sanitizers.
#[test]
fn every_algorithm_gives_the_same_sums() {
    for (d, n) in [(1, 3), (11, 70)] {
        let samples = Samples::new(&random_states(n, d, 0.5, 4)).unwrap();
        let theta = random_theta(d, 0.5, 5);
        let by = |algorithm, vectors| {
            let kernel = Kernel {
                algorithm,
                vectors,
                serial: true,
                ..Kernel::default()
            };
            let neighbourhood = Neighbourhood::SingleFlips;
            fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta)
        };
        let expected = by(Algorithm::Rows, Vectors::Portable);
        for algorithm in [Algorithm::Dense, Algorithm::Sparse, Algorithm::Rows] {
            for vectors in Vectors::available() {
                assert_close(&by(algorithm, vectors), &expected, &theta, FlowForm::Sum);
            }
        }
    }
}

/// Exponentials are multiplied and two lines share a division, then not the division, then neither.
#[test]
fn large_margins_leave_no_range() {
    let d = 33;
    let samples = Samples::new(&random_states(300, d, 0.5, 8)).unwrap();
    for bound in [160.0, 450.0, 680.0] {
        let mut theta = random_theta(d, 1.0, 9);
        let size = bound / d as f64;
        theta.iter_mut().for_each(|t| *t = size * t.signum());
        let by = |algorithm, vectors| {
            let kernel = Kernel {
                algorithm,
                vectors,
                ..Kernel::default()
            };
            let neighbourhood = Neighbourhood::SingleFlips;
            fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta)
        };
        let rows = by(Algorithm::Rows, Vectors::Portable);
        assert!(rows.0.is_finite());
        for vectors in Vectors::available() {
            for algorithm in [Algorithm::Dense, Algorithm::Sparse] {
                assert_close(&by(algorithm, vectors), &rows, &theta, FlowForm::Sum);
            }
        }
    }
}

/// Fused multiply-adds and the order of sums are the same in all registers.
#[test]
fn the_width_of_vectors_cannot_change_a_digit() {
    let samples = Samples::new(&random_states(3000, 90, 0.3, 6)).unwrap();
    let theta = random_theta(90, 0.3, 7);
    for algorithm in [Algorithm::Dense, Algorithm::Sparse, Algorithm::Rows] {
        for precision in [Precision::Double, Precision::Single] {
            let bits: Vec<Vec<u64>> = Vectors::available()
                .filter(|&vectors| vectors != Vectors::Portable)
                .map(|vectors| {
                    let kernel = Kernel {
                        algorithm,
                        vectors,
                        precision,
                        ..Kernel::default()
                    };
                    let neighbourhood = Neighbourhood::SingleFlips;
                    let (value, grad) =
                        fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta);
                    let all = std::iter::once(value).chain(grad);
                    all.map(f64::to_bits).collect()
                })
                .collect();
            assert!(bits.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
}

#[test]
fn flips_into_data_states_are_found_and_counted() {
    // States 00, 01, 10 of two units, 00 twice: its two flips are data, one flip each of 01 and 10.
    let data = ndarray::array![[0u8, 0], [1, 0], [0, 1], [0, 0]];
    let samples = Samples::from_binary(data.view()).unwrap();
    let flow = IsingFlow::new(&samples, Neighbourhood::OutsideData, FlowForm::Sum).unwrap();
    assert_eq!(flow.left_out_fraction(), (2.0 * 2.0 + 1.0 + 1.0) / 8.0);
    let all = ndarray::array![[0u8, 0], [1, 0], [0, 1], [1, 1]];
    let samples = Samples::from_binary(all.view()).unwrap();
    assert!(matches!(
        IsingFlow::new(&samples, Neighbourhood::OutsideData, FlowForm::Sum),
        Err(mpf_ising::Error::NoFlipsLeft)
    ));
}

#[test]
fn the_thread_count_cannot_change_a_digit() {
    // More than one chunk of samples, for every algorithm that has chunks.
    let samples = Samples::new(&random_states(20_000, 40, 0.3, 6)).unwrap();
    let theta = random_theta(40, 0.3, 7);
    let cases = [
        (Algorithm::Dense, Precision::Double),
        (Algorithm::Dense, Precision::Single),
        (Algorithm::Sparse, Precision::Double),
        (Algorithm::Rows, Precision::Double),
    ];
    for (algorithm, precision) in cases {
        let bits = |threads: usize| -> Vec<u64> {
            let kernel = Kernel {
                algorithm,
                precision,
                ..Kernel::default()
            };
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let neighbourhood = Neighbourhood::SingleFlipsAndComplement;
                let (value, grad) = fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta);
                let all = std::iter::once(value).chain(grad);
                all.map(f64::to_bits).collect()
            })
        };
        let one = bits(1);
        for threads in [2, 3, 8] {
            assert_eq!(bits(threads), one, "{algorithm:?}");
        }
    }
}

#[test]
fn nan_is_not_lost() {
    let samples = Samples::new(&random_states(70, 9, 0.5, 8)).unwrap();
    let mut theta = random_theta(9, 1.0, 9);
    theta[3] = f64::NAN;
    for kernel in kernels(9) {
        let neighbourhood = Neighbourhood::SingleFlips;
        let (value, _) = fast_by(kernel, &samples, neighbourhood, FlowForm::Sum, &theta);
        assert!(value.is_nan(), "{kernel:?}");
    }
}

#[test]
fn terms_are_checked() {
    let samples = Samples::new(&random_states(5, 4, 0.5, 10)).unwrap();
    let terms = |units, pairs| Terms::new(&samples, units, pairs).err().unwrap();
    use mpf_ising::Error;
    assert_eq!(
        terms(0..4, vec![(0, 1), (2, 3), (1, 0)]),
        Error::RepeatedPair { i: 0, j: 1 }
    );
    assert!(matches!(terms(2..2, vec![]), Error::UnitCount { .. }));
    assert!(matches!(terms(0..5, vec![]), Error::UnitCount { .. }));
    assert!(matches!(
        terms(0..1, vec![(1, 2)]),
        Error::Edge { i: 1, j: 2, .. }
    ));
}
