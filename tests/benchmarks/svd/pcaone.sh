#!/bin/sh
# Build PCAone into build/pcaone with gcc, zlib and OpenBLAS, or say in one sentence why it can't be had.
# PCAONE_SOURCE is a folder with its source; without it github.com is tried for two minutes.
set -eu
into=$PWD/build/pcaone
rm -rf "$into"
mkdir -p "$into"
if [ -n "${PCAONE_SOURCE:-}" ]; then
  cp -Rp "$PCAONE_SOURCE" "$into/source"
else
  timeout 120 git clone --quiet --depth 1 https://github.com/Zilong-Li/PCAone "$into/source" 2>"$into/log" || {
    echo "PCAone is skipped: its source can't be fetched; give PCAONE_SOURCE=a folder with it." >&2
    exit 1
  }
fi
sh tests/apt-unpack.sh "$into/libraries" libopenblas-pthread-dev libopenblas0-pthread liblapacke-dev liblapacke \
  liblapack3 libtmglib3 libgfortran5 zlib1g-dev zlib1g >>"$into/log" 2>&1 || {
  echo "PCAone is skipped: OpenBLAS can't be had, see $into/log." >&2
  exit 1
}
usr=$into/libraries/usr
triplet=$(gcc -print-multiarch)
# gfortran itself, whose package has the name without a version, isn't needed.
ln -sf libgfortran.so.5 "$usr/lib/$triplet/libgfortran.so"
# The environment, as flags that are given to make would go to the libraries' own makefiles too.
export CPATH="$usr/include:$usr/include/$triplet/openblas-pthread"
export LIBRARY_PATH="$usr/lib/$triplet/openblas-pthread:$usr/lib/$triplet"
export LD_RUN_PATH="$LIBRARY_PATH"
# What the libraries need themselves is looked for there, too.
export LDFLAGS="-Wl,--disable-new-dtags"
echo "Building PCAone, which takes some minutes."
make -C "$into/source" -j2 OPENBLAS=yes >>"$into/log" 2>&1 && cp "$into/source/PCAone" "$into/PCAone" || {
  echo "PCAone is skipped: it can't be built, see $into/log." >&2
  exit 1
}
