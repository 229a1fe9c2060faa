#!/bin/sh
# Installs Debian packages whose command or pkg-config module is missing; touches nothing else.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/need.sh ninja=ninja-build pkg:cmocka=libcmocka-dev file:/usr/include/x.h=libx-dev
# With no argument: what tests/run.sh needs.
set -u

if [ $# -eq 0 ]; then
  set -- python3=python3 cc=gcc c++=g++ git=git pkg-config=pkg-config ninja=ninja-build meson=meson \
    nm=binutils pkg:jsoncpp=libjsoncpp-dev pkg:libxxhash=libxxhash-dev pkg:libhwy=libhwy-dev \
    flatc=flatbuffers-compiler pkg:flatbuffers=libflatbuffers-dev pkg:cmocka=libcmocka-dev \
    pkg:openblas=libopenblas-dev
fi

missing() { # of the arguments: the packages whose thing is not there
  for pair in "$@"; do
    thing=${pair%%=*}
    case $thing in
      pkg:*) pkg-config --exists "${thing#pkg:}" 2>/dev/null ;;
      file:*) test -e "${thing#file:}" ;;
      *) command -v "$thing" >/dev/null 2>&1 ;;
    esac || printf '%s ' "${pair#*=}"
  done
}

packages=$(missing "$@")
[ -z "$packages" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "libzero needs the Debian packages: $packages- this system has no apt-get; please install their like" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  echo "libzero needs these packages; please run as root: apt-get install -y $packages" >&2
  exit 1
fi

echo "installing $packages" >&2
# $packages and $as_root are lists of words.
install() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages </dev/null >&2; }
install || { $as_root apt-get update -q </dev/null >&2 && install; } || {
  echo "apt-get could not install: $packages" >&2
  exit 1
}
packages=$(missing "$@")
if [ -n "$packages" ]; then
  echo "installed, but still not found: $packages" >&2
  exit 1
fi
