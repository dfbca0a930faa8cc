"""What models of binary data share: fits as ``mpf fit`` does, scores, draws and model files."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._base import Data, Estimator, names_of, warn, weights_of
from ._options import asked, count, seed, words

#: Options that say how X is to be read.
READING = ("spins", "levels", "binarize")


def kind(model: _native.Model) -> str:
    """Returns the name of the class that a model belongs to."""
    if model.hidden is not None:
        return "RBM"
    return "Ising" if model.potential is None else "KPairwise"


def pairs_of(support: Any) -> list[tuple[int, int]]:
    """Returns the pairs of columns that a coupling joins."""
    try:
        return [(operator.index(i), operator.index(j)) for i, j in support]
    except (TypeError, ValueError):
        raise ValueError(
            "support holds pairs of column numbers, such as [(0, 1), (2, 5)]; "
            "those of a matrix are numpy.argwhere(numpy.triu(matrix, 1))"
        ) from None


@dataclass(kw_only=True, repr=False, eq=False)
class BinaryModel(Estimator):
    """The base of models that ``mpf fit`` fits."""

    method: str | None = None
    l2: float | str | None = None
    updates: int | None = None
    sweeps: int | None = None
    spins: bool = False
    levels: tuple[float, float] | None = None
    binarize: float | bool | None = None
    missing: str | None = None
    held_out: float | None = None
    block_length: int | None = None
    tolerance: float | None = None
    max_iterations: int | None = None
    max_seconds: float | None = None
    memory_limit: float | None = None
    force: bool = False

    _python = (*Estimator._python, "support", "semi_restricted")

    def _model_name(self) -> str:
        """Returns the word after ``--model``."""
        raise NotImplementedError

    def _words(self) -> list[str]:
        """Returns the options of the fit."""
        return [f"--model={self._model_name()}", *self._options(), *words({"seed": seed(self.random_state)})]

    def _data_words(self) -> list[str]:
        return words({name: getattr(self, name) for name in READING})

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fits the rows of X, which may be an array, a DataFrame, a memory map or a sparse matrix.

        ``sample_weight`` says how often each row occurred. Ctrl-C leaves the estimator unfitted.
        """
        with self._fitting() as show:
            matrix = self._check(X, reset=True)
            data = Data(matrix, names_of(X), weights_of(sample_weight, matrix.shape[0]))
            support = getattr(self, "support", None)
            pairs = None if support is None else pairs_of(support)
            made = _native.fit(data, self._words(), pairs, self._threads, show)
        model, notes, findings = made
        self._take(model)
        self.findings_: list[str] = notes + findings
        warn(self.warnings_)
        return self

    def _take(self, model: _native.Model) -> None:
        """Takes a fitted model over."""
        self.model_ = model
        self.couplings_ = model.couplings
        self.fields_ = np.diag(self.couplings_).copy()
        errors = model.errors() or (None, None)
        self.standard_errors_: np.ndarray | None = errors[0]
        self.corrected_couplings_: np.ndarray | None = errors[1]
        self.record_: dict[str, Any] = json.loads(model.record or "{}")
        self.n_iter_ = self.record_.get("iterations", 0)
        self.stop_reason_ = self.record_.get("stop") or "closed form"
        self.warnings_: list[str] = self.record_.get("warnings", [])

    def score_samples(self, X: Any) -> np.ndarray:
        """Returns ln p(x) of every row.

        Z is a sum over all states up to 24 units (20 with hidden units), and an estimate by annealed
        importance sampling up to 400. Where that cannot be relied on, and for more units, the score
        is the pseudolikelihood, sum_i ln p(x_i | the others), with a warning.
        """
        self._fitted()
        data = Data(self._check(X, reset=False))
        seed_ = seed(self.random_state) or 0
        scores, measure = self.model_.score(data, self._data_words(), seed_, self._threads)
        if "pseudolikelihood" in measure:
            warn(["ln Z cannot be estimated reliably: the score is the pseudolikelihood"])
        return scores

    def sample(self, n_samples: int = 1, random_state: Any = None, **options: Any) -> np.ndarray:
        """Draws states of the model, of 0 and 1, or -1 and +1 with ``spins``.

        Options are those of ``mpf sample``: ``sampler``, ``chains``, ``burn_in``, ``thin``.
        """
        self._fitted()
        n = count("n_samples", n_samples)
        given = ["-n", str(n), *asked(options, seed=seed(random_state))]
        draws, warnings = self.model_.sample(given, self._threads)
        warn(warnings)
        return 2 * draws.astype(np.int8) - 1 if self.spins else draws

    def to_file(self, path: str | os.PathLike[str], convention: str = "binary") -> None:
        """Writes a model file of ``mpf``: .json, .npz or .csv, in the paper's convention or "spins"."""
        self._fitted()
        self.model_.write(os.fspath(path), convention)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], assume: str | None = None) -> Any:
        """Reads a model file of ``mpf``; ``assume`` is the convention of a bare matrix."""
        model = _native.Model.read(os.fspath(path), assume)
        if kind(model) not in [base.__name__ for base in cls.__mro__]:
            raise ValueError(
                f"{path}: this is no model for {cls.__name__}: use {kind(model)}.from_file"
            )
        return cls()._of(model)

    def _of(self, model: _native.Model) -> Any:
        """Takes a model of a file over."""
        self._take(model)
        self.findings_ = []
        self.n_features_in_ = len(model.names)
        if model.names != [str(i) for i in range(len(model.names))]:
            self.feature_names_in_ = np.array(model.names, dtype=object)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing is not None
        return tags
