"""The config's schedules as scheduler objects over a torch optimizer's groups."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Any, Dict, List, Optional

import torch

from ..config import Config

VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


class Schedule:
    """Update k runs with iteration k-2, as in DeepSpeed; the first rate is written when it is made."""

    def __init__(self, optimizer: torch.optim.Optimizer, section: dict, optimizer_section: dict):
        self.optimizer, self.last_batch_iteration = optimizer, -1
        made = {"train_micro_batch_size_per_gpu": 1, "scheduler": section}
        kind = str(optimizer_section.get("type", "adam")).lower()
        lr = float(optimizer.param_groups[0]["lr"])
        made["optimizer"] = {"type": kind if kind in ("adam", "adamw", "lamb", "lion", "sgd") else "adam",
                             "params": {"lr": lr}}
        if made["optimizer"]["type"] == "sgd":
            made["zero_allow_untested_optimizer"] = True
        self._config = Config(made)
        self._config.check()
        self._base = lr
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._scales = section.get("type") == "WarmupCosineLR"
        params = section.get("params") or {}
        self._turns_betas = section.get("type") == "OneCycle" and params.get("cycle_momentum", True)
        self._write()

    def _write(self) -> None:
        lr, momentum = self._config.schedule(self.last_batch_iteration + 2)
        for group, own in zip(self.optimizer.param_groups, self._rates):
            group["lr"] = lr * own / self._base if self._scales and self._base else lr
            if self._turns_betas and "betas" in group:
                group["betas"] = (momentum, 0.99)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, last_batch_iteration: Optional[int] = None) -> None:
        """After each update that was not skipped; engine.step() does it."""
        self.last_batch_iteration = (self.last_batch_iteration + 1 if last_batch_iteration is None
                                     else int(last_batch_iteration))
        self._write()

    def get_lr(self) -> List[float]:
        return list(self._last_lr)

    def get_last_lr(self) -> List[float]:
        return list(self._last_lr)

    def state_dict(self) -> dict:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state_dict: dict) -> None:
        self.last_batch_iteration = int(state_dict["last_batch_iteration"])
        self._write()


def make_scheduler(given: Any, config: dict, optimizer: Any, optimizer_section: dict) -> Any:
    """The script's own object, what its callable makes of the inner optimizer, or the config's."""
    if given is not None:
        return given if hasattr(given, "step") and not isinstance(given, type) else given(optimizer)
    section = config.get("scheduler")
    if not section or not section.get("type"):
        return None
    if optimizer is None:
        raise ValueError('"scheduler" in the config, but no optimizer')
    if section["type"] in VALID_LR_SCHEDULES:
        return Schedule(optimizer, section, optimizer_section)
    kind = getattr(torch.optim.lr_scheduler, section["type"], None)
    if kind is None:
        raise ValueError("scheduler.type %r: expected one of %s or a class of torch.optim.lr_scheduler" % (
            section["type"], ", ".join(VALID_LR_SCHEDULES)))
    return kind(optimizer, **(section.get("params") or {}))


class _Named(Schedule):
    """A schedule as scripts make it themselves: a class of the optimizer and the config's parameters."""

    kind = ""

    def __init__(self, optimizer: torch.optim.Optimizer, **params: Any):
        params.pop("last_batch_iteration", None)
        super().__init__(optimizer, {"type": self.kind, "params": params}, {})


def classes() -> Dict[str, type]:
    return _CLASSES


_CLASSES = {kind: type(kind, (_Named,), {"kind": kind, "__doc__": "The config's %s." % kind}) for kind in VALID_LR_SCHEDULES}


def top_names() -> Dict[str, Any]:
    return {"VALID_LR_SCHEDULES": VALID_LR_SCHEDULES}
