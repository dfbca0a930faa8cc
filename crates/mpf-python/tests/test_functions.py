"""Functions, plots, doctests and types."""

import doctest
import importlib
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import recording

import minprobflow
from minprobflow import RBM, Ising, KPairwise, LaplaceICA, Potts, compare, diagnose, penalty_path, plot_couplings, plot_fit, report, sample

MODULES = ["", "._options", "._functions", "._ising", "._ica", "._plots", "._potts", "._rbm"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    if name == "._plots":
        pytest.importorskip("matplotlib").use("Agg")
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


def test_every_model_has_its_own_files(tmp_path, X):
    model = KPairwise().fit(X)
    model.to_file(tmp_path / "k.json")
    assert KPairwise.from_file(tmp_path / "k.json").potential_.tobytes() == model.potential_.tobytes()
    with pytest.raises(ValueError, match="KPairwise"):
        Ising.from_file(tmp_path / "k.json")
    Ising().fit(X).to_file(tmp_path / "i.json")
    with pytest.raises(ValueError, match="Ising.from_file"):
        KPairwise.from_file(tmp_path / "i.json")
    RBM(hidden=2).fit(X).to_file(tmp_path / "r.json")
    with pytest.raises(ValueError, match="RBM.from_file"):
        Ising.from_file(tmp_path / "r.json")
    # Functions take files of all three.
    for name, model in (("i", Ising), ("k", KPairwise), ("r", RBM)):
        file = tmp_path / f"{name}.json"
        np.testing.assert_array_equal(sample(file, 20), model.from_file(file).sample(20))
        assert report(file, X).verdict in ("agrees", "disagrees")


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
    machine = RBM(hidden=2).fit(X)
    np.testing.assert_array_equal(plot_couplings(machine).images[0].get_array(), -machine.weights_)
    potts = Potts(theta=-1).fit(X)
    np.testing.assert_array_equal(plot_couplings(potts).images[0].get_array(), potts.scores_)
    with pytest.raises(ValueError, match="no couplings"):
        plot_couplings(LaplaceICA(method="ml").fit(np.random.default_rng(0).laplace(size=(200, 2))))
    ax = plot_fit(model, X)
    means = ax.containers[1].lines[0]
    np.testing.assert_allclose(np.sort(means.get_xdata()), np.sort(X.mean(axis=0)))


def test_types_are_right():
    pytest.importorskip("mypy")
    folder = pathlib.Path(minprobflow.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    source = pathlib.Path(__file__).parents[1] / "python" / "minprobflow"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--ignore-missing-imports", "--no-error-summary"),
            *(f"--cache-dir={os.devnull}", str(source)),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_stubs_are_right(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    # PyO3 lists every name there, also that of a test, which only development wheels have.
    (tmp_path / "allowed").write_text("minprobflow._native.__all__\nminprobflow._native._panic\n")
    command = [sys.executable, "-m", "mypy.stubtest", "minprobflow._native"]
    options = ["--mypy-config-file", "mypy.ini", "--allowlist", "allowed", "--ignore-unused-allowlist"]
    done = subprocess.run(command + options, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_parameters_have_types(tmp_path):
    """Of the user's code, although scikit-learn has none."""
    pytest.importorskip("mypy")
    code = """
from minprobflow import Ising, KPairwise
Ising(l2="auto", n_jobs=2).l2
Ising(magic=1)
Ising(max_iterations="many")
KPairwise(nodewise=True)
"""
    (tmp_path / "user.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert re.findall(r"user.py:(\d): error", done.stdout) == ["4", "5", "6"], done.stdout


def test_the_lock_file_agrees_with_that_of_the_workspace():
    """So that the package runs the program as its own tests saw it."""
    files = [pathlib.Path(__file__).parents[k] / "Cargo.lock" for k in (1, 3)]
    ours, theirs = [
        re.findall(r'^name = "(.*)"\nversion = "(.*)"', file.read_text(), re.MULTILINE) for file in files
    ]
    shared = {name for name, _ in theirs}
    assert {package for package in ours if package[0] in shared} <= set(theirs)
    assert len(shared & {name for name, _ in ours}) > 100


def test_the_profiles_are_those_of_the_workspace():
    """So that a fit takes the time of the program. Cargo reads profiles from one file alone."""
    tomllib = pytest.importorskip("tomllib")
    folders = [pathlib.Path(__file__).parents[k] for k in (1, 3)]
    ours, theirs = [tomllib.loads((folder / "Cargo.toml").read_text())["profile"] for folder in folders]
    crates = re.findall(r'^name = "(.*)"', (folders[0] / "Cargo.lock").read_text(), re.MULTILINE)

    def settings(profile, crate, is_member):
        plain = {key: value for key, value in profile.items() if key not in ("package", "build-override")}
        others = {} if is_member else profile["package"].get("*", {})
        return plain | others | profile["package"].get(crate, {})

    assert ours.keys() == theirs.keys() == {"dev", "release"}
    for profile in ours:
        for crate in set(crates) - {"mpf-python"}:
            is_member = crate.startswith("mpf-")
            assert settings(ours[profile], crate, False) == settings(theirs[profile], crate, is_member), crate


READMES = [pathlib.Path(__file__).parents[k] / "README.md" for k in (1, 3)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("readme", READMES, ids=["of the package", "of the repository"])
def test_the_readme_runs(readme, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    np.save(tmp_path / re.search(r'np.load\("(.*?)"\)', blocks[0])[1], recording(400, 6, 0))
    monkeypatch.chdir(tmp_path)
    exec(blocks[0], {})
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_notebook_runs():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    path = pathlib.Path(__file__).parents[1] / "examples" / "retina.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    # Both plots, the comparison and the report.
    assert kinds.count("image/png") == 2 and kinds.count("text/html") == 2
