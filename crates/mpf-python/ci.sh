#!/usr/bin/env bash
# Builds the wheel into a fresh virtual environment, runs its tests and executes the notebook. Prints
# SKIPPED where there is no Python from 3.10 on, or no package index. PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")"

is_new_enough() { "$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
python=""
for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "SKIPPED: the Python package needs Python 3.10 or later"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
if ! pip install maturin >"$folder/log" 2>&1; then
    tail -n 3 "$folder/log"
    echo "SKIPPED: the Python package needs a package index"
    exit 0
fi
pip install numpy scipy scikit-learn pandas matplotlib pytest mypy nbconvert ipykernel

# What the workspace has built is not built again.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}
export PYO3_PYTHON=$folder/venv/bin/python
cargo fmt --check
cargo clippy --locked --quiet -- -D warnings

# The profile of tests: ours are optimised, what they need only builds fast.
"$folder/venv/bin/maturin" build --locked --profile "${PROFILE:-dev}" --out "$folder/dist" \
    --interpreter "$folder/venv/bin/python"
pip install "$folder"/dist/*.whl

# The program that the tests compare with.
if [ -z "${MPF_PROGRAM:-}" ]; then
    cargo build --locked --quiet --manifest-path ../../Cargo.toml --package mpf-cli
    MPF_PROGRAM=$CARGO_TARGET_DIR/debug/mpf
fi
export MPF_PROGRAM
"$folder/venv/bin/python" -m pytest tests
"$folder/venv/bin/python" -m jupyter nbconvert --to notebook --execute --stdout examples/retina.ipynb \
    >"$folder/retina.ipynb"
echo "the notebook runs"
