"""Five programs' call patterns more (section 6 of the page, 6 to 10); see program_cases.py."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import copy
import os
import shutil
import types

import torch
from program_help import FOLDER, RANK, SIZE, alike, data, expect, main, near, net, plain_step, refused, whole, zero

import deepspeed


def loss_of(model, step, rank=RANK):
    inputs, wanted = data(step, rank)
    return (model(inputs) - wanted).pow(2).mean()


def two_groups(model, scales=(0.5, 1.0)):
    return [{"params": list(layer.parameters()), "weight_decay": 0.05, "lr_scale": scale}
            for layer, scale in zip((model[0], model[2]), scales)]


def beit():
    """Grouped parameters with a scale of their own; at each epoch zero_grad and micro_steps = 0; rate and decay written
    at every micro-batch; the loss divided by the script and by the engine; resume by listing folders."""
    folder, window = os.path.join(FOLDER, "beit"), 2
    ds_init = deepspeed.initialize  # or None, where the script runs without
    args = argparse.Namespace(deepspeed_config=None, local_rank=RANK)
    config = zero(2, gradient_accumulation_steps=window, optimizer={"type": "AdamW", "params": {"lr": 1.0}})

    def life(first, last):
        model, norms = net(), []
        engine, optimizer, _, _ = ds_init(args=args, model=model, model_parameters=two_groups(model), dist_init_required=False,
                                          config=config)
        expect(engine.gradient_accumulation_steps() == window)
        found = sorted((name for name in os.listdir(folder) if name.startswith("checkpoint-")) if os.path.isdir(folder) else [])
        if found:
            _, client = engine.load_checkpoint(folder, tag=found[-1])
            first = client["epoch"] + 1
            expect(torch.equal(client["ema"]["0.bias"], torch.full((6,), float(client["epoch"]))), client)
        for epoch in range(first, last):
            engine.zero_grad()
            engine.micro_steps = 0
            for micro in range(window):
                for group in optimizer.param_groups:
                    group["lr"] = 0.01 * group["lr_scale"] / (1 + epoch)
                    group["weight_decay"] = 0.05
                engine.backward(loss_of(engine, 10 * epoch + micro) / window)
                engine.step()
            norms.append(engine.get_global_grad_norm())
            scale = optimizer.loss_scale if hasattr(optimizer, "loss_scale") else optimizer.cur_scale
            expect(scale == 1.0)
            engine.save_checkpoint(save_dir=folder, tag="checkpoint-%d" % epoch,
                                   client_state={"epoch": epoch, "ema": {"0.bias": torch.full((6,), float(epoch))}})
        return first, model, norms

    expect(life(0, 2)[0] == 0)
    first, model, norms = life(0, 4)
    expect(first == 2, "resumed at", first)
    plain = net()
    optimizer = torch.optim.AdamW(two_groups(plain), lr=1.0)
    for epoch in range(4):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * group["lr_scale"] / (1 + epoch)
        losses = [loss_of(plain, 10 * epoch + micro, rank) / window for micro in range(2) for rank in range(SIZE)]
        norm = plain_step(plain, optimizer, losses)
        if epoch >= 2:
            near(norms[epoch - 2], norm)
    alike(model, plain)


class Warming(torch.optim.lr_scheduler.LambdaLR):
    """A script's own, with a call of its own."""

    def __init__(self, optimizer):
        super().__init__(optimizer, lambda step: min(1.0, (step + 1) / 4))

    def set_step(self, step):
        self.last_epoch = step


def wenet():
    """A callable that makes the scheduler, which comes back itself; the boundary asked before step, the norm after;
    consolidation on rank 0 and the sharded folder away."""
    made = []
    model = net()
    engine, optimizer, _, scheduler = deepspeed.initialize(
        args=argparse.Namespace(), model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.02),
        lr_scheduler=lambda given: made.append(Warming(given)) or made[-1], model_parameters=model.parameters(),
        config=zero(2, gradient_accumulation_steps=2, gradient_clipping=0.7))
    expect(scheduler is made[0] is engine.lr_scheduler)
    scheduler.set_step(0)
    plain = net()
    other = torch.optim.AdamW(plain.parameters(), lr=0.02)
    rates = Warming(other)
    for micro in range(8):
        loss = loss_of(engine, micro)
        scaled = engine.backward(loss)
        near(scaled.item() * 2, loss.item())
        boundary = engine.is_gradient_accumulation_boundary()
        expect(boundary == (micro % 2 == 1))
        engine.step()
        if boundary:
            norm = plain_step(plain, other, [loss_of(plain, m, rank) for m in (micro - 1, micro) for rank in range(SIZE)], 0.7)
            rates.step()
            near(engine.get_global_grad_norm(), norm)
            near(optimizer.param_groups[0]["lr"], other.param_groups[0]["lr"])
    alike(model, plain)
    folder = os.path.join(FOLDER, "wenet")
    expect(engine.save_checkpoint(save_dir=folder, tag="epoch_0", client_state={"step": 4}))
    torch.distributed.barrier()
    if RANK == 0:
        from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
        out = os.path.join(folder, "epoch_0.pt")
        convert_zero_checkpoint_to_fp32_state_dict(folder, out, tag="epoch_0")
        path = next(os.path.join(base, name) for base, _, names in os.walk(out) for name in names) if os.path.isdir(out) else out
        state = torch.load(path)
        expect(set(state) == set(plain.state_dict()), set(state))
        for name, value in plain.state_dict().items():
            expect((state[name] - value).abs().max() < 2e-5, name)
        shutil.rmtree(os.path.join(folder, "epoch_0"))
        expect(not os.path.exists(os.path.join(folder, "epoch_0")))
    torch.distributed.barrier()


class Annealing:
    """Megatron's scheduler: it counts samples, and is stepped by an increment."""

    def __init__(self, optimizer):
        self.optimizer, self.samples = optimizer, 0
        self.step(0)

    def step(self, increment):
        self.samples += increment
        for group in self.optimizer.param_groups:
            group["lr"] = 0.02 / (1 + self.samples / 16)

    def state_dict(self):
        return {"samples": self.samples}

    def load_state_dict(self, state):
        self.samples = state["samples"]
        self.step(0)


def megatron():
    """Born sharded, an optimizer and scheduler of its own, lr_kwargs, was_step_applied, a batch that grows, its whole
    state as client_state; pipelines are refused by name."""
    config = zero(3)
    with deepspeed.zero.Init(data_parallel_group=torch.distributed.group.WORLD, remote_device=None, config_dict_or_path=config,
                             enabled=True, mpu=None):
        model = net()
    expect(all(hasattr(p, "ds_id") for p in model.parameters()))

    def begin(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
        scheduler = Annealing(optimizer)
        return deepspeed.initialize(model=model, optimizer=optimizer, args=argparse.Namespace(deepspeed_config=None),
                                    lr_scheduler=scheduler, config=copy.deepcopy(config)), scheduler

    (engine, optimizer, _, returned), scheduler = begin(model)
    expect(returned is scheduler and not engine.fp16_enabled() and not engine.bfloat16_enabled())
    plain = net()
    other = torch.optim.AdamW(plain.parameters(), lr=0.02, weight_decay=0.1)
    rates, micro = Annealing(other), 0
    for batch in (4, 4, 8, 8):
        engine.set_train_batch_size(batch)
        count = engine.gradient_accumulation_steps()
        expect(count == batch // 4, count)
        for part in range(count):
            engine.backward(loss_of(engine, micro + part))
            engine.step(lr_kwargs={"increment": batch})
            expect(engine.was_step_applied() == (part == count - 1))
        plain_step(plain, other, [loss_of(plain, micro + part, rank) for part in range(count) for rank in range(SIZE)])
        rates.step(batch)
        micro += count
    expect(scheduler.samples == rates.samples == 24)
    alike(model, plain)
    whole_state = {"iteration": 4, "args": {"layers": 2}, "checkpoint_version": 3.0, "rng_state": [torch.get_rng_state()]}
    kept, engine.module.state_dict = engine.module.state_dict, lambda *_, **__: {"replaced": True}
    engine.save_checkpoint(os.path.join(FOLDER, "megatron"), client_state=whole_state)
    engine.module.state_dict = kept
    again = net(2)
    (engine, _, _, _), scheduler = begin(again)
    _, client = engine.load_checkpoint(os.path.join(FOLDER, "megatron"))
    expect(client["iteration"] == 4 and client["args"] == {"layers": 2} and scheduler.samples == 24, client)
    alike(again, plain)
    refused(lambda: engine.train_batch(data_iter=iter([])), "train_batch")
    refused(lambda: deepspeed.pipe.PipelineModule(layers=[], num_stages=2), "PipelineModule")


def open_instruct():
    """The loss times the world size to undo the mean; a boundary set at each micro-batch, step at it alone; a reference
    without optimizer."""
    mpu = types.SimpleNamespace(get_data_parallel_world_size=lambda: SIZE)
    for stage in (2, 3):
        model = net()
        inner = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1.0 / (1 + step))
        engine, optimizer, _, returned = deepspeed.initialize(model=model, optimizer=inner, config=zero(
            stage, gradient_accumulation_steps=3, gradient_clipping=1.0), lr_scheduler=schedule, dist_init_required=False, mpu=mpu)
        reference = deepspeed.initialize(model=net(9), config=zero(3 if stage == 3 else 0), mpu=None)[0]
        reference.eval()
        expect(returned is schedule)
        plain, far = net(), net(9)
        other = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
        rates = torch.optim.lr_scheduler.LambdaLR(other, lambda step: 1.0 / (1 + step))

        def loss_at(model, reference, micro, rank=RANK):
            with torch.no_grad():
                wanted = reference(data(micro, rank)[0])
            return (model(data(micro, rank)[0]) - wanted).pow(2).mean()

        for micro in range(6):
            last = micro % 3 == 2
            loss = loss_at(engine, reference, micro) * SIZE  # the mean over ranks is undone
            engine.set_gradient_accumulation_boundary(last)
            engine.backward(loss)
            if last:
                engine.step()
                norm = plain_step(plain, other, [loss_at(plain, far, m, r) * SIZE for m in range(micro - 2, micro + 1)
                                                 for r in range(SIZE)], 1.0)
                rates.step()
                near(float(engine.get_global_grad_norm()), norm)
                near(optimizer.param_groups[0]["lr"], other.param_groups[0]["lr"])
        expect(engine.global_steps == 2)
        alike(model, plain)
        expect(not hasattr(optimizer, "parameter_offload"))
        try:
            hooks = engine.optimizer.forward_hooks
            expect(False, hooks)
        except AttributeError as error:
            expect("forward_hooks" in str(error) and "GatheredParameters" in str(error), error)
        with deepspeed.zero.GatheredParameters(list(model.parameters())), torch.no_grad():  # generation
            expect(torch.isfinite(engine.module(data(0)[0])).all())
        engine.backward(loss_at(engine, reference, 7))


def llava():
    """Weights for saving: parameter by parameter where it has ds_id, and whole on rank 0; both the plain ones."""
    def one(parameter):
        if hasattr(parameter, "ds_id"):
            expect(parameter.ds_status == deepspeed.runtime.zero.partition_parameters.ZeroParamStatus.NOT_AVAILABLE)
            with deepspeed.zero.GatheredParameters([parameter]):
                return parameter.data.detach().cpu().clone()
        return parameter.detach().cpu().clone()

    plain = net()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    plain_step(plain, optimizer, [loss_of(plain, 0, rank) for rank in range(SIZE)])
    for stage in (2, 3):
        model = net()
        engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), config=zero(
            stage))[0]
        engine.backward(loss_of(engine, 0))
        engine.step()
        found = {name: one(parameter) for name, parameter in engine.module.named_parameters()}
        expect(set(found) == set(plain.state_dict()))
        for name, value in plain.state_dict().items():
            expect((found[name] - value).abs().max() < 2e-5, stage, name)
        expect(all(torch.equal(value, found[name]) for name, value in whole(model).items()))
        if stage == 3:
            state = engine._zero3_consolidated_16bit_state_dict()
            expect((state is None) == (RANK != 0))
            expect(state is None or all(torch.equal(state[name], value) for name, value in found.items()))


deepspeed.init_distributed("gloo")  # as these do before anything else
main({"beit": beit, "wenet": wenet, "megatron": megatron, "open_instruct": open_instruct, "llava": llava})
