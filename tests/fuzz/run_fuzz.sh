#!/bin/sh
# Builds one fuzz target with clang, libFuzzer, ASan and UBSan, and runs it.
#   tests/fuzz/run_fuzz.sh config [SECONDS (30)]
# New inputs go to build/fuzz/<target>_found; a crash is kept as build/fuzz/<target>_crash-*.
# SPDX-License-Identifier: BSD-3-Clause
set -eu
cd "$(dirname "$0")/../.."
target=${1:?which target: config, safetensors_header}
seconds=${2:-30}
case $target in
  config) sources="src/config/*.cc src/base/error.cc"; libraries=$(pkg-config --cflags --libs jsoncpp) ;;
  safetensors_header)
    sources="src/plan/safetensors_header.cc src/plan/checked_json.cc src/base/error.cc"
    libraries=$(pkg-config --cflags --libs jsoncpp) ;;
  *) echo "run_fuzz.sh: no target $target" >&2; exit 64 ;;
esac
tests/need.sh clang++=clang pkg-config=pkg-config pkg:jsoncpp=libjsoncpp-dev
mkdir -p build/fuzz/"$target"_found
# shellcheck disable=SC2086
clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -Isrc -Iinclude -I. tests/fuzz/fuzz_"$target".cc $sources $libraries -o build/fuzz/"$target"
exec build/fuzz/"$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
  -print_final_stats=1 -artifact_prefix=build/fuzz/"$target"_crash- \
  -dict=tests/fuzz/"$target".dict build/fuzz/"$target"_found tests/fuzz/"$target"_corpus
