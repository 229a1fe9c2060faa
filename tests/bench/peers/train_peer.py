#!/usr/bin/env python3
# One of the peers trains GPT-2 for a few steps on this rank's cores, over Gloo:
#   torchrun --standalone --nproc-per-node=2 train_peer.py MODE [steps] [layers]
# MODE: none (forward and backward by themselves, nothing exchanged or updated), ddp (fused AdamW),
# zero1 (ZeroRedundancyOptimizer), fsdp2 (a unit a block), ds0 to ds3 (DeepSpeed's stages), libzero1
# to libzero3 (libzero_peer.py).
# Rank 0 prints one JSON object: medians of seconds, the peak memory of a rank above its bare
# imports, and the last loss.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import statistics
import sys
import threading
import time

os.environ.setdefault('DS_ACCELERATOR', 'cpu')
os.environ.setdefault('DEEPSPEED_LOG_LEVEL', 'error')
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = 64  # a rank and step
WARM_UP = 2
MODES = ('none', 'ddp', 'zero1', 'fsdp2', 'ds0', 'ds1', 'ds2', 'ds3', 'libzero1', 'libzero2',
         'libzero3')
ADAMW = {'lr': 1e-4, 'betas': (0.9, 0.999), 'eps': 1e-8, 'weight_decay': 0.01}
CLIPPING = 1.0


def pss_mb():
    """Proportional set size: a page shared by two ranks counts half in each."""
    with open('/proc/self/smaps_rollup') as file:
        for line in file:
            if line.startswith('Pss:'):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class Peak(threading.Thread):
    """The largest PSS since the start, above that of the start."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bare = pss_mb()
        self.mb = 0.0
        self.start()

    def run(self):
        while True:
            self.mb = max(self.mb, pss_mb() - self.bare)
            time.sleep(0.05)


def data_parallel(model):
    return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def torch_peer(mode, model):
    """The model as the peer wraps it, and its optimizer."""
    if mode == 'none':
        return model, None
    if mode == 'ddp':
        wrapped = data_parallel(model)
        return wrapped, torch.optim.AdamW(wrapped.parameters(), fused=True, **ADAMW)
    if mode == 'zero1':
        from torch.distributed.optim import ZeroRedundancyOptimizer
        wrapped = data_parallel(model)
        return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW,
                                                parameters_as_bucket_view=True, fused=True, **ADAMW)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    wrapped = fully_shard(model, mesh=mesh)
    return wrapped, torch.optim.AdamW(wrapped.parameters(), fused=True, **ADAMW)


def deepspeed_peer(stage, model):
    import deepspeed
    engine, _, _, _ = deepspeed.initialize(model=model, config={
        'train_micro_batch_size_per_gpu': 1,
        'gradient_clipping': CLIPPING,
        'zero_optimization': {'stage': stage, 'overlap_comm': False},
        'optimizer': {'type': 'AdamW', 'params': ADAMW},
        'zero_allow_untested_optimizer': True,
        'steps_per_print': 10**9,
    })
    return engine


def train(mode, model, batch, steps):
    """Seconds of each whole step, and of its forward and backward passes."""
    engine = deepspeed_peer(int(mode[2:]), model) if mode.startswith('ds') else None
    wrapped, optimizer = (engine, None) if engine else torch_peer(mode, model)
    whole, passes = [], []
    for step in range(WARM_UP + steps):
        dist.barrier()
        start = time.perf_counter()
        loss = wrapped(input_ids=batch, labels=batch).loss
        (engine.backward if engine else torch.Tensor.backward)(loss)
        middle = time.perf_counter()
        if engine:
            engine.step()
        elif optimizer:
            torch.nn.utils.clip_grad_norm_(wrapped.parameters(), CLIPPING)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        if mode == 'none':
            wrapped.zero_grad(set_to_none=True)
        if step >= WARM_UP:
            whole.append(end - start)
            passes.append(middle - start)
    return whole, passes, loss.item()


def train_with_libzero(stage, model, batch, steps):
    """As train; libzero brings its own communicator."""
    from libzero_peer import Engine
    engine = Engine(model, stage, ADAMW, CLIPPING)
    whole, passes, loss = [], [], 0.0
    for step in range(WARM_UP + steps):
        start = time.perf_counter()
        loss = engine.passes(model, batch)
        middle = time.perf_counter()
        engine.step()
        end = time.perf_counter()
        if step >= WARM_UP:
            whole.append(end - start)
            passes.append(middle - start)
    engine.close()
    return whole, passes, loss


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in MODES:
        sys.exit(f'usage: train_peer.py {"|".join(MODES)} [steps] [layers]')
    mode = sys.argv[1]
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    torch.set_num_threads(1)
    if mode.startswith('ds'):
        import deepspeed
        peak = Peak()
        deepspeed.init_distributed('gloo')
    else:
        peak = Peak()
        if not mode.startswith('libzero'):
            dist.init_process_group('gloo')
    rank = int(os.environ['RANK'])
    torch.manual_seed(0)
    config = GPT2Config(n_layer=layers, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    parameters = sum(p.numel() for p in model.parameters())
    generator = torch.Generator().manual_seed(1 + rank)
    batch = torch.randint(0, config.vocab_size, (1, TOKENS), generator=generator)
    if mode.startswith('libzero'):
        whole, passes, loss = train_with_libzero(int(mode[7:]), model, batch, steps)
    else:
        whole, passes, loss = train(mode, model, batch, steps)
    if rank == 0:
        print(json.dumps({'mode': mode, 'parameters': parameters,
                          'step_s': statistics.median(whole),
                          'forward_backward_s': statistics.median(passes),
                          'peak_mb': round(peak.mb), 'loss': loss}), flush=True)
    if not mode.startswith('libzero'):
        dist.destroy_process_group()


if __name__ == '__main__':
    main()
