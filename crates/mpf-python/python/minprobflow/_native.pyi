"""The part in Rust."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ._base import Data

__version__: str

Show = Callable[[str, int | None, int | None, str | None], None] | None

class Model:
    def __init__(self, couplings: np.ndarray, names: list[str]) -> None: ...
    @classmethod
    def read(cls, path: str, assumed: str | None) -> Model: ...
    @classmethod
    def from_json(cls, text: str) -> Model: ...
    def to_json(self) -> str: ...
    def write(self, path: str, to: str | None) -> None: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def couplings(self) -> np.ndarray: ...
    @property
    def potential(self) -> np.ndarray | None: ...
    @property
    def record(self) -> str | None: ...
    def spins(self) -> tuple[np.ndarray, np.ndarray]: ...
    def errors(self) -> tuple[np.ndarray, np.ndarray | None] | None: ...
    def sample(self, options: list[str], n_threads: int) -> tuple[np.ndarray, list[str]]: ...
    def score(
        self, data: Data, options: list[str], seed: int, n_threads: int
    ) -> tuple[np.ndarray, str]: ...

def fit(
    data: Data,
    options: list[str],
    support: list[tuple[int, int]] | None,
    n_threads: int,
    show: Show,
) -> tuple[Model, list[str], list[str]]: ...
def diagnose(data: Data, options: list[str], n_threads: int) -> tuple[str, list[str]]: ...
def compare(data: Data, options: list[str], n_threads: int) -> tuple[str, str, str]: ...
def evaluate(
    model: Model, data: Data, truth: Model | None, options: list[str], n_threads: int
) -> tuple[str, str]: ...
def dca(
    family: str, options: list[str], n_threads: int
) -> tuple[str, str, bytes, str]: ...
def fit_potts(
    codes: np.ndarray,
    n_states: int,
    weights: np.ndarray | None,
    gap: int | None,
    options: list[str],
    n_threads: int,
    show: Show,
) -> tuple[np.ndarray, np.ndarray, float, int, str, bool]: ...
def potts_sample(
    theta: np.ndarray, shape: tuple[int, ...], n: int, seed: int, n_threads: int
) -> np.ndarray: ...
def potts_score(
    theta: np.ndarray, shape: tuple[int, ...], codes: np.ndarray, seed: int, n_threads: int
) -> tuple[np.ndarray, float]: ...
def fit_rbm(
    data: Data,
    options: list[str],
    n_hidden: int,
    semi_restricted: bool,
    method: str,
    l2: float | None,
    tolerance: float | None,
    max_iterations: int | None,
    starts: int,
    seed: int,
    n_threads: int,
    show: Show,
) -> tuple[np.ndarray, float, int, str, bool, list[int]]: ...
def rbm_sample(
    theta: np.ndarray, shape: tuple[int, int, bool], n: int, seed: int, n_threads: int
) -> np.ndarray: ...
def rbm_score(
    theta: np.ndarray,
    shape: tuple[int, int, bool],
    data: Data,
    options: list[str],
    seed: int,
    n_threads: int,
) -> tuple[np.ndarray, float]: ...
def fit_ica(
    data: np.ndarray,
    method: str | None,
    whiten: str | None,
    max_iterations: int | None,
    max_seconds: float | None,
    seed: int,
    n_threads: int,
    show: Show,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, int, str, list[str]]: ...
def ica_sample(filters: np.ndarray, n: int, seed: int) -> np.ndarray: ...
