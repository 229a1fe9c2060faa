"""The cases of tests/torch/torch_engine.py, run on two ranks: each says OK or why not on rank 0's behalf."""
# SPDX-License-Identifier: BSD-3-Clause
import logging
import os
import sys
import traceback

import libzero
import libzero.torch as deepspeed
import torch
import torch.utils.checkpoint

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
FOLDER = sys.argv[1]


def expect(condition, *facts):
    if not condition:
        raise AssertionError(" ".join(map(str, facts)))


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            expect(word in str(error), "%r is not in: %s" % (word, error))
        return
    raise AssertionError("no %s" % kind.__name__)


def settings(stage, **more):
    made = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage},
            "libzero": {"comm_timeout_seconds": 30},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}}
    made.update(more)
    return made


def start(model, stage, optimizer=None, **more):
    return deepspeed.initialize(model=model, optimizer=optimizer, config=settings(stage, **more))


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def data(step, rank=None):
    generator = torch.Generator().manual_seed(100 + 10 * step + (RANK if rank is None else rank))
    return torch.randn(2, 6, generator=generator)


def whole(engine):
    """Every value of an engine's module by name."""
    return {n: engine.read(p, torch.empty(engine.registry.shapes[p], dtype=p.dtype)).float()
            for n, p in engine.module.named_parameters()}


def reference(model, optimizer, steps, loss_of, accumulation=1, clip=0.0, scheduler=None):
    """What all ranks together do, in plain torch: the mean over ranks, in one process."""
    losses = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        own = 0.0
        for micro in range(accumulation):
            for rank in range(SIZE):
                loss = loss_of(model, step * accumulation + micro, rank)
                (loss / (SIZE * accumulation)).backward()
                own = loss.item() if rank == RANK else own
        if clip:
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(own)
    return losses


def same(engine, model, within=1e-6):
    values = whole(engine)
    for name, parameter in model.named_parameters():
        found, wanted = values[name], parameter.detach().float()
        error = float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))
        expect(error <= within, "%s differs by %g" % (name, error))


def train(engine, steps, micro_loss=lambda model, x: model(x).pow(2).mean()):
    losses = []
    for step in range(steps):
        loss = micro_loss(engine, data(step))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


# ---- prescribed gradients --------------------------------------------------------------------------------


class Prescribed(torch.nn.Module):
    """The gradient of each parameter is what forward is given. "spare" is in no loss, "still" frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        for name, shape in (("matrix", (7, 5)), ("vector", (13,)), ("scalar", ()), ("cube", (3, 2, 4)), ("spare", (4,)),
                            ("still", (6,))):
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape)))
        self.still.requires_grad_(False)

    def forward(self, gradients):
        return sum((getattr(self, name) * g).sum() for name, g in gradients.items())


def prescribed(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    shapes = {"matrix": (7, 5), "vector": (13,), "scalar": (), "cube": (3, 2, 4)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def two_groups(kind, model, **options):
    first = [model.matrix, model.scalar]
    rest = [model.vector, model.cube, model.spare]
    return kind([{"params": first, "lr": 0.02}, {"params": rest, "weight_decay": 0.0}], lr=0.01, weight_decay=0.1, **options)


def prescribed_case(kind, stage, clip, **options):
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=(mine := Prescribed()), optimizer=(inner := two_groups(kind, mine, **options)),
        lr_scheduler=torch.optim.lr_scheduler.LambdaLR(inner, lambda k: 0.5 + 0.1 * (k % 7)),
        config=settings(stage, gradient_clipping=clip, train_micro_batch_size_per_gpu=1))
    expect(optimizer.param_groups is inner.param_groups)
    for step in range(50):
        engine.backward(engine(prescribed(step, RANK)))
        engine.step()
    plain = Prescribed()
    before = {n: p.detach().clone() for n, p in plain.named_parameters()}
    theirs = two_groups(kind, plain, **options)
    reference(plain, theirs, 50, lambda m, step, rank: m(prescribed(step, rank)), clip=clip,
              scheduler=torch.optim.lr_scheduler.LambdaLR(theirs, lambda k: 0.5 + 0.1 * (k % 7)))
    same(engine, plain)
    values = whole(engine)
    expect(torch.equal(values["spare"], before["spare"]), "the unused parameter moved")
    expect(torch.equal(values["still"], before["still"]), "the frozen parameter moved")
    expect(scheduler.get_last_lr() == optimizer.param_groups[0]["lr"] or len(scheduler.get_last_lr()) == 2)


def case_fifty_steps_with_prescribed_gradients_are_torchs_at_every_stage():
    for stage in range(4):
        prescribed_case(torch.optim.AdamW, stage, 1.0, betas=(0.8, 0.95))


def case_adam_with_l2_and_sgd_with_momentum_are_torchs_too():
    prescribed_case(torch.optim.Adam, 2, 0.0)
    prescribed_case(torch.optim.SGD, 1, 0.5, momentum=0.9, nesterov=True)
    prescribed_case(torch.optim.SGD, 3, 0.0, momentum=0.9, dampening=0.1)


# ---- the whole of it ---------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    """Tied weights used as a function, a parameter of the root's own, a child that is a parameter."""

    def __init__(self, width=16, words=29, length=8, recompute=None):
        super().__init__()
        torch.manual_seed(2)
        self.words = torch.nn.Embedding(words, width)
        self.places = torch.nn.Parameter(0.1 * torch.randn(1, length, width))
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(2))
        self.norm = torch.nn.LayerNorm(width)
        self.recompute = recompute

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places
        for block in self.blocks:
            if self.recompute is not None:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.recompute)
            else:
                x = block(x)
        scores = torch.nn.functional.linear(self.norm(x), self.words.weight)
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def words(step, rank):
    generator = torch.Generator().manual_seed(7000 + 10 * step + rank)
    both = torch.randint(0, 29, (2, 9), generator=generator)
    return both[:, :-1], both[:, 1:]


def transformer_losses(stage, recompute=None, steps=12, accumulation=2, dtype=None):
    model = Transformer(recompute=recompute)
    more = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=inner, config=settings(
        stage, gradient_clipping=0.5, gradient_accumulation_steps=accumulation,
        libzero={"comm_timeout_seconds": 30, "reproducible": "stage"}, **more))
    losses = []
    for step in range(steps):
        for micro in range(accumulation):
            loss = engine(*words(step * accumulation + micro, RANK))
            expect(engine.is_gradient_accumulation_boundary() == (micro == accumulation - 1))
            scaled = engine.backward(loss)
            expect(abs(scaled.item() * accumulation - loss.item()) < 1e-6 * abs(loss.item()) + 1e-12)
            engine.step()
        losses.append(loss.item())
    expect(engine.global_steps == steps and engine.micro_steps == steps * accumulation)
    return losses, whole(engine), engine


def plain_losses(steps=12, accumulation=2):
    plain = Transformer()
    return reference(plain, torch.optim.AdamW(plain.parameters(), lr=3e-3, weight_decay=0.1), steps,
                       lambda m, step, rank: m(*words(step, rank)), accumulation, clip=0.5)


def case_a_transformer_trains_as_in_torch_and_bit_for_bit_alike_at_every_stage():
    wanted = plain_losses()
    found = [transformer_losses(stage) for stage in range(4)]
    for losses, values, _ in found:
        expect(max(abs(a - b) for a, b in zip(losses, wanted)) < 1e-4, losses, wanted)
        expect(losses == found[0][0], "losses differ between stages", losses, found[0][0])
        expect(all(torch.equal(values[n], found[0][1][n]) for n in values), "values differ between stages")
    expect(wanted[-1] < wanted[0], wanted)


def case_recomputation_changes_nothing_at_stage_3():
    plain, values, _ = transformer_losses(3, steps=4)
    for reentrant in (False, True):
        losses, found, _ = transformer_losses(3, recompute=reentrant, steps=4)
        expect(losses == plain, reentrant, losses, plain)
        expect(all(torch.equal(values[n], found[n]) for n in values))


def case_bf16_is_bit_for_bit_alike_at_every_stage_and_near_fp32():
    found = [transformer_losses(stage, steps=5, dtype="bf16") for stage in range(4)]
    wanted = plain_losses(steps=5)
    for losses, values, engine in found:
        expect(engine.bfloat16_enabled() and next(engine.module.parameters()).dtype == torch.bfloat16)
        expect(losses == found[0][0], losses, found[0][0])
        expect(max(abs(a - b) for a, b in zip(losses, wanted)) < 0.1, losses, wanted)


def main():
    failed = 0
    logging.getLogger("libzero").setLevel(logging.CRITICAL)
    deepspeed.init_distributed("gloo")
    wanted = sys.argv[2:]
    for name, function in list(globals().items()):
        if not name.startswith("case_") or (wanted and name[5:] not in wanted):
            continue
        try:
            function()
            print("CASE %d OK %s" % (RANK, name[5:]), flush=True)
        except Exception:  # pylint: disable=broad-except
            print("CASE %d FAILED %s\n%s" % (RANK, name[5:], traceback.format_exc()), flush=True)
            failed += 1
    torch.distributed.destroy_process_group()
    return failed


if __name__ == "__main__":
    import torch_loan_cases
    import torch_more_cases
    for more in (torch_more_cases, torch_loan_cases):
        globals().update({n: f for n, f in vars(more).items() if n.startswith("case_")})
    sys.exit(1 if main() else 0)
