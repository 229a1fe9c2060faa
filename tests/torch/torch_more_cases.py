"""More cases of tests/torch/torch_engine.py: what scripts do with an engine, and what is refused."""
# SPDX-License-Identifier: BSD-3-Clause
import io
import logging
import os
import sys

import libzero.torch as deepspeed
import torch

# The program that runs the cases is this module's elder.
cases = sys.modules["__main__"]
RANK, SIZE, FOLDER = cases.RANK, cases.SIZE, cases.FOLDER
expect, raised, settings, start, net, data, train, whole = (
    cases.expect, cases.raised, cases.settings, cases.start, cases.net, cases.data, cases.train, cases.whole)


def case_other_optimizers_are_refused_by_name():
    for made in (torch.optim.RMSprop(net().parameters(), lr=0.1), torch.optim.Adamax(net().parameters(), lr=0.1)):
        raised(NotImplementedError, lambda made=made: start(net(), 1, made), type(made).__name__, "AdamW")
    model = net()
    raised(NotImplementedError, lambda: start(model, 1, torch.optim.AdamW(model.parameters(), amsgrad=True)), "amsgrad")
    used = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(data(0)).sum().backward()
    used.step()
    raised(NotImplementedError, lambda: start(model, 1, used), "SGD", "steps already")
    raised(NotImplementedError, lambda: deepspeed.PipelineModule([]), "pipelines")
    raised(AssertionError, lambda: deepspeed.initialize(model=net(), config=dict(settings(2), optimizer={})), "stage 2")


def case_two_losses_before_a_step_are_summed_at_every_stage():
    found = []
    for stage in range(4):
        engine = start(net(), stage)[0]
        for _ in range(3):
            engine.backward(engine(data(1)).mean())
            engine.backward(engine(data(2)).pow(2).mean())
            engine.step()
        found.append(whole(engine))
    model = net()
    cases.reference(model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1), 3, lambda m, _, rank: (
        m(data(1, rank)).mean() + m(data(2, rank)).pow(2).mean()))
    for values in found:
        for name, parameter in model.named_parameters():
            expect(float((values[name] - parameter).detach().abs().max()) < 1e-5, name)


def case_a_backward_without_the_engine_counts_too():
    for stage in (1, 2, 3):
        engine, other = start(net(), stage)[0], start(net(), stage)[0]
        for step in range(3):
            engine(data(step)).pow(2).mean().backward()
            engine.step()
        train(other, 3)
        mine, theirs = whole(engine), whole(other)
        expect(all(torch.equal(mine[n], theirs[n]) for n in mine), stage)


def case_calls_at_the_wrong_moment_are_errors():
    engine = start(net(), 2)[0]
    raised(RuntimeError, engine.step, "no backward")
    raised(AssertionError, lambda: engine.backward(torch.zeros(2, requires_grad=True)), "one number")
    with_sync = engine.no_sync()
    raised(AssertionError, with_sync.__enter__, "stage 2")
    alone = start(net(), 1)[0]
    with alone.no_sync():
        alone.backward(alone(data(0)).mean())
        raised(AssertionError, alone.step, "no_sync")
    alone.step()
    expect(alone.global_steps == 1 and alone.was_step_applied())
    raised(TypeError, lambda: torch.save(engine, io.BytesIO()), "save_checkpoint")


def case_accumulation_the_boundary_and_counters_are_deepspeeds():
    engine, optimizer, _, scheduler = start(net(), 2, gradient_accumulation_steps=3)
    expect((engine.gradient_accumulation_steps(), engine.train_micro_batch_size_per_gpu(), engine.train_batch_size()) ==
           (3, 2, 6 * SIZE) and scheduler is None and engine.get_global_grad_norm() is None)
    seen = []
    for step in range(6):
        loss = engine(data(step)).mean()
        expect(torch.allclose(engine.backward(loss), loss / 3))
        expect(all(p.grad is None for p in engine.parameters()))
        seen.append(engine.is_gradient_accumulation_boundary())
        engine.step()
    expect(seen == [False, False, True] * 2 and engine.global_steps == 2 and engine.micro_steps == 6)
    expect(engine.global_samples == 12 * SIZE and engine.get_global_grad_norm() > 0)
    engine.set_gradient_accumulation_boundary(True)
    engine.backward(engine(data(0)).mean(), scale_wrt_gas=False)
    engine.step()
    expect(engine.global_steps == 3 and optimizer.overflow is False and engine.optimizer is optimizer)
    engine.set_train_batch_size(2 * SIZE)
    expect(engine.gradient_accumulation_steps() == 1)
    raised(ValueError, lambda: engine.set_train_batch_size(2 * SIZE + 1), "multiple")


def case_rates_written_into_groups_are_live():
    model, plain = net(), net()
    engine, optimizer, _, _ = start(model, 3, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1))
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(6):
        for one in (optimizer, theirs):
            one.param_groups[0]["lr"], one.param_groups[0]["weight_decay"] = 0.01 / (step + 1), 0.05 * step
        engine.backward(engine(data(step)).pow(2).mean())
        engine.step()
        theirs.zero_grad()
        for rank in range(SIZE):
            (plain(data(step, rank)).pow(2).mean() / SIZE).backward()
        theirs.step()
    cases.same(engine, plain, within=1e-5)
    expect(engine.get_lr() == [0.01 / 6])


def case_the_configs_schedule_gives_deepspeeds_rates():
    # The reference's golden vectors; update k runs iteration k-2.
    cycle = {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 4}}
    cosine = {"type": "WarmupCosineLR", "params": {"total_num_steps": 10, "warmup_num_steps": 4, "warmup_min_ratio": 0.1,
                                                   "cos_min_ratio": 0.2, "warmup_type": "linear"}}
    for section, wanted in ((cycle, [1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 7.75e-4]),
                            (cosine, [0.0, 1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 9.46410162e-4, 8e-4])):
        given = dict(settings(1, scheduler=section), optimizer={"type": "AdamW", "params": {"lr": 1e-3}})
        engine, optimizer, _, scheduler = deepspeed.initialize(model=net(), config=given)
        found = []
        for step in range(len(wanted)):
            found.append(optimizer.param_groups[0]["lr"])
            engine.backward(engine(data(step)).mean())
            engine.step()
        expect(all(abs(a - b) < 1e-11 for a, b in zip(found, wanted)), found, wanted)
        state = scheduler.state_dict()
        expect(state == {"last_batch_iteration": len(wanted) - 1}, state)


def case_the_configs_own_optimizers_make_their_first_step():
    # From 0 moments: Lion and Adam go by the rate against the gradient's sign, Adagrad too, SGD by the gradient.
    for kind, params in (("Lion", {}), ("adam", {"eps": 0.0}), ("Adagrad", {"eps": 0.0}), ("SGD", {})):
        engine, _, _, _ = deepspeed.initialize(model=cases.Prescribed(), config=dict(
            settings(2), optimizer={"type": kind, "params": dict(params, lr=0.03)}))
        before = whole(engine)
        engine.backward(engine({"matrix": torch.full((7, 5), -2.0), "scalar": torch.tensor(4.0)}))
        engine.step()
        moved = {n: v - before[n] for n, v in whole(engine).items()}
        by = (0.06, -0.12) if kind == "SGD" else (0.03, -0.03)
        expect(float((moved["matrix"] - by[0]).abs().max()) < 1e-6 and abs(float(moved["scalar"]) - by[1]) < 1e-6, kind, moved)
        expect(not moved["vector"].any(), kind)
    raised(NotImplementedError, lambda: deepspeed.initialize(model=net(), config=dict(
        settings(1), optimizer={"type": "ZeroOneAdam", "params": {"lr": 0.1}})), "ZeroOneAdam")


class Scaled(torch.nn.Module):
    """No matrix product: torch 1.13 has none in fp16 on the host."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, x):
        return x * self.factor


def case_an_overflow_skips_the_step_and_the_schedule():
    model = Scaled()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=model, optimizer=inner, lr_scheduler=torch.optim.lr_scheduler.StepLR(inner, 1, 0.5),
        config=settings(2, fp16={"enabled": True, "initial_scale_power": 8, "hysteresis": 1}))
    expect(next(model.parameters()).dtype == torch.float16 and engine.fp16_enabled() and optimizer.loss_scale == 256)
    before = whole(engine)
    engine.backward(engine(data(0).half()).float().mean() * (float("inf") if RANK == 1 else 1.0))
    engine.step()
    after = whole(engine)
    expect(optimizer.overflow and not engine.was_step_applied() and engine.skipped_steps == 1 and engine.global_steps == 1)
    expect(optimizer.loss_scale == 128 and engine.get_lr() == [0.01])
    expect(all(torch.equal(before[n], after[n]) for n in before))
    engine.backward(engine(data(0).half()).float().mean())
    engine.step()
    expect(engine.was_step_applied() and engine.get_lr() == [0.005] and scheduler.get_last_lr() == [0.005])
    raised(RuntimeError, lambda: engine(data(1).half()).float().mean().backward(), "engine.scale")


def case_checkpoints_are_deepspeeds_folders_and_go_from_stage_to_stage():
    folder = os.path.join(FOLDER, "saved")
    first = start(net(), 2)[0]
    expect(first.load_checkpoint(folder) == (None, None))
    train(first, 4)
    expect(first.save_checkpoint(folder, client_state={"epoch": 3, "best": torch.tensor([1.5])}))
    raised(ValueError, lambda: first.save_checkpoint(folder, client_state={"module": 1}), "module")
    raised(ValueError, lambda: first.save_checkpoint(""), "empty")
    train(first, 2)
    with open(os.path.join(folder, "latest"), encoding="utf-8") as file:
        expect(file.read().strip() == "global_step4")
    for stage in (0, 1, 3):
        other = start(net(seed=9), stage)[0]
        path, client = other.load_checkpoint(folder)
        expect(os.path.basename(path) == "global_step4" and client["epoch"] == 3 and client["best"].item() == 1.5)
        expect(other.global_steps == 4 and other.global_samples == 8 * SIZE and other.micro_steps == 0)
        train(other, 2)
        mine, theirs = whole(first), whole(other)
        expect(all(torch.equal(mine[n], theirs[n]) for n in mine), stage)
        raised(AssertionError, lambda other=other: other.load_checkpoint(folder, tag="nothing"), "nothing")
    weights = start(net(seed=9), 3)[0]
    weights.load_checkpoint(folder, load_module_only=True)
    expect(weights.global_steps == 0)


class Normed(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm = torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5)
        self.register_buffer("table", torch.randn(3))
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool), persistent=False)

    def forward(self, x):
        return self.norm(self.first(x)).sum(1) * self.table.sum()


def case_values_and_buffers_begin_as_rank_0s_and_buffers_are_saved():
    for stage in (0, 3):
        engine = start(Normed(40 + RANK), stage)[0]
        expected = Normed(40)
        expect(torch.equal(engine.module.table, expected.table))
        cases.same(engine, expected, within=0)
        train(engine, 2)
        folder = os.path.join(FOLDER, "buffers%d" % stage)
        engine.save_checkpoint(folder, "a")
        running = engine.module.norm.running_mean.clone()
        expect(int(engine.module.norm.num_batches_tracked) == 2)
        train(engine, 1)
        engine.load_checkpoint(folder, "a")
        if RANK == 0:
            expect(torch.equal(engine.module.norm.running_mean, running))
        expect(int(engine.module.norm.num_batches_tracked) == 2)


def case_reports_go_to_logging_and_memory_errors_are_explained():
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    logger, keep = logging.getLogger("libzero.torch"), Keep()
    logger.addHandler(keep)
    logger.setLevel(logging.INFO)
    try:
        engine = start(net(), 1, steps_per_print=2, wall_clock_breakdown=True)[0]
        train(engine, 4)
    finally:
        logger.removeHandler(keep)
        logger.setLevel(logging.CRITICAL)
    if RANK == 0:
        expect(sum("step=" in line and "lr=[0.01]" in line for line in lines) == 2, lines)
        expect(sum("forward" in line and "backward" in line for line in lines) == 4, lines)

    class Huge(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.part(x), torch.empty(2**55, dtype=torch.uint8)

    big = start(Huge(), 2)[0]
    raised(RuntimeError, lambda: big(torch.zeros(1, 2)), "allocate", "libzero", str(2**55)[:4])


def case_init_and_the_arguments_are_there():
    import argparse
    parser = argparse.ArgumentParser()
    expect(deepspeed.add_config_arguments(parser) is parser)
    arguments = parser.parse_args(["--deepspeed", "--deepspeed_config", os.path.join(FOLDER, "config%d.json" % RANK)])
    with open(arguments.deepspeed_config, "w", encoding="utf-8") as file:
        import json
        json.dump(settings(2), file)
    arguments.local_rank = -1
    with deepspeed.zero.Init(config_dict_or_path=arguments.deepspeed_config):
        model = net()
    raised(NotImplementedError, lambda: deepspeed.zero.Init(remote_device="nvme"), "remote_device")
    engine, _, loader, _ = deepspeed.initialize(args=arguments, model=model, model_parameters=model.parameters(),
                                                training_data=[(torch.randn(6), 0)] * 12)
    expect(arguments.local_rank == RANK and engine.local_rank == RANK and len(loader) == 12 // SIZE // 2)
    expect(engine.zero_optimization_stage() == 2 and len(list(loader)) == len(loader))
    expect(engine.train() is None and engine.module.training and engine.eval() is None and not engine.module.training)
    expect(engine.state_dict().keys() == {"module." + k for k in model.state_dict()})
    raised(AssertionError, lambda: deepspeed.initialize(args=arguments, model=net(), config=settings(1)), "both")
    raised(AttributeError, lambda: engine.no_such_thing, "no_such_thing")
    engine.destroy()
    expect(bool(torch.isfinite(model[0].weight).all()))
