"""Restricted Boltzmann machines."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _native
from ._base import Data, Estimator, names_of, warn, weights_of
from ._ising import READING, DensityMixin
from ._options import count, limit, seed, words
from ._progress import Bar


class RBM(DensityMixin, Estimator):
    """A restricted Boltzmann machine, p(x) = sum_h exp(-b'x - c'h - h'Wx)/Z, its hidden units summed out.

    Lower energies are likelier, so W, b and c have the signs of energies. The objective has several
    minima: the fit is the best of ``n_starts``.

    Parameters
    ----------
    n_hidden : int
        Hidden units.
    semi_restricted : bool
        Add couplings between visible units.
    method : "mpf" or "pl"
        Minimum probability flow, or pseudolikelihood.
    l2 : float
        On all parameters; None is 1/M for M samples.
    n_starts : int
    tolerance, max_iterations :
        None are those of the library's minimiser.
    spins, levels, binarize :
        How X is read: see ``Ising``.
    random_state : number or NumPy generator
        The seed; None is 0.
    n_jobs : int
        Threads; None and -1 are all cores.
    verbose : bool
        Show progress.

    Attributes
    ----------
    weights_ : array (n_hidden, d)
        W.
    hidden_fields_, fields_ : arrays
        c and b.
    couplings_ : array (d, d)
        J of the visible units, zero unless ``semi_restricted``.
    dead_units_ : list
        Hidden units that do nothing.
    n_iter_, stop_reason_, warnings_ :
        How the fit went.

    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import RBM
    >>> group = np.random.default_rng(0).integers(0, 2, (400, 1))
    >>> X = np.repeat(group, 5, axis=1) ^ (np.random.default_rng(1).random((400, 5)) < 0.1)
    >>> model = RBM(n_hidden=1).fit(X)
    >>> bool(model.score(X) > -5 * np.log(2))
    True
    """

    def __init__(
        self,
        *,
        n_hidden: int = 1,
        semi_restricted: bool = False,
        method: str = "mpf",
        l2: float | None = None,
        n_starts: int = 3,
        tolerance: float | None = None,
        max_iterations: int | None = None,
        spins: bool = False,
        levels: tuple[float, float] | None = None,
        binarize: float | bool | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_hidden = n_hidden
        self.semi_restricted = semi_restricted
        self.method = method
        self.l2 = l2
        self.n_starts = n_starts
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.spins = spins
        self.levels = levels
        self.binarize = binarize
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _data_words(self) -> list[str]:
        return words({name: getattr(self, name) for name in READING})

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fits the rows of X."""
        self._forget()
        try:
            matrix = self._check(X, reset=True)
            data = Data(matrix, names_of(X), weights_of(sample_weight, matrix.shape[0]))
            with Bar(self.verbose) as show:
                found = self._run(
                    _native.fit_rbm,
                    data,
                    self._data_words(),
                    count("n_hidden", self.n_hidden),
                    bool(self.semi_restricted),
                    self.method,
                    self.l2,
                    self.tolerance,
                    limit("max_iterations", self.max_iterations),
                    count("n_starts", self.n_starts),
                    seed(self.random_state) or 0,
                    self._threads,
                    show,
                )
        except BaseException:
            self._forget()
            raise
        theta, self.objective_, self.n_iter_, self.stop_reason_, converged, self.dead_units_ = found
        self._set(theta, matrix.shape[1], self.n_hidden, self.semi_restricted)
        self.warnings_ = [] if converged else [f"the fit did not converge: {self.stop_reason_}"]
        if self.dead_units_:
            self.warnings_.append(
                f"hidden units {self.dead_units_} do nothing: use fewer, or another random_state"
            )
        warn(self.warnings_)
        return self

    def _set(self, theta: np.ndarray, d: int, n_hidden: int, semi_restricted: bool) -> None:
        weights, self.hidden_fields_, self.fields_, pairs = np.split(
            theta, np.cumsum([d * n_hidden, n_hidden, d])
        )
        self.theta_ = theta
        self.weights_ = weights.reshape(n_hidden, d)
        self.couplings_ = np.zeros((d, d))
        if semi_restricted:
            self.couplings_[np.triu_indices(d, 1)] = pairs
            self.couplings_ += self.couplings_.T
        self._shape = (d, n_hidden, semi_restricted)

    def score_samples(self, X: Any) -> np.ndarray:
        """Returns ln p(x) of every row; Z is exact up to 20 visible units, and annealed beyond."""
        self._fitted()
        data = Data(self._check(X, reset=False))
        seed_ = seed(self.random_state) or 0
        words_ = self._data_words()
        return self._run(
            _native.rbm_score, self.theta_, self._shape, data, words_, seed_, self._threads
        )[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of ``score_samples``."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws visible states: independent ones up to 20 units, else by chains of Gibbs sweeps."""
        self._fitted()
        n, seed_ = count("n_samples", n_samples), seed(random_state) or 0
        draws = _native.rbm_sample(self.theta_, self._shape, n, seed_, self._threads)
        return 2 * draws.astype(np.int8) - 1 if self.spins else draws

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Writes the parameters as an archive of NumPy (.npz)."""
        self._fitted()
        temporary = f"{os.fspath(path)}.part"
        with open(temporary, "wb") as file:
            np.savez(file, theta=self.theta_, shape=np.array(self._shape, dtype=int))
        os.replace(temporary, path)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Any:
        """Reads what ``to_file`` wrote."""
        with np.load(path) as arrays:
            if {"theta", "shape"} - set(arrays.files):
                raise ValueError(f"{path}: this is no RBM of to_file")
            theta, (d, n_hidden, semi) = arrays["theta"], arrays["shape"].tolist()
        n_pairs = d * (d - 1) // 2 if semi else 0
        if d < 1 or n_hidden < 1 or theta.shape != (d * n_hidden + n_hidden + d + n_pairs,):
            raise ValueError(f"{path}: {theta.size} parameters are no machine of {d} and {n_hidden} units")
        self = cls(n_hidden=n_hidden, semi_restricted=bool(semi))
        self._set(theta, d, n_hidden, bool(semi))
        self.n_features_in_ = d
        self.n_iter_, self.stop_reason_ = 0, "read from a file"
        self.warnings_, self.dead_units_ = [], []
        return self
