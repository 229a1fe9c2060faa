"""What scripts ask an engine about its config, and calls of theirs that need no more than a sentence."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Any, Callable, List, Union

from .torch_refused import sentence
from .torch_utils import ThroughputTimer


def _refused(name: str, what: str, instead: str) -> Callable:
    def call(self: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(sentence("engine." + name, what, instead))
    call.__name__, call.__doc__ = name, "Refused: %s." % what
    return call


class Getters:
    """Config getters are methods, as DeepSpeed's are."""

    settings: Any
    optimizer: Any
    _stage: int
    _resolved_steps: int
    _micro_batch: int

    def gradient_accumulation_steps(self) -> int:
        return self._resolved_steps

    def train_micro_batch_size_per_gpu(self) -> int:
        return self._micro_batch

    def train_batch_size(self) -> int:
        return self._micro_batch * self._resolved_steps * self.world_size

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the accumulation steps."""
        once = self._micro_batch * self.world_size
        if train_batch_size <= 0 or train_batch_size % once:
            raise ValueError("train_batch_size %d: expected a multiple of micro batch %d times %d ranks" % (
                train_batch_size, self._micro_batch, self.world_size))
        self._resolved_steps = train_batch_size // once

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        self._micro_batch = int(micro_batch_size)

    def zero_optimization(self) -> bool:
        return self._stage > 0

    def zero_optimization_stage(self) -> int:
        return self._stage

    def zero_optimization_partition_weights(self) -> bool:
        return self._stage == 3

    def zero_optimization_partition_gradients(self) -> bool:
        return self._stage >= 2

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        return self.settings.truth("zero_optimization.stage3_gather_16bit_weights_on_model_save")

    def fp16_enabled(self) -> bool:
        return self.settings.compute_dtype == "fp16"

    def bfloat16_enabled(self) -> bool:
        return self.settings.compute_dtype == "bf16"

    def gradient_clipping(self) -> float:
        return self.settings.number("gradient_clipping")

    def dynamic_loss_scale(self) -> bool:
        return self.fp16_enabled() and self.settings.number("fp16.loss_scale") == 0

    def steps_per_print(self) -> Union[int, float]:
        value = self.settings.given.get("steps_per_print", 10)
        return 0 if value is None else float(value) if isinstance(value, float) else int(value)

    def wall_clock_breakdown(self) -> bool:
        return bool(self.settings.given.get("wall_clock_breakdown", False))

    def optimizer_name(self) -> Any:
        inner = getattr(self.optimizer, "optimizer", None)
        kind = getattr(inner, "kind", "") or type(inner).__name__
        return kind.lower() if inner is not None else None

    def scheduler_name(self) -> Any:
        return (self.settings.given.get("scheduler") or {}).get("type")

    def get_lr(self) -> List[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_type(self) -> List[str]:
        return [group.get("type", self.optimizer_name()) for group in self.optimizer.param_groups]

    def get_mom(self) -> List[Any]:
        groups = self.optimizer.param_groups
        return [group["momentum"] if "momentum" in group else group.get("betas") for group in groups]

    # ---- state on the host and back ------------------------------------------------------------------------

    def offload_states(self, include: Any = None, device: Any = "cpu", pin_memory: bool = True,
                       non_blocking: bool = False) -> None:
        """On a machine without a device all of it lies in host memory anyway."""
        self._need_host("offload_states")

    def reload_states(self, non_blocking: bool = False) -> None:
        self._need_host("reload_states")

    def _need_host(self, call: str) -> None:
        if self.device.type != "cpu":
            raise NotImplementedError(sentence("engine." + call, "moving state between two steps",
                                               '"offload_optimizer": {"device": "cpu"} keeps it on the host'))

    def empty_partition_cache(self) -> None:
        """Nothing stays gathered between calls."""

    def allreduce_gradients(self, bucket_size: Any = None) -> None:
        """step() has every gradient reduced; there is nothing to do before it."""

    def compile(self, backend: Any = None, compile_kwargs: Any = None, **more: Any) -> None:
        """torch.compile of the module, in place. At stage 3 its values come and go, which a graph cannot know."""
        if self._stage == 3:
            raise NotImplementedError(sentence("engine.compile", "a graph over parameters on loan (stage 3)",
                                               "compile at stages 0 to 2, or torch.compile the functions inside"))
        options = dict(compile_kwargs or {}, **more)
        if backend is not None:
            options["backend"] = backend
        self.module.compile(**options)
        self.is_compiled = True

    is_compiled = False

    @property
    def tput_timer(self) -> ThroughputTimer:
        if "_tput_timer" not in self.__dict__:
            self.__dict__["_tput_timer"] = ThroughputTimer()
        return self.__dict__["_tput_timer"]

    def _consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> Any:
        return self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)

    train_batch = _refused("train_batch", "a pipeline", "call forward, backward and step")
    eval_batch = _refused("eval_batch", "a pipeline", "call the engine in eval mode")
    set_batch_fn = _refused("set_batch_fn", "a pipeline", "")
    set_data_post_process_func = _refused("set_data_post_process_func", "data efficiency", "a collate_fn can do it")
    set_custom_curriculum_learning_schedule = _refused("set_custom_curriculum_learning_schedule", "data efficiency", "")
    _create_checkpoint_file = _refused("_create_checkpoint_file", "DeepSpeed's checkpoint engine", "save_checkpoint")
    _save_checkpoint = _refused("_save_checkpoint", "DeepSpeed's checkpoint engine", "save_checkpoint")

    @property
    def grid(self) -> Any:
        raise AttributeError(sentence("engine.grid", "a pipeline's topology", ""))

    @property
    def random_ltd_scheduler(self) -> Any:
        raise AttributeError(sentence("engine.random_ltd_scheduler", "data efficiency", ""))
