"""Section 2.3 of the page: each attribute and method of the engine, used for what it means; see names_cases.py."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import sys

import torch

cases = sys.modules["__main__"]
RANK, SIZE, FOLDER = cases.RANK, cases.SIZE, cases.FOLDER
expect, start, net, batch, train = cases.expect, cases.start, cases.net, cases.batch, cases.train


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        expect(all(word in str(error) for word in words), words, "are not in:", error)
        return
    raise AssertionError("no %s" % kind.__name__)


def micro_step():
    """Forward, backward, step: the division, the returned loss, the counters, at every stage."""
    for stage in range(4):
        engine = start(stage, gradient_accumulation_steps=2)[0]
        loss = engine(batch())
        expect(torch.equal(loss, engine.forward(batch())) and loss.shape == (2, 2))
        loss = loss.pow(2).mean()
        returned = engine.backward(loss)
        expect(abs(returned.item() - loss.item() / 2) < 1e-7 and returned.requires_grad)
        expect(engine.step() is None and engine.micro_steps == 1 and engine.global_steps == 0)
        loss = engine(batch(1)).pow(2).mean()
        expect(engine.backward(loss, scale_wrt_gas=False).item() == loss.item())
        engine.step()
        expect(engine.global_steps == 1 and engine.global_samples == 2 * 2 * SIZE and engine.was_step_applied())
        raised(AssertionError, lambda engine=engine: engine.backward(engine(batch())), "one number")
        loss = engine(batch()).mean()
        engine.backward(loss, retain_graph=True)
        engine.backward(loss)


def step_arguments():
    model = net()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    seen = []

    class Scheduler:
        def step(self, increment=1):
            seen.append(increment)

    engine = start(2, model, optimizer=inner, lr_scheduler=Scheduler())[0]
    engine.backward(engine(batch()).mean())
    engine.step(lr_kwargs={"increment": 7})
    expect(seen == [7], seen)


def module():
    model = net()
    engine = start(1, model)[0]
    expect(engine.module is model)
    model.said = "through"
    expect(engine.said == "through")
    engine.anything = 5
    expect(engine.anything == 5)


def modes():
    engine = start(0)[0]
    expect(engine.eval() is None and not engine.module.training and engine.train() is None and engine.module.training)
    engine.train(False)
    expect(not engine.module.training)


def parameters():
    engine = start(3)[0]
    expect([n for n, _ in engine.named_parameters()] == ["module." + n for n, _ in engine.module.named_parameters()])
    expect(list(engine.parameters()) == list(engine.module.parameters()) and list(engine.modules())[0] is engine)


def checkpoints():
    import inspect
    folder = os.path.join(FOLDER, "checkpoints")
    for stage in range(4):
        engine = start(stage)[0]
        expect("exclude_frozen_parameters" in inspect.signature(engine.save_checkpoint).parameters)
        found = engine.load_checkpoint(os.path.join(FOLDER, "nowhere"))
        expect(found == (None, None), found)
        train(engine, 2)
        where = os.path.join(folder, str(stage))
        expect(engine.save_checkpoint(where, client_state={"epoch": 3, "text": "a"}) is True)
        expect(os.path.isdir(os.path.join(where, "global_step2")))
        with open(os.path.join(where, "latest"), encoding="utf-8") as file:
            expect(file.read().strip() == "global_step2")
        engine.save_checkpoint(where, 7, {"epoch": 4}, False)
        expect(os.path.isdir(os.path.join(where, "7")))
        wanted = train(engine, 2, 2)
        again = start(stage)[0]
        path, client = again.load_checkpoint(load_dir=where)
        expect(path is not None and client["epoch"] == 3 and client["text"] == "a" and again.global_steps == 2)
        expect(train(again, 2, 2) == wanted, stage)
        expect(again.load_checkpoint(where, tag=7)[1]["epoch"] == 4)
        fresh = start(stage)[0]
        fresh.load_checkpoint(where, load_module_only=True)
        expect(fresh.global_steps == 0 and train(fresh, 1, 2)[0] == wanted[0])
        raised(AssertionError, lambda again=again, where=where: again.load_checkpoint(where, tag="missing"), "missing")
        raised(ValueError, lambda again=again: again.save_checkpoint(""), "empty")
        raised(ValueError, lambda again=again, where=where: again.save_checkpoint(where, client_state={"module": 1}), "module")
        raised(NotImplementedError, lambda again=again, where=where: again.load_checkpoint(where, custom_load_fn=print),
               "custom_load_fn")


def returned_things():
    model = net()
    inner = torch.optim.SGD([{"params": [model[0].weight], "lr": 0.5, "lr_scale": 0.1}, {"params": list(model[2].parameters())}],
                            lr=0.2)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    for stage in (2,):
        engine, optimizer, loader, found = start(stage, model, optimizer=inner, lr_scheduler=scheduler,
                                                 training_data=[torch.ones(4)] * 8)
        expect(engine.optimizer is optimizer and engine.lr_scheduler is scheduler is found)
        expect(engine.training_dataloader is loader and len(loader) == 2 and optimizer.param_groups is inner.param_groups)
        expect(optimizer.param_groups[0]["lr_scale"] == 0.1)
        train(engine)
        expect(engine.get_lr() == [0.25, 0.1] == found.get_last_lr(), engine.get_lr())
        before = model[0].weight.detach().clone()
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        train(engine)
        expect(torch.equal(before, model[0].weight), "a rate written into a group was not read")
        expect(optimizer.overflow is False and optimizer.loss_scale == 1.0 == optimizer.cur_scale)
        optimizer.zero_grad(set_to_none=True)
        optimizer.load_state_dict(optimizer.state_dict())
    seen = []
    engine = start(1, model2 := net(), optimizer=torch.optim.AdamW(model2.parameters(), lr=0.1),
                   lr_scheduler=lambda given: seen.append(given) or torch.optim.lr_scheduler.LambdaLR(given, lambda k: 1.0))[0]
    expect(type(seen[0]) is torch.optim.AdamW and engine.lr_scheduler.optimizer is seen[0])


def gradients_set():
    engine = start(1)[0]
    engine.backward(engine(batch()).mean())
    expect(engine.zero_grad() is None and all(p.grad is None for p in engine.parameters()))
    norm = torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)
    expect(float(norm) == 0.0)
    engine.step()


def sizes():
    engine = start(1, gradient_accumulation_steps=3)[0]
    expect((engine.gradient_accumulation_steps(), engine.train_micro_batch_size_per_gpu(), engine.train_batch_size()) == (3, 2, 12))
    engine.set_train_batch_size(8)
    expect(engine.gradient_accumulation_steps() == 2 and engine.train_batch_size() == 8)
    raised(ValueError, lambda: engine.set_train_batch_size(7), "7")


def boundaries():
    for stage in range(4):
        engine = start(stage, gradient_accumulation_steps=2)[0]
        seen = []
        for micro in range(4):
            engine.backward(engine(batch(micro)).mean())
            seen.append(engine.is_gradient_accumulation_boundary())
            engine.step()
        expect(seen == [False, True, False, True] and engine.global_steps == 2)
        for flag in (False, False, True):
            engine.set_gradient_accumulation_boundary(is_boundary=flag)
            engine.backward(engine(batch()).mean())
            expect(engine.is_gradient_accumulation_boundary() is flag)
            if flag:
                engine.step()
        expect(engine.global_steps == 3)


def norms():
    for stage in range(4):
        engine = start(stage)[0]
        expect(engine.get_global_grad_norm() is None)
        train(engine)
        norm = engine.get_global_grad_norm()
        plain = net()
        for rank in range(SIZE):
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(rank))
            (plain(x).pow(2).mean() / SIZE).backward()
        wanted = float(torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e9))
        expect(isinstance(norm, float) and abs(norm - wanted) < 1e-5 * wanted, stage, norm, wanted)


def rates():
    engine = start(1)[0]
    expect(engine.get_lr() == [0.01] and engine.get_mom() == [(0.9, 0.999)] and engine.get_type() == ["adamw"], engine.get_mom())


def applied():
    engine = start(2, fp16={"enabled": True, "loss_scale": 0, "initial_scale_power": 4, "hysteresis": 1})[0]
    x = batch().half()
    engine.backward(engine(x).float().mean() * float("inf"))
    engine.step()
    expect(not engine.was_step_applied() and engine.optimizer.overflow and engine.skipped_steps == 1 == engine.global_steps)
    expect(engine.optimizer.loss_scale == 8.0, engine.optimizer.loss_scale)
    engine.backward(engine(x).float().mean())
    engine.step()
    expect(engine.was_step_applied() and not engine.optimizer.overflow)


def counters():
    engine = start(1, gradient_accumulation_steps=2)[0]
    train(engine, 3)
    expect((engine.micro_steps, engine.global_steps, engine.global_samples, engine.skipped_steps) == (3, 1, 8, 0))
    engine.micro_steps = 0
    expect(not engine.is_gradient_accumulation_boundary())
    engine.micro_steps += 1
    engine.global_steps = engine.global_samples = engine.skipped_steps = 40
    expect(engine.is_gradient_accumulation_boundary())
    train(engine)
    expect(engine.global_steps == 41)


def precision():
    expect(start(1, bf16={"enabled": True})[0].bfloat16_enabled() and not start(1)[0].bfloat16_enabled())
    expect(start(1, fp16={"enabled": True})[0].fp16_enabled() and not start(1)[0].fp16_enabled())


def places():
    engine = start(1)[0]
    expect((engine.global_rank, engine.local_rank, engine.world_size, engine.dp_world_size) == (RANK, RANK, SIZE, SIZE))
    expect(engine.device == torch.device("cpu"))


def stages():
    for stage in range(4):
        engine = start(stage)[0]
        expect(engine.zero_optimization() == (stage > 0) and engine.zero_optimization_stage() == stage)
        expect(engine.zero_optimization_partition_weights() == (stage == 3))


def whole_weights():
    engine = start(3, zero_optimization={"stage": 3, "stage3_gather_16bit_weights_on_model_save": True})[0]
    expect(engine.zero_gather_16bit_weights_on_model_save() is True)
    for call in (engine._zero3_consolidated_16bit_state_dict, engine._consolidated_16bit_state_dict):
        state = call()
        expect((state is None) == (RANK != 0))
        expect(state is None or all(torch.equal(state[k], v) for k, v in net().state_dict().items()))
    raised(ValueError, start(2)[0]._zero3_consolidated_16bit_state_dict, "stage 2")
    expect(engine.save_16bit_model(FOLDER, "whole.bin") is True)
    torch.distributed.barrier()
    expect(torch.equal(torch.load(os.path.join(FOLDER, "whole.bin"))["0.weight"], net()[0].weight))
    closed = start(3)[0]
    expect(closed.save_16bit_model(FOLDER, "never.bin") is False and not os.path.exists(os.path.join(FOLDER, "never.bin")))
    expect(not closed.zero_gather_16bit_weights_on_model_save())


def state_of_module():
    engine = start(2)[0]
    expect(list(engine.module_state_dict()) == list(net().state_dict()))
    engine.module[0].weight.requires_grad_(False)
    expect("0.weight" not in engine.module_state_dict(exclude_frozen_parameters=True))


def config():
    given = start(2)[0].config
    expect(given["zero_optimization"]["stage"] == 2 and given.get("zero_optimization"))
    engine = start(1, steps_per_print=5, wall_clock_breakdown=True)[0]
    expect(engine.optimizer_name() == "adamw" and engine.steps_per_print() == 5 and engine.wall_clock_breakdown() is True)
    expect(start(1, steps_per_print=float("inf"))[0].steps_per_print() == float("inf"))


def compiled():
    engine = start(2)[0]
    plain = train(start(2)[0], 2)
    engine.compile(backend="eager")
    found = train(engine, 2)
    expect(engine.is_compiled and max(abs(a - b) for a, b in zip(plain, found)) < 1e-6)
    raised(NotImplementedError, start(3)[0].compile, "stage 3")


def ends():
    for stage in (2, 3):
        model = net()
        engine = start(stage, model)[0]
        train(engine)
        expect(engine.destroy() is None)
        if stage == 2:
            expect(bool(torch.isfinite(model[0].weight).all()))


def offloads():
    engine = start(2)[0]
    wanted = train(start(2)[0], 3)
    found = train(engine)
    engine.offload_states(device="cpu", pin_memory=True, non_blocking=False)
    engine.reload_states(non_blocking=False)
    engine.empty_partition_cache()
    expect(found + train(engine, 2, 1) == wanted)


def unsynchronised():
    for stage in (0, 1):
        engine = start(stage, gradient_accumulation_steps=2)[0]
        with engine.no_sync():
            engine.backward(engine(batch()).mean())
            raised(AssertionError, engine.step, "no_sync")
        engine.step()
        engine.backward(engine(batch(1)).mean())
        engine.allreduce_gradients()
        engine.step()
        expect(engine.global_steps == 1)

    def inside():
        with start(2)[0].no_sync():
            pass
    raised(AssertionError, inside, "stage 2")


def refused_calls():
    engine = start(1)[0]
    for name in ("train_batch", "eval_batch", "set_batch_fn", "set_data_post_process_func", "_create_checkpoint_file",
                 "_save_checkpoint"):
        raised(NotImplementedError, getattr(engine, name), name, "is not in libzero")
    for name in ("grid", "random_ltd_scheduler"):
        raised(AttributeError, lambda name=name: getattr(engine, name), name)
        expect(not hasattr(engine, name))
    engine.tput_timer.update_epoch_count()
    expect(engine.tput_timer.epoch_count == 1 and engine.mpu is None)
    engine.mpu = "a script's own"
    expect(engine.mpu == "a script's own")


TABLE = {
    "`__call__`, `forward`": (micro_step, "__call__ forward", ""),
    "`backward(loss, …)`": (micro_step, "backward", ""),
    "`step(lr_kwargs=None)`": (step_arguments, "step", ""),
    "`module`": (module, "module", ""),
    "`train([mode])`, `eval()`": (modes, "train eval", ""),
    "`parameters()`, `named_parameters()`": (parameters, "parameters named_parameters", ""),
    "`save_checkpoint(save_dir, tag=None, client_state={}, save_latest=True, exclude_frozen_parameters=False)`": (
        checkpoints, "save_checkpoint", ""),
    "`load_checkpoint(load_dir, tag=None, load_module_strict=True, load_optimizer_states=True, load_lr_scheduler_states=True, "
    "load_module_only=False, custom_load_fn=None)`": (checkpoints, "load_checkpoint", ""),
    "`optimizer`": (returned_things, "optimizer", ""),
    "`lr_scheduler`": (returned_things, "lr_scheduler", ""),
    "`training_dataloader`": (returned_things, "training_dataloader", ""),
    "`zero_grad()`": (gradients_set, "zero_grad", ""),
    "`gradient_accumulation_steps()`, `train_micro_batch_size_per_gpu()`, `train_batch_size()`": (
        sizes, "gradient_accumulation_steps train_micro_batch_size_per_gpu train_batch_size", ""),
    "`set_train_batch_size(B)`": (sizes, "set_train_batch_size", ""),
    "`is_gradient_accumulation_boundary()`": (boundaries, "is_gradient_accumulation_boundary", ""),
    "`set_gradient_accumulation_boundary(is_boundary)`": (boundaries, "set_gradient_accumulation_boundary", ""),
    "`get_global_grad_norm()`": (norms, "get_global_grad_norm", ""),
    "`get_lr()`, `get_mom()`, `get_type()`": (rates, "get_lr get_mom get_type", ""),
    "`was_step_applied()`": (applied, "was_step_applied", ""),
    "`micro_steps`, `global_steps`, `global_samples`, `skipped_steps`": (
        counters, "micro_steps global_steps global_samples skipped_steps", ""),
    "`fp16_enabled()`, `bfloat16_enabled()`": (precision, "fp16_enabled bfloat16_enabled", ""),
    "`local_rank`, `global_rank`, `world_size`, `dp_world_size`, `device`": (
        places, "local_rank global_rank world_size dp_world_size device", ""),
    "`zero_optimization()`, `zero_optimization_stage()`, `zero_optimization_partition_weights()`": (
        stages, "zero_optimization zero_optimization_stage zero_optimization_partition_weights", ""),
    "`zero_gather_16bit_weights_on_model_save()`": (whole_weights, "zero_gather_16bit_weights_on_model_save", ""),
    "`_zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=False)`": (
        whole_weights, "_zero3_consolidated_16bit_state_dict", ""),
    "`_consolidated_16bit_state_dict()`": (whole_weights, "_consolidated_16bit_state_dict", ""),
    '`save_16bit_model(dir, name="pytorch_model.bin")`': (whole_weights, "save_16bit_model", ""),
    "`module_state_dict(exclude_frozen_parameters=)`": (state_of_module, "module_state_dict", ""),
    "`config`": (config, "config", ""),
    "`optimizer_name()`, `steps_per_print()`, `wall_clock_breakdown()`": (
        config, "optimizer_name steps_per_print wall_clock_breakdown", ""),
    "`compile(backend=, compile_kwargs=)`": (compiled, "compile", ""),
    "`destroy()`": (ends, "destroy", ""),
    "`offload_states(include=, device=, pin_memory=, non_blocking=)`, `reload_states(non_blocking=)`, `empty_partition_cache()`": (
        offloads, "offload_states reload_states empty_partition_cache", ""),
    "`no_sync()`": (unsynchronised, "no_sync", ""),
    "`allreduce_gradients()`": (unsynchronised, "allreduce_gradients", ""),
    "`train_batch(data_iter=)`, `eval_batch`, `grid`, `set_batch_fn`": (
        refused_calls, "", "train_batch eval_batch grid set_batch_fn"),
    "`tput_timer`, `random_ltd_scheduler`, `set_data_post_process_func`, `mpu`": (
        refused_calls, "tput_timer mpu", "random_ltd_scheduler set_data_post_process_func"),
    "`_create_checkpoint_file`, `_save_checkpoint`": (refused_calls, "", "_create_checkpoint_file _save_checkpoint"),
}
