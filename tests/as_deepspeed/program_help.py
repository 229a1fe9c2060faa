"""What the ten programs share: small nets, data of every rank, and the same training in plain torch."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import sys
import traceback

import torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = sys.argv[1]


def expect(condition, *facts):
    if not condition:
        raise AssertionError(" ".join(map(str, facts)) or "not so")


def near(found, wanted, within=1e-5):
    expect(abs(found - wanted) <= within * max(1.0, abs(wanted)), found, "is not", wanted)


def refused(call, *words):
    try:
        call()
    except NotImplementedError as error:
        expect(all(word in str(error) for word in words + ("not in libzero",)), error)
        return
    raise AssertionError("not refused")


def net(seed=1, width=6, out=2):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, out))


def data(step, rank=RANK, rows=2):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 4, generator=generator), torch.randn(rows, 2, generator=generator)


def zero(stage, **more):
    made = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
            "zero_optimization": {"stage": stage}, "libzero": {"comm_timeout_seconds": 60}}
    made.update(more)
    return made


def whole(module):
    """Every value, whatever the stage."""
    import deepspeed
    with deepspeed.zero.GatheredParameters(list(module.parameters())):
        return {name: p.detach().float().clone() for name, p in module.named_parameters()}


def alike(module, plain, within=2e-5):
    values = whole(module)
    for name, parameter in plain.named_parameters():
        error = (values[name] - parameter.detach().float()).abs().max().item()
        expect(error <= within, name, "is off by", error)


def plain_step(model, optimizer, losses, clip=0.0):
    """One update of plain torch from the mean of these losses' gradients."""
    optimizer.zero_grad()
    for loss in losses:
        (loss / len(losses)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or 1e9)
    optimizer.step()
    return float(norm)


def main(programs):
    for name, program in programs.items():
        how = "OK"
        try:
            program()
        except Exception:  # pylint: disable=broad-except
            how = "FAILED"
            print("rank %d: %s\n%s" % (RANK, name, traceback.format_exc()), flush=True)
        ends = [None] * SIZE
        torch.distributed.all_gather_object(ends, how)
        if RANK == 0:
            print("PROGRAM\t%s\t%s" % (name, "OK" if set(ends) == {"OK"} else "FAILED"), flush=True)
