#!/bin/sh
# Makes an environment with torch in a folder, once: some minutes and some gigabytes.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/torch/get_torch.sh DIR     prints the interpreter's path
set -eu
venv=$1
python=$venv/bin/python
if ! [ -x "$python" ] || ! "$python" -c 'import torch, numpy' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch numpy >&2
fi
echo "$python"
