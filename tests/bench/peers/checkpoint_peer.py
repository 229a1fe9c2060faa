#!/usr/bin/env python3
# torch.save and DeepSpeed's save_checkpoint of the state that bench_checkpoint saves:
#   torchrun --standalone --nproc-per-node=RANKS checkpoint_peer.py MODE FOLDER [MiB] [rounds]
# MODE: torch (each rank its share of fp32 master and moments, by torch.save and torch.load), ds2
# (DeepSpeed, stage 2, Adam).  Rank 0 prints one JSON object: medians of seconds of the slowest
# rank.  save_s is what the call takes, synced_s with the bytes synced to the disk (libzero's save
# always does), load_s is with the page cache emptied of the files.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

os.environ.setdefault('DS_ACCELERATOR', 'cpu')
os.environ.setdefault('DEEPSPEED_LOG_LEVEL', 'error')
import torch
import torch.distributed as dist

LAYERS = 24
BYTES_EACH = 12  # of a parameter: fp32 master and two moments


def files_of(folder):
    return [path for path in pathlib.Path(folder).rglob('*') if path.is_file()]


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


class Torch:
    def __init__(self, parameters):
        each = parameters // LAYERS // dist.get_world_size()
        self.state = {f'{part}.{layer}': torch.randn(each) for layer in range(LAYERS)
                      for part in ('master', 'first', 'second')}

    def save(self, folder):
        torch.save(self.state, f'{folder}/rank-{dist.get_rank()}.pt')

    def load(self, folder):
        for name, value in torch.load(f'{folder}/rank-{dist.get_rank()}.pt').items():
            self.state[name].copy_(value)


class DeepSpeed:
    def __init__(self, parameters):
        import deepspeed
        model = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.randn(parameters // LAYERS)) for _ in range(LAYERS)])
        self.engine, _, _, _ = deepspeed.initialize(model=model, config={
            'train_micro_batch_size_per_gpu': 1,
            'optimizer': {'type': 'Adam', 'params': {'lr': 1e-4, 'torch_adam': True}},
            'zero_optimization': {'stage': 2}})
        # The moments are made in the first step.
        self.engine.backward(sum(p.sum() for p in self.engine.module.parameters()))
        self.engine.step()

    def save(self, folder):
        self.engine.save_checkpoint(folder, tag='bench')

    def load(self, folder):
        self.engine.load_checkpoint(folder, tag='bench')


def main():
    mode, folder = sys.argv[1], sys.argv[2]
    mib = int(sys.argv[3]) if len(sys.argv) > 3 else 2048
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    dist.init_process_group('gloo')
    torch.set_num_threads(1)
    peer = {'torch': Torch, 'ds2': DeepSpeed}[mode]((mib << 20) // BYTES_EACH)
    times = {'save_s': [], 'synced_s': [], 'load_s': []}
    for _ in range(rounds):
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        dist.barrier()
        begun = time.monotonic()
        peer.save(folder)
        saved = time.monotonic()
        dist.barrier()
        for path in files_of(folder)[dist.get_rank()::dist.get_world_size()]:
            sync(path)
        dist.barrier()
        synced = time.monotonic()
        peer.load(folder)
        loaded = time.monotonic()
        times['save_s'].append(slowest(saved - begun))
        times['synced_s'].append(slowest(synced - begun))
        times['load_s'].append(slowest(loaded - synced))
    size = sum(path.stat().st_size for path in files_of(folder))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps({'mode': mode, 'ranks': dist.get_world_size(), 'mb': size / 1e6,
                          **{name: statistics.median(values) for name, values in times.items()}}))
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
