#!/bin/sh
# Makes the virtual environment of the peers outside the tree, once: some minutes, 10 GB of disk.
# SPDX-License-Identifier: BSD-3-Clause
#   tests/bench/peers/make_venv.sh     prints the interpreter's path
# LIBZERO_PEERS_VENV is the folder (default: /tmp/libzero-peers-venv).
set -eu
venv=${LIBZERO_PEERS_VENV:-/tmp/libzero-peers-venv}
python=$venv/bin/python
if ! [ -x "$python" ] || ! "$python" -c 'import torch, deepspeed, transformers' 2>/dev/null; then
  free_kib=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 { print $4 }')
  if [ "$free_kib" -lt 12000000 ]; then
    echo "$venv: 12 GB of free disk are needed, $((free_kib / 1000000)) GB are there" >&2
    exit 1
  fi
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch deepspeed transformers accelerate ninja psutil >&2
fi
echo "$python"
