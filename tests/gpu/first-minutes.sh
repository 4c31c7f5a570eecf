#!/bin/sh
# Measure what a GPU does with this project in at most eight minutes, most valuable figures first. See README.md here.
#
#   sh tests/gpu/first-minutes.sh [FOLDER [STEP ...]]
#
# FOLDER (gpu-minutes) receives table.md and first-minutes.tar.gz, which holds NAME.json and NAME.log of each step; both
# are rewritten after each step, so that a command that is cut off loses one step at most. STEP repeats named steps only.
# WHEELS (build/gpu-bundle) is the folder of `make gpu-bundle`, PYTHON (python3) the host's Python with CuPy and numba-cuda.
# LIMIT (480) is the number of seconds for everything, this installation included.
set -u

began=$(date +%s)
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
into=${1:-gpu-minutes}
[ $# -eq 0 ] || shift
wheels=${WHEELS:-$here/build/gpu-bundle}
mkdir -p "$into"
into=$(cd "$into" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here" || exit 2

# Into a folder of its own, after what the host has: its Python stays as it is.
# shellcheck disable=SC2086
timeout 40 "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
  --target "$work/site" "$wheels"/*.whl >"$work/install.log" 2>&1 || echo "pip failed: $(tail -n 1 "$work/install.log")"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$work/site"
export DASK_WORKBENCH__DATA_FOLDER="$work/data"
"$python" -m tests.gpu.minutes --into "$into" --work "$work" --began "$began" --limit "${LIMIT:-480}" "$@"
