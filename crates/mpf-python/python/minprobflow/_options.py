"""Parameters of Python in the words of the command line."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from typing import Any

import numpy as np


def words(parameters: Mapping[str, Any]) -> list[str]:
    """Returns the options that are given: ``l2=0.1`` is ``--l2=0.1``, and None is left out.

    >>> words({"l2": 0.1, "max_iterations": None, "nodewise": True, "levels": (1, 2)})
    ['--l2=0.1', '--nodewise', '--levels=1,2']
    """
    options = []
    for name, value in parameters.items():
        name = "--" + name.replace("_", "-")
        if isinstance(value, (bool, np.bool_)):
            options += [name] if value else []
        elif value is None:
            continue
        elif isinstance(value, (list, tuple)):
            options.append(f"{name}={','.join(map(_text, value))}")
        else:
            options.append(f"{name}={_text(value)}")
    return options


#: Options of the program that a function has no use for, and what to write instead.
_ELSEWHERE = {
    "checkpoint": "only the program keeps checkpoints",
    "counts": "give sample_weight",
    "json": "the result has numbers",
    "output": "the result has a method save",
    "quiet": "nothing is printed",
    "seed": "give random_state",
    "threads": "give n_jobs",
    "verbose": "only fits show progress",
}


def asked(given: Mapping[str, Any], **others: Any) -> list[str]:
    """Returns the options that the caller of a function gives, and others unless they are given.

    >>> asked({"folds": 3})
    ['--folds=3']
    >>> asked({"output": "report.html"})
    Traceback (most recent call last):
    TypeError: there is no parameter output: the result has a method save
    """
    for name in given:
        if name in _ELSEWHERE:
            raise TypeError(f"there is no parameter {name}: {_ELSEWHERE[name]}")
    return words({**others, **given})


def _text(value: Any) -> str:
    """Returns a number with all of its digits, NumPy's among them."""
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    return str(value)


def threads(n_jobs: int | None) -> int:
    """Returns the threads that scikit-learn's ``n_jobs`` asks for; 0 stands for all cores.

    >>> threads(None), threads(3), threads(-1) >= 1
    (0, 3, True)
    """
    if n_jobs is None:
        return 0
    if not isinstance(n_jobs, numbers.Integral) or n_jobs == 0 or n_jobs > 1024:
        raise ValueError(f"n_jobs={n_jobs!r}: ask for 1 to 1024 threads, or for -1, all cores")
    return int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


def seed(random_state: Any) -> int | None:
    """Returns the seed of ``random_state``: None, a number, or a NumPy generator, which draws one.

    >>> seed(None), seed(7)
    (None, 7)
    """
    if random_state is None:
        return None
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**64:
        return int(random_state)
    if hasattr(random_state, "integers"):
        return int(random_state.integers(2**32))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31))
    raise ValueError(f"random_state={random_state!r}: give a number from 0 on, None or a NumPy generator")


def count(name: str, value: Any, least: int = 1) -> int:
    """Returns a whole number that is not too small.

    >>> count("n_samples", 3)
    3
    """
    if isinstance(value, numbers.Integral) and least <= int(value) < 2**63:
        return int(value)
    raise ValueError(f"{name}={value!r}: ask for a whole number from {least} on")


def limit(name: str, value: Any) -> int | None:
    """Returns a whole number, or None."""
    return None if value is None else count(name, value, 0)


def number(name: str, value: Any) -> float | None:
    """Returns a number, or None."""
    if value is None or isinstance(value, numbers.Real):
        return None if value is None else float(value)
    raise ValueError(f"{name}={value!r}: give a number")
