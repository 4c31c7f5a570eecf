#!/bin/sh
# Install a Debian or Ubuntu package where we may, or say in one sentence what to do.
set -eu
package=$1
if command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo -n"; else as="no"; fi
  if [ "$as" != "no" ]; then
    echo "Installing $package with apt-get."
    $as apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as apt-get install -y -qq --no-install-recommends "$package" >/dev/null
    exit 0
  fi
  echo "This needs the package $package, and installing it needs root: sudo apt-get install $package" >&2
else
  echo "This needs $package: install it with this system's package manager, then run make again." >&2
fi
exit 1
