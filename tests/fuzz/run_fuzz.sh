#!/bin/sh
# Builds one fuzz target with clang, libFuzzer, ASan and UBSan, and runs it.
#   tests/fuzz/run_fuzz.sh TARGET [SECONDS (30) [libFuzzer's options, such as -seed=1 -runs=1000]]
#   tests/fuzz/run_fuzz.sh --list
# New inputs go to build/fuzz/<target>_found, of which the next run begins; with -runs=N only the
# corpus in the tree is begun from, so that the same seed does the same again.  A crash is kept as
# build/fuzz/<target>_crash-*.
# SPDX-License-Identifier: BSD-3-Clause
set -eu
cd "$(dirname "$0")/../.."

# One line a target: its name, and the sources that fuzz_<name>.cc is built with.
targets='
config              src/config/*.cc src/base/error.cc
safetensors_header  src/plan/safetensors_header.cc src/plan/checked_json.cc src/base/error.cc
manifest            src/checkpoint/manifest*.cc src/checkpoint/piece_layout.cc src/base/error.cc
piece               src/checkpoint/manifest*.cc src/checkpoint/piece_*.cc src/checkpoint/write_behind.cc src/checkpoint/read_ahead.cc src/checkpoint/checkpoint_[fr]*.cc src/base/*.cc
pickle              src/checkpoint/pickle_*.cc src/checkpoint/zip_reader.cc src/checkpoint/byte_source.cc src/base/*.cc
'

target=${1:?which target? --list lists them}
if [ "$target" = --list ]; then
  echo "$targets" | awk 'NF { print $1 }'
  exit 0
fi
sources=$(echo "$targets" | awk -v target="$target" '$1 == target { $1 = ""; print }')
if [ -z "$sources" ]; then
  echo "run_fuzz.sh: no target $target" >&2
  exit 64
fi
shift
seconds=30
if [ $# -gt 0 ]; then
  seconds=$1
  shift
fi

tests/need.sh clang++=clang pkg-config=pkg-config pkg:jsoncpp=libjsoncpp-dev \
  pkg:libxxhash=libxxhash-dev flatc=flatbuffers-compiler pkg:flatbuffers=libflatbuffers-dev
run_time=$(clang++ -print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a
tests/need.sh "file:$run_time=libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"

found=build/fuzz/${target}_found
case " $*" in
  *" -runs="*) found=build/fuzz/${target}_fixed && rm -rf "$found" ;;
esac
mkdir -p "$found" build/fuzz/generated/"$target"/checkpoint
flatc --cpp -o build/fuzz/generated/"$target"/checkpoint src/checkpoint/manifest.fbs
# Sources and flags are lists of words.
# shellcheck disable=SC2046,SC2086
clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -Isrc -Iinclude -I. -Ibuild/fuzz/generated/"$target" tests/fuzz/fuzz_"$target".cc $sources \
  $(pkg-config --cflags --libs jsoncpp libxxhash flatbuffers) -o build/fuzz/"$target"
# The limit for one input is for what never ends: a busy machine may stop a process for seconds.
exec build/fuzz/"$target" -max_total_time="$seconds" -max_len=8192 -timeout=60 -rss_limit_mb=2048 \
  -print_final_stats=1 -artifact_prefix=build/fuzz/"$target"_crash- \
  -dict=tests/fuzz/"$target".dict "$@" "$found" tests/fuzz/"$target"_corpus
