#!/usr/bin/env bash
# Builds the wheel into a fresh virtual environment and runs its tests, the notebook among them. Prints
# SKIPPED where there is no Python from 3.10 on, or no package index. PYTHON names another interpreter,
# PROFILE another profile of cargo, MPF_PROGRAM and MPF_FILTERS the programs to compare with.
set -euo pipefail
cd "$(dirname "$0")"

is_new_enough() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
python=""
for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "SKIPPED: the Python package needs Python 3.10 or later, with venv"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
if ! pip install --no-compile maturin >"$folder/log" 2>&1; then
    tail -n 3 "$folder/log"
    echo "SKIPPED: the Python package needs a package index"
    exit 0
fi

# What the tests of the workspace have built is not built again.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}
export PYO3_PYTHON=$folder/venv/bin/python
cargo fmt --check
cargo clippy --locked --quiet -- -D warnings

# The profile of tests: ours are optimised, what they need only builds fast.
"$folder/venv/bin/maturin" build --locked --profile "${PROFILE:-dev}" --out "$folder/dist" \
    --interpreter "$folder/venv/bin/python"
pip install --no-compile "$(echo "$folder"/dist/*.whl)[test]"

# The programs that the tests compare with; the tests of the workspace have built them.
if [ -z "${MPF_PROGRAM:-}" ] || [ -z "${MPF_FILTERS:-}" ]; then
    cargo build --locked --quiet --manifest-path ../../Cargo.toml --workspace --bin mpf --example filters
fi
export MPF_PROGRAM=${MPF_PROGRAM:-$CARGO_TARGET_DIR/debug/mpf}
export MPF_FILTERS=${MPF_FILTERS:-$CARGO_TARGET_DIR/debug/examples/filters}
"$folder/venv/bin/python" -m pytest --quiet --durations=5 tests
