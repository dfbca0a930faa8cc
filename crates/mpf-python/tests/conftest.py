"""Data that tests share."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def mpf():
    """Runs the program ``mpf``, whose path is in MPF_PROGRAM."""
    program = os.environ.get("MPF_PROGRAM") or shutil.which("mpf")
    if not program:
        pytest.skip("MPF_PROGRAM does not name the program mpf")

    def run(*arguments, code=0):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done

    return run


def recording(n_samples, n_units, seed, strength=1.0):
    """Returns binary samples with correlations: units share a few inputs."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(n_samples, 3))
    drive = strength * inputs @ rng.normal(size=(3, n_units)) - 0.5
    return (drive + rng.logistic(size=drive.shape) > 0).astype(np.uint8)


@pytest.fixture
def X():
    return recording(600, 6, 0)


def python(code, **variables):
    """Runs code in another Python."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
