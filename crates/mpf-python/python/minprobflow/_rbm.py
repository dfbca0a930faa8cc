"""Restricted Boltzmann machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._binary import BinaryModel


@dataclass(kw_only=True, repr=False, eq=False)
class RBM(BinaryModel):
    """A restricted Boltzmann machine, its hidden units summed out, fitted as ``mpf fit --model rbm`` does.

    p(x) = sum_h exp(-x'Jx - c'h - h'Wx)/Z. J is diagonal unless visible units are coupled too. Lower
    energies are likelier, so W, c and J have the signs of energies.

    Every parameter but ``semi_restricted`` is the option of ``mpf fit`` with its name; None leaves it to
    the program, whose defaults ``mpf fit --help`` lists.

    Parameters
    ----------
    hidden : int
        Hidden units.
    semi_restricted : bool
        Couple visible units too: ``--model srbm``.
    method : "pl", "mpf", "cd" or "pcd"
        Pseudolikelihood, minimum probability flow, or contrastive divergence, from the data or from
        persistent chains.
    l2 : number
        On the weights and couplings.
    starts : int
        Random starts of "pl" and "mpf", of which the best is kept.
    updates, sweeps :
        Of contrastive divergence.
    spins, levels, binarize, missing :
        How X is read: see ``Ising``; rows with NaN can only be dropped.
    held_out, block_length, tolerance, max_iterations, max_seconds, memory_limit, force :
        As for ``Ising``.
    random_state : number or NumPy generator
        The seed; None is the program's, 0.
    n_jobs : int
        Threads; None and -1 are all cores. Their number changes no digit.
    verbose : bool
        Show progress.

    Attributes
    ----------
    weights_ : array (n_hidden, d)
        W.
    hidden_fields_ : array (n_hidden,)
        c.
    couplings_, fields_ :
        J, and its diagonal.
    standard_errors_ : None
        Machines have no error bars.
    n_iter_, stop_reason_, warnings_, findings_, record_ :
        As for ``Ising``.

    Examples
    --------
    >>> import numpy as np
    >>> from minprobflow import RBM
    >>> group = np.random.default_rng(0).integers(0, 2, (400, 1))
    >>> X = np.repeat(group, 5, axis=1) ^ (np.random.default_rng(1).random((400, 5)) < 0.1)
    >>> model = RBM(hidden=1).fit(X)
    >>> bool(model.score(X) > -5 * np.log(2))
    True
    """

    hidden: int | None = None
    semi_restricted: bool = False
    starts: int | None = None

    def _model_name(self) -> str:
        return "srbm" if self.semi_restricted else "rbm"

    def _take(self, model: _native.Model) -> None:
        super()._take(model)
        assert model.hidden is not None, "a machine has hidden units"
        self.weights_, self.hidden_fields_ = model.hidden

    def _of(self, model: _native.Model) -> Any:
        super()._of(model)
        self.hidden = len(self.weights_)
        self.semi_restricted = bool((self.couplings_ != np.diag(self.fields_)).any())
        return self
