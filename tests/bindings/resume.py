"""resume.c in Python: zero run -n N -- python3 resume.py CONFIG OUT CHECKPOINT..."""
# SPDX-License-Identifier: BSD-3-Clause
import sys

import libzero
import numpy as np

SHAPES = {"embed": (128, 16), "w1": (64, 64), "b1": (64,), "w2": (64, 128), "b2": (128,)}


def checksum(values):
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32).astype(np.uint64)
    return int((bits * np.arange(1, len(bits) + 1, dtype=np.uint64)).sum(dtype=np.uint64))


def gradient(number, shape):
    i = np.arange(np.prod(shape))
    return (((i * 7 + number * 13) % 17) / 16 - 0.5).astype(np.float32).reshape(shape)


def resume(config, path, out):
    model = libzero.Model()
    for name, shape in SHAPES.items():
        model.add(name, shape=shape)
    with libzero.Runtime(config, model) as runtime:
        runtime.load(path)
        if out:
            runtime.save(out)
        lines = ["step %d" % runtime.step_count]
        for name in SHAPES:
            parts = [runtime.get(name, *part) for part in (("value",), ("master",), ("state", 0), ("state", 1))]
            lines.append("%s %d %d %d %d" % (name, *map(checksum, parts)))
        for number, name in reversed(list(enumerate(SHAPES))):
            runtime.submit(name, gradient(number, SHAPES[name]))
        runtime.step()
        lines += ["then %s %d" % (name, checksum(runtime.get(name))) for name in SHAPES]
        if runtime.rank == 0:
            print("\n".join(lines))


CONFIG, OUT, *PATHS = sys.argv[1:]
for path_of in PATHS:
    resume(CONFIG, path_of, OUT if path_of == PATHS[-1] else None)
