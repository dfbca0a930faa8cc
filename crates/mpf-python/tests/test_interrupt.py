"""Ctrl-C, threads, panics, progress, and Python without scikit-learn."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import python, recording

from minprobflow import Ising, LaplaceICA

FITS = [
    ("Ising(errors='bootstrap', resamples=100_000)", "R.random((4000, 60)) < 0.3"),
    ("Ising(l1='auto')", "R.random((20_000, 150)) < 0.2"),
    ("RBM(hidden=30, starts=1000)", "R.random((4000, 40)) < 0.3"),
    ("Potts(tolerance=1e-300, l2=0.0)", "R.integers(0, 20, (4000, 60))"),
    ("LaplaceICA()", "R.laplace(size=(50_000, 60))"),
]

CODE = """
import signal, time, warnings, numpy as np
from minprobflow import *
warnings.simplefilter("ignore")
# Shells let their background jobs, and the children of these, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
R = np.random.default_rng(0)
model, data = {}, {}
print("ready", flush=True)
try:
    model.fit(data)
    print("finished")
except KeyboardInterrupt:
    print("interrupted", time.time(), [name for name in vars(model) if name.endswith("_")])
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for children")
@pytest.mark.parametrize("model, data", FITS)
def test_ctrl_c_stops_a_fit_within_a_second_and_leaves_the_estimator_unfitted(model, data):
    seconds = []
    # A busy machine may be late: one of three must be in time.
    while not seconds or (min(seconds) >= 1 and len(seconds) < 3):
        code = CODE.format(model, data)
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(1)
        assert child.poll() is None, "the fit is too short for the test"
        start = time.time()
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
        word, end, results = output.split(maxsplit=2)
        assert (word, results) == ("interrupted", "[]\n")
        seconds.append(float(end) - start)
    print(f"{model} stopped after {seconds} s")
    assert min(seconds) < 1


def test_other_threads_run_during_a_fit():
    """Without the GIL released, a thread that counts would stand still."""
    X = recording(3000, 40, 0)
    ticks = []
    stop = threading.Event()

    def count():
        while not stop.wait(0.002):
            ticks.append(time.monotonic())

    counter = threading.Thread(target=count)
    counter.start()
    start = time.monotonic()
    Ising(held_out=0, n_jobs=1).fit(X)
    end = time.monotonic()
    stop.set()
    counter.join()
    assert sum(start < tick < end for tick in ticks) >= 3


def test_fits_in_threads_and_after_a_fork(X):
    expected = Ising().fit(X).couplings_.tobytes()
    found = []
    threads = [threading.Thread(target=lambda: found.append(Ising().fit(X).couplings_.tobytes())) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [expected] * 3
    if hasattr(os, "fork"):
        code = """
import os, warnings, numpy as np
from minprobflow import Ising
warnings.simplefilter("ignore")
X = np.random.default_rng(0).integers(0, 2, (100, 3))
Ising().fit(X)
child = os.fork()
if child == 0:
    Ising().fit(X)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
        done = python(code)
        assert done.returncode == 0, done.stderr


def test_nothing_is_printed_unless_asked(X, capfd):
    Ising().fit(X)
    Ising(errors="bootstrap", resamples=5).fit(X)
    assert capfd.readouterr() == ("", "")
    Ising(verbose=True, method="cd", updates=3000).fit(recording(1000, 20, 0))
    assert "CD" in capfd.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pty")
def test_progress_is_a_bar_in_a_real_terminal():
    import pty

    code = """
import warnings
import numpy as np
from minprobflow import Ising
warnings.simplefilter("ignore")
X = (np.random.default_rng(0).random((2000, 30)) < 0.3).astype(np.uint8)
Ising(verbose=True, method="cd", updates=3000, held_out=0).fit(X)
"""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    assert re.search(r"\rCD \[=+ *\] \d+/3000 ".encode(), shown), shown
    # The line is wiped in the end, and there is no other.
    assert b"\n" not in shown and shown.split(b"\r")[-2].strip() == b""


def test_progress_is_a_bar_in_a_terminal(monkeypatch, capsys):
    from minprobflow._progress import Bar

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Bar(True) as show:
        show("updates", 5, 10, "moments differ by 1e-3")
        show("resamples", None, 4, None)
        show("resamples", None, 4, None)
    lines = capsys.readouterr().err.split("\r")
    assert lines[1].startswith("updates [==============              ] 5/10 0 s moments differ")
    assert any("resamples [==============              ] 2/4" in line for line in lines)
    assert lines[-1].strip() == ""


def test_progress_is_a_display_in_a_notebook(monkeypatch):
    IPython = pytest.importorskip("IPython")
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    class Shell:
        kernel = object()

    monkeypatch.setattr(IPython, "get_ipython", lambda: Shell())
    monkeypatch.setattr("IPython.display.display", display)
    from minprobflow._progress import Bar

    with Bar(True) as show:
        show("fit", 1, None, "one")
        show("fit", 2, None, "two")
    assert [line.split(" s ")[-1] for line in shown] == ["one", "two", ""]


def test_without_scikit_learn():
    code = """
import sys, pickle
for name in ("sklearn", "scipy", "pandas", "matplotlib", "IPython"):
    sys.modules[name] = None
import numpy as np
import minprobflow
from minprobflow import Ising, KPairwise, LaplaceICA, Potts, RBM
R = np.random.default_rng(0)
X = R.integers(0, 2, (200, 4))
for estimator in (Ising(), KPairwise(), RBM(hidden=2), Potts(theta=-1), LaplaceICA(method="ml")):
    data = R.laplace(size=(200, 4)) if isinstance(estimator, LaplaceICA) else X
    try:
        estimator.sample(1)
        raise SystemExit("not fitted")
    except ValueError as error:
        assert "not fitted" in str(error)
    assert type(estimator)(**estimator.get_params()).get_params() == estimator.get_params()
    assert estimator.set_params(n_jobs=1).n_jobs == 1
    assert repr(estimator).startswith(type(estimator).__name__)
    fitted = estimator.fit(data)
    assert pickle.loads(pickle.dumps(fitted)).score(data) == fitted.score(data)
    assert fitted.sample(3).shape == (3, 4) and fitted.n_features_in_ == 4
    try:
        fitted.score(data[:, :2])
        raise SystemExit("other columns")
    except ValueError as error:
        assert "4 features" in str(error)
    try:
        estimator.set_params(magic=1)
        raise SystemExit("magic")
    except ValueError:
        pass
assert LaplaceICA(method="ml").fit_transform(R.laplace(size=(200, 2))).shape == (200, 2)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_time_limit_ends_a_fit():
    model = LaplaceICA(max_seconds=0.2).fit(np.random.default_rng(0).laplace(size=(5000, 20)))
    assert "time" in model.stop_reason_
