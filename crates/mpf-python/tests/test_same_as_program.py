"""Fits, scores and files are those of the program, to the bit."""

import json
import os
import subprocess

import numpy as np
import pytest
from conftest import recording

from minprobflow import RBM, Ising, KPairwise, LaplaceICA, Potts, compare, dca, report, sample

CASES = {
    "default, refined by likelihood": (Ising, {}, (600, 6, 1)),
    "default, refined by pseudolikelihood": (Ising, {}, (800, 18, 2)),
    "more than a word of units": (Ising, {"polish": 0, "held_out": 0}, (900, 70, 3)),
    "mpf alone": (Ising, {"method": "mpf", "l2": 0}, (700, 5, 4)),
    "pl with l1": (Ising, {"method": "pl", "l1": 0.012345678901234567}, (500, 8, 5)),
    "chosen penalty": (Ising, {"l1": "auto", "folds": 3, "rule": "1se"}, (400, 6, 6)),
    "polished": (Ising, {"polish": 20, "random_state": 7}, (400, 8, 7)),
    "sandwich": (Ising, {"errors": "sandwich"}, (500, 5, 8)),
    "bootstrap": (Ising, {"errors": "bootstrap", "resamples": 10}, (300, 4, 9)),
    "nodewise rise": (Ising, {"method": "rise", "l1": 0.01}, (400, 7, 10)),
    "rbm": (RBM, {"hidden": 3}, (500, 7, 12)),
    "semi-restricted, mpf": (RBM, {"hidden": 2, "semi_restricted": True, "method": "mpf", "l2": 0.02}, (400, 6, 13)),
    "rbm by persistent chains": (RBM, {"hidden": 2, "method": "pcd", "updates": 50, "random_state": 3}, (300, 5, 14)),
    "k-pairwise": (KPairwise, {"smooth_potential": 0.1}, (700, 9, 11)),
}


def options(parameters):
    names = {"random_state": "seed"}
    for name, value in parameters.items():
        if name == "semi_restricted":
            continue
        yield f"--{names.get(name, name).replace('_', '-')}={value}"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_couplings_are_the_same_to_the_bit(mpf, tmp_path, case):
    estimator, parameters, shape = CASES[case]
    X = recording(*shape)
    np.save(tmp_path / "x.npy", X)
    given = list(options(parameters))
    if estimator is KPairwise:
        given.append("--model=k-pairwise")
    if estimator is RBM:
        given.append("--model=srbm" if "semi_restricted" in parameters else "--model=rbm")
    mpf("fit", tmp_path / "x.npy", "-o", tmp_path / "model.json", *given)
    theirs = estimator.from_file(tmp_path / "model.json")
    ours = estimator(**parameters).fit(X)
    assert ours.couplings_.tobytes() == theirs.couplings_.tobytes()
    if estimator is KPairwise:
        assert ours.potential_.tobytes() == theirs.potential_.tobytes()
    if estimator is RBM:
        assert ours.weights_.tobytes() == theirs.weights_.tobytes()
        assert ours.hidden_fields_.tobytes() == theirs.hidden_fields_.tobytes()
        assert (theirs.hidden, theirs.semi_restricted) == (ours.hidden, ours.semi_restricted)
        assert ours.score(X) == theirs.score(X)
    if "errors" in parameters:
        assert ours.standard_errors_.tobytes() == theirs.standard_errors_.tobytes()
    for name in ("l1", "l2", "value", "iterations", "stop", "warnings", "held_out", "path"):
        assert ours.record_.get(name) == theirs.record_.get(name), name


def test_missing_entries_are_the_same(mpf, tmp_path):
    X = recording(300, 5, 0).astype(float)
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    np.save(tmp_path / "x.npy", X)
    for missing in ("drop", "mask"):
        model = tmp_path / f"{missing}.json"
        mpf("fit", tmp_path / "x.npy", "-o", model, f"--missing={missing}")
        with pytest.warns(UserWarning) if missing == "mask" else _nothing():
            ours = Ising(missing=missing).fit(X)
        assert ours.couplings_.tobytes() == Ising.from_file(model).couplings_.tobytes()


class _nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def test_weights_are_counts(mpf, tmp_path):
    X, counts = recording(60, 4, 3), np.random.default_rng(0).integers(0, 9, 60)
    np.save(tmp_path / "x.npy", np.column_stack([X, counts]))
    mpf("fit", tmp_path / "x.npy", "-o", tmp_path / "model.json", "--counts=4")
    ours = Ising().fit(X, sample_weight=counts)
    theirs = Ising.from_file(tmp_path / "model.json")
    assert ours.couplings_.tobytes() == theirs.couplings_.tobytes()


@pytest.mark.parametrize("ending", ["json", "npz", "csv"])
def test_files_go_both_ways(mpf, tmp_path, ending):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(recording(400, 5, 2), columns=list("abcde"))
    ours = Ising(errors="sandwich").fit(X)
    path = tmp_path / f"ours.{ending}"
    ours.to_file(path)
    mpf("convert", path, "-o", tmp_path / "theirs.json")
    back = Ising.from_file(tmp_path / "theirs.json")
    assert back.couplings_.tobytes() == ours.couplings_.tobytes()
    assert list(back.feature_names_in_) == list("abcde")
    if ending == "json":
        np.testing.assert_array_equal(back.standard_errors_, ours.standard_errors_)
        assert back.record_ == ours.record_
    assert back.score(X) == ours.score(X)


def test_a_model_in_spins_is_read(tmp_path):
    ours = Ising().fit(recording(300, 4, 2))
    ours.to_file(tmp_path / "spins.json", convention="spins")
    assert Ising.from_file(tmp_path / "spins.json").couplings_.tobytes() == ours.couplings_.tobytes()


def test_draws_are_the_same(mpf, tmp_path):
    ours = Ising().fit(recording(400, 5, 2))
    ours.to_file(tmp_path / "m.json")
    mpf("sample", tmp_path / "m.json", "-n", 50, "--seed=3", "-o", tmp_path / "y.npy")
    drawn = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(ours.sample(50, random_state=3), drawn)
    np.testing.assert_array_equal(sample(ours.couplings_, 50, random_state=3), drawn)


def test_the_report_is_the_same(mpf, tmp_path):
    X = recording(400, 5, 2)
    np.save(tmp_path / "X", X)
    ours = Ising().fit(X)
    ours.to_file(tmp_path / "model.json")
    mpf("evaluate", tmp_path / "model.json", tmp_path / "X.npy", "-o", tmp_path / "r.html", "-o", tmp_path / "r.json")
    found = report(ours, X)
    numbers = json.loads((tmp_path / "r.json").read_text())
    for name in ("means", "pairs", "n_active", "exact", "verdict", "agreement"):
        assert found.numbers[name] == numbers[name], name
    theirs = (tmp_path / "r.html").read_text().replace("X.npy", "X").replace("model.json", "model")
    assert len(found.html) > 10_000 and found.html.split("</h1>")[1] == theirs.split("</h1>")[1]


def test_a_comparison_is_the_same(mpf, tmp_path):
    X = recording(300, 4, 2)
    np.save(tmp_path / "x.npy", X)
    mpf("compare", tmp_path / "x.npy", "--methods=mpf,independent", "--folds=3", "-o", tmp_path / "c.json")
    numbers = json.loads((tmp_path / "c.json").read_text())
    found = compare(X, ["mpf", "independent"], folds=3)
    for ours, theirs in zip(found.entrants, numbers["entrants"], strict=True):
        assert ours["name"] == theirs["name"]
        assert ours["log_likelihood"] == theirs["log_likelihood"]


def test_contacts_are_the_same(mpf, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.choice(list("ACDEFG-"), (60, 8))
    rows[:, 5] = rows[:, 1]
    family = tmp_path / "family.fasta"
    family.write_text("".join(f">s{k}\n{''.join(row)}\n" for k, row in enumerate(rows)))
    mpf("dca", family, "-o", tmp_path / "m.npz", "-o", tmp_path / "s.csv", "--method=mpf")
    found = dca(family, method="mpf")
    found.save(tmp_path / "ours.csv")
    assert (tmp_path / "ours.csv").read_text() == (tmp_path / "s.csv").read_text()
    theirs = Potts.from_file(tmp_path / "m.npz")
    assert found.couplings.tobytes() == theirs.couplings_.tobytes()
    # The same sequences as an array: letters by their place in the alphabet, the gap first.
    codes = np.array([[found.states.index(letter) for letter in row] for row in rows])
    ours = Potts(method="mpf", gap=0, n_states=len(found.states)).fit(codes)
    assert ours.couplings_.tobytes() == theirs.couplings_.tobytes()
    np.testing.assert_array_equal(ours.scores_, theirs.scores_)


def test_filters_are_those_of_the_library(tmp_path):
    """The example `filters` of mpf-ica, which MPF_FILTERS names, fits as Rust programs do."""
    program = os.environ.get("MPF_FILTERS")
    if not program:
        pytest.skip("MPF_FILTERS does not name the example filters of mpf-ica")
    rng = np.random.default_rng(0)
    X = rng.laplace(size=(2000, 4)) @ rng.normal(size=(4, 4))
    text = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    for method in ("ml", "mpf"):
        done = subprocess.run([program, method], input=text, capture_output=True, text=True, check=True)
        theirs = np.loadtxt(done.stdout.splitlines(), delimiter=",")
        assert LaplaceICA(method=method).fit(X).filters_.tobytes() == theirs.tobytes()


def test_errors_have_the_words_of_the_program(mpf, tmp_path):
    X = np.array([[0, 1], [2, 1]])
    np.save(tmp_path / "X", X)
    for parameters, data in [({}, X), ({"l2": -1}, X[:1]), ({"l1": "auto", "l2": "auto"}, X % 2), ({"damping": 1.0}, X % 2)]:
        np.save(tmp_path / "X", data)
        theirs = mpf("fit", tmp_path / "X.npy", "-o", tmp_path / "m.json", *options(parameters), code=2)
        with pytest.raises(ValueError) as ours:
            Ising(**parameters).fit(data)
        words = theirs.stderr.replace(str(tmp_path / "X.npy"), "X").replace("X.npy", "X")
        for line in str(ours.value).split("\nin Python: ")[0].splitlines():
            assert line in words
