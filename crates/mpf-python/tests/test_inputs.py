"""Arrays of every kind give the same fit, and wrong ones a ValueError that says where."""

import numpy as np
import pytest
from conftest import recording

from minprobflow import Ising, LaplaceICA, Potts, RBM, diagnose, report, sample


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
    for model in (Ising(), RBM(n_hidden=2), RBM(semi_restricted=True), Potts(n_states=2)):
        p = np.exp(model.fit(X).score_samples(states))
        assert p.sum() == pytest.approx(1, abs=1e-12)
        # Frequencies of states are near their probabilities in the data.
        frequency = (X @ [1, 2, 4, 8] == np.arange(16)[:, None]).mean(axis=1)
        assert np.abs(p - frequency).max() < 0.1


def test_draws_have_the_probabilities_of_the_scores():
    X = recording(500, 3, 1)
    states = np.array([[k >> i & 1 for i in range(3)] for k in range(8)])
    for model in (Ising(), RBM(), Potts(n_states=2)):
        model.fit(X)
        p = np.exp(model.score_samples(states))
        draws = model.sample(20_000, random_state=5)
        found = (draws @ [1, 2, 4] == np.arange(8)[:, None]).mean(axis=1)
        assert np.abs(found - p).max() < 5 * np.sqrt(0.25 / 20_000)


def test_large_models_are_drawn_and_scored_by_chains():
    """Independent units, more than are enumerated: the chains find their means, annealing their Z."""
    rng = np.random.default_rng(0)
    X = (rng.random((1000, 25)) < np.linspace(0.2, 0.8, 25)).astype(np.uint8)
    truth = np.log(np.where(X, X.mean(axis=0), 1 - X.mean(axis=0))).sum(axis=1).mean()
    for model in (RBM(l2=1e-3), Potts(n_states=2, theta=-1, l2=1.0, l2_fields=1e-3), Ising(held_out=0)):
        model.fit(X)
        assert model.score(X) == pytest.approx(truth, abs=0.3)
        draws = model.sample(4000, random_state=1)
        assert draws.shape == (4000, 25)
        # Penalties move the means a little; so do 4000 draws, by 0.008 each.
        assert np.abs(draws.mean(axis=0) - X.mean(axis=0)).max() < 0.05


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
    if estimator is RBM and words == "constant":
        pytest.skip("hidden units explain constants")
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
        {"random_state": "now"},
        {"errors": "sandwich", "method": "tap"},
        {"held_out": 2},
    ):
        with pytest.raises(ValueError):
            Ising(**parameters).fit(X)
    for parameters in ({"n_hidden": 0}, {"method": "magic"}, {"n_starts": 0}, {"l2": -1.0}):
        with pytest.raises(ValueError):
            RBM(**parameters).fit(X)
    for parameters in ({"n_states": 1}, {"n_states": 77}, {"l2": -1}, {"method": "magic"}):
        with pytest.raises(ValueError):
            Potts(**parameters).fit(X)
    for parameters in ({"method": "magic"}, {"whiten": "magic"}, {"max_seconds": -1.0}, {"max_iterations": 3}):
        with pytest.raises(ValueError):
            LaplaceICA(**parameters).fit(np.random.default_rng(0).normal(size=(50, 2)))
    for weights in ([1, 2], -np.ones(len(X)), np.full(len(X), np.nan), np.zeros(len(X))):
        for estimator in (Ising(), RBM(), Potts()):
            with pytest.raises(ValueError):
                estimator.fit(X, sample_weight=weights)


def test_wrong_models_are_refused(tmp_path, X):
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(ValueError, match="no model file"):
        Ising.from_file(tmp_path / "m.json")
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
