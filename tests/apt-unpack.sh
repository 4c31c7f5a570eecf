#!/bin/sh
# Unpack Debian or Ubuntu packages into a folder, without installing them; or say in one sentence what to do.
set -eu
folder=$1
shift
if ! command -v apt-get >/dev/null; then
  echo "This needs $1: install it with this system's package manager, then run make again." >&2
  exit 1
fi
echo "Unpacking $* into $folder."
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
cd "$fetched"
apt-get download -qq "$@" 2>/dev/null || { apt-get update -qq && apt-get download -qq "$@"; }
for package in *.deb; do dpkg -x "$package" "$folder"; done
