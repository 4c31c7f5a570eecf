#!/bin/sh
# Install Debian or Ubuntu packages where we may, or say in one sentence what to do.
set -eu
if command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo -n"; else as="no"; fi
  if [ "$as" != "no" ]; then
    echo "Installing $* with apt-get."
    install() { DEBIAN_FRONTEND=noninteractive $as apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
    # The lists are fetched only where they are missing or too old.
    install "$@" 2>/dev/null || { $as apt-get update -qq && install "$@"; }
    exit 0
  fi
  echo "This needs $*, and installing that needs root: sudo apt-get install $*" >&2
else
  echo "This needs $*: install it with this system's package manager, then run make again." >&2
fi
exit 1
