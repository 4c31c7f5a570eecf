#!/bin/sh
# The first hour on a machine with a GPU: ten steps, one command each, each with its own report.
#
#   sh tests/gpu/first-hour.sh [FOLDER [STEP ...]]
#
# FOLDER (gpu-hour) gets NAME.json, or junit's NAME.xml, and NAME.log of each step; steps can be named to do only those,
# or those again. A step that fails or takes over nine minutes is told and holds up no other. PART makes all smaller
# (1.0 is the posts' size), PYTHON names the Python (python3), which needs the extras cuda13 or cuda12, and test.
# `make first-hour-simulated` is a rehearsal without a GPU; each report of that says so.
#
#   step         minutes  what it tells, and what to do where it fails
#   smoke              1  blocks of CuPy can be spilled, and `workbench up gpu` sums 4000²; all else rests on this: read
#                         smoke.log, and install what it names
#   tests              5  the tests that need a GPU; go on, and keep tests.xml: what failed there is wrong below as well
#   rates              2  memory, products, random numbers, reductions: what the card can do; estimates rest on it
#   small              5  every experiment at a twentieth; what fails here fails at full size: leave it out below
#   sum                4  2 TB as the post wrote it, and with none of the numbers stored
#   tall               2  1 000 000 × 1 000
#   compressed         4  20 GB, and 200 GB made again at each pass
#   genotypes          4  1 000 000 × 20 000 in two bits, then as many as fit on the card
#   cores              5  energy, and how many cores equal this GPU
#   ucx                4  TCP, TLS and UCX between GPUs; last, since UCX may hang: its clusters end with the step
set -u

here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
part=${PART:-1.0}
into=${1:-gpu-hour}
[ $# -eq 0 ] || shift
mkdir -p "$into"
into=$(cd "$into" && pwd)
wanted=" $* "
failed=""
export DASK_WORKBENCH__DATA_FOLDER="$into/data"
cd "$here"

step() {
  name=$1
  shift
  case "$wanted" in "  " | *" $name "*) ;; *) return ;; esac
  began=$(date +%s)
  timeout -k 20 540 "$@" >"$into/$name.log" 2>&1 && said="done" || { said="failed ($?), see $name.log" && failed="$failed $name"; }
  echo "$name: $said, $(($(date +%s) - began)) s"
  # What a step left up would have the card to itself in the next.
  timeout 60 "$python" -m workbench down --all >>"$into/$name.log" 2>&1
}

bench() {
  name=$1
  shift
  step "$name" "$python" -m tests.benchmarks.bench_gpu --into "$into" --called "$name" "$@"
}

step smoke "$python" -m tests.gpu.hour smoke --into "$into"
step tests "$python" -m pytest -m gpu tests/gpu --junitxml "$into/tests.xml" -p no:cacheprovider -k "not ucx"
step rates "$python" -m tests.gpu.hour rates --into "$into" --part "$part"
bench small --part "$("$python" -c "print(0.05 * $part)")" --limit 45
bench sum --part "$part" --only array_sum --limit 120
bench tall --part "$part" --only tall_skinny
bench compressed --part "$part" --only compressed --limit 120
step genotypes sh -c "'$python' -m tests.benchmarks.bench_gpu --into '$into' --called genotypes-tenth --part \$('$python' -c 'print(0.1 * $part)') --only components &&
  '$python' -m tests.benchmarks.bench_gpu --into '$into' --called genotypes --part $part --only components --limit 240"
step cores "$python" -m tests.gpu.hour cores --into "$into" --part "$part"
step ucx "$python" -m tests.gpu.hour ucx --into "$into" --part "$part"
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }
