"""Arrays of every kind give the same fit, and wrong ones a ValueError that says where."""

import json
import sys
import warnings

import numpy as np
import pytest
from conftest import python, recording

from minprobflow import RBM, Ising, KPairwise, LaplaceICA, Potts, _native, compare, dca, diagnose, report, sample
from minprobflow._base import Data


@pytest.fixture
def bits(X):
    return Ising().fit(X).couplings_.tobytes()


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "i2", "u4", "i8", "f4", "f8", ">i4", ">f8", "f2", "O"])
def test_types(X, bits, dtype):
    assert Ising().fit(X.astype(dtype)).couplings_.tobytes() == bits


def test_orders_and_strides(X, bits):
    wide = np.zeros((len(X), 12), dtype=np.uint8)
    wide[:, ::2] = X
    for same in (np.asfortranarray(X), wide[:, ::2], X[::-1][::-1], X.tolist()):
        assert Ising().fit(same).couplings_.tobytes() == bits


def test_read_only_memory_maps(X, bits, tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    assert Ising().fit(mapped).couplings_.tobytes() == bits


@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array", "lil_matrix"])
def test_sparse(X, bits, form):
    sparse = pytest.importorskip("scipy.sparse")
    model = Ising().fit(getattr(sparse, form)(X))
    assert model.couplings_.tobytes() == bits
    assert model.score(sparse.csr_matrix(X)) == model.score(X)


def test_spins_levels_and_thresholds(X, bits):
    assert Ising(spins=True).fit(2 * X.astype(int) - 1).couplings_.tobytes() == bits
    assert Ising(levels=(1, 2)).fit(X + 1).couplings_.tobytes() == bits
    assert Ising(binarize=0.5).fit(X * 0.9).couplings_.tobytes() == bits
    model = Ising(spins=True).fit(2 * X.astype(int) - 1)
    assert set(np.unique(model.sample(50))) == {-1, 1}
    assert model.score(2 * X.astype(int) - 1) == Ising().fit(X).score(X)


@pytest.mark.parametrize(
    "estimator", [Ising(), KPairwise(), RBM(hidden=2, starts=1), Potts(theta=-1), LaplaceICA(method="ml")], ids=str
)
def test_every_estimator_says_how_its_fit_went(estimator, X):
    reasons = ["converged"]
    if isinstance(estimator, LaplaceICA):
        # The likelihood has kinks, at which the search creeps.
        reasons.append("iteration limit reached")
        assert estimator.fit(np.random.default_rng(0).laplace(size=(300, 6)), None) is estimator
        assert estimator.components_.shape == estimator.mixing_.shape == (6, 6)
    else:
        assert estimator.fit(X, None, np.ones(len(X))) is estimator
        assert estimator.standard_errors_ is None
        assert len(estimator.fields_) == 6 and len(estimator.couplings_) in (6, 15)
    assert estimator.n_iter_ > 0 and estimator.stop_reason_ in reasons and estimator.warnings_ == []


def test_weights_of_a_potts_model_are_counts():
    X = np.random.default_rng(0).integers(0, 3, (60, 4))
    counts = np.random.default_rng(1).integers(0, 4, 60)
    weighted = Potts(theta=-1, tolerance=1e-9).fit(X, sample_weight=counts)
    repeated = Potts(theta=-1, tolerance=1e-9).fit(np.repeat(X, counts, axis=0))
    # Gradients of 1e-9 over the curvature of the penalty, 0.01 or more.
    np.testing.assert_allclose(weighted.couplings_, repeated.couplings_, atol=1e-7)
    other = Potts(theta=-1, tolerance=1e-9).fit(X)
    assert np.abs(other.couplings_ - repeated.couplings_).max() > 1e-3


def test_names_come_from_a_data_frame(X, bits, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("uvwxyz"))
    model = Ising().fit(frame)
    assert model.couplings_.tobytes() == bits and list(model.feature_names_in_) == list("uvwxyz")
    model.to_file(tmp_path / "m.json")
    assert '"u"' in (tmp_path / "m.json").read_text()
    report(model, frame)
    with pytest.raises(ValueError, match="unit 0 is"):
        report(model, frame[list("vuwxyz")])


def test_spin_couplings_are_those_of_spins(X):
    """exp(-x'Jx) and exp(hs + sum K s s) are the same distribution: differences of energy agree."""
    model = Ising().fit(X)
    h, K = model.to_spins()
    energy = np.einsum("mi,ij,mj->m", X, model.couplings_, X)
    s = 2.0 * X - 1
    log_p = s @ h + 0.5 * np.einsum("mi,ij,mj->m", s, K, s)
    np.testing.assert_allclose(energy - energy[0], log_p[0] - log_p, atol=1e-12)


def test_scores_are_normalised():
    """Over all states the probabilities of the scores add up to one."""
    X = recording(300, 4, 0)
    states = np.array([[k >> i & 1 for i in range(4)] for k in range(16)])
    for model in (Ising(), RBM(hidden=2), RBM(hidden=1, semi_restricted=True), Potts(n_states=2)):
        p = np.exp(model.fit(X).score_samples(states))
        assert p.sum() == pytest.approx(1, abs=1e-12)
        # 300 samples give frequencies to within 0.03, and 0.1 is more than three times that.
        frequency = (X @ [1, 2, 4, 8] == np.arange(16)[:, None]).mean(axis=1)
        assert np.abs(p - frequency).max() < 0.1


def test_draws_have_the_probabilities_of_the_scores():
    X = recording(500, 3, 1)
    states = np.array([[k >> i & 1 for i in range(3)] for k in range(8)])
    for model in (Ising(), RBM(hidden=2), Potts(n_states=2)):
        model.fit(X)
        p = np.exp(model.score_samples(states))
        draws = model.sample(20_000, random_state=5)
        found = (draws @ [1, 2, 4] == np.arange(8)[:, None]).mean(axis=1)
        assert np.abs(found - p).max() < 5 * np.sqrt(0.25 / 20_000)


def along(values, n_sites, *sites):
    """Returns numbers of some sites' states as an array with an axis for every site."""
    shape = np.ones(n_sites, dtype=int)
    shape[list(sites)] = values.shape
    return values.reshape(shape)


def check_large(log_weights, scores, error, X, draws):
    """Compares annealed scores of X, and draws, with sums over all states, which have an axis a site."""
    largest = log_weights.max()
    p = np.exp(log_weights - largest)
    log_z = largest + np.log(p.sum())
    # An estimate that is off by five of its standard errors is wrong; one that is not sure is no test.
    assert 0 < error < 0.05
    np.testing.assert_allclose(scores, log_weights[tuple(X.T)] - log_z, atol=5 * error + 1e-9)
    for site in range(X.shape[1]):
        rest = tuple(other for other in range(X.shape[1]) if other != site)
        of_site = p.sum(axis=rest) / p.sum()
        found = np.bincount(draws[:, site], minlength=len(of_site)) / len(draws)
        # Weakly coupled sites forget their state within three sweeps: n draws are worth n/3.
        deviation = np.sqrt(of_site * (1 - of_site) * 3 / len(draws))
        assert (np.abs(found - of_site) < 5 * deviation).all()


def test_large_machines_are_annealed_and_drawn_by_chains():
    """One unit more than is enumerated."""
    n = 21
    X = recording(500, n, 0, strength=0.5)
    model = RBM(hidden=2, l2=0.01, held_out=0, starts=1).fit(X)
    on = np.array([0.0, 1.0])
    log_weights = -sum(along(on * b, n, i) for i, b in enumerate(model.fields_))
    for weights, c in zip(model.weights_, model.hidden_fields_):
        log_weights = log_weights + np.logaddexp(0, -c - sum(along(on * w, n, i) for i, w in enumerate(weights)))
    scores, measure = model.model_.score(Data(X), [], 0, 0)
    error = json.loads(measure)["log-likelihood"]["log_z"]["standard_error"]
    np.testing.assert_array_equal(scores, model.score_samples(X))
    check_large(log_weights, scores, error, X, model.sample(4000, random_state=1))


def test_large_potts_models_are_annealed_and_drawn_by_chains():
    """3^13 states, more than are enumerated."""
    n = 13
    X = np.random.default_rng(0).integers(0, 3, (500, n))
    X[:, 1::2] = np.where(np.random.default_rng(1).random((500, 6)) < 0.3, X[:, :-1:2], X[:, 1::2])
    model = Potts(theta=-1).fit(X)
    log_weights = sum(along(h, n, i) for i, h in enumerate(model.fields_))
    for J, i, j in zip(model.couplings_, *np.triu_indices(n, 1)):
        log_weights = log_weights + along(J, n, i, j)
    shape, codes = model.fields_.shape, X.astype(np.uint8)
    scores, error = _native.potts_score(model._theta, shape, codes, 0, 0)
    np.testing.assert_array_equal(scores, model.score_samples(X))
    check_large(log_weights, scores, error, X, model.sample(4000, random_state=1))


def test_large_ising_models_are_annealed():
    """A chain of 30 units, whose Z is a product of transfer matrices."""
    X = recording(500, 30, 0, strength=0.5)
    pairs = [(i, i + 1) for i in range(29)]
    model = Ising(support=pairs, held_out=0, polish=0).fit(X)
    J, sums = model.couplings_, np.zeros(2)
    for i in range(30):
        step = np.zeros((2, 2)) if i == 0 else np.array([[0, 0], [0, -2 * J[i - 1, i]]])
        sums = np.logaddexp.reduce(sums[:, None] + step, axis=0) - np.array([0, J[i, i]])
    # The first unit has no other before it, and was counted after both states of that one.
    log_z = np.logaddexp.reduce(sums) - np.log(2)
    scores, measure = model.model_.score(Data(X), [], 0, 0)
    error = json.loads(measure)["log-likelihood"]["log_z"]["standard_error"]
    energies = np.einsum("mi,ij,mj->m", X, J, X)
    assert 0 < error < 0.05
    np.testing.assert_allclose(scores, -energies - log_z, atol=5 * error + 1e-9)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (np.array([[0, 1], [1, 2]]), "row 1, column 1.*: found 2"),
        (np.array([[0.0, np.nan], [1, 0]]), "missing"),
        (np.array([[0.0, np.inf], [1, 0]]), "inf"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros((3, 0)), "0 feature"),
        (np.zeros(3), "2D"),
        (np.zeros((2, 2), dtype=complex), "Complex"),
        ([["a", "b"]], "could not convert"),
        (np.zeros((5, 3)), "constant"),
    ],
)
@pytest.mark.parametrize("estimator", [Ising, RBM])
def test_wrong_data_are_refused(wrong, words, estimator):
    with pytest.raises(ValueError, match=words):
        estimator().fit(wrong)


def test_wrong_options_are_refused(X):
    for parameters in (
        {"method": "magic"},
        {"l2": "much"},
        {"l2": float("nan")},
        {"folds": 3},
        {"support": [(0, 99)]},
        {"n_jobs": 0},
        {"n_jobs": "all"},
        {"support": np.eye(6)},
        {"random_state": "now"},
        {"errors": "sandwich", "method": "tap"},
        {"held_out": 2},
    ):
        with pytest.raises(ValueError):
            Ising(**parameters).fit(X)
    for parameters in ({"hidden": 0}, {"method": "magic"}, {"method": "tap"}, {"starts": 0}, {"l2": -1.0}):
        with pytest.raises(ValueError):
            RBM(**parameters).fit(X)
    holes = np.where(np.eye(len(X), X.shape[1]), np.nan, X)
    with pytest.raises(ValueError, match="no --missing mask"):
        RBM(missing="mask").fit(holes)
    assert RBM(hidden=1, missing="drop").fit(holes).weights_.shape == (1, 6)
    for parameters in ({"n_states": 1}, {"n_states": 77}, {"l2": -1}, {"method": "magic"}, {"theta": 1}):
        with pytest.raises(ValueError):
            Potts(**parameters).fit(X)
    for parameters in (
        {"method": "magic"},
        {"method": 3},
        {"whiten": "magic"},
        {"max_seconds": -1.0},
        {"max_seconds": "long"},
        {"max_iterations": 3},
    ):
        with pytest.raises(ValueError):
            LaplaceICA(**parameters).fit(np.random.default_rng(0).normal(size=(50, 2)))
    for weights in ([1, 2], -np.ones(len(X)), np.full(len(X), np.nan), np.zeros(len(X))):
        for estimator in (Ising(), RBM(), Potts()):
            with pytest.raises(ValueError):
                estimator.fit(X, sample_weight=weights)


def test_errors_say_what_to_do_in_python(X):
    for work, words in (
        (lambda: Ising().fit(X + 1), "levels=\\(a, b\\)"),
        (lambda: Ising().fit(X[:5].T.repeat(2, axis=1).T.repeat(9, axis=1)), "X.T"),
        (lambda: Ising(support=[0, 1]).fit(X), "pairs of column numbers"),
        (lambda: Ising().fit("x.npy"), "numpy.load"),
        (lambda: Ising().fit(np.ma.array(X, mask=X > 0)), 'missing="drop"'),
        (lambda: Ising().fit(X).sample(-1), "whole number from 1"),
        (lambda: report(Ising().fit(X), X, truth=LaplaceICA()), "truth=LaplaceICA"),
        (lambda: Potts().fit(X + 31), "states are 0, 1, 2, ... up to 31"),
        (lambda: compare(X, magic=1), "found\nhint: `mpf compare --help` lists the options"),
        (lambda: Ising(held_out=2).fit(X), "in Python: --held-out is held_out$"),
        (lambda: Ising(l1=0.1, method="tap").fit(X), "--l1"),
        (lambda: Ising(errors="sandwich", method="pl", neighbours="non-data").fit(X), "neighbours"),
    ):
        with pytest.raises(ValueError, match=words):
            work()
    with pytest.raises(RuntimeError, match="--checkpoint is in the program `mpf` alone; --max-seconds is max_seconds$"):
        compare(X, max_seconds=0)
    with pytest.warns(UserWarning, match="time limit reached"):
        assert Ising(max_seconds=0).fit(X).stop_reason_ == "time limit reached"
    with pytest.raises(TypeError, match="Potts"):
        dca(X)
    with pytest.raises(TypeError, match="no parameter output: the result has a method save"):
        report(Ising().fit(X), X, output="report.html")


def test_pandas_has_missing_entries_of_its_own(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).astype("Int64")
    frame.iloc[3, 2] = None
    found = Ising(missing="drop").fit(frame).couplings_
    assert found.tobytes() == Ising().fit(np.delete(X, 3, axis=0)).couplings_.tobytes()


def test_wrong_models_are_refused(tmp_path, X):
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(ValueError, match="no model file"):
        Ising.from_file(tmp_path / "m.json")
    with pytest.raises(ValueError, match="no Potts model"):
        Potts.from_file(tmp_path / "m.json")
    with pytest.raises(ValueError, match="cannot read"):
        Ising.from_file(tmp_path / "none.json")
    with pytest.raises(ValueError):
        sample(np.array([[0.0, np.nan], [0, 0]]), 3)
    with pytest.raises(ValueError):
        sample(np.zeros((2, 3)), 3)
    with pytest.raises(ValueError):
        sample(np.zeros((2, 2)), 0)
    with pytest.raises(ValueError, match="features"):
        Ising().fit(X).score(X[:, :2])
    with pytest.raises(OSError):
        Ising().fit(X).to_file(tmp_path / "no folder" / "m.json")


def test_support_leaves_other_couplings_zero(X):
    J = Ising(support=[(0, 1), (4, 2)]).fit(X).couplings_
    free = np.eye(6, dtype=bool)
    free[[0, 1, 2, 4], [1, 0, 4, 2]] = True
    assert (J[~free] == 0).all() and (J[free] != 0).all()


def test_findings_and_warnings(X):
    X = X.copy()
    X[:, 2] = 0
    assert any("unit 2" in finding for finding in Ising().fit(X).findings_)
    assert any("unit 2" in finding for finding in diagnose(X).findings)
    with pytest.warns(UserWarning, match="iteration") as caught:
        model = Ising(method="pl", max_iterations=1).fit(X)
    assert model.warnings_ and str(caught[0].message) == model.warnings_[0]
    assert caught[0].filename == __file__


def test_threads_change_no_digit(X, bits):
    for n_jobs in (1, 2, 3, -1):
        assert Ising(n_jobs=n_jobs).fit(X).couplings_.tobytes() == bits


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_n_jobs_is_the_number_of_threads():
    code = """
import os, threading, time, numpy as np
from minprobflow import Ising
X = np.random.default_rng(0).integers(0, 2, (500, 30), dtype=np.uint8)
fit = threading.Thread(target=Ising(n_jobs=3, method="cd", updates=1000, held_out=0).fit, args=(X,))
def count():
    return len(os.listdir("/proc/self/task"))
found = [count()]
fit.start()
while fit.is_alive():
    found.append(count())
    time.sleep(0.001)
print(max(found) - found[0])
"""
    done = python(code)
    # The three, and the thread that waits for them.
    assert done.stdout == "4\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_no_copy_is_made_beside_the_packed_bits(dtype):
    """Data are read in less memory than a second matrix: packed bits, twice, are a quarter of it."""
    code = f"""
import re, numpy as np
from minprobflow import diagnose
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
small = np.random.default_rng(0).integers(0, 2, (100, 50), dtype=np.uint8)
diagnose(small, n_jobs=1)
X = np.tile(small, (6_000, 1)).view("{dtype}")
before = peak()
diagnose(X, n_jobs=1)
print((peak() - before) / X.nbytes)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    # A copy would add 1.
    assert float(done.stdout) < 0.6


WRONG = [None, [], [[]], 0, "text", b"bytes", object(), {"a": 1}, [[1], [0, 1]], np.zeros((2, 2, 2)), np.inf, [[None, 1]]]


def test_nothing_panics():
    """Random parameters and data of all kinds: every failure is a Python exception with a reason."""
    rng = np.random.default_rng(0)
    numbers = [None, 0, 1, 2, -1, 0.5, 1e300, -1e-300, float("nan"), float("inf"), "auto", "x", 2**70, True, [1, 2], ""]
    data = [
        recording(30, 4, 0),
        recording(3, 9, 0),
        recording(1, 1, 0),
        np.full((4, 2), 255, dtype=np.uint8),
        rng.normal(size=(20, 3)) * 1e300,
        rng.normal(size=(20, 3)),
        np.array([[np.nan, 1], [0, 1]]),
        np.zeros((5, 3), dtype="datetime64[s]"),
        np.zeros((5, 3), dtype=[("a", "u1")]),
    ]
    reached = 0
    for round_ in range(400):
        cls = [Ising, KPairwise, RBM, Potts, LaplaceICA][round_ % 5]
        model = cls(max_iterations=3) if cls is not LaplaceICA else cls(max_seconds=0.1)
        names = [name for name in model.get_params() if name not in ("n_jobs", "verbose", "resamples", "updates")]
        for name in rng.choice(names, rng.integers(3)):
            model.set_params(**{name: numbers[rng.integers(len(numbers))]})
        X = WRONG[rng.integers(len(WRONG))] if rng.random() < 0.2 else data[rng.integers(len(data))]
        n_rows = len(X) if isinstance(X, np.ndarray) else 4
        weights = None if rng.random() < 0.7 else rng.choice([0.0, 1.0, 2.5, -1.0, np.nan, 1e300], size=n_rows)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if cls is LaplaceICA:
                    model.fit(X)
                else:
                    model.fit(X, sample_weight=weights)
                model.score(X)
                model.sample(2)
            reached += 1
        except (ValueError, TypeError, MemoryError) as error:
            assert str(error), (model, X)
    assert reached > 20


def test_a_panic_is_an_exception():
    if not hasattr(_native, "_panic"):
        pytest.skip("only builds with debug assertions panic when asked")
    with pytest.raises(RuntimeError, match="a bug in minprobflow, please report it: asked to panic"):
        _native._panic()
