#!/bin/sh
# Makes an environment with torch in a folder, once: some minutes and some gigabytes.  Accelerate and
# transformers come along where they can be had; the suites that need them say so where not.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/torch/get_torch.sh DIR     prints the interpreter's path
set -eu
venv=$1
python=$venv/bin/python
if ! [ -x "$python" ] || ! "$python" -c 'import torch, numpy' 2>/dev/null; then
  rm -rf "$venv" # of an attempt that was cut short
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --retries 2 torch numpy >&2 || {
    rm -rf "$venv"
    echo "pip could not get torch" >&2
    exit 1
  }
fi
if ! "$python" -c 'import accelerate, transformers' 2>/dev/null; then
  "$venv/bin/pip" install -q --retries 2 accelerate transformers safetensors >&2 ||
    echo "pip could not get accelerate and transformers" >&2
fi
echo "$python"
