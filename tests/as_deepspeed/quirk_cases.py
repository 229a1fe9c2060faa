"""Section 2.2 of the page, row by row: where DeepSpeed loses gradients or writes, or breaks; each on two ranks under the
name deepspeed, with what libzero does instead (docs/deepspeed-compatibility.md has the list)."""
# SPDX-License-Identifier: BSD-3-Clause
import copy
import os
import pickle

import torch
from program_help import FOLDER, RANK, SIZE, alike, data, expect, main, near, net, plain_step, whole, zero

import deepspeed


def loss_of(model, step, rank=RANK):
    inputs, wanted = data(step, rank)
    return (model(inputs) - wanted).pow(2).mean()


def start(stage, model=None, **more):
    model = model or net()
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), config=zero(stage, **more))[0]


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        expect(all(word in str(error) for word in words), words, "are not in:", error)
        return
    raise AssertionError("no %s" % kind.__name__)


def summed(weights, scale=1.0):
    """Plain torch's update by SGD from the sum of losses, each rank's share of them."""
    plain = net()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for step, weight in weights:
        for rank in range(SIZE):
            (loss_of(plain, step, rank) * (weight * scale / SIZE)).backward()
    optimizer.step()
    return plain


def two_backwards():
    """By the engine's forward or the bare module's, and with the boundary set by hand: 1 and 2 make 3."""
    plain = summed([(0, 1.0), (1, 2.0)])
    for stage in range(4):
        for through_engine in (True, False):
            engine = start(stage)
            forward = engine if through_engine else engine.module
            engine.backward(loss_of(forward, 0))
            engine.backward(2 * loss_of(forward, 1))
            engine.step()
            alike(engine.module, plain)
        engine = start(stage)
        engine.set_gradient_accumulation_boundary(False)
        engine.backward(loss_of(engine, 0))
        engine.set_gradient_accumulation_boundary(True)
        engine.backward(2 * loss_of(engine, 1))
        engine.step()
        alike(engine.module, plain)


def step_alone():
    for stage in range(4):
        for clip in (0.0, 1.0):
            engine = start(stage, gradient_clipping=clip)
            raised(RuntimeError, engine.step, "no backward")
            engine.backward(loss_of(engine, 0))
            engine.step()
            expect(engine.global_steps == 1, "it does not go on")
            raised(RuntimeError, engine.step, "no backward")


def backward_alone():
    """Stage 0 too; divided by the accumulation steps once, by engine.scale or without it. With fp16 it is needed."""
    for stage in range(4):
        engine = start(stage)
        loss_of(engine, 0).backward()
        engine.step()
        alike(engine.module, summed([(0, 1.0)]))
        for scaled in (False, True):
            engine = start(stage, gradient_accumulation_steps=2)
            for micro in range(2):
                loss = loss_of(engine, micro)
                (engine.scale(loss) if scaled else loss).backward()
                engine.step()
            alike(engine.module, summed([(0, 1.0), (1, 1.0)], 0.5))
        engine = start(stage, fp16={"enabled": True})
        raised(RuntimeError, lambda engine=engine: engine(data(0)[0].half()).float().mean().backward(), "engine.scale")


def writes():
    """After initialize: into whole parameters at once, at stage 3 under GatheredParameters; both stay after a step."""
    for bits in ({}, {"bf16": {"enabled": True}}):
        for stage in range(4):
            engine = start(stage, **bits)
            weight = engine.module[2].bias
            if stage == 3:
                with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
                    if RANK == 0:
                        weight.data.fill_(8.0)
            else:
                with torch.no_grad():
                    weight.fill_(8.0)
                if bits:
                    engine.optimizer.refresh_fp32_params()
            for group in engine.optimizer.param_groups:
                group["lr"] = 0.0  # the step moves nothing: what is there afterwards was written
            inputs = data(0)[0].bfloat16() if bits else data(0)[0]
            engine.backward(engine(inputs).float().mean())
            engine.step()
            expect(bool((whole(engine.module)["2.bias"] == 8.0).all()), stage, bits, whole(engine.module)["2.bias"])
    engine = start(3)
    weight = engine.module[0].weight

    def without_a_rank():
        with deepspeed.zero.GatheredParameters(weight):
            weight.data.fill_(1.0)
    raised(RuntimeError, without_a_rank, "modifier_rank")


def unsynchronised():
    for stage in (0, 1):
        engine = start(stage, gradient_accumulation_steps=2)
        with engine.no_sync():
            engine.backward(loss_of(engine, 0))
            raised(AssertionError, engine.step, "no_sync")
        engine.step()
        engine.backward(loss_of(engine, 1))
        engine.step()
        alike(engine.module, summed([(0, 1.0), (1, 1.0)], 0.5))
    for stage in (2, 3):
        raised(AssertionError, start(stage).no_sync().__enter__, "stage %d" % stage)


def manual_boundary():
    """It stays until set again; the division goes on; one step a window counts windows."""
    for stage in range(4):
        engine = start(stage, gradient_accumulation_steps=4)
        for micro in range(2):
            engine.set_gradient_accumulation_boundary(micro == 1)
            expect(engine.is_gradient_accumulation_boundary() is (micro == 1))
            engine.backward(loss_of(engine, micro))
        engine.step()
        expect((engine.micro_steps, engine.global_steps) == (1, 1) and engine.is_gradient_accumulation_boundary())
        alike(engine.module, summed([(0, 1.0), (1, 1.0)], 0.25))


def overflow():
    for stage in range(4):
        model = net()
        inner = torch.optim.SGD(model.parameters(), lr=0.5)
        engine = deepspeed.initialize(
            model=model, optimizer=inner, lr_scheduler=torch.optim.lr_scheduler.StepLR(inner, 1, 0.5),
            config=zero(stage, fp16={"enabled": True, "initial_scale_power": 4, "hysteresis": 1}))[0]
        before = whole(model)
        engine.backward(engine(data(0)[0].half()).float().mean() * float("inf"))
        engine.step()
        expect(engine.optimizer.overflow is True and not engine.was_step_applied() and engine.get_lr() == [0.5])
        expect(engine.global_steps == 1 and not torch.isfinite(torch.tensor(engine.get_global_grad_norm())))
        expect(all(torch.equal(value, before[name]) for name, value in whole(model).items()))


def load_after_save():
    for stage in range(4):
        engine = start(stage)
        engine.backward(loss_of(engine, 0))
        engine.step()
        saved = whole(engine.module)
        folder = os.path.join(FOLDER, "again%d" % stage)
        engine.save_checkpoint(folder)
        engine.backward(loss_of(engine, 1))
        engine.step()
        expect(engine.load_checkpoint(folder)[0] is not None)
        expect(all(torch.equal(value, saved[name]) for name, value in whole(engine.module).items()), stage)


def the_modules():
    """train and eval answer None; keys have the prefix; other names are the module's; new ones may be set."""
    for stage in (0, 3):
        model = net()
        model.generate = lambda: "drawn"
        engine = start(stage, model)
        expect(engine.train() is None and engine.eval() is None and not model.training and engine.generate() == "drawn")
        names = [name for name, _ in model.named_parameters()]
        expect(list(engine.state_dict()) == ["module." + name for name in names] == [n for n, _ in engine.named_parameters()])
        expect(list(engine.module.state_dict()) == names)
        engine.anything = 3
        expect(engine.anything == 3)
        raised(AttributeError, lambda engine=engine: engine.no_such_name, "no_such_name")
        raised(TypeError, lambda engine=engine: pickle.dumps(engine), "save_checkpoint")
        raised(TypeError, lambda engine=engine: copy.deepcopy(engine), "copied")


def norms():
    """A float at every stage, 16 bits or not, that of plain torch; None before the first update."""
    plain = net()
    wanted = plain_step(plain, torch.optim.SGD(plain.parameters(), lr=0.5), [loss_of(plain, 0, rank) for rank in range(SIZE)])
    for stage in range(4):
        engine = start(stage)
        expect(engine.get_global_grad_norm() is None)
        engine.backward(loss_of(engine, 0))
        engine.step()
        expect(isinstance(engine.get_global_grad_norm(), float))
        near(engine.get_global_grad_norm(), wanted)


main({"two_backwards": two_backwards, "step_alone": step_alone, "backward_alone": backward_alone, "writes": writes,
      "unsynchronised": unsynchronised, "manual_boundary": manual_boundary, "overflow": overflow,
      "load_after_save": load_after_save, "the_modules": the_modules, "norms": norms})
