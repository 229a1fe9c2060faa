"""initialize: a script's model, optimizer, data and config become an engine."""
# SPDX-License-Identifier: BSD-3-Clause
import weakref
from typing import Any, List, Optional, Tuple

import torch

from . import torch_launch
from .torch_accelerator import get_accelerator
from .torch_access import Watch, shard_of
from .torch_born import forget
from .torch_engine import DeepSpeedEngine
from .torch_optimizers import from_section, section_of
from .torch_registry import cast, live_elements
from .torch_schedules import make_scheduler
from .torch_settings import Settings, read_source
from .torch_tensors import born_of


class DeepSpeedConfigError(Exception):
    """For scripts that catch it; what is wrong with a config is a libzero.ConfigError."""


class DeepSpeedConfig:
    """A config as read: the dict, and the sizes where they are known."""

    def __init__(self, config: Any, mpu: Any = None, mesh_device: Any = None):
        self._param_dict = read_source(None, config)
        self.train_batch_size = self._param_dict.get("train_batch_size")
        self.train_micro_batch_size_per_gpu = self._param_dict.get("train_micro_batch_size_per_gpu")
        self.gradient_accumulation_steps = self._param_dict.get("gradient_accumulation_steps")
        self.zero_optimization_stage = Settings(self._param_dict).stage


def _make_optimizer(given: Any, parameters: List[Any], config: dict) -> Optional[torch.optim.Optimizer]:
    if isinstance(given, torch.optim.Optimizer):
        return given
    if callable(given):
        return given(parameters)
    assert given is None, "optimizer is a %s: expected a torch optimizer, or a callable that makes one" % type(given).__name__
    section = config.get("optimizer")
    if not section or not section.get("type"):
        return None
    return from_section(section, parameters)


def _make_loader(engine: DeepSpeedEngine, data: Any, collate_fn: Any) -> Any:
    """batch = micro batch; the ranks share an epoch, shuffled with seed 0."""
    data_tools = torch.utils.data
    sampler = data_tools.distributed.DistributedSampler(data, num_replicas=engine.world_size, rank=engine.global_rank)
    return Loader(data, engine.train_micro_batch_size_per_gpu(), sampler, collate_fn)


class Loader:
    """As DeepSpeed's: re-iterable, the sampler's epoch is never set, the last batch may be short."""

    def __init__(self, dataset: Any, batch_size: int, sampler: Any, collate_fn: Any):
        self.dataset, self.batch_size, self.data_sampler = dataset, batch_size, sampler
        self._loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn)
        self.data: Any = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Any:
        return iter(self._loader)

    def __next__(self) -> Any:
        if self.data is None:
            self.data = iter(self._loader)
        return next(self.data)


def _hidden_size(model: torch.nn.Module) -> int:
    config = getattr(model, "config", None)
    size = getattr(config, "hidden_size", None)
    return size if isinstance(size, int) else -1


def initialize(args: Any = None, model: Any = None, optimizer: Any = None, model_parameters: Any = None,
               training_data: Any = None, lr_scheduler: Any = None, distributed_port: int = 29500, mpu: Any = None,
               dist_init_required: Optional[bool] = None, collate_fn: Any = None, config: Any = None,
               mesh_param: Any = None, config_params: Any = None) -> Tuple[DeepSpeedEngine, Any, Any, Any]:
    """(engine, optimizer, dataloader, lr_scheduler), the last three None where there is none. Collective.

    model is kept, cast to the config's dtype in place; its Parameter objects stay the same. optimizer: a
    torch AdamW, Adam or SGD, a callable that makes one of the list of parameters, or None: the config's.
    Parameters, and persistent buffers, begin with rank 0's values.
    """
    assert isinstance(model, torch.nn.Module), "initialize: model is %s, expected a torch.nn.Module" % type(model).__name__
    if mesh_param is not None:
        raise NotImplementedError("initialize: mesh_param (sequence parallelism) is not in libzero")
    given = read_source(args, config if config is not None else config_params)
    settings = Settings(given)
    settings.local_rank = torch_launch.local_rank_of(args)
    if dist_init_required is not False and (torch_launch.has_ranks() or dist_init_required):
        torch_launch.init_distributed(distributed_port=distributed_port)
    settings.meet()

    accelerator = get_accelerator()
    if accelerator.device_name() != "cpu":
        model.to(accelerator.device(settings.local_rank))
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for name, parameter in model.named_parameters():
        if born_of(parameter):
            born_of(parameter).check_untouched(parameter, name)
    cast(model, settings.compute_dtype)
    parameters = list(model_parameters) if model_parameters is not None else list(model.parameters())
    if not isinstance(optimizer, torch.optim.Optimizer) and (not parameters or not isinstance(parameters[0], dict)):
        parameters = [p for p in parameters if p.requires_grad]
    inner = _make_optimizer(optimizer, parameters, given)
    if inner is None:
        assert settings.stage in (0, 3), "initialize: no optimizer; stage %d needs one" % settings.stage
    section = section_of(inner) if inner is not None else {"type": "AdamW", "params": {"lr": 0.0}}
    libzero = given.get("libzero")
    if settings.stage == 3 and "live_parameters" not in (libzero if isinstance(libzero, dict) else {}):
        settings.extra["live_parameters"] = live_elements(model)
    settings.resolve(section, device.type, {"hidden_size": _hidden_size(model)})
    scheduler = make_scheduler(lr_scheduler, given, inner, given.get("optimizer") or section)

    if inner is not None:
        Watch.begin(list(model.parameters()))
    engine = DeepSpeedEngine(model, settings, inner, scheduler, device, collate_fn)
    for name, parameter in model.named_parameters():
        born = born_of(parameter)
        if born:  # one at a time: no rank ever holds the model
            engine.write(parameter, born.whole())
            forget(parameter)
        if settings.stage == 3 and hasattr(parameter, "ds_id"):
            parameter.ds_tensor = shard_of(engine, parameter)
        parameter.libzero_engine = weakref.ref(engine)
    if training_data is not None:
        engine.training_dataloader = _make_loader(engine, training_data, collate_fn)
    return engine, engine.optimizer, engine.training_dataloader, scheduler
