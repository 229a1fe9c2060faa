"""Five programs' call patterns (section 6 of the page, 1 to 5), on two ranks under the name deepspeed. Expected values
are plain torch's, with every rank's data in one process."""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import copy
import json
import os

import torch
from program_help import FOLDER, RANK, SIZE, alike, data, expect, main, near, net, plain_step, whole, zero

import deepspeed


def loss_of(model, step, rank=RANK):
    inputs, wanted = data(step, rank)
    return (model(inputs) - wanted).pow(2).mean()


def hello():
    """A dict, all but the engine dropped, load first, save every second step with the tag left to the engine."""
    config = zero(1, optimizer={"type": "Adam", "params": {"lr": 0.01, "adam_w_mode": False}})
    folder = os.path.join(FOLDER, "hello")

    def life(last):
        model = net()
        engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        _, client = engine.load_checkpoint(load_dir=folder)
        first = client["checkpoint_step"] + 1 if client is not None else 0
        said = []
        for step in range(first, last):
            loss = engine(data(step)[0]).sub(data(step)[1]).pow(2).mean()
            engine.backward(loss)
            engine.step()
            said.append(loss.item())
            if step % 2 == 1:
                engine.save_checkpoint(save_dir=folder, client_state={"checkpoint_step": step})
        return first, said, model

    first, early, _ = life(3)  # the third step is after the save, and lost
    expect(first == 0)
    first, late, model = life(6)
    expect(first == 2, "resumed at", first)
    plain = net()
    optimizer, wanted = torch.optim.Adam(plain.parameters(), 0.01), []
    for step in range(6):
        wanted.append(loss_of(plain, step).item())
        plain_step(plain, optimizer, [loss_of(plain, step, rank) for rank in range(SIZE)])

    for found, right in zip(early[:2] + late, wanted):
        near(found, right)
    expect(early[2] == late[0], "the step made twice", early, late)
    alike(model, plain)


def cifar():
    """Options by argparse, a filter of parameters, the engine's own loader, inputs cast as the engine says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = deepspeed.add_config_arguments(parser).parse_args(["--deepspeed"])
    deepspeed.init_distributed()
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    model[0].bias.requires_grad_(False)
    frozen = model[0].bias.detach().clone()
    parameters = filter(lambda p: p.requires_grad, model.parameters())
    inputs = torch.randn(40, 4)
    dataset = [(row, int(row.sum() > 0), number) for number, row in enumerate(inputs)]
    config = zero(2, train_micro_batch_size_per_gpu=4, bf16={"enabled": True},
                  optimizer={"type": "Adam", "params": {"lr": 0.02}})
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=parameters, training_data=dataset,
                                                config=config)
    expect(args.local_rank == RANK, "local_rank is", args.local_rank)
    device = deepspeed.get_accelerator().device_name(engine.local_rank)
    dtype = torch.bfloat16 if engine.bfloat16_enabled() else torch.half if engine.fp16_enabled() else None
    expect(dtype is torch.bfloat16 and len(loader) == 5, len(loader))
    losses = []
    for _ in range(30):
        seen = []
        for rows, labels, numbers in loader:
            seen += numbers.tolist()
            loss = torch.nn.functional.cross_entropy(engine(rows.to(device).to(dtype)).float(), labels.to(device))
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        everybody = [None] * SIZE
        torch.distributed.all_gather_object(everybody, seen)
        expect(sorted(sum(everybody, [])) == list(range(40)), "not each sample once")
    expect(torch.equal(model[0].bias.float(), frozen.bfloat16().float()), "what was filtered out was trained")
    engine.eval()
    with torch.no_grad():
        right = (engine(inputs.to(dtype)).argmax(1) == torch.tensor([label for _, label, _ in dataset])).float().mean()
    engine.train()
    expect(right >= 0.9 and losses[-1] < 0.5 * losses[0], right, losses[0], losses[-1])


def bing_bert():
    """A config file by arguments, settings read back from the engine, the rate written before a boundary's step."""
    path = os.path.join(FOLDER, "bert-%d.json" % RANK)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(zero(2, gradient_accumulation_steps=2, gradient_clipping=0.5,
                       optimizer={"type": "Adam", "params": {"lr": 1.0, "weight_decay": 0.1}}), file)
    args = argparse.Namespace(deepspeed=True, deepspeed_config=path, local_rank=RANK)
    model = net()
    groups = [{"params": [p for n, p in model.named_parameters() if "bias" not in n], "weight_decay": 0.1},
              {"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0.0}]
    engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=groups)
    args.micro_batch, args.accumulation = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    args.fp16, args.device, args.optimizer = engine.fp16_enabled(), engine.device, engine.optimizer_name()
    expect((args.micro_batch, args.accumulation, args.fp16, args.optimizer) == (2, 2, False, "adam"), args)
    expect(engine.local_rank == RANK)
    plain = net()
    other = torch.optim.AdamW([{"params": [plain[0].weight, plain[2].weight], "weight_decay": 0.1},
                               {"params": [plain[0].bias, plain[2].bias], "weight_decay": 0.0}], lr=1.0)
    for micro in range(8):
        engine.backward(loss_of(lambda x: engine.forward(x), micro))
        if engine.is_gradient_accumulation_boundary():
            for group in optimizer.param_groups + other.param_groups:
                group["lr"] = 0.01 / (1 + micro)
            engine.step()
            norm = plain_step(plain, other, [loss_of(plain, m, rank) for m in (micro - 1, micro) for rank in range(SIZE)], 0.5)
            near(engine.get_global_grad_norm(), norm)
        else:
            engine.step()
    expect(engine.global_steps == 4 and engine.micro_steps == 8)
    alike(model, plain)
    expect(engine.save_checkpoint(os.path.join(FOLDER, "bert"), "epoch3", {"epoch": 3}) is True)
    folder, client = engine.load_checkpoint(os.path.join(FOLDER, "bert"), "epoch3")
    expect(folder and client["epoch"] == 3)


def gan_losses(discriminator, generator, step, rank):
    """Real, fake for the discriminator; then the generator's, made when it is asked for."""
    noise = torch.randn(2, 3, generator=torch.Generator().manual_seed(7000 + 10 * step + rank))
    fake = generator(noise)
    real = discriminator(data(step, rank)[0]).sub(1.0).pow(2).mean()
    return real, discriminator(fake.detach()).pow(2).mean(), lambda: discriminator(fake).sub(1.0).pow(2).mean()


def gan_nets():
    torch.manual_seed(3)
    return (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)),
            torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)))


def gan_in_plain_torch(steps):
    nets = gan_nets()
    first, second = (torch.optim.Adam(one.parameters(), 0.01, betas=(0.5, 0.999)) for one in nets)
    for step in range(steps):
        nets[0].zero_grad()
        made = [gan_losses(*nets, step, rank) for rank in range(SIZE)]
        for real, fake, _ in made:
            (real / SIZE).backward()
            (fake / SIZE).backward()
        first.step()
        nets[1].zero_grad()
        for _, _, again in made:
            (again() / SIZE).backward()  # into the discriminator too: its zero_grad is to come
        second.step()
    return nets


def gan():
    """Two Adams, two engines, forward through the bare networks; two backwards of the one before its step."""
    wanted = gan_in_plain_torch(4)
    for stage in range(4):
        nets = gan_nets()
        first, second = (torch.optim.Adam(one.parameters(), 0.01, betas=(0.5, 0.999)) for one in nets)
        config = zero(stage)
        discriminates = deepspeed.initialize(model=nets[0], optimizer=first, config=copy.deepcopy(config))[0]
        generates = deepspeed.initialize(model=nets[1], optimizer=second, config=config)[0]
        for step in range(4):
            nets[0].zero_grad()
            real, fake, again = gan_losses(*nets, step, RANK)
            discriminates.backward(real)
            discriminates.backward(fake)
            discriminates.step()
            nets[1].zero_grad()
            generates.backward(again())
            generates.step()
        for found, right in zip(nets, wanted):
            alike(found, right)
    joint()


def joint():
    """One loss through two engines' networks: the other's gradient waits in .grad, and its step takes it."""
    for stage in (1, 2, 3):
        nets, plain = (net(1), net(2, out=4)), (net(1), net(2, out=4))
        engines = [deepspeed.initialize(model=one, optimizer=torch.optim.AdamW(one.parameters(), lr=0.01),
                                        config=zero(stage))[0] for one in nets]
        others = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in plain]
        for step in range(3):
            engines[0].backward(loss_of(lambda x: engines[0](engines[1](x)), step))
            engines[0].step()
            engines[1].step()
            for one in others:
                one.zero_grad()
            for rank in range(SIZE):
                (loss_of(lambda x: plain[0](plain[1](x)), step, rank) / SIZE).backward()
            for one in others:
                one.step()
            for found, right in zip(nets, plain):
                alike(found, right)


class Adapted(torch.nn.Module):
    """A layer and its low-rank addition, which is added in for generation and taken out again."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4) * 0.5)
        self.right, self.left = torch.nn.Parameter(torch.zeros(4, 2)), torch.nn.Parameter(torch.randn(2, 4))
        self.fused = False

    def forward(self, x):
        return x @ self.weight + (0 if self.fused else (x @ self.right) @ self.left)


def adapted(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(Adapted(), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def gathered(parameters):
    status = deepspeed.runtime.zero.partition_parameters.ZeroParamStatus
    return [p for p in parameters if hasattr(p, "ds_id") and p.ds_status == status.NOT_AVAILABLE]


def fuse(module, sign):
    with deepspeed.zero.GatheredParameters([module.weight, module.right, module.left], modifier_rank=0):
        module.weight.data.add_(module.right.data @ module.left.data, alpha=sign)
    module.fused = sign > 0


def rlhf():
    """Five engines, two of them trained; the average of the actor, its additions added in, their overflows compared."""
    train = zero(3, optimizer={"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.0}})
    actor_net, average_net = adapted(1), adapted(1)
    actor = deepspeed.initialize(model=actor_net, config=train)[0]
    reference = deepspeed.initialize(model=adapted(1), config=zero(3))[0]
    average = deepspeed.initialize(model=average_net, config=zero(3))[0]
    critic = deepspeed.initialize(model=net(2), config=copy.deepcopy(train))[0]
    reward = deepspeed.initialize(model=net(3), config=zero(0))[0]
    reference.eval(), average.eval(), reward.eval()
    start, beta = whole(actor_net), 0.9
    expected = {name: value.clone() for name, value in start.items()}
    for step in range(3):
        x, y = data(step)
        fuse(actor.module[0], 1)
        with torch.no_grad():
            actor.eval()
            drawn = actor(x)
            before, worth = reference(x), reward(x)
        fuse(actor.module[0], -1)
        actor.train(), critic.train()
        near((actor(x) - drawn).abs().max().item(), 0.0)  # added in or not, the same
        actor.backward((actor(x) - before - 0.1 * worth).pow(2).mean() + (actor(x) - y).pow(2).mean())
        critic.backward((critic(x) - worth).pow(2).mean())
        actor.step()
        critic.step()
        expect(actor.optimizer.overflow is False and critic.optimizer.overflow is False)
        for (name, value) in whole(actor_net).items():
            expected[name] = beta * expected[name] + (1 - beta) * value
        for one, mean in zip(actor.module.parameters(), average.module.parameters()):
            with deepspeed.zero.GatheredParameters(gathered([one, mean]), modifier_rank=0):
                if RANK == 0:
                    mean.data.copy_(torch.lerp(one.data, mean.data, beta))
    moved = whole(actor_net)
    expect(all(not torch.equal(moved[name], start[name]) for name in ("0.right", "2.weight")), "the actor stood still")
    for name, value in whole(average_net).items():
        expect((value - expected[name]).abs().max() < 1e-5, name)
    expect(all(torch.equal(value, start[name]) for name, value in whole(reference.module).items()), "the reference moved")


main({"hello": hello, "cifar": cifar, "bing_bert": bing_bert, "gan": gan, "rlhf": rlhf})
