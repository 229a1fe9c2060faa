"""More cases of tests/torch/torch_engine.py: parameters on loan, shared, unused; exceptions."""
# SPDX-License-Identifier: BSD-3-Clause
import sys

import libzero.torch as deepspeed
import torch

# The program that runs the cases is this module's elder.
cases = sys.modules["__main__"]
RANK = cases.RANK
expect, raised, start, net, data, train, whole = (
    cases.expect, cases.raised, cases.start, cases.net, cases.data, cases.train, cases.whole)


def case_stage_3_parameters_are_honest_between_loans():
    model = net()
    weight = model[0].weight
    before = weight.detach().clone()
    engine = start(model, 3)[0]
    expect(engine.module[0].weight is weight and weight.ds_shape == (5, 6) and weight.ds_numel == 30)
    expect(weight.ds_status == deepspeed.ZeroParamStatus.NOT_AVAILABLE and weight.shape == (5, 6))
    expect(bool(torch.isnan(weight).all()), "values of a released parameter could be read")
    raised(RuntimeError, lambda: weight.data.add_(1.0), "single memory location")
    weight.data.zero_()  # torch lets this pass
    engine.backward(engine(data(0)).mean())
    raised(RuntimeError, engine.step, "0.weight", "GatheredParameters")
    engine.step()
    with deepspeed.zero.GatheredParameters(weight):
        before = weight.detach().clone()
    with deepspeed.zero.GatheredParameters(weight):
        expect(torch.equal(weight, before) and weight.ds_status == deepspeed.ZeroParamStatus.AVAILABLE)
    with deepspeed.zero.GatheredParameters([weight, model[0].bias], modifier_rank=0):
        with torch.no_grad():
            weight.fill_(float(RANK + 3))
    with deepspeed.zero.GatheredParameters(weight):
        expect(bool((weight == 3.0).all()))

    def lost():
        with deepspeed.zero.GatheredParameters(weight), torch.no_grad():
            weight.fill_(1.0)

    raised(RuntimeError, lost, "modifier_rank")
    expect(bool((deepspeed.utils.safe_get_full_fp32_param(weight) == 3.0).all()))
    state = engine._zero3_consolidated_16bit_state_dict()
    expect((state is None) == (RANK != 0) and (state is None or bool((state["0.weight"] == 3.0).all())))
    train(engine, 1)
    moments = deepspeed.utils.safe_get_full_optimizer_state(weight, "exp_avg")
    expect(moments.shape == (5, 6) and float(moments.abs().sum()) > 0)


class Asks(torch.nn.Module):
    """Fails on request; returns its parameter itself; saves a product of two modules' parameters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.a, self.b = torch.nn.Linear(6, 6, bias=False), torch.nn.Linear(6, 6, bias=False)
        self.gate = Gate()

    def forward(self, x, fail=False):
        x = x * self.gate()[None]
        if fail:
            raise KeyError("asked for")
        return self.a(x) @ (self.a.weight * self.b.weight)


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.values = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self):
        return self.values


def case_stage_3_serves_modules_that_look_at_each_others_parameters():
    found = []
    for stage in (1, 3):
        engine = start(Asks(), stage)[0]
        for step in range(4):
            raised(KeyError, lambda engine=engine, step=step: engine(data(step), fail=True), "asked for")
            with torch.no_grad():
                engine(data(step))
            engine.backward(engine(data(step)).pow(2).mean())
            engine.step()
        found.append(whole(engine))
    expect(all(torch.equal(found[0][n], found[1][n]) for n in found[0]))
    expect(all(not torch.equal(found[0][n], p) for n, p in Asks().named_parameters()))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.words, self.head = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.words(tokens)).logsumexp(-1).mean()


def case_a_tied_parameter_is_trained_once_and_saved_under_both_names():
    tokens = torch.arange(4).reshape(2, 2)
    plain = Tied()
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    cases.reference(plain, theirs, 5, lambda m, step, rank: m((tokens + step + rank) % 11))
    for stage in range(4):
        engine = start(Tied(), stage)[0]
        for step in range(5):
            engine.backward(engine((tokens + step + RANK) % 11))
            engine.step()
        cases.same(engine, plain, within=1e-5)
        expect(engine.module.head.weight is engine.module.words.weight)
        expect({"words.weight", "head.weight"} <= set(engine.runtime.names()))


def case_an_unused_parameter_of_one_rank_gets_the_others_gradient():
    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.parts = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(8))

        def forward(self, x, rank):
            for index, part in enumerate(self.parts):
                if not (rank == 1 and index in (2, 7)):
                    x = torch.tanh(part(x)) + x
            return x.pow(2).mean()

    plain = Branches()
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    cases.reference(plain, theirs, 4, lambda m, step, rank: m(data(step, rank), rank))
    for stage in range(3):  # stage 3: loans come in one order on all ranks
        engine = start(Branches(), stage)[0]
        for step in range(4):
            engine.backward(engine(data(step), RANK))
            engine.step()
        cases.same(engine, plain, within=1e-5)


class Stumbles(torch.autograd.Function):
    @staticmethod
    def forward(_, x, stumble):
        _.stumble = stumble
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if context.stumble:
            raise OSError("stumbled")
        return gradient, None


def case_after_an_exception_in_backward_training_goes_on():
    found = []
    for stage in range(4):
        engine, model = start(net(), stage)[0], net()
        for step in range(3):
            hidden = Stumbles.apply(engine.module[0](data(step)), True)
            raised(OSError, lambda hidden=hidden, engine=engine: engine.backward(
                engine.module[2](hidden).mean() + engine.module[2](hidden).sum()), "stumbled")
            engine.backward(engine(data(step)).pow(2).mean())
            engine.step()
        found.append(whole(engine))
        cases.reference(model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1), 3,
                        lambda m, step, rank: m(data(step, rank)).pow(2).mean())
        cases.same(engine, model, within=1e-5)


class Again(torch.autograd.Function):
    """A script's own recomputation: nothing of torch.utils.checkpoint."""

    @staticmethod
    def forward(context, x, module):
        context.module = module
        context.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(context, gradient):
        x = context.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            context.module(x).backward(gradient)
        return x.grad, None


class Recomputing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return Again.apply(x.requires_grad_(), self.inner)


def case_a_recomputation_of_the_scripts_own_changes_nothing_or_is_refused():
    found = []
    for stage in (2, 3):
        engine = start(Recomputing(), stage)[0]
        for step in range(3):
            loss = engine(data(step)).square().mean()
            if stage == 3 and not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
                raised(RuntimeError, lambda loss=loss: engine.backward(loss), "torch.utils.checkpoint", torch.__version__)
                return
            engine.backward(loss)
            engine.step()
        found.append(whole(engine))
    expect(all(torch.equal(found[0][n], found[1][n]) for n in found[0]), found)
    expect(any(not torch.equal(v, net().state_dict()[n[6:]]) for n, v in found[0].items()), "nothing was trained")
