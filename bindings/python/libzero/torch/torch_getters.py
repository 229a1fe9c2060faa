"""What scripts ask an engine about its config."""
# SPDX-License-Identifier: BSD-3-Clause
from typing import Any, List, Union


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
