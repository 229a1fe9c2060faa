"""One engine's start on CPU ranks: a GPT-2 of 124 M parameters from initialize to the end of its second step.

Usage: torchrun --standalone --nproc-per-node=2 tests/bench/startup_peer.py MODE
MODE: lz0 to lz3 (libzero.torch) or ds0 to ds3 (DeepSpeed). The model is made, and the processes have met, before the
clock starts. Rank 0 prints one JSON object: seconds in initialize, and of them the processor's; from its call to the end
of the first step; of the second step, which has nothing left to start; and start_s, the second less the third.
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
import torch
from transformers import GPT2Config, GPT2LMHeadModel

mode = sys.argv[1]
if mode.startswith("lz"):
    import libzero.torch as deepspeed
else:
    import deepspeed


def main():
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    tokens = torch.randint(0, 50257, (1, 16), generator=torch.Generator().manual_seed(1 + rank))
    model(input_ids=tokens, labels=tokens).loss.item()  # torch's own first pass
    torch.distributed.barrier()

    start, start_cpu = time.perf_counter(), time.process_time()
    engine = deepspeed.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "zero_optimization": {"stage": int(mode[2:])},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "steps_per_print": 10**9})[0]
    made, made_cpu = time.perf_counter(), time.process_time()
    ends = []
    for _ in range(2):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
        torch.distributed.barrier()
        ends.append(time.perf_counter())
    if rank == 0:
        print(json.dumps({"mode": mode, "parameters": sum(p.numel() for p in model.parameters()), "initialize_s": made - start,
                          "cpu_s": made_cpu - start_cpu,
                          "first_step_ends_s": ends[0] - start, "second_step_s": ends[1] - ends[0],
                          "start_s": ends[0] - start - (ends[1] - ends[0])}), flush=True)
    torch.distributed.barrier()
    engine.destroy()
    torch.distributed.destroy_process_group()


main()
