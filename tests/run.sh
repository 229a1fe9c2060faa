#!/bin/sh
# Installs what is missing, builds, and runs the test suites; the last line says how it went.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/run.sh [--build DIR] [--filter WORD] [quick|full] [suite...]
# DIR is made where it does not exist (default: build/tests, with $LIBZERO_MESON_ARGS).  Programs
# see the tier as LIBZERO_TEST_TIER and the shared folder, where there is one, as LIBZERO_SHARED
# (default: beside the tree).  The exit code is 0 when nothing failed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/tests
filter=
tier=quick
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    quick | full) tier=$1; shift ;;
    -*) echo "usage: tests/run.sh [--build DIR] [--filter WORD] [quick|full] [suite...]" >&2; exit 2 ;;
    *) break ;;
  esac
done

give_up() {
  echo "$1" >&2
  echo "0 passed, 1 failed"
  exit 1
}

"$root/tests/need.sh" || give_up "the machine lacks what the tests need"

cd "$root" || exit 1
if command -v ccache >/dev/null 2>&1; then
  export CC="${CC:-ccache cc}" CXX="${CXX:-ccache c++}"
fi
jobs=${LIBZERO_JOBS:-$(nproc)}
if [ ! -f "$build/build.ninja" ]; then
  # LIBZERO_MESON_ARGS is a list of words.
  meson setup "$build" -Dtests=enabled -Dexamples=enabled ${LIBZERO_MESON_ARGS:-} ||
    give_up "meson setup failed, see above"
fi
built=yes
if [ -t 1 ]; then
  ninja -C "$build" -j "$jobs" -k 0 || built=no
else # a log keeps what was said; what went wrong is shown
  ninja -C "$build" -j "$jobs" -k 0 >"$build/ninja.txt" 2>&1 || built=no
  if [ $built = no ]; then
    grep -v '^\[[0-9]*/[0-9]*\] ' "$build/ninja.txt" | head -n 200
  fi
  tail -n 1 "$build/ninja.txt"
fi

if [ -d "$root/../shared" ]; then
  export LIBZERO_SHARED="${LIBZERO_SHARED:-$(cd "$root/../shared" && pwd)}"
fi
LIBZERO_TEST_TIER=$tier exec python3 "$root/tests/run.py" --build "$build" --built $built --filter "$filter" "$@"
