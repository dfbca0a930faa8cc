"""Fits Ising models and other energy-based models by minimum probability flow and its rivals.

The package runs the program ``mpf``: the same fits, defaults and messages, and the same couplings to
the bit. Estimators follow scikit-learn, which need not be installed.

>>> import numpy as np
>>> from minprobflow import Ising
>>> X = np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 1]])
>>> model = Ising(held_out=0).fit(X)
>>> bool(model.couplings_[1, 2] < 0)  # an attractive coupling is negative
True
"""

from ._functions import (
    Comparison,
    Contacts,
    Diagnosis,
    Report,
    compare,
    dca,
    diagnose,
    penalty_path,
    report,
    sample,
)
from ._ica import LaplaceICA
from ._ising import Ising, KPairwise
from ._native import __version__
from ._plots import plot_couplings, plot_fit
from ._potts import Potts
from ._rbm import RBM

__all__ = [
    "Comparison",
    "Contacts",
    "Diagnosis",
    "Ising",
    "KPairwise",
    "LaplaceICA",
    "Potts",
    "RBM",
    "Report",
    "__version__",
    "compare",
    "dca",
    "diagnose",
    "penalty_path",
    "plot_couplings",
    "plot_fit",
    "report",
    "sample",
]
