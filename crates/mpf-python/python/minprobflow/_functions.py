"""Functions: comparisons, reports, draws and contacts."""

from __future__ import annotations

import csv
import html
import io
import json
import os
from typing import Any

import numpy as np

from . import _native
from ._base import Data, as_matrix, names_of, warn, weights_of
from ._binary import READING, kind
from ._ising import Ising, KPairwise
from ._options import asked, seed, threads
from ._rbm import RBM


def _data(X: Any, sample_weight: Any = None) -> Data:
    matrix = as_matrix(X)
    return Data(matrix, names_of(X), weights_of(sample_weight, matrix.shape[0]))


class Page:
    """A page in HTML that shows itself in a notebook."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, which appears whole or not at all."""
        temporary = f"{os.fspath(path)}.part"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(self.html)
        os.replace(temporary, path)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="700"></iframe>'


class Report(Page):
    """A model beside data: the page of ``mpf evaluate``, and its ``numbers``."""

    def __init__(self, page: str, numbers: dict[str, Any]) -> None:
        super().__init__(page)
        self.numbers = numbers
        self.verdict: str = numbers["verdict"]

    def __repr__(self) -> str:
        return f"<Report: the model {self.verdict.replace('-', ' ')}>"


class Comparison(Page):
    """Methods scored on held-out data: ``entrants`` and the page of ``mpf compare``."""

    def __init__(self, page: str, table: str, numbers: dict[str, Any]) -> None:
        super().__init__(page)
        self.table = table
        self.numbers = numbers
        self.entrants: list[dict[str, Any]] = numbers["entrants"]

    def __repr__(self) -> str:
        return self.table


class Diagnosis:
    """What the data look like, and ``findings``: what they cannot determine."""

    def __init__(self, numbers: dict[str, Any], findings: list[str]) -> None:
        self.numbers = numbers
        self.findings = findings

    def __repr__(self) -> str:
        head = f"{self.numbers['n_samples']} samples x {self.numbers['n_units']} units"
        return "\n".join([f"{head}, {self.numbers['n_distinct']} distinct", *self.findings])


class Contacts(Page):
    """Pairs of sites of an alignment, ranked by their couplings: what ``mpf dca`` writes."""

    def __init__(self, found: tuple[str, str, bytes, str]) -> None:
        summary, table, archive, page = found
        super().__init__(page)
        self.numbers: dict[str, Any] = json.loads(summary)
        self.table = table
        self.archive = archive
        with np.load(io.BytesIO(archive)) as arrays:
            self.scores = arrays["scores"]
            self.fields = arrays["fields"]
            self.couplings = arrays["couplings"]
            self.states = str(arrays["states"])
        lines = [line for line in table.splitlines() if not line.startswith("#")]
        self.pairs: list[dict[str, str]] = list(csv.DictReader(lines))

    def __repr__(self) -> str:
        best = (f"{p['letter_i']}{p['i']}-{p['letter_j']}{p['j']}" for p in self.pairs[:5])
        return f"<Contacts of {self.scores.shape[0]} sites: {', '.join(best)}, ...>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report (.html), the ranked pairs (.csv), the numbers (.json) or all (.npz)."""
        contents: dict[str, bytes] = {
            ".csv": self.table.encode(),
            ".json": json.dumps(self.numbers, indent=2).encode(),
            ".npz": self.archive,
            ".html": self.html.encode(),
        }
        ending = os.path.splitext(os.fspath(path))[1]
        if ending not in contents:
            raise ValueError(f"{path}: the name ends in .csv, .npz, .html or .json")
        temporary = f"{os.fspath(path)}.part"
        with open(temporary, "wb") as file:
            file.write(contents[ending])
        os.replace(temporary, path)


def compare(
    X: Any,
    methods: list[str] | None = None,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    **options: Any,
) -> Comparison:
    """Scores methods on held-out parts of X, as ``mpf compare`` does.

    Options are those of ``mpf compare``: ``folds``, ``model`` ("k-pairwise"), ``hidden``, ``refine``, ``l1``,
    ``l2``, ``spins``, ``binarize``, ``max_seconds``, ...

    >>> import numpy as np
    >>> X = np.random.default_rng(0).integers(0, 2, (200, 3), dtype=np.uint8)
    >>> found = compare(X, ["pl", "independent"], folds=2)
    >>> sorted(entrant["name"] for entrant in found.entrants)
    ['PL', 'PL, plain', 'independent']
    """
    given = asked(options, methods=methods, seed=seed(random_state))
    page, table, numbers = _native.compare(_data(X, sample_weight), given, threads(n_jobs))
    return Comparison(page, table, json.loads(numbers))


def penalty_path(
    X: Any, penalty: str = "l1", *, sample_weight: Any = None, **options: Any
) -> dict[str, Any]:
    """Fits along a path of penalties with cross-validation, as ``mpf fit --l1 auto`` does.

    Returns arrays ``lambda``, ``held_out``, ``standard_error``, ``n_couplings`` and ``ebic``, the
    ``chosen`` penalty and the ``model`` there. Options are the parameters of ``Ising``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).integers(0, 2, (300, 4), dtype=np.uint8)
    >>> path = penalty_path(X, folds=3)
    >>> bool(path["chosen"] in path["lambda"])
    True
    """
    if penalty not in ("l1", "l2"):
        raise ValueError(f'penalty={penalty!r}: it is "l1" or "l2"')
    plain = {"held_out": 0, "polish": 0, **options, penalty: "auto"}
    model = Ising(**plain).fit(X, sample_weight=sample_weight)
    points = model.record_["path"]
    path: dict[str, Any] = {
        name: np.array([point[name] for point in points], dtype=float)
        for name in ("lambda", "held_out", "standard_error", "n_couplings", "ebic")
    }
    return {**path, "chosen": model.record_[penalty], "model": model}


def sample(model: Any, n_samples: int, random_state: Any = None, **options: Any) -> np.ndarray:
    """Draws states of a fitted estimator, of a model file, or of couplings J.

    Options are those of ``mpf sample``: ``sampler``, ``chains``, ``burn_in``, ``thin``.

    >>> import numpy as np
    >>> draws = sample(np.array([[0.0, -3.0], [-3.0, 0.0]]), 1000)
    >>> bool(draws.all(axis=1).mean() > 0.9)
    True
    """
    return _estimator(model).sample(n_samples, random_state, **options)


def _estimator(model: Any) -> Any:
    if hasattr(model, "sample"):
        return model
    if isinstance(model, (str, os.PathLike)):
        found = _native.Model.read(os.fspath(model), None)
        return {"Ising": Ising, "KPairwise": KPairwise, "RBM": RBM}[kind(found)]()._of(found)
    couplings = np.ascontiguousarray(model, dtype=np.float64)
    if couplings.ndim != 2 or couplings.shape[0] != couplings.shape[1]:
        raise ValueError(f"couplings of shape {couplings.shape}: J is a square matrix")
    names = [str(i) for i in range(len(couplings))]
    return Ising()._of(_native.Model(couplings, names))


def diagnose(
    X: Any, *, sample_weight: Any = None, n_jobs: int | None = None, **options: Any
) -> Diagnosis:
    """Looks at data before a fit, as ``mpf fit`` does: size, and what they cannot determine.

    Options say how X is read: ``spins``, ``levels``, ``binarize``, ``missing``.

    >>> import numpy as np
    >>> diagnose(np.array([[0, 1], [0, 0], [0, 1]])).findings[0][:18]
    'unit 0 is always 0'
    """
    data = _data(X, sample_weight)
    numbers, findings = _native.diagnose(data, asked(options), threads(n_jobs))
    return Diagnosis(json.loads(numbers), findings)


def report(
    model: Any,
    X: Any,
    *,
    truth: Any = None,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    **options: Any,
) -> Report:
    """Compares a model with data, as ``mpf evaluate`` does: a page, and numbers.

    ``model`` and ``truth`` are estimators, model files or couplings J. In a notebook the report shows
    itself; ``save`` writes it. Options are those of ``mpf evaluate``: ``sampler``, ``draws``,
    ``block_length``.

    >>> import numpy as np
    >>> from minprobflow import Ising
    >>> X = np.random.default_rng(0).integers(0, 2, (500, 3), dtype=np.uint8)
    >>> report(Ising(held_out=0).fit(X), X).verdict
    'agrees'
    """
    fitted, true = _estimator(model), None if truth is None else _estimator(truth)
    for name, found in (("model", fitted), ("truth", true)):
        if found is not None and not hasattr(found, "model_"):
            raise ValueError(f"{name}={found!r}: a report needs a fitted Ising, KPairwise or RBM model")
    reading = {name: getattr(fitted, name) for name in READING}
    given = asked(options, seed=seed(random_state), **reading)
    data = _data(X, sample_weight)
    true_model = None if true is None else true.model_
    page, numbers = _native.evaluate(fitted.model_, data, true_model, given, threads(n_jobs))
    return Report(page, json.loads(numbers))


def dca(
    family: str | os.PathLike[str], *, n_jobs: int | None = None, **options: Any
) -> Contacts:
    """Finds contacts in an alignment of protein or RNA sequences, as ``mpf dca`` does.

    ``family`` is a file in FASTA, a2m, a3m or Stockholm; options are those of ``mpf dca``.

    >>> import pathlib, tempfile
    >>> family = pathlib.Path(tempfile.mkdtemp()) / "family.fasta"
    >>> _ = family.write_text(">a\\nACD\\n>b\\nAFD\\n>c\\nGCE\\n>d\\nGFE\\n")
    >>> found = dca(family)
    >>> found.pairs[0]["i"], found.pairs[0]["j"]
    ('1', '3')
    """
    if not isinstance(family, (str, os.PathLike)):
        raise TypeError("dca takes the name of a file: fit an array of states with Potts")
    found = _native.dca(os.fspath(family), asked(options), threads(n_jobs))
    contacts = Contacts(found)
    if contacts.numbers["stop"] in ("iteration-limit", "evaluation-limit", "unbounded"):
        warn([f"the fit did not converge: {contacts.numbers['stop']}"])
    return contacts
