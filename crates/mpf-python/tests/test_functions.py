"""Functions, plots, doctests and types."""

import doctest
import importlib
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import recording

import minprobflow
from minprobflow import Ising, KPairwise, compare, diagnose, penalty_path, plot_couplings, plot_fit, report

MODULES = ["", "._options", "._functions", "._ising", "._ica", "._potts", "._rbm"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module("minprobflow" + name)
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


def test_a_penalty_path():
    path = penalty_path(recording(300, 5, 0), "l1", folds=3, rule="1se")
    assert (np.diff(path["lambda"]) < 0).all() and (np.diff(path["n_couplings"]) >= 0).any()
    best = path["held_out"].argmin()
    largest = path["lambda"][path["held_out"] <= path["held_out"][best] + path["standard_error"][best]].max()
    assert path["chosen"] == largest == path["model"].record_["l1"]
    with pytest.raises(ValueError, match="l1"):
        penalty_path(recording(30, 3, 0), "l3")


def test_a_report_shows_itself(tmp_path, X):
    found = report(Ising().fit(X), X)
    assert found.verdict == "agrees" and "agrees" in repr(found)
    assert found._repr_html_().startswith("<iframe srcdoc=") and "&lt;html" in found._repr_html_()
    found.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == found.html
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    # A model of other data does not agree.
    assert report(Ising().fit(recording(600, 6, 9)), X).verdict == "disagrees"
    truth = report(Ising().fit(X), X, truth=Ising().fit(X).couplings_)
    assert truth.numbers["mean_square_error_of_couplings"] == 0


def test_a_k_pairwise_model_has_its_own_files(tmp_path, X):
    model = KPairwise().fit(X)
    model.to_file(tmp_path / "k.json")
    assert KPairwise.from_file(tmp_path / "k.json").potential_.tobytes() == model.potential_.tobytes()
    with pytest.raises(ValueError, match="KPairwise"):
        Ising.from_file(tmp_path / "k.json")
    Ising().fit(X).to_file(tmp_path / "i.json")
    with pytest.raises(ValueError, match="Ising.from_file"):
        KPairwise.from_file(tmp_path / "i.json")


def test_comparisons_and_diagnoses_read_well(X):
    found = compare(X, ["mpf", "independent"], folds=2)
    assert "independent" in repr(found) and "<svg" in found.html
    assert repr(diagnose(X)).startswith("600 samples x 6 units")


def test_plots(X):
    pytest.importorskip("matplotlib").use("Agg")
    model = Ising().fit(X)
    ax = plot_couplings(model)
    drawn = ax.images[0].get_array()
    np.testing.assert_array_equal(drawn, model.to_spins()[1])
    ax = plot_fit(model, X)
    means = ax.containers[1].lines[0]
    np.testing.assert_allclose(np.sort(means.get_xdata()), np.sort(X.mean(axis=0)))


def test_types_are_right():
    pytest.importorskip("mypy")
    folder = pathlib.Path(minprobflow.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--no-error-summary", str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_stubs_name_what_is_there():
    stubs = (pathlib.Path(minprobflow.__file__).parent / "_native.pyi").read_text()
    for name in dir(minprobflow._native):
        if not name.startswith("__"):
            assert f"def {name}(" in stubs or f"class {name}" in stubs, name
