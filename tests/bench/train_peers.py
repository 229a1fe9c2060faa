#!/usr/bin/env python3
"""Trains one GPT-2 on CPU ranks with libzero.torch or a peer over Gloo, and prints step time, memory and losses.

Usage: torchrun --standalone --nproc-per-node=2 tests/bench/train_peers.py MODE [layers] [width] [tokens a rank]
MODE: lz0, lz1, lz2, lz3 (libzero.torch), none (no exchange at all: what forward and backward cost by themselves), ddp, zero1 (ZeroRedundancyOptimizer), fsdp2, ds0, ds1, ds2, ds3. Weights and tokens are random with
fixed seeds. Rank 0 prints: seconds to set up, median seconds a step (of it: forward and backward), peak
memory (PSS, sampled) above that of the bare imports, and the first and last loss as exact bits.
"""
# SPDX-License-Identifier: BSD-3-Clause
import os
import statistics
import sys
import threading
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

mode = sys.argv[1]
layers = int(sys.argv[2]) if len(sys.argv) > 2 else 12
width = int(sys.argv[3]) if len(sys.argv) > 3 else 768
tokens = int(sys.argv[4]) if len(sys.argv) > 4 else 64
WARMUP, STEPS = 2, 6
torch.set_num_threads(1)
if mode.startswith("lz"):
    import libzero.torch as deepspeed
elif mode.startswith("ds"):
    import deepspeed


def pss_mb():
    """Proportional set size: a page shared by two ranks counts half in each, which resident size does not show."""
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024


bare = peak = pss_mb()


def sample():
    global peak
    while True:
        peak = max(peak, pss_mb())
        time.sleep(0.02)


threading.Thread(target=sample, daemon=True).start()
if mode[:2] in ("ds", "lz"):
    deepspeed.init_distributed("gloo")
else:
    dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

start = time.perf_counter()
torch.manual_seed(0)
config = GPT2Config(n_layer=layers, n_embd=width, n_head=max(1, width // 64), attn_pdrop=0.0, embd_pdrop=0.0,
                    resid_pdrop=0.0)
model = GPT2LMHeadModel(config)
parameters = sum(p.numel() for p in model.parameters())

lr, betas, eps, decay = 1e-4, (0.9, 0.999), 1e-8, 0.01
engine = None
if mode == "none":
    wrapped = model
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.0)
elif mode == "ddp":
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr, betas, eps, decay, fused=True)
elif mode == "zero1":
    from torch.distributed.optim import ZeroRedundancyOptimizer
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True,
                                        lr=lr, betas=betas, eps=eps, weight_decay=decay, fused=True)
elif mode == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (world,))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    wrapped = fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr, betas, eps, decay, fused=True)
else:
    # libzero.torch or DeepSpeed: the same call
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": int(mode[2:]), "overlap_comm": False},
        "optimizer": {"type": "AdamW", "params": {"lr": lr, "betas": betas, "eps": eps, "weight_decay": decay}},
        "zero_allow_untested_optimizer": True, "wall_clock_breakdown": False, "steps_per_print": 10**9})
    wrapped = engine
setup = time.perf_counter() - start

generator = torch.Generator().manual_seed(1 + rank)
batch = torch.randint(0, config.vocab_size, (1, tokens), generator=generator)
step_seconds, compute_seconds, losses = [], [], []
for step in range(WARMUP + STEPS):
    dist.barrier()
    start = time.perf_counter()
    loss = wrapped(input_ids=batch, labels=batch).loss
    if engine:
        engine.backward(loss)
        middle = time.perf_counter()
        engine.step()
    else:
        loss.backward()
        middle = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    end = time.perf_counter()
    losses.append(loss.item())
    if step >= WARMUP:
        step_seconds.append(end - start)
        compute_seconds.append(middle - start)

if rank == 0:
    print(f"PEER {mode} parameters={parameters} tokens={tokens} ranks={world} setup_s={setup:.1f} "
          f"step_s={statistics.median(step_seconds):.3f} forward_backward_s={statistics.median(compute_seconds):.3f} "
          f"peak_mb={peak - bare:.0f} first={losses[0].hex()} last={losses[-1].hex()}", flush=True)
dist.destroy_process_group()
