#!/usr/bin/env python3
"""What the engine of libzero.torch adds to a step: its step() beside the C call zero_step inside it.

Usage: torchrun --standalone --nproc-per-node=2 tests/bench/torch_step.py [steps (30)] [layers (12)] [width (768)]
The same runtime, parameters and gradients are in both: the C call is timed where the engine makes it.
Rank 0 prints a JSON object for each stage; ratio is the engine's time in units of C's, medians; goal: <= 1.05.
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import statistics
import sys
import time

import torch

import libzero.torch as deepspeed
from libzero import checked

STEPS, LAYERS, WIDTH = (int(word) for word in (sys.argv[1:] + ["30", "12", "768"][len(sys.argv) - 1:]))
inner = []


def timed(call):
    def run(*words):
        start = time.perf_counter()
        found = call(*words)
        inner.append(time.perf_counter() - start)
        return found
    return run


def net():
    torch.manual_seed(1)
    block = lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH),
                                        torch.nn.LayerNorm(WIDTH))  # noqa: E731
    return torch.nn.Sequential(*[block() for _ in range(LAYERS)])


def main():
    torch.set_num_threads(1)
    checked.step = timed(checked.step)
    for stage in range(4):
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "gradient_clipping": 1.0,
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
        engine = deepspeed.initialize(model=net(), config=config)[0]
        whole = []
        for step in range(STEPS + 3):
            if step == 3:  # the first ones learn
                whole.clear()
                inner.clear()
            engine.backward(engine(torch.ones(1, WIDTH)).pow(2).mean())
            start = time.perf_counter()
            engine.step()
            whole.append(time.perf_counter() - start)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps({"name": "torch_step_stage%d" % stage, "value": 1e3 * statistics.median(whole), "unit": "ms",
                              "baseline": 1e3 * statistics.median(inner),
                              "ratio": statistics.median(a / b for a, b in zip(whole, inner)), "goal": 1.05,
                              "parameters": sum(1 for _ in engine.parameters())}), flush=True)
        engine.destroy()


main()
