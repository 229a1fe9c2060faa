"""The tree of DeepSpeed's names: each submodule that training code imports from, with what it holds here,
and those whose every name is refused. libzero.torch and the package deepspeed show the same modules."""
# SPDX-License-Identifier: BSD-3-Clause
import importlib.machinery
import os
import sys
import types
from typing import Any, Dict

import torch

from .. import __version__ as _own
from . import (torch_access, torch_accelerator, torch_checkpointing, torch_consolidate, torch_engine, torch_estimates, torch_initialize, torch_launch, torch_loans, torch_optimizers, torch_schedules,
               torch_utils, torch_zero)
from .torch_refused import RefusedModule, refuse

#: The DeepSpeed release whose interface this follows, with a local part: what importlib.metadata says as well.
FOLLOWS = "0.19.8"
VERSION = FOLLOWS + "+libzero"
OWN_NAME = "libzero.torch"

_PIPE = ("pipelines", "")
_RING = ("sequence parallelism", "")
#: module -> what it is, and libzero's way where there is one: every name in it, and below it, is refused
REFUSED_MODULES = {
    "pipe": _PIPE, "runtime.pipe": _PIPE,
    "moe": ("a mixture of experts", "its layers can be plain modules: every rank then holds all experts' shards"),
    "sequence": _RING, "runtime.sequence_parallel": _RING,
    "ops.sparse_attention": ("sparse attention", "torch.nn.functional.scaled_dot_product_attention takes a mask"),
    "ops.transformer": ("the transformer kernel", "torch.nn.TransformerEncoderLayer trains here"),
    "ops.deepspeed4science": ("a kernel for science models", "torch.nn.functional.scaled_dot_product_attention is one"),
    "ops.quantizer": ("quantisation", ""), "ops.random_ltd": ("random layer token drop", ""),
    "ops.aio": ("raw asynchronous I/O", 'offload by "offload_optimizer": {"device": "nvme"}'),
    "ops.op_builder": ("building of kernels", "libzero's are built already"),
    "runtime.fp16.onebit": ("a 1-bit optimizer", "expected AdamW or Lamb"),
    "compression": ("compression", ""), "inference": ("inference", "the module itself runs under torch.no_grad()"),
    "runtime.data_pipeline": ("data efficiency", ""), "runtime.hybrid_engine": ("the hybrid engine", "engine.module generates"),
    "runtime.tensor_parallel": ("tensor parallelism", ""), "module_inject": ("injection of kernels", ""),
    "model_implementations": ("inference", ""), "linear": ("quantised LoRA layers", ""), "autotuning": ("autotuning", "zero plan"),
    "profiling": ("the flops profiler", "torch.profiler"), "nebula": ("Nebula", ""), "monitor": ("monitors", "logging"),
    "domino": ("Domino", ""), "runtime.domino": ("Domino", ""), "runtime.superoffload": ("SuperOffload", "offload_optimizer"),
    "runtime.zenflow": ("ZenFlow", "offload_optimizer"), "runtime.rollout": ("rollouts", ""),
    "checkpoint.universal_checkpoint": ("a universal checkpoint", "libzero's own is read by any stage and number of ranks"),
    "checkpoint.ds_to_universal": ("a universal checkpoint", "libzero's own is read by any stage and number of ranks"),
}

#: single names that are refused -> what, and libzero's way
REFUSED = {
    "PipelineEngine": _PIPE, "PipelineModule": _PIPE,
    "init_inference": ("inference", "the module itself runs under torch.no_grad()"),
    "InferenceEngine": ("inference", ""), "DeepSpeedInferenceConfig": ("inference", ""),
    "default_inference_config": ("inference", ""), "DeepSpeedHybridEngine": ("the hybrid engine", "engine.module generates"),
    "tp_model_init": ("tensor parallelism", "stage 3 shards the parameters"), "set_optimizer_flags": ("Muon", "AdamW"),
    "OnDevice": ("building a model without memory", "zero.Init shards each module as it is made"),
    "utils.OnDevice": ("building a model without memory", "zero.Init shards each module as it is made"),
    "DeepSpeedTransformerLayer": ("the transformer kernel", "torch.nn.TransformerEncoderLayer trains here"),
    "DeepSpeedTransformerConfig": ("the transformer kernel", "torch.nn.TransformerEncoderLayer trains here"),
    "replace_transformer_layer": ("injection of kernels", ""), "revert_transformer_layer": ("injection of kernels", ""),
    "utils.groups._get_sequence_parallel_group": _RING, "utils.groups._get_sequence_data_parallel_group": _RING,
    "utils.groups._get_expert_parallel_group": ("a mixture of experts", ""),
    "utils.groups._get_expert_data_parallel_group": ("a mixture of experts", ""),
    "runtime.engine.PipelineEngine": _PIPE,
    "ops.adam.ZenFlowCPUAdam": ("ZenFlow", "DeepSpeedCPUAdam"),
    "ops.adam.ZenFlowSelectiveAdamW": ("ZenFlow", "AdamW"),
    "launcher.runner.main": ("DeepSpeed's launcher", "`zero run -n N --as-deepspeed -- python train.py`, or torchrun"),
}


def _public(module: Any, names: str) -> Dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


def _here() -> Dict[str, Dict[str, Any]]:
    """Submodule -> name -> object."""
    accelerator = {"get_accelerator": torch_accelerator.get_accelerator, "set_accelerator": torch_accelerator.set_accelerator}
    access = _public(torch_access, torch_access.NAMES)
    utilities = dict(_public(torch_utils, torch_utils.NAMES), **access)
    logs = _public(torch_utils, "logger log_dist log_dist_once set_log_level_from_string")
    leaves = _public(torch_utils, "set_z3_leaf_modules unset_z3_leaf_modules get_z3_leaf_modules z3_leaf_module")
    engine = {"DeepSpeedEngine": torch_engine.DeepSpeedEngine}
    config = {"DeepSpeedConfig": torch_initialize.DeepSpeedConfig, "DeepSpeedConfigError": torch_initialize.DeepSpeedConfigError}
    schedules = {"VALID_LR_SCHEDULES": torch_schedules.VALID_LR_SCHEDULES, **torch_schedules.classes()}
    optimizers = torch_optimizers
    status = {"ZeroParamStatus": torch_loans.ZeroParamStatus}
    zero = _public(torch_zero, "GatheredParameters Init register_external_parameter unregister_external_parameter")
    adam = {"FusedAdam": optimizers.FusedAdam, "DeepSpeedCPUAdam": optimizers.DeepSpeedCPUAdam}
    offload = _public(torch_utils, "OffloadDeviceEnum OffloadStateTypeEnum")
    recomputing = _public(torch_checkpointing, torch_checkpointing.NAMES)
    estimates = torch_estimates.names
    made: Dict[str, Dict[str, Any]] = {
        "accelerator": accelerator, "accelerator.real_accelerator": accelerator,
        "utils": dict(utilities, **leaves), "utils.logging": logs, "utils.z3_leaf_module": leaves,
        "utils.tensor_fragment": access,
        "utils.groups": _public(torch_utils, torch_utils.GROUPS),
        "utils.timer": _public(torch_utils, "ThroughputTimer"),
        "runtime": {}, "runtime.engine": dict(engine, **config), "runtime.config": config,
        "runtime.lr_schedules": schedules, "runtime.dataloader": {"RepeatingLoader": torch_utils.RepeatingLoader,
                                                                 "DeepSpeedDataLoader": torch_initialize.Loader},
        "runtime.utils": _public(torch_utils, "see_memory_usage move_to_device"),
        "runtime.zero": dict(zero, **status), "runtime.zero.config": _public(torch_utils, "ZeroStageEnum"),
        "runtime.zero.partition_parameters": dict(
            zero, **status, zero_wrapper_for_fp_tensor_constructor=torch_zero.zero_wrapper_for_fp_tensor_constructor,
            _orig_torch_arange=torch.arange, get_accelerator=torch_accelerator.get_accelerator),
        "runtime.zero.offload_config": offload, 
        "runtime.zero.stage_1_and_2": estimates(2), "runtime.zero.stage3": estimates(3), "runtime.fp16": {},
        "runtime.activation_checkpointing": {}, "runtime.activation_checkpointing.checkpointing": recomputing,
        "checkpointing": recomputing, "utils.zero_to_fp32": _public(torch_consolidate, torch_consolidate.NAMES),
        "zero": dict(zero, **status), "ops": {}, "ops.adam": adam, "ops.adam.fused_adam": {"FusedAdam": adam["FusedAdam"]},
        "ops.adam.cpu_adam": {"DeepSpeedCPUAdam": adam["DeepSpeedCPUAdam"]},
        "ops.lamb": {"FusedLamb": optimizers.FusedLamb},
        "ops.lion": {"FusedLion": optimizers.FusedLion, "DeepSpeedCPULion": optimizers.DeepSpeedCPULion},
        "ops.adagrad": {"DeepSpeedCPUAdagrad": optimizers.DeepSpeedCPUAdagrad},
        "checkpoint": {}, "checkpoint.utils": {"clone_tensors_for_torch_save": torch_utils.clone_tensors_for_torch_save},
        "launcher": {}, "launcher.runner": {"DEEPSPEED_ENVIRONMENT_NAME": os.environ.get("DS_ENV_FILE", ".deepspeed_env")},
        "comm": {}, "comm.comm": {},
    }
    return made


class _Named(types.ModuleType):
    """A submodule; what it does not hold is said by name."""

    _libzero_path = ""
    _libzero_else: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = self._libzero_path + "." + name
        if name in torch_access.WATCHING and self._libzero_path in ("utils", "utils.tensor_fragment"):
            torch_access.Watch.wanted = True
            return getattr(torch_access, name)
        if path in REFUSED:
            made = refuse(path, *REFUSED[path])
            setattr(self, name, made)
            return made
        if self._libzero_else is not None:
            return self._libzero_else(name)
        raise AttributeError("libzero.torch has no %s" % path)


MODULES: Dict[str, types.ModuleType] = {}


def _hang(path: str, module: types.ModuleType) -> None:
    module.__spec__ = importlib.machinery.ModuleSpec(OWN_NAME + "." + path, None, is_package=True)
    module.__path__ = []  # type: ignore[attr-defined]
    MODULES[path] = module
    above, _, last = path.rpartition(".")
    if above:
        setattr(MODULES[above], last, module)


def _build() -> None:
    for path, names in sorted(_here().items()):
        module = _Named(OWN_NAME + "." + path, "deepspeed.%s, in libzero's words." % path)
        module._libzero_path = path
        module.__dict__.update(names)
        _hang(path, module)
    for path, (what, instead) in sorted(REFUSED_MODULES.items()):
        _hang(path, RefusedModule(OWN_NAME + "." + path, path, what, instead))
    for path in ("comm", "comm.comm"):
        MODULES[path]._libzero_else = lambda name: getattr(torch.distributed, name)  # type: ignore[attr-defined]
        MODULES[path].init_distributed = torch_launch.init_distributed  # type: ignore[attr-defined]


class _Below:
    """Finds deeper modules of those that are refused, and says of the rest that they are not here."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        for prefix in ("deepspeed.", OWN_NAME + "."):
            if not name.startswith(prefix) or (prefix == "deepspeed." and "libzero_version" not in vars(
                    sys.modules.get("deepspeed", types))):
                continue
            inner = name[len(prefix):]
            for root, (what, instead) in REFUSED_MODULES.items():
                if inner.startswith(root + "."):
                    if inner not in MODULES:
                        _hang_refused(inner, what, instead)
                    return importlib.machinery.ModuleSpec(name, _Given(MODULES[inner]), is_package=True)
        return None


class _Given:
    """A loader of a module that exists."""

    def __init__(self, module: types.ModuleType):
        self._module = module

    def create_module(self, _: Any) -> types.ModuleType:
        return self._module

    def exec_module(self, _: Any) -> None:
        return None


def _hang_refused(inner: str, what: str, instead: str) -> None:
    module = RefusedModule(OWN_NAME + "." + inner, inner, what, instead)
    module.__path__ = []  # type: ignore[attr-defined]
    MODULES[inner] = module


def _top_names() -> Dict[str, Any]:
    made = {path: module for path, module in MODULES.items() if "." not in path}
    made.update(
        initialize=torch_initialize.initialize, init_distributed=torch_launch.init_distributed,
        add_config_arguments=torch_launch.add_config_arguments, get_accelerator=torch_accelerator.get_accelerator,
        DeepSpeedEngine=torch_engine.DeepSpeedEngine, DeepSpeedConfig=torch_initialize.DeepSpeedConfig,
        DeepSpeedConfigError=torch_initialize.DeepSpeedConfigError, log_dist=torch_utils.log_dist, logger=torch_utils.logger,
        DeepSpeedOptimizer=torch_optimizers.ZeroOptimizer, ZeROOptimizer=torch_optimizers.ZeroOptimizer,
        add_tuning_arguments=torch_launch.add_config_arguments, dist=MODULES["comm"], version=VERSION, __version__=VERSION,
        __version_major__=int(FOLLOWS.split(".")[0]), __version_minor__=int(FOLLOWS.split(".")[1]),
        __version_patch__=int(FOLLOWS.split(".")[2]), __git_hash__=None, __git_branch__=None, libzero_version=_own)
    made.update(torch_schedules.top_names())
    return made


def top(name: str) -> Any:
    """A name of the package itself that is not there."""
    if name in REFUSED:
        return refuse(name, *REFUSED[name])
    raise AttributeError("libzero.torch has no %s" % name)


def names_under(package: types.ModuleType) -> None:
    """The names, and the submodules as if each were a file of it."""
    for name, thing in _top_names().items():
        setattr(package, name, thing)
    for path, module in MODULES.items():
        sys.modules.setdefault(package.__name__ + "." + path, module)


def answer_to(package: types.ModuleType) -> None:
    """package, which has the name deepspeed, shows all this; once it says who it is."""
    from ..as_deepspeed import say_once
    names_under(package)
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    say_once(VERSION)


_build()
if not any(found is _Below for found in sys.meta_path):
    sys.meta_path.append(_Below)  # type: ignore[arg-type]
