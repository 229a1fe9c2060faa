"""Prints what a checkpoint holds, with a checksum of every part: list_checkpoint.py FOLDER"""
# SPDX-License-Identifier: BSD-3-Clause
import sys

import libzero
import numpy as np


def checksum(values):
    """Sum of (position from 1) * (bits), modulo 2^64: the same in every language."""
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32).astype(np.uint64)
    return int((bits * np.arange(1, len(bits) + 1, dtype=np.uint64)).sum(dtype=np.uint64))


checkpoint = libzero.Checkpoint(sys.argv[1])
checkpoint.verify()
print("step", checkpoint.describe().step)
for name, shape, dtype in checkpoint.params():
    parts = [("value", 0), ("master", 0), ("state", 0), ("state", 1)]
    print(name, *(checksum(checkpoint.read(name, part, index)) for part, index in parts))
