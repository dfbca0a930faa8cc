"""Independent component analysis with a Laplace prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._base import Estimator, TransformerMixin, warn
from ._options import count, limit, number, seed


@dataclass(kw_only=True, repr=False, eq=False)
class LaplaceICA(TransformerMixin, Estimator):
    """Filters W of p(x) = exp(-sum_k |W_k (x - mean)|) |det W| / 2^d, with as many sources as columns.

    X is centred and whitened, and the filters of the whitened data are learned.

    Parameters
    ----------
    method : "mpf", "ml" or "alternating"
        Stochastic minimum probability flow (None is that, too), maximum likelihood, or the paper's
        trainer of minimum probability flow. ``fun`` is not offered: the prior is Laplace's.
    whiten : "zca" or "pca"
        None is "zca".
    max_iterations : int
        For "ml".
    max_seconds : float
    random_state : number or NumPy generator
        The seed; None is 0.
    n_jobs : int
        Threads; None and -1 are all cores.
    verbose : bool
        Show progress.

    Attributes
    ----------
    components_ : array (d, d)
        W. The sources of x are ``components_ @ (x - mean_)``.
    mixing_ : array (d, d)
        Its inverse.
    filters_ : array (d, d)
        The filters of the whitened data: ``components_`` is ``filters_ @ whitening_``.
    log_likelihood_ : float
        The mean of ln p over the whitened data.
    mean_, whitening_, n_iter_, stop_reason_, warnings_ :
        The mean, the whitening transform and how the fit went. Minimum probability flow runs to the end
        of its schedule, and maximum likelihood creeps in the end: "iteration limit reached" is usual.

    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import LaplaceICA
    >>> sources = np.random.default_rng(0).laplace(size=(2000, 2))
    >>> X = sources @ np.array([[1.0, 0.5], [-0.3, 1.0]])
    >>> ica = LaplaceICA(method="ml").fit(X)
    >>> found = np.abs(np.corrcoef(ica.transform(X).T, sources.T)[:2, 2:])
    >>> bool((found.max(axis=1) > 0.99).all())
    True
    """

    method: str | None = None
    whiten: str | None = None
    max_iterations: int | None = None
    max_seconds: float | None = None

    def _numbers(self, X: Any, reset: bool) -> np.ndarray:
        matrix = self._check(X, reset, dtype=np.float64, accept_sparse=False)
        if not np.isfinite(matrix).all():
            row, column = np.argwhere(~np.isfinite(matrix))[0]
            value = matrix[row, column]
            raise ValueError(f"X: row {row}, column {column}: found {value}: NaN or inf is no data")
        return matrix

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learns the filters of the rows of X."""
        with self._fitting() as show:
            found = _native.fit_ica(
                self._numbers(X, reset=True),
                None if self.method is None else str(self.method),
                None if self.whiten is None else str(self.whiten),
                limit("max_iterations", self.max_iterations),
                number("max_seconds", self.max_seconds),
                seed(self.random_state) or 0,
                self._threads,
                show,
            )
        self.filters_, self.mean_, self.whitening_, inverse = found[:4]
        self.log_likelihood_, self.n_iter_, self.stop_reason_, self.warnings_ = found[4:]
        self.components_ = self.filters_ @ self.whitening_
        self.mixing_ = inverse @ np.linalg.inv(self.filters_)
        warn(self.warnings_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns the sources of every row."""
        self._fitted()
        return (self._numbers(X, reset=False) - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Returns the rows whose sources are those of X."""
        self._fitted()
        return np.asarray(X) @ self.mixing_.T + self.mean_

    def score_samples(self, X: Any) -> np.ndarray:
        """Returns ln p(x) of every row, exactly."""
        sources = self.transform(X)
        volume = np.linalg.slogdet(self.components_)[1]
        return volume - sources.shape[1] * np.log(2) - np.abs(sources).sum(axis=1)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws rows of the model."""
        self._fitted()
        n, seed_ = count("n_samples", n_samples), seed(random_state) or 0
        white = _native.ica_sample(self.filters_, n, seed_)
        return self.inverse_transform(white @ self.filters_.T)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Returns the names of the sources."""
        self._fitted()
        return np.array([f"laplaceica{k}" for k in range(self._n_features_out)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
