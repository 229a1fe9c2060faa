"""A character model in numpy: four characters in, the next one out, at every ZeRO stage.

    zero run -n 2 -- python3 char_mlp.py bindings/examples/char_mlp.json TEXT

The stage is a line of the JSON file. Parameters are whole only inside `with runtime.loan(...)`, so
the same loop runs at stage 3. LIBZERO_RECORD=FOLDER keeps weights and gradients for a comparison.
"""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import sys

import libzero
import numpy as np

VOCABULARY, CONTEXT, EMBEDDING, HIDDEN, ROWS = 128, 4, 16, 64, 64
SHAPES = {"embed": (VOCABULARY, EMBEDDING), "w1": (CONTEXT * EMBEDDING, HIDDEN), "b1": (HIDDEN,),
          "w2": (HIDDEN, VOCABULARY), "b2": (VOCABULARY,)}


def initial(number, shape):
    """The same numbers in every language; biases start at zero."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    i = np.arange(np.prod(shape), dtype=np.uint64)
    bits = (i * np.uint64(2654435761) + np.uint64(number * 40503)) % np.uint64(2**32)
    return ((bits / 2**32 - 0.5) * 0.5).astype(np.float32).reshape(shape)


def batch(text, number):
    """ROWS windows of the text: contexts and the characters after them."""
    starts = (number * ROWS + np.arange(ROWS)) * 7919 % (len(text) - CONTEXT)
    windows = text[starts[:, None] + np.arange(CONTEXT + 1)]
    return windows[:, :CONTEXT], windows[:, CONTEXT]


def train_batch(runtime, contexts, targets):
    """Forward and backward of one micro-batch; gradients are handed over as they are finished."""
    with runtime.loan(SHAPES) as loaned:
        embed, w1, b1, w2, b2 = (buffer.numpy() for buffer in loaned)
        x = embed[contexts].reshape(ROWS, -1)
        h = np.tanh(x @ w1 + b1)
        logits = h @ w2 + b2
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(ROWS), targets]).mean()

        p[np.arange(ROWS), targets] -= 1
        p /= ROWS
        yield "b2", p.sum(axis=0)
        yield "w2", h.T @ p
        d = (p @ w2.T) * (1 - h * h)
        yield "b1", d.sum(axis=0)
        yield "w1", x.T @ d
        grad = np.zeros(SHAPES["embed"], np.float32)
        np.add.at(grad, contexts.reshape(-1), (d @ w1.T).reshape(-1, EMBEDDING))
        yield "embed", grad
    yield "loss", loss


def main(config, text_file, steps=60):
    text = np.frombuffer(pathlib.Path(text_file).read_bytes(), np.uint8) & 127
    record = os.environ.get("LIBZERO_RECORD")
    model = libzero.Model()
    for number, (name, shape) in enumerate(SHAPES.items()):
        model.add(name, initial(number, shape), unit=0 if name == "embed" else 1)
    with libzero.Runtime(config, model) as runtime:
        comm, kept = runtime.comm, []
        for step in range(steps):
            given = {}
            for name, value in train_batch(runtime, *batch(text, step * runtime.size + runtime.rank)):
                if name != "loss":
                    runtime.submit(name, value)
                given[name] = value
            info = runtime.step()
            loss = comm.all_reduce(float(given["loss"])) / runtime.size
            kept.append(given)
            if runtime.rank == 0 and (step % 20 == 0 or step == steps - 1):
                print("step %d loss %.4f norm %.4f" % (step, loss, info.grad_norm), flush=True)
        final = [runtime.get(name) for name in SHAPES]
        if record:
            folder = pathlib.Path(record)
            (folder / ("gradients-%d.bin" % runtime.rank)).write_bytes(
                b"".join(g[name].astype(np.float32).tobytes() for g in kept for name in SHAPES))
            if runtime.rank == 0:
                (folder / "initial.bin").write_bytes(b"".join(initial(i, s).tobytes() for i, s in enumerate(SHAPES.values())))
                (folder / "final.bin").write_bytes(b"".join(values.tobytes() for values in final))


if __name__ == "__main__":
    main(*sys.argv[1:3])
