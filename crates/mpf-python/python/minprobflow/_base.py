"""What all estimators share: scikit-learn's conventions, with scikit-learn or without it."""

from __future__ import annotations

import inspect
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ._native import in_python
from ._options import threads, words
from ._progress import Bar

HAS_SKLEARN = False
if not TYPE_CHECKING:  # scikit-learn has no types
    try:
        from sklearn.base import BaseEstimator, DensityMixin, TransformerMixin
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import validate_data

        HAS_SKLEARN = True
    except ImportError:
        pass

if not HAS_SKLEARN:
    validate_data: Any = None

    class NotFittedError(ValueError, AttributeError):
        """An estimator is used before it is fitted."""

    class DensityMixin:
        """Without scikit-learn there is nothing to mix in."""

    class TransformerMixin:
        """Fits and transforms at once."""

        def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
            """Fits X and returns its sources."""
            return self.fit(X).transform(X)  # type: ignore[attr-defined]

    class BaseEstimator:
        """Parameters are the arguments of ``__init__``, kept under their names."""

        @classmethod
        def _names(cls) -> list[str]:
            return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Returns the parameters."""
            return {name: getattr(self, name) for name in sorted(self._names())}

        def set_params(self, **params: Any) -> Any:
            """Sets parameters, and returns the estimator."""
            for name, value in params.items():
                if name not in self._names():
                    raise ValueError(f"Invalid parameter {name!r} for estimator {self!r}.")
                setattr(self, name, value)
            return self

        def __repr__(self) -> str:
            signature = inspect.signature(type(self).__init__).parameters
            given = {k: v for k, v in self.get_params().items() if v is not signature[k].default}
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in given.items())})"


class FitWarning(UserWarning):
    """Something about the data, a fit or its result that its reader should know."""


def warn(messages: list[str]) -> None:
    """Warns of every message, at the line of the user."""
    for message in messages:
        warnings.warn(in_python(message), FitWarning, stacklevel=3)


def is_sparse(X: Any) -> bool:
    """Returns whether X is a sparse matrix of SciPy."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def as_matrix(X: Any, dtype: Any = None, accept_sparse: bool = True) -> Any:
    """Returns X as a matrix of numbers; no copy is made of one that is."""
    if is_sparse(X):
        if not accept_sparse:
            raise TypeError(
                "Sparse data was passed, but dense data is required: use X.toarray()"
            )
        if X.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        return X.tocsr()
    if isinstance(X, (str, os.PathLike)):
        raise ValueError(f"X={str(X)!r}: give an array; numpy.load and pandas.read_csv read files")
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if array.dtype.kind not in "biuf":
        if hasattr(X, "isna"):  # pandas has a missing entry that is no number
            array = np.where(X.isna(), np.nan, array)
        array = array.astype(np.float64)  # numbers as text or objects, or an error that says so
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float64)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead: rows are samples, columns are "
            "units. Reshape your data with X.reshape(-1, 1) for one unit or X.reshape(1, -1) for "
            "one sample."
        )
    for n, what in zip(array.shape, ("sample(s)", "feature(s)")):
        if n == 0:
            raise ValueError(
                f"Found array with 0 {what} (shape={array.shape}) while a minimum of 1 is required."
            )
    return array if dtype is None else array.astype(dtype, copy=False)


def refuse_infinity(matrix: Any) -> None:
    """Refuses numbers that a threshold would take for measurements."""
    wrong = np.isinf(matrix.data if is_sparse(matrix) else matrix)
    if wrong.any():
        place = "" if is_sparse(matrix) else " in row {}, column {}".format(*np.argwhere(wrong)[0])
        raise ValueError(f"X: found inf{place}: measurements are finite")


def file_of(matrix: Any) -> tuple[bytes, np.ndarray]:
    """Returns the bytes of a matrix as NumPy or SciPy would save it: a header, and its own memory."""
    stream = io.BytesIO()
    if is_sparse(matrix):
        from scipy import sparse

        sparse.save_npz(stream, sparse.csr_matrix(matrix), compressed=False)
        return b"", np.frombuffer(stream.getvalue(), dtype=np.uint8)
    if not (matrix.flags.c_contiguous or matrix.flags.f_contiguous):
        matrix = np.ascontiguousarray(matrix)
    header = np.lib.format.header_data_from_array_1_0(matrix)
    np.lib.format.write_array_header_1_0(stream, header)
    flat = (matrix if matrix.flags.c_contiguous else matrix.T).reshape(-1)
    return stream.getvalue(), np.asarray(flat).view(np.uint8)


class Data:
    """A matrix with the names of its columns and the weights of its rows, as Rust takes it."""

    def __init__(self, matrix: Any, names: Any = None, weights: Any = None) -> None:
        self.header, self.body = file_of(matrix)
        self.names = None if names is None else [str(name) for name in names]
        self.weights = weights


def names_of(X: Any) -> list[str] | None:
    """Returns the names of the columns of a DataFrame, if all of them are text."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return list(columns)


def weights_of(sample_weight: Any, n_samples: int) -> np.ndarray | None:
    """Returns the weights of samples as numbers."""
    if sample_weight is None:
        return None
    weights = np.ascontiguousarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n_samples, float(weights))
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected ({n_samples},): every sample needs one"
        )
    if not weights.any():
        raise ValueError("every sample weight is zero: at least one sample must count")
    return weights


@dataclass(kw_only=True, repr=False, eq=False)
class Estimator(DensityMixin, BaseEstimator):
    """The base of all estimators: their parameters are the fields of data classes."""

    random_state: Any = None
    n_jobs: int | None = None
    verbose: bool = False

    #: Parameters that are no options of the program.
    _python: ClassVar[tuple[str, ...]] = ("random_state", "n_jobs", "verbose")

    def _check(self, X: Any, reset: bool, dtype: Any = None, accept_sparse: bool = True) -> Any:
        """Returns X as a matrix, after a look at its columns."""
        matrix = as_matrix(X, dtype, accept_sparse)
        if getattr(self, "binarize", None) is not None and matrix.dtype.kind == "f":
            refuse_infinity(matrix)
        if HAS_SKLEARN:
            validate_data(self, X=X if names_of(X) else matrix, reset=reset, skip_check_array=True)
        elif reset:
            self.n_features_in_: int = matrix.shape[1]
            if names_of(X):
                self.feature_names_in_: np.ndarray = np.array(names_of(X), dtype=object)
        elif matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return matrix

    @contextmanager
    def _fitting(self) -> Iterator[Any]:
        """Shows progress; removes the results of an earlier fit, and what a failed one has left."""
        self._forget()
        try:
            with Bar(self.verbose) as show:
                yield show
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            delattr(self, name)

    def _options(self) -> list[str]:
        """Returns the parameters that are options of the program."""
        return words({k: v for k, v in self.get_params().items() if k not in self._python})

    def _fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate "
                "arguments before using this estimator."
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "stop_reason_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        return tags

    @property
    def _threads(self) -> int:
        return threads(self.n_jobs)

    def score_samples(self, X: Any) -> np.ndarray:
        """Returns ln p(x) of every row."""
        raise NotImplementedError

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of ``score_samples``."""
        return float(np.mean(self.score_samples(X)))
