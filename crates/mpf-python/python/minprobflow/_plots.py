"""Plots, for which matplotlib is imported when they are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._functions import _estimator, report


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def plot_couplings(model: Any, ax: Any = None, **options: Any) -> Any:
    """Draws the spin couplings K of a model as a matrix; returns the axes.

    Of an RBM these are the weights -W between visible and hidden units, of a Potts model ``scores_``.
    Red pairs of units tend to agree, blue ones to differ. Options go to ``imshow``.

    >>> import numpy as np
    >>> ax = plot_couplings(np.array([[0.0, -3.0], [-3.0, 0.0]]))
    >>> float(ax.images[0].get_array()[0, 1])
    1.5
    """
    fitted = _estimator(model)
    fitted._fitted()
    rows = "unit"
    if hasattr(fitted, "scores_"):
        title, label, matrix = "couplings of sites", "score", fitted.scores_
    elif hasattr(fitted, "weights_"):
        title, label, matrix, rows = "weights", "-W", -fitted.weights_, "hidden unit"
    elif hasattr(fitted, "to_spins"):
        title, label, matrix = "spin couplings", "K", fitted.to_spins()[1]
    else:
        raise ValueError(f"{type(fitted).__name__} has no couplings")
    ax = _axes(ax)
    largest = float(np.abs(matrix).max()) or 1.0
    image = ax.imshow(matrix, **{"cmap": "RdBu_r", "vmin": -largest, "vmax": largest, **options})
    ax.figure.colorbar(image, ax=ax, label=label)
    ax.set(xlabel="unit", ylabel=rows, title=title)
    return ax


def plot_fit(model: Any, X: Any, ax: Any = None, **options: Any) -> Any:
    """Draws the means and covariances of a model against those of X; returns the axes.

    The numbers, with bars of two standard errors, and the options are those of ``report``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).integers(0, 2, (500, 3), dtype=np.uint8)
    >>> [text.get_text() for text in plot_fit(np.zeros((3, 3)), X).get_legend().get_texts()]
    ['covariances', 'means']
    """
    numbers = report(model, X, **options).numbers
    ax = _axes(ax)
    for name, label in (("pairs", "covariances"), ("means", "means")):
        moments = numbers[name]
        of = {key: np.array([moment[key] for moment in moments]) for key in _COMPARED}
        errors = {"xerr": 2 * of["data_error"], "yerr": 2 * of["model_error"]}
        ax.errorbar(of["data"], of["model"], **errors, fmt=".", label=label, elinewidth=0.5)
    ends = ax.get_xlim()
    ax.plot(ends, ends, color="grey", linewidth=0.8)
    ax.set(xlabel="data", ylabel="model", title="moments")
    ax.legend()
    return ax


_COMPARED = ("data", "data_error", "model", "model_error")
