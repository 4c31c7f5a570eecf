#!/bin/sh
# Installs the bundles beside this script into a folder of its own, and runs the tests and the benchmark that need a GPU.
#
#   tar xf core.tar && PYTHON=python3.12 sh core/offline.sh [FOLDER]
#
# The Python must have CuPy; it is left as it is, and no network is needed. FOLDER (gpu-offline) gets the packages, the
# tests, pytest's report junit.xml and the benchmark's gpu-DATE.json. The bundles ucx and record are used where they lie
# beside core.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3.12}
into=${1:-gpu-offline}

mkdir -p "$into/packages"
into=$(cd "$into" && pwd)
# Straight from the wheels: what they need in turn is either among them or on the host.
for bundle in "$here" "$here/../ucx" "$here/../record"; do
  [ -d "$bundle" ] || continue
  "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --upgrade \
    --target "$into/packages" "$bundle"/*.whl
done
tar xzf "$here/tests.tar.gz" -C "$into"

export PYTHONPATH="$into/packages${PYTHONPATH:+:$PYTHONPATH}"
export DASK_WORKBENCH__DATA_FOLDER="$into/data"
cd "$into"
status=0
"$python" -m pytest -m gpu tests/gpu --junitxml "$into/junit.xml" -p no:cacheprovider || status=$?
"$python" -m tests.benchmarks.bench_gpu --into "$into" || status=$?
exit $status
