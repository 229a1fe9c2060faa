"""torch's optimizer objects in libzero's words, and the one that a script gets back."""
# SPDX-License-Identifier: BSD-3-Clause
import collections
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

Section = Dict[str, Any]
#: group key -> libzero's name of it; betas are two
_VALUES = {"lr": "lr", "weight_decay": "weight_decay", "eps": "epsilon", "momentum": "momentum"}


class Described(torch.optim.Optimizer):
    """An optimizer in name and values: libzero does the arithmetic. kind is the config's type."""

    kind = ""

    def __init__(self, params: Any, kind: str = "", **defaults: Any):
        self.kind = kind or self.kind
        super().__init__(params, defaults)

    def step(self, closure: Any = None) -> None:
        raise RuntimeError("%s: hand it to initialize(), and call step() of the engine" % type(self).__name__)


class FusedAdam(Described):
    """As deepspeed.ops.adam.FusedAdam is called."""

    kind = "adam"

    def __init__(self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple = (0.9, 0.999),
                 eps: float = 1e-8, adam_w_mode: bool = True, weight_decay: float = 0.0, amsgrad: bool = False,
                 set_grad_none: bool = True):
        super().__init__(params, lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
                         weight_decay=weight_decay, adam_w_mode=adam_w_mode, amsgrad=amsgrad)


class DeepSpeedCPUAdam(FusedAdam):
    """As deepspeed.ops.adam.DeepSpeedCPUAdam is called."""

    def __init__(self, model_params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, adamw_mode: bool = True,
                 fp32_optimizer_states: bool = True):
        super().__init__(model_params, lr, bias_correction, betas, eps, adamw_mode, weight_decay, amsgrad)


class FusedLamb(Described):
    """As deepspeed.ops.lamb.FusedLamb is called."""

    kind = "lamb"

    def __init__(self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple = (0.9, 0.999),
                 eps: float = 1e-8, eps_inside_sqrt: bool = False, weight_decay: float = 0.0, max_grad_norm: float = 0.0,
                 max_coeff: float = 10.0, min_coeff: float = 0.01, amsgrad: bool = False):
        for name, value in (("eps_inside_sqrt", eps_inside_sqrt), ("max_grad_norm", max_grad_norm), ("amsgrad", amsgrad)):
            if value:
                raise NotImplementedError("FusedLamb with %s=%r is not in libzero" % (name, value))
        super().__init__(params, lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay,
                         max_coeff=max_coeff, min_coeff=min_coeff)


class FusedLion(Described):
    """As deepspeed.ops.lion.FusedLion and DeepSpeedCPULion are called."""

    kind = "lion"

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple = (0.9, 0.99), weight_decay: float = 0.0,
                 **_: Any):
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay)


class DeepSpeedCPULion(FusedLion):
    """The same on the host."""


class DeepSpeedCPUAdagrad(Described):
    """As deepspeed.ops.adagrad.DeepSpeedCPUAdagrad is called."""

    kind = "adagrad"

    def __init__(self, model_params: Any, lr: float = 1e-2, eps: float = 1e-10, weight_decay: float = 0.0,
                 amsgrad: bool = False, fp32_optimizer_states: bool = True):
        super().__init__(model_params, lr=lr, eps=eps, weight_decay=weight_decay)


def _one(groups: List[dict], key: str, default: Any, name: str) -> Any:
    """A value that all groups must share."""
    values = {str(group.get(key, default)) for group in groups}
    if len(values) > 1:
        raise NotImplementedError("%s: its groups have %s = %s; libzero takes one for all" % (
            name, key, ", ".join(sorted(values))))
    return groups[0].get(key, default)


def section_of(optimizer: torch.optim.Optimizer) -> Section:
    """The config section that does the same arithmetic; what has none is refused by name."""
    kind, name = type(optimizer), type(optimizer).__name__
    groups = optimizer.param_groups
    if optimizer.state:
        raise NotImplementedError("%s has made steps already: its state would be lost; expected a fresh one" % name)
    for flag in ("amsgrad", "maximize", "differentiable"):
        if any(group.get(flag) for group in groups):
            raise NotImplementedError("%s with %s=True is not in libzero" % (name, flag))
    first = groups[0]
    if isinstance(optimizer, FusedAdam):
        return {"type": "Adam", "params": {"lr": float(first["lr"]), "betas": list(first["betas"]), "eps": first["eps"],
                                           "weight_decay": first["weight_decay"],
                                           "bias_correction": _one(groups, "bias_correction", True, name),
                                           "adam_w_mode": _one(groups, "adam_w_mode", True, name)}}
    if isinstance(optimizer, Described):
        keys = {k: list(v) if isinstance(v, tuple) else v for k, v in optimizer.defaults.items()}
        return {"type": optimizer.kind, "params": keys}
    if kind in (torch.optim.AdamW, torch.optim.Adam):
        decoupled = kind is torch.optim.AdamW or bool(_one(groups, "decoupled_weight_decay", False, name))
        params = {"lr": float(first["lr"]), "betas": [float(b) for b in first["betas"]], "eps": float(first["eps"]),
                  "weight_decay": float(first["weight_decay"])}
        if not decoupled:
            params["adam_w_mode"] = False
        return {"type": "AdamW" if decoupled else "Adam", "params": params}
    if kind is torch.optim.SGD:
        return {"type": "SGD", "params": {"lr": float(first["lr"]), "momentum": first["momentum"],
                                          "dampening": _one(groups, "dampening", 0.0, name),
                                          "nesterov": bool(_one(groups, "nesterov", False, name)),
                                          "weight_decay": float(first["weight_decay"])}}
    raise NotImplementedError("optimizer %s.%s is not in libzero; expected torch.optim.AdamW, Adam or SGD, or the "
                              'config\'s own "optimizer" section' % (kind.__module__, kind.__name__))


def group_values(group: dict) -> Dict[str, float]:
    """What a torch group says, in the names of libzero's group options."""
    values = {ours: float(group[theirs]) for theirs, ours in _VALUES.items() if theirs in group}
    if "betas" in group:
        values["beta1"], values["beta2"] = (float(beta) for beta in group["betas"])
    return values


_DEFAULTS: Dict[str, Dict[str, Any]] = {
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "sgd": {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0},
    "lion": {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0.0},
    "adagrad": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.0},
    "lamb": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
}


def from_section(section: Section, params: Any) -> torch.optim.Optimizer:
    """The config's own optimizer as an object with groups, for schedulers and scripts to look at."""
    kind = str(section.get("type", ""))
    if kind.lower() not in _DEFAULTS:
        raise NotImplementedError("optimizer.type %r is not in libzero.torch; expected one of %s in any case" % (
            kind, ", ".join(sorted(_DEFAULTS))))
    given = dict(section.get("params") or {})
    defaults = dict(_DEFAULTS.get(kind.lower(), {}))
    if kind.lower() in ("adam", "adamw") and given.get("torch_adam") and given.get("adam_w_mode", True):
        defaults["weight_decay"] = 0.01
    defaults.update({key: tuple(value) if key == "betas" else value for key, value in given.items()})
    if any(value == "auto" for value in defaults.values()):
        raise ValueError('optimizer.params: "auto" is for a launcher to fill: %s' % ", ".join(
            sorted(key for key, value in defaults.items() if value == "auto")))
    return Described(params, kind=kind, **defaults)


class ZeroOptimizer(torch.optim.Optimizer):
    """The second element of what initialize returns. param_groups are the script's own dicts, read
    again before every update; the state is libzero's, sharded (utils.safe_get_full_optimizer_state)."""

    def __init__(self, inner: torch.optim.Optimizer, update: Callable[[], None]):  # pylint: disable=super-init-not-called
        self.optimizer, self._update = inner, update
        self.defaults, self.param_groups = inner.defaults, inner.param_groups
        self.state = collections.defaultdict(dict)
        self.overflow, self.loss_scale = False, 1.0
        self._refresh: Optional[Callable[[], None]] = None

    @property
    def cur_scale(self) -> float:
        return self.loss_scale

    def step(self, closure: Any = None) -> None:
        """The update at once, boundary or not; engine.step() is the usual way."""
        self._update()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def refresh_fp32_params(self) -> None:
        """What a script wrote into 16-bit parameters becomes the master. Collective."""
        if self._refresh:
            self._refresh()

    def check_overflow(self, external: bool = False) -> bool:
        """Whether the last step found one; the next is looked for inside step."""
        return self.overflow

    def override_loss_scale(self, loss_scale: float) -> None:
        raise NotImplementedError("override_loss_scale: the loss scale is libzero's; expected \"fp16\": {\"loss_scale\": %g} in "
                                  "the config" % loss_scale)

    def offload_states(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("optimizer.offload_states: call it on the engine")

    def state_dict(self) -> dict:
        """Groups alone: the state is in engine.save_checkpoint."""
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {"param_groups": groups, "loss_scale": self.loss_scale}

    def load_state_dict(self, state_dict: dict) -> None:
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({k: v for k, v in saved.items() if k != "params"})

    def add_param_group(self, param_group: dict) -> None:
        raise NotImplementedError("add_param_group after initialize: libzero's shards are laid out")

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        if name in ("parameter_offload", "forward_hooks", "backward_hooks"):
            raise AttributeError("optimizer.%s is not in libzero: its stage 3 needs no hooks taken off; generate under "
                                 "zero.GatheredParameters(model.parameters())" % name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return "ZeroOptimizer of %r" % self.optimizer


def stepped(optimizer: torch.optim.Optimizer) -> None:
    """Lets torch's schedulers know that an update was made."""
    optimizer._opt_called = True
    if getattr(optimizer, "_step_count", None) is not None:
        optimizer._step_count += 1


def groups_of(optimizer: torch.optim.Optimizer) -> List[Tuple[str, List[torch.nn.Parameter]]]:
    return [(str(g.get("name", "group_%d" % i)), list(g["params"])) for i, g in enumerate(optimizer.param_groups)]
