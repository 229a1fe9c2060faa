"""A script's config as libzero reads it: where it comes from, the optimizer put in, ranks known."""
# SPDX-License-Identifier: BSD-3-Clause
import base64
import copy
import itertools
import json
import os
from typing import Any, Dict, Optional

from ..comm import Comm
from ..config import Config

_engines = itertools.count()
_JOBS = ("LIBZERO_JOB", "TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID")


def read_source(args: Any, config: Any) -> dict:
    """The one config that was given: a dict, a path, JSON text or base64 of it, or args.deepspeed_config."""
    named = getattr(args, "deepspeed_config", None)
    if named is None:
        named = getattr(args, "deepscale_config", None)
    assert config is None or named is None, "both config= and args.deepspeed_config were given: expected one"
    source = config if config is not None else named
    assert source is not None, "no config: expected config= (a dict or a path) or args.deepspeed_config"
    if isinstance(source, dict):
        return copy.deepcopy(source)
    text = os.fspath(source)
    if os.path.exists(text):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    elif not text.lstrip().startswith("{"):
        try:
            text = base64.urlsafe_b64decode(text).decode()
        except ValueError:
            raise FileNotFoundError("config %r is no file, no JSON text and no base64 of it" % source) from None
    try:
        made = json.loads(text)
    except ValueError:
        Config(text)  # says line and column in its own words
        raise
    return made


def _of(section: Any) -> dict:
    return section if isinstance(section, dict) else {}


class Settings:
    """given is the script's dict, as it was; config what libzero runs by."""

    def __init__(self, given: dict):
        self.given = given
        self.comm: Optional[Comm] = None
        self.config: Optional[Config] = None
        self.local_rank = 0
        self.extra: Dict[str, Any] = {}  # keys of the section libzero that the script left open

    def meet(self, group: Optional[str] = None) -> Comm:
        """The communicator of this engine: every engine of a process has its own. Collective."""
        libzero = _of(self.given.get("libzero"))
        made = {"libzero": {k: libzero[k] for k in ("comm", "comm_timeout_seconds") if k in libzero}}
        number = next(_engines)
        name = group or str(libzero.get("group") or "torch")
        if not any(os.environ.get(job) for job in _JOBS):
            name += "-of-%d" % os.getppid()
        made["libzero"]["group"] = "%s-%d" % (name, number)
        made["train_micro_batch_size_per_gpu"] = 1
        self.comm = Comm.from_config(Config(made))
        return self.comm

    def resolve(self, optimizer: Dict[str, Any], device: str, facts: Dict[str, Any]) -> Config:
        """Puts in the optimizer's section; the schedule is the engine's, which gives every rate itself."""
        made = {k: v for k, v in self.given.items() if k not in ("optimizer", "scheduler")}
        made["optimizer"] = optimizer
        if device != "cpu":
            self.extra["device"] = "cuda"
        if self.extra:
            made["libzero"] = dict(_of(made.get("libzero")), **self.extra)
        if optimizer["type"] == "SGD":
            made.setdefault("zero_allow_untested_optimizer", True)
        config = Config(made)
        config.fill_auto(world_size=self.comm.size, **facts)
        config.check()
        self.config = config
        return config

    def integer(self, key: str) -> int:
        return int(float(self.config[key]))

    def number(self, key: str) -> float:
        text = self.config[key]
        return float(text) if text not in ("null", "") else 0.0

    def truth(self, key: str) -> bool:
        return self.config[key] == "true"

    @property
    def compute_dtype(self) -> str:
        """Of the script's dict alone, before anything else is known: "fp16", "bf16" or ""."""
        for section, name in (("fp16", "fp16"), ("bf16", "bf16"), ("bfloat16", "bf16")):
            enabled = _of(self.given.get(section)).get("enabled", False)
            if enabled is True or str(enabled).lower() == "true":
                return name
        return ""

    @property
    def stage(self) -> int:
        return int(_of(self.given.get("zero_optimization")).get("stage", 0) or 0)
