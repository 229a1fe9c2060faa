#!/bin/sh
# The article in small: builds libzero, then one command makes the table and the chart.
# SPDX-License-Identifier: BSD-3-Clause
#   examples/accelerate/study.sh [--build DIR] [options of study.py: --svg FILE --task answer ...]
# Needs torch, accelerate and transformers in the Python that LIBZERO_PEERS_PYTHON names (tests/bench/peers/make_venv.sh
# makes one), and the program `bible` (Debian: bible-kjv) or --book FILE. Half an hour on two free cores; in parts:
#   --parts largest,speed --minutes 15, then --parts quality, then --task answer, each with its own --json FILE per task.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/study
if [ "${1:-}" = --help ]; then
  sed -n 's/^#   //p' "$0"
  exit 0
fi
if [ "${1:-}" = --build ]; then
  build=$2
  shift 2
fi
: "${LIBZERO_PEERS_PYTHON:?names no Python that has torch, accelerate and transformers}"
if [ ! -f "$build/build.ninja" ]; then
  meson setup "$build" "$root" --buildtype=release -Dtests=disabled >&2
fi
ninja -C "$build" >&2
export LIBZERO_BUILD_ROOT="$build" LIBZERO_SOURCE_ROOT="$root" LIBZERO_LIBRARY="$build/src/libzero.so"
PYTHONPATH=$(cd "$root/tests/torch" && "$LIBZERO_PEERS_PYTHON" -c "import torch_help; print(torch_help.package()[1])")
export PYTHONPATH
case " $* " in
  *" --json "*) ;;
  *) set -- --json "$build/study.json" "$@" ;;
esac
exec "$LIBZERO_PEERS_PYTHON" "$root/examples/accelerate/study.py" --python "$LIBZERO_PEERS_PYTHON" \
  --program "$build/src/cli/zero" "$@"
