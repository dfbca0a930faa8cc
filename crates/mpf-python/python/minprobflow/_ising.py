"""Ising and K-pairwise models of binary data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._binary import BinaryModel

PARAMETERS = """
    Every parameter is the option of ``mpf fit`` with its name; None leaves it to the program, whose
    defaults ``mpf fit --help`` lists.

    Parameters
    ----------
    method : "auto", "mpf", "pl", "rise", "logrise", "ml", "tap", "cd" or "independent"
    refine : "none", "pl" or "ml"
        The method that starts from the fit and ends it.
    l1, l2 : number or "auto"
        Penalties on the spin couplings; "auto" chooses by cross-validation.
    rule, folds :
        How "auto" chooses: "min", "1se" or "ebic", on so many folds.
    neighbours : "single", "single+all" or "non-data"
        States that probability may flow to.
    nodewise : bool
        Fit every row by itself.
    support : pairs of column numbers
        The couplings that are free; the others are zero.
    spins : bool
        X holds -1 and +1. Couplings are those of 0 and 1 all the same; see ``to_spins``.
    levels : two numbers
        The values of X that stand for 0 and for 1.
    binarize : number or True
        X is 1 above this threshold (True: 0), else 0.
    missing : "drop" or "mask"
        What becomes of rows with NaN.
    held_out : fraction
        The last part of X that a second fit leaves out to judge the model; 0 for none.
    polish : number of updates, or "auto"
    errors : "none", "sandwich" or "bootstrap"
    resamples, block_length :
        Of the error bars.
    tolerance, precision, max_iterations, max_seconds, damping, updates, sweeps, memory_limit :
        As in ``mpf fit --help``.
    force : bool
        Fit data that look transposed.
    random_state : number or NumPy generator
        The seed; None is the program's, 0.
    n_jobs : int
        Threads; None and -1 are all cores. Their number changes no digit.
    verbose : bool
        Show progress.

    Attributes
    ----------
    couplings_ : array (d, d)
        J of p(x) = exp(-x'Jx)/Z, symmetric, with biases on the diagonal.
    fields_ : array (d,)
        The diagonal of J.
    standard_errors_ : array (d, d) or None
        Of J: NaN where it was not free, infinite where the data do not determine it.
    corrected_couplings_ : array (d, d) or None
        The J without penalty that intervals are centred on.
    n_iter_, stop_reason_, warnings_, findings_ :
        How the fit went, what is doubtful about it, and what the data cannot determine.
    record_ : dict
        The rest of what a model file says about the fit: ``l1``, ``l2``, ``path``, ``held_out``, ...
"""


@dataclass(kw_only=True, repr=False, eq=False)
class PairwiseModel(BinaryModel):
    """The parameters of models of pairs."""

    refine: str | None = None
    l1: float | str | None = None
    rule: str | None = None
    folds: int | None = None
    neighbours: str | None = None
    support: Any = None
    polish: int | str | None = None
    errors: str | None = None
    resamples: int | None = None
    precision: str | None = None

    def to_spins(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns h and K of p(s) = exp(sum h_i s_i + sum_{i<j} K_ij s_i s_j)/Z, s = -1 or +1."""
        self._fitted()
        return self.model_.spins()


@dataclass(kw_only=True, repr=False, eq=False)
class Ising(PairwiseModel):
    __doc__ = f"""An Ising model, p(x) = exp(-x'Jx)/Z of x in {{0,1}}^d, fitted as ``mpf fit`` does.
    {PARAMETERS}
    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import Ising
    >>> X = np.random.default_rng(0).integers(0, 2, (500, 4), dtype=np.uint8)
    >>> X[:, 1] = X[:, 0] ^ (X[:, 1] & X[:, 2])
    >>> model = Ising(l2=0.01).fit(X)
    >>> model.couplings_.shape, model.stop_reason_
    ((4, 4), 'converged')
    >>> bool(model.score(X) > -4 * np.log(2))
    True
    >>> model.sample(3, random_state=1).shape
    (3, 4)
    """

    nodewise: bool = False
    damping: float | None = None

    def _model_name(self) -> str:
        return "ising"


@dataclass(kw_only=True, repr=False, eq=False)
class KPairwise(PairwiseModel):
    __doc__ = f"""An Ising model with a potential of the number of active units.

    p(x) = exp(-x'Jx - V(sum x))/Z, fitted as ``mpf fit --model k-pairwise`` does.
    {PARAMETERS}
    potential_ : array (d + 1,)
        V of 0 to d active units.

    The parameter ``smooth_potential`` is the strength of a penalty that makes V smooth.

    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import KPairwise
    >>> rng = np.random.default_rng(0)
    >>> X = (rng.random((400, 5)) < rng.choice([0.1, 0.6], (400, 1))).astype(np.uint8)
    >>> KPairwise(held_out=0).fit(X).potential_.shape
    (6,)
    """

    smooth_potential: float | None = None

    def _model_name(self) -> str:
        return "k-pairwise"

    def _take(self, model: _native.Model) -> None:
        super()._take(model)
        self.potential_ = model.potential
