#!/usr/bin/env python3
"""A DeepSpeed example's training script (two-class spirals, as the cifar one is built); only the import
line differs between a run with DeepSpeed and one with libzero."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed


def add_argument():
    parser = argparse.ArgumentParser(description="spirals")
    parser.add_argument("-e", "--epochs", default=2, type=int)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--dtype", default="fp32", type=str, choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--stage", default=0, type=int, choices=[0, 1, 2, 3])
    parser.add_argument("--client", default=False, action="store_true")
    parser.add_argument("--save", default="", type=str)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 24)
        self.fc2 = nn.Linear(24, 24)
        self.norm = nn.LayerNorm(24)
        self.fc3 = nn.Linear(24, 2)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = x + torch.tanh(self.fc2(self.norm(x)))
        return self.fc3(x)


def spirals(count):
    generator = torch.Generator().manual_seed(11)
    t = torch.rand(count, generator=generator) * 9.0
    sign = torch.randint(0, 2, (count,), generator=generator)
    points = torch.stack([t * torch.cos(t), t * torch.sin(t)], 1) * (2.0 * sign - 1.0).unsqueeze(1) / 4.0
    return torch.utils.data.TensorDataset(points, sign)


def get_ds_config(args):
    made = {
        "train_batch_size": 32,
        "gradient_accumulation_steps": 2,
        "steps_per_print": 2000,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7,
                                                 "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.01, "warmup_num_steps": 10,
                                                     "warmup_type": "linear"}},
        "gradient_clipping": 1.0,
        "prescale_gradients": False,
        "bf16": {"enabled": args.dtype == "bf16"},
        "fp16": {"enabled": args.dtype == "fp16", "loss_scale": 0, "initial_scale_power": 12},
        "wall_clock_breakdown": False,
        "zero_optimization": {"stage": args.stage, "allgather_partitions": True, "reduce_scatter": True,
                              "allgather_bucket_size": 50000000, "reduce_bucket_size": 50000000, "overlap_comm": False,
                              "contiguous_gradients": True},
    }
    if args.client:
        del made["optimizer"], made["scheduler"]
    return made


def main(args):
    deepspeed.init_distributed()
    torch.manual_seed(3)
    net = Net()
    parameters = filter(lambda p: p.requires_grad, net.parameters())
    more = {}
    if args.client:
        more["optimizer"] = torch.optim.AdamW(net.parameters(), lr=0.005, weight_decay=0.05)
        more["lr_scheduler"] = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
    model_engine, optimizer, trainloader, scheduler = deepspeed.initialize(
        args=args, model=net, model_parameters=parameters, training_data=spirals(640), config=get_ds_config(args), **more)
    device = deepspeed.get_accelerator().device_name(model_engine.local_rank)
    dtype = torch.bfloat16 if model_engine.bfloat16_enabled() else torch.half if model_engine.fp16_enabled() else None
    criterion = nn.CrossEntropyLoss()
    losses, norms = [], []
    for epoch in range(args.epochs):
        for data in trainloader:
            inputs, labels = data[0].to(device), data[1].to(device)
            outputs = model_engine(inputs if dtype is None else inputs.to(dtype))
            loss = criterion(outputs.float(), labels)
            model_engine.backward(loss)
            boundary = model_engine.is_gradient_accumulation_boundary()
            model_engine.step()
            losses.append(loss.item())
            if boundary:
                norm = model_engine.get_global_grad_norm()
                norms.append(float(norm) if norm is not None else None)
    if args.save:
        model_engine.save_checkpoint(args.save, client_state={"epoch": args.epochs})
        path, client = model_engine.load_checkpoint(args.save)
        assert path is not None and client["epoch"] == args.epochs, (path, client)
    if model_engine.global_rank == 0:
        print("RESULT " + json.dumps({"losses": losses, "norms": norms, "lr": scheduler.get_last_lr(),
                                      "steps": model_engine.global_steps, "samples": model_engine.global_samples,
                                      "groups": len(optimizer.param_groups), "batches": len(trainloader)}), flush=True)


if __name__ == "__main__":
    main(add_argument())
    sys.stdout.flush()
    os._exit(0)
