"""Potts models of categorical data."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._base import Estimator, as_matrix, is_sparse, warn, weights_of
from ._options import count, limit, seed


@dataclass(kw_only=True, repr=False, eq=False)
class Potts(Estimator):
    """A Potts model, p(x) = exp(sum h_i(x_i) + sum_{i<j} J_ij(x_i, x_j))/Z, fitted as ``mpf dca`` does.

    X holds states 0, 1, ..., q - 1, at most 32 of them; ``dca`` reads alignments instead. Without
    ``sample_weight``, rows that differ in at most ``theta`` of their sites share a weight, as relatives
    do in an alignment; ``theta=-1`` gives every row the weight 1.

    Every parameter but ``n_states`` and ``gap`` is the option of ``mpf dca`` with its name; None leaves
    it to the program, whose defaults ``mpf dca --help`` lists.

    Parameters
    ----------
    n_states : int
        q; None is one more than the largest state of X.
    gap : int
        A state that ``scores_`` leave out.
    method : "pl" or "mpf"
    l2, l2_fields, group : number
        Penalties on the couplings, on the fields and on whole pairs.
    units : "mean" or "plmc"
    mode : "joint" or "node-wise"
    theta, tolerance, max_iterations, memory_limit : number
    random_state : number or NumPy generator
        The seed of scores by annealing; None is 0.
    n_jobs : int
        Threads; None and -1 are all cores.
    verbose : bool
        Show progress.

    Attributes
    ----------
    fields_ : array (d, q)
        h, in the zero-sum gauge.
    couplings_ : array (d (d - 1) / 2, q, q)
        J of the pairs (0, 1), (0, 2), ..., in the zero-sum gauge.
    scores_ : array (d, d)
        Norms of the couplings with the average product correction.
    standard_errors_ : None
        ``mpf dca`` has no error bars.
    n_iter_, stop_reason_, warnings_ :
        How the fit went.

    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import Potts
    >>> X = np.random.default_rng(0).integers(0, 3, (500, 4))
    >>> X[:, 2] = X[:, 0]
    >>> model = Potts(theta=-1).fit(X)
    >>> model.couplings_.shape, int(model.scores_[0].argmax())
    ((6, 3, 3), 2)
    """

    n_states: int | None = None
    gap: int | None = None
    method: str | None = None
    l2: float | None = None
    l2_fields: float | None = None
    group: float | None = None
    units: str | None = None
    mode: str | None = None
    theta: float | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    memory_limit: float | None = None

    _python = (*Estimator._python, "n_states", "gap")

    def _codes(self, X: Any, reset: bool) -> np.ndarray:
        matrix = self._check(X, reset)
        if is_sparse(matrix):
            matrix = as_matrix(matrix.toarray())
        if matrix.dtype.kind == "b":
            matrix = matrix.astype(np.uint8)
        wrong = ~((matrix >= 0) & (matrix < 32) & (matrix == np.floor(matrix)))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            value = matrix[row, column]
            sign = "Negative values in data: " if value < 0 else ""
            raise ValueError(
                f"{sign}X: row {row}, column {column}: found {value}, but states are 0, 1, 2, ... up "
                "to 31, and neither NaN nor inf"
            )
        if matrix.shape[1] < 2:
            raise ValueError("X has 1 feature(s), but a Potts model has two sites or more")
        return np.ascontiguousarray(matrix, dtype=np.uint8)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fits the rows of X; ``sample_weight`` says how often each row occurred."""
        with self._fitting() as show:
            codes = self._codes(X, reset=True)
            n_states = limit("n_states", self.n_states) or max(2, int(codes.max()) + 1)
            weights = weights_of(sample_weight, len(codes))
            if int(codes.max()) >= n_states:
                raise ValueError(f"X has the state {codes.max()}, but n_states is {n_states}")
            gap, options = limit("gap", self.gap), self._options()
            found = _native.fit_potts(codes, n_states, weights, gap, options, self._threads, show)
        theta, self.scores_, self.objective_, self.n_iter_, self.stop_reason_, converged = found
        self._set(theta, codes.shape[1], n_states)
        stopped = f"the fit did not converge: {self.stop_reason_}"
        self.warnings_ = [] if converged else [stopped]
        warn(self.warnings_)
        return self

    def _set(self, theta: np.ndarray, n_sites: int, n_states: int) -> None:
        fields, couplings = np.split(theta, [n_sites * n_states])
        self.fields_ = fields.reshape(n_sites, n_states)
        self.couplings_ = couplings.reshape(-1, n_states, n_states)
        self.standard_errors_ = None

    @property
    def _theta(self) -> np.ndarray:
        return np.concatenate([self.fields_.ravel(), self.couplings_.ravel()])

    def score_samples(self, X: Any) -> np.ndarray:
        """Returns ln p(x) of every row; Z is exact up to 2^20 states, and annealed beyond."""
        self._fitted()
        codes = self._codes(X, reset=False)
        seed_ = seed(self.random_state) or 0
        return _native.potts_score(self._theta, self.fields_.shape, codes, seed_, self._threads)[0]

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws states: independent ones of small models, else by chains of Gibbs sweeps."""
        self._fitted()
        n, seed_ = count("n_samples", n_samples), seed(random_state) or 0
        return _native.potts_sample(self._theta, self.fields_.shape, n, seed_, self._threads)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Writes the arrays that ``mpf dca -o model.npz`` writes."""
        self._fitted()
        n = len(self.fields_)
        arrays: dict[str, Any] = {
            "scores": self.scores_,
            "fields": self.fields_,
            "couplings": self.couplings_,
            "pairs": np.column_stack(np.triu_indices(n, 1)).astype(float),
            "numbers": np.arange(n, dtype=float),
        }
        temporary = f"{os.fspath(path)}.part"
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Any:
        """Reads what ``mpf dca -o model.npz`` or ``to_file`` wrote."""
        self = cls()
        try:
            loaded = np.load(path)
        except (ValueError, EOFError, zipfile.BadZipFile):
            loaded = np.empty(0)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError(f"{path}: this is no Potts model: `mpf dca -o model.npz` writes one")
        with loaded as arrays:
            missing = {"scores", "fields", "couplings"} - set(arrays.files)
            if missing:
                raise ValueError(f"{path}: this is no Potts model: it has no {sorted(missing)[0]}")
            self.scores_, self.fields_ = arrays["scores"], arrays["fields"]
            self.couplings_ = arrays["couplings"]
        self.standard_errors_ = None
        self.n_features_in_ = len(self.fields_)
        self.n_iter_, self.stop_reason_, self.warnings_ = 0, "read from a file", []
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        return tags
