"""Measures the packages that a Python user would take, beside this one, in one run.

    python benchmarks/peers.py [--quick] [--only PART] [X.npy ...]

Prints the time of each fit and its held-out log-likelihood, in nats per sample. A package that is not
installed is left out: `pip install scikit-learn python-picard coniii`. The program `mpf`, if MPF_PROGRAM
names it, fits the same data as the package, and the files that are named.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np

from minprobflow import RBM, Ising, LaplaceICA, sample
from minprobflow._functions import _estimator

warnings.filterwarnings("ignore")


def processor() -> str:
    """Returns the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def recording(n_samples: int, n_units: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws training and held-out samples of a random Ising model."""
    rng = np.random.default_rng(seed)
    K = np.triu(rng.normal(scale=0.8 / np.sqrt(n_units), size=(n_units, n_units)), 1)
    K = K + K.T
    h = rng.normal(scale=0.3, size=n_units) - 0.5
    J = -2 * K
    np.fill_diagonal(J, -2 * h + 2 * K.sum(axis=1))
    X = sample(J, 2 * n_samples, random_state=seed)
    X = X[np.random.default_rng(seed).permutation(len(X))]
    return X[:n_samples], X[n_samples:]


def score(J: np.ndarray, X: np.ndarray) -> float:
    """Returns the mean of ln p(x), p(x) = exp(-x'Jx)/Z."""
    return _estimator(J).score(X)


def head(title: str) -> None:
    """Begins a table."""
    print(f"\n{title}\n")
    print(f"| {'':34} | {'seconds':>9} | held-out ln p |")
    print(f"| {'-' * 34} | {'-' * 8}: | {'-' * 12}: |")


def row(name: str, seconds: float, value: float) -> None:
    """Prints what was measured."""
    print(f"| {name:34} | {seconds:9.3f} | {value:13.4f} |", flush=True)


def timed(work):  # type: ignore[no-untyped-def]
    """Returns a result and the seconds that it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def by_logistic_regression(X: np.ndarray) -> np.ndarray:
    """Fits every unit given the others, and averages: pseudolikelihood, node by node."""
    from sklearn.linear_model import LogisticRegression

    d = X.shape[1]
    W = np.zeros((d, d))
    for i in range(d):
        others = np.delete(np.arange(d), i)
        # The ridge of `mpf fit`, K^2/2 in a sum over samples, K = W/4: half of it for each of two units.
        fit = LogisticRegression(C=32.0, tol=1e-6, max_iter=1000).fit(X[:, others], X[:, i])
        W[i, others], W[i, i] = fit.coef_[0], fit.intercept_[0]
    J = -(W + W.T) / 4
    np.fill_diagonal(J, -np.diag(W))
    return J


def by_coniii(X: np.ndarray) -> np.ndarray:
    """Fits by ConIII's minimum probability flow."""
    import scipy

    # ConIII 3.0.1 takes functions of NumPy from SciPy, which no longer has them.
    for name in dir(np):
        if callable(getattr(np, name)) and not hasattr(scipy, name):
            setattr(scipy, name, getattr(np, name))
    # Its samplers in C++ need a Boost library that few systems have; MPF draws nothing.
    sys.modules.setdefault("coniii.samplers_ext", None)  # type: ignore[arg-type]
    from coniii.solvers import MPF

    spins = 2 * X.astype(int) - 1
    d = X.shape[1]
    solver = MPF(spins)
    theta = solver.solve()
    theta = theta[0] if isinstance(theta, tuple) else theta
    h, K = theta[:d], np.zeros((d, d))
    for value, (i, j) in zip(theta[d:], combinations(range(d), 2)):
        K[i, j] = K[j, i] = value
    J = -2 * K
    np.fill_diagonal(J, -2 * h + 2 * K.sum(axis=1))
    return J


def ising(quick: bool) -> None:
    """Compares fits of Ising models."""
    for n_units, n_samples in [(10, 2000 if quick else 10_000), (20, 2000 if quick else 20_000)]:
        X, test = recording(n_samples, n_units, seed=n_units)
        head(f"Ising, {n_units} units, {n_samples} samples")
        for name, model in [
            ("minprobflow, default", Ising()),
            ("minprobflow, MPF alone", Ising(method="mpf", held_out=0, polish=0)),
            ("minprobflow, PL alone", Ising(method="pl", held_out=0, polish=0)),
        ]:
            fitted, seconds = timed(lambda model=model: model.fit(X))
            row(name, seconds, fitted.score(test))
        for name, fit, most in [
            ("scikit-learn, LogisticRegression", by_logistic_regression, 1000),
            ("ConIII, MPF", by_coniii, 10),
        ]:
            if n_units > most:
                continue
            try:
                fit(X[:100])  # ConIII compiles its functions when they are first called
                J, seconds = timed(lambda fit=fit: fit(X))
            except ImportError as error:
                print(f"{name} is left out: {error}")
                continue
            except Exception as error:  # a peer that fails is a result
                print(f"{name} failed: {type(error).__name__}: {error}")
                continue
            row(name, seconds, score(J, test))
        independent, seconds = timed(lambda: Ising(method="independent").fit(X))
        row("independent units", seconds, independent.score(test))


def machines(quick: bool) -> None:
    """Compares restricted Boltzmann machines."""
    from scipy.special import logsumexp
    from sklearn.neural_network import BernoulliRBM

    rng = np.random.default_rng(0)
    n, d, n_hidden = (1000 if quick else 5000), 12, 4
    W = rng.uniform(-3, 3, (n_hidden, d))
    # Enumerated: p(x) of a machine with balanced biases.
    states = np.array([[k >> i & 1 for i in range(d)] for k in range(2**d)])
    b, c = -W.sum(axis=0) / 2, -W.sum(axis=1) / 2
    log_p = states @ b + np.logaddexp(0, states @ W.T + c).sum(axis=1)
    p = np.exp(log_p - logsumexp(log_p))
    X = states[rng.choice(len(states), size=2 * n, p=p)]
    X, test = X[:n], X[n:]
    head(f"RBM, {d} visible and {n_hidden} hidden units, {n} samples")
    for name, method in [("minprobflow, MPF", "mpf"), ("minprobflow, PL", "pl")]:
        fitted, seconds = timed(lambda method=method: RBM(hidden=n_hidden, method=method, held_out=0).fit(X))
        row(name, seconds, fitted.score(test))
    for n_iter in (10, 100):
        model = BernoulliRBM(n_components=n_hidden, n_iter=n_iter, learning_rate=0.05, random_state=0)
        fitted, seconds = timed(lambda model=model: model.fit(X))

        def energy(x: np.ndarray, fitted=fitted) -> np.ndarray:  # type: ignore[no-untyped-def]
            inputs = x @ fitted.components_.T + fitted.intercept_hidden_
            return x @ fitted.intercept_visible_ + np.logaddexp(0, inputs).sum(axis=1)

        value = float(np.mean(energy(test)) - logsumexp(energy(states)))
        row(f"scikit-learn, BernoulliRBM, {n_iter} sweeps", seconds, value)


def patches(n: int, side: int, seed: int) -> np.ndarray:
    """Cuts patches from pictures of dead leaves: discs in front of each other."""
    rng = np.random.default_rng(seed)
    size, pictures = 256, []
    y, x = np.mgrid[:size, :size]
    for _ in range(8):
        picture = np.full((size, size), np.nan)
        while np.isnan(picture).any():
            radius = 4.0 / np.sqrt(rng.uniform(0.002, 1.0))
            cx, cy = rng.uniform(-20, size + 20, 2)
            disc = np.isnan(picture) & ((x - cx) ** 2 + (y - cy) ** 2 < radius**2)
            picture[disc] = rng.laplace()
        pictures.append(picture)
    corners = rng.integers(0, size - side, (n, 2))
    which = rng.integers(0, len(pictures), n)
    cut = [pictures[k][i : i + side, j : j + side].ravel() for k, (i, j) in zip(which, corners)]
    X = np.array(cut) + 0.02 * rng.normal(size=(n, side * side))
    return X


def ica(quick: bool, picards: bool = False) -> None:
    """Compares ICA on whitened patches: ours and FastICA, or Picard and orthogonal Picard."""
    n, side = (10_000, 6) if quick else (100_000, 10)
    X = patches(2 * n, side, seed=0)
    mean = X[:n].mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(X[:n].T))
    white = (X - mean) @ (vectors / np.sqrt(values)) @ vectors.T
    train, test = white[:n], white[n:]

    def likelihood(W: np.ndarray) -> float:
        # Filters of other packages have the scale of their own prior: give each the best of Laplace's.
        W = W / np.abs(train @ W.T).mean(axis=0)[:, None]
        volume = np.linalg.slogdet(W)[1]
        return float(volume - len(W) * np.log(2) - np.abs(test @ W.T).sum(axis=1).mean())

    head(f"ICA, {n} whitened {side}x{side} patches")
    if picards:
        from picard import picard

        for ortho in (False, True):
            (_, W, _), seconds = timed(
                lambda ortho=ortho: picard(train.T, ortho=ortho, whiten=False, random_state=0, max_iter=300)
            )
            row(f"Picard{', orthogonal' if ortho else ''}", seconds, likelihood(W))
    else:
        for name, method in [("minprobflow, maximum likelihood", "ml"), ("minprobflow, MPF", "mpf")]:
            fitted, seconds = timed(lambda method=method: LaplaceICA(method=method).fit(train))
            row(name, seconds, likelihood(fitted.components_))
        from sklearn.decomposition import FastICA

        model = FastICA(whiten="unit-variance", random_state=0, max_iter=300)
        fitted, seconds = timed(lambda: model.fit(train))
        row("scikit-learn, FastICA", seconds, likelihood(fitted.components_))


def program(quick: bool, files: list[str]) -> None:
    """Compares fits of the package with those of the program, which also reads and writes files."""
    mpf = os.environ.get("MPF_PROGRAM")
    if not mpf:
        print("\nthe program is left out: MPF_PROGRAM does not name it")
        return
    quietly = {"check": True, "capture_output": True}
    start = statistics.median(timed(lambda: subprocess.run([mpf, "--version"], **quietly))[1] for _ in range(9))
    print(f"\nSeconds of the same fit, medians of alternating runs; the program without its start, {start:.4f} s\n")
    print(f"| {'':40} | {'mpf fit':>9} | {'Python':>9} | ratio |")
    print(f"| {'-' * 40} | {'-' * 8}: | {'-' * 8}: | ----: |")
    alone = {"method": "mpf", "held_out": 0, "polish": 0}
    synthetic = [(20, 20_000, {}), (60, 20_000, alone), (200, 50_000, alone)][: 2 if quick else 3]
    data = [(Path(file).stem, np.load(file), {}) for file in files]
    data += [("synthetic", pairs(n_samples, n_units), options) for n_units, n_samples, options in synthetic]
    for name, X, options in data:
        with tempfile.TemporaryDirectory() as folder:
            file, model = Path(folder) / "x.npy", Path(folder) / "m.json"
            np.save(file, X)
            words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
            command = [mpf, "fit", str(file), "-o", str(model), "--force", "--quiet", *words]
            theirs, ours = [], []
            for _ in range(3 if quick else 7):
                theirs.append(timed(lambda: subprocess.run(command, **quietly))[1] - start)
                fitted, seconds = timed(lambda: Ising(**options).fit(X))
                ours.append(seconds)
            assert fitted.couplings_.tobytes() == Ising.from_file(model).couplings_.tobytes()
        a, b = statistics.median(theirs), statistics.median(ours)
        name = f"{name}, {X.shape[0]} x {X.shape[1]}, {'MPF alone' if options else 'default'}"
        print(f"| {name:40} | {a:9.3f} | {b:9.3f} | {b / a:5.2f} |", flush=True)


def pairs(n_samples: int, n_units: int) -> np.ndarray:
    """Returns units of which every second depends on the one before it."""
    X = np.random.default_rng(0).random((n_samples, n_units)) < 0.3
    X[:, 1::2] ^= X[:, ::2] & (np.random.default_rng(1).random((n_samples, n_units // 2)) < 0.3)
    return X.astype(np.uint8)


PARTS = {
    "ising": ising,
    "rbm": machines,
    "ica": ica,
    "picard": lambda quick: ica(quick, picards=True),
    "program": lambda quick: program(quick, arguments.files),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("files", nargs="*", help="data that the program and the package fit")
    arguments = parser.parse_args()
    print(f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for title, work in PARTS.items():
        if arguments.only in (None, title):
            try:
                work(arguments.quick)
            except ImportError as error:
                print(f"{title} is left out: {error}")
