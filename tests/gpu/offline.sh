#!/bin/sh
# Installs the parts beside this script into an environment of its own, and runs the tests and the benchmark that need a GPU.
#
#   tar xf core.tar && sh core/offline.sh [FOLDER [OPTION OF THE BENCHMARK ...]]
#
# python3 (PYTHON names another) must have CuPy and numba-cuda. It is left as it is, what it has is used before what was
# sent, and no network is needed. FOLDER (gpu-reports) gets pytest's junit.xml and the benchmark's gpu-DATE.json, and
# nothing else. The part ucx is used where it lies beside core.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
reports=${1:-gpu-reports}
[ $# -eq 0 ] || shift
mkdir -p "$reports"
reports=$(cd "$reports" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Not --system-site-packages: where python3 is itself of an environment, that would leave out what is in there. And no
# PYTHONPATH: the file that puts numba-cuda in the place of numba.cuda is read in folders of packages only.
"$python" -m venv --without-pip "$work/environment"
ours="$work/environment/bin/python"
"$python" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")' \
  >"$("$ours" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/host.pth"

requirements="dask[array] distributed nvidia-ml-py rmm-cu13 pydantic platformdirs rich cryptography watchfiles threadpoolctl pytest pytest-timeout"
install() {
  "$python" -m pip --python "$ours" install --quiet --disable-pip-version-check --no-index --no-compile "$@"
}
# Where the host has a version that will do, it stays.
# shellcheck disable=SC2086
install --find-links "$here" $requirements
# These name packages that only Jupyter, dashboards and dataframes need.
install --no-deps "$here"/dask_cuda-*.whl "$here"/rapids_dask_dependency-*.whl "$here"/dask_workbench-*.whl
[ ! -d "$here/../ucx" ] || install --no-deps "$here"/../ucx/*.whl
tar xzf "$here/tests.tar.gz" -C "$work"

cd "$work"
"$ours" -c 'import distributed.protocol.cupy, rmm, dask_cuda' || {
  echo "Blocks of CuPy can't be spilled or sent here: $python needs CuPy 14 and numba-cuda with its cuda-core." >&2
  exit 1
}
export DASK_WORKBENCH__DATA_FOLDER="$work/data"
status=0
"$ours" -m pytest -m gpu tests/gpu --junitxml "$reports/junit.xml" -p no:cacheprovider || status=$?
"$ours" -m tests.benchmarks.bench_gpu --into "$reports" "$@" || status=$?
exit $status
