#!/bin/sh
# Builds a bench program with full optimisation and runs it: one JSON object a line.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/bench/run.sh NAME [arguments of bench_NAME]
#   tests/bench/run.sh adam_peers [million parameters] [rounds]
#   tests/bench/run.sh checkpoint_peers [MiB] [rounds] [folder]
#   tests/bench/run.sh step_peers [rounds] [modes, separated by commas]
#   tests/bench/run.sh memory_peers [rounds] [steps a mode] [layers]
#   tests/bench/run.sh plan_command
#   tests/bench/run.sh startup [rounds]
#   tests/bench/run.sh torch_step [steps] [layers] [width]
#   tests/bench/run.sh train_peers MODE [layers] [width] [tokens a rank]   (lz0 to lz3, none, ddp, zero1, fsdp2, ds0 to ds3)
#   tests/bench/run.sh calls [rounds]   (C, Python, Julia, Rust)
# The peers run in the interpreter that LIBZERO_PEERS_PYTHON names (peers/make_venv.sh makes one).
# LIBZERO_BENCH_BUILD is the build folder (default: build/bench).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${LIBZERO_BENCH_BUILD:-$root/build/bench}
if [ $# -eq 0 ]; then
  sed -n 's/^#   //p' "$0" >&2
  exit 2
fi
name=$1
shift
program=$name
[ "$name" = adam_peers ] && program=kernels
[ "$name" = step_peers ] && program=step
[ "$name" = checkpoint_peers ] && program=checkpoint
[ "$name" = memory_peers ] || [ "$name" = plan_command ] || [ "$name" = calls ] || [ "$name" = startup ] && program=plan
[ "$name" = torch_step ] || [ "$name" = train_peers ] && program=plan
if [ ! -f "$root/tests/bench/bench_$program.cc" ]; then
  echo "there is no tests/bench/bench_$program.cc" >&2
  exit 2
fi

cd "$root"
if [ ! -f "$build/build.ninja" ]; then
  meson setup "$build" --buildtype=release -Dtests=enabled >&2
fi
ninja -C "$build" "tests/bench/bench_$program" src/cli/zero >&2
if [ "$name" = adam_peers ]; then
  exec "$root/tests/bench/adam_peers.py" "$build/tests/bench/bench_kernels" "$@"
fi
if [ "$name" = step_peers ]; then
  exec "$root/tests/bench/peers/compare_step.py" "$build/tests/bench/bench_step" "$@"
fi
if [ "$name" = memory_peers ]; then
  exec "$root/tests/bench/peers/compare_memory.py" "$build/src/libzero.so.0" "$@"
fi
if [ "$name" = plan_command ]; then
  exec "$root/tests/bench/plan_command.py" "$build/src/cli/zero"
fi
if [ "$name" = calls ]; then
  LIBZERO_BUILD_ROOT=$build exec "$root/tests/bench/call_overhead.py" "$@"
fi
if [ "$name" = startup ]; then
  LIBZERO_BUILD_ROOT=$build exec "$root/tests/bench/startup.py" "$@"
fi
if [ "$name" = torch_step ] || [ "$name" = train_peers ]; then # the package libzero is made for the peers' Python
  export LIBZERO_BUILD_ROOT="$build" LIBZERO_SOURCE_ROOT="$root" LIBZERO_LIBRARY="$build/src/libzero.so"
  export LIBZERO_PROGRAM="$build/src/cli/zero" OMP_NUM_THREADS=1
  package=$(PYTHONPATH=$root/tests/torch python3 -c 'import torch_help; print(torch_help.package()[1])')
  PYTHONPATH=$package exec "${LIBZERO_PEERS_PYTHON:-python3}" -m torch.distributed.run --standalone --nproc-per-node=2 \
    "$root/tests/bench/$name.py" "$@"
fi
if [ "$name" = checkpoint_peers ]; then
  exec "$root/tests/bench/peers/compare_checkpoint.py" "$build/tests/bench/bench_checkpoint" "$@"
fi
exec "$build/tests/bench/bench_$program" "$@"
