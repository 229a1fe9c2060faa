#!/bin/sh
# Trains one small transformer four times, at ZeRO stages 0 to 3, and shows that the weights have
# the same bits while each stage needs less memory.  A few minutes on two cores.
# SPDX-License-Identifier: BSD-3-Clause
#   examples/quickstart.sh [--json FILE] [--steps N] [--size tiny|small] [--ranks N] [--sample N]
#                          [--data FILE] [--build DIR]
# Installs Debian packages where something is missing (and says which), builds in DIR (default:
# build/quickstart), and exits with 0 when all four runs end with the same weights.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/quickstart
json= steps=240 size=small ranks=2 sample=120 data=
while [ $# -gt 1 ]; do
  case $1 in
    --json) json=$2 ;;
    --steps) steps=$2 ;;
    --size) size=$2 ;;
    --ranks) ranks=$2 ;;
    --sample) sample=$2 ;;
    --data) data=$2 ;;
    --build) build=$2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -gt 0 ]; then
  sed -n '5,8s/^# *//p' "$0" >&2
  exit 2
fi

give_up() {
  echo "quickstart: $1" >&2
  exit 1
}

# What the build needs, and a book to read.
set -- python3=python3 cc=gcc c++=g++ git=git pkg-config=pkg-config ninja=ninja-build meson=meson \
  pkg:jsoncpp=libjsoncpp-dev pkg:libxxhash=libxxhash-dev pkg:libhwy=libhwy-dev \
  pkg:openblas=libopenblas-dev
[ -n "$data" ] || set -- "$@" bible=bible-kjv
"$root/tests/need.sh" "$@" || give_up "something is missing, see above"

if [ ! -f "$build/build.ninja" ]; then
  echo "building in $build"
  said=$(meson setup "$build" "$root" -Dtests=disabled -Dexamples=enabled 2>&1) || {
    echo "$said" >&2
    give_up "meson setup failed, see above"
  }
fi
ninja -C "$build" src/cli/zero examples/gpt/gpt || give_up "the build failed, see above"

for stage in 0 1 2 3; do
  echo
  echo "== stage $stage: zero run -n $ranks -- gpt --config examples/configs/gpt_stage$stage.json"
  "$build/src/cli/zero" run -n "$ranks" -- "$build/examples/gpt/gpt" \
    --config "$root/examples/configs/gpt_stage$stage.json" --size "$size" --steps "$steps" \
    --sample "$sample" ${data:+--data "$data"} --json "$build/quickstart_stage$stage.json" ||
    give_up "training at stage $stage failed, see above"
done

echo
python3 "$root/examples/quickstart_table.py" ${json:+--json "$json"} \
  "$build/quickstart_stage0.json" "$build/quickstart_stage1.json" \
  "$build/quickstart_stage2.json" "$build/quickstart_stage3.json"
