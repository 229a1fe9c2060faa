"""The engine that initialize returns: forward, backward and step as DeepSpeed scripts call them."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import logging
import time
from typing import Any, Dict, Iterator, Optional

import torch

from .. import checked
from ..runtime import Runtime, StepInfo
from . import torch_files as files
from .torch_getters import Getters
from .torch_gradients import Gradients
from .torch_loans import Loans
from .torch_memory import explained
from .torch_optimizers import ZeroOptimizer, group_values, stepped
from .torch_registry import Registry
from .torch_settings import Settings
from .torch_tensors import memory_of_tensor, tensor_at

log = logging.getLogger("libzero.torch")


class DeepSpeedEngine(Getters, torch.nn.Module):
    """forward, backward, step: one micro-batch. module is the script's own model; its parameters lie in
    libzero's memory (stages 0 to 2) or are borrowed while they are needed (stage 3). Attributes that
    are not here are the module's."""

    def __init__(self, module: torch.nn.Module, settings: Settings, inner: Optional[torch.optim.Optimizer],
                 lr_scheduler: Any, device: torch.device, collate_fn: Any = None):
        super().__init__()
        self.module = module
        self.settings, self.device, self.collate_fn = settings, device, collate_fn
        self.lr_scheduler, self.training_dataloader = lr_scheduler, None
        self.config = settings.given
        self.micro_steps = self.global_steps = self.global_samples = self.skipped_steps = 0
        self.local_rank, self.global_rank = settings.local_rank, settings.comm.rank
        self.world_size = self.dp_world_size = settings.comm.size
        self.mpu = None
        self.last_step: Optional[StepInfo] = None
        self._stage = settings.stage
        self._resolved_steps = settings.integer("gradient_accumulation_steps")
        self._micro_batch = settings.integer("train_micro_batch_size_per_gpu")
        self._divides = settings.given.get("managed_gradient_accumulation", True)
        self._boundary: Optional[bool] = None
        self._norm: Optional[float] = None
        self._applied, self._unsynchronised = False, False
        self._seconds = {"forward": 0.0, "backward": 0.0, "step": 0.0}
        self._build(inner)

    def _build(self, inner: Optional[torch.optim.Optimizer]) -> None:
        self.registry = Registry(self.module, inner)
        device = self.device.index or 0 if self.device.type == "cuda" else -1
        self.runtime = Runtime(self.settings.config, self.registry.model, self.settings.comm, device)
        self.registry.forget_values()
        self.loans: Optional[Loans] = None
        if self._stage == 3:
            self.loans = Loans(self.runtime, self.registry, self.module, self.device)
        else:
            self._move_in()
        self._move_buffers_in()
        self._groups = [group_values(g) for g in inner.param_groups] if inner else []
        self.optimizer: Optional[ZeroOptimizer] = None
        self._gradients: Optional[Gradients] = None
        if inner is not None:
            self.optimizer = ZeroOptimizer(inner, self._update)
            self.optimizer._refresh = self._refresh_masters
            self.optimizer.loss_scale = self.runtime.loss_scale
            self._gradients = Gradients(self.runtime, self.registry, self._stage, self.device)
            self._gradients.bare_divisor = self._bare_divisor
            self._gradients.finished = self._pass_finished
        log.info("libzero.torch: stage %d, rank %d of %d, %d trained parameters", self._stage, self.global_rank,
                 self.world_size, len(self.registry.trained))

    # ---- where values lie ------------------------------------------------------------------------------

    def _move_in(self) -> None:
        """Parameters become views of libzero's memory; torch's own is freed."""
        with torch.no_grad():
            for parameter, number in self.registry.ids.items():
                found = checked.param_buffer(self.runtime.handle, number)
                parameter.data = tensor_at(found, parameter.shape, self.runtime._life)

    def _move_buffers_in(self) -> None:
        buffers = dict(self.module.named_buffers())
        self._places: Dict[str, torch.Tensor] = {}
        for name, number in self.registry.buffers.items():
            found = checked.param_buffer(self.runtime.handle, number)
            self._places[name] = tensor_at(found, buffers[name].shape, self.runtime._life)
            buffers[name].data = self._places[name]

    def _exchange_buffers(self, to_libzero: bool) -> None:
        """Buffers that a module has replaced since lie elsewhere."""
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                place = self._places.get(name)
                if place is not None and place.data_ptr() != buffer.data_ptr():
                    (place if to_libzero else buffer).copy_(buffer if to_libzero else place)

    def buffers_to_libzero(self) -> None:
        self._exchange_buffers(True)

    def buffers_from_libzero(self) -> None:
        self._exchange_buffers(False)

    def read(self, parameter: torch.nn.Parameter, out: torch.Tensor, part: str = "value", index: int = 0) -> torch.Tensor:
        """One part of a parameter, whole, into host memory. Collective."""
        self.runtime.get(self.registry.ids[parameter], part, index, memory_of_tensor(out))
        return out

    def write(self, parameter: torch.nn.Parameter, value: torch.Tensor, part: str = "value", index: int = 0) -> None:
        """The same the other way. Collective."""
        dtype = parameter.dtype if part == "value" else torch.float32
        value = torch.as_tensor(value).detach().to("cpu", dtype)
        self.runtime.set(self.registry.ids[parameter], memory_of_tensor(value), part, index)

    def _refresh_masters(self) -> None:
        """What the script wrote into parameters becomes their value, masters included."""
        if self.loans:
            raise NotImplementedError("refresh_fp32_params: at stage 3 write under "
                                      "zero.GatheredParameters(..., modifier_rank=0)")
        for parameter, number in self.registry.ids.items():
            self.runtime.set(number, memory_of_tensor(parameter.detach().clone()))

    # ---- forward and backward ----------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        with explained(self.runtime):
            try:
                return self.module(*inputs, **kwargs)
            except BaseException:
                if self.loans:
                    self.loans.unwind()
                raise
            finally:
                self._seconds["forward"] += time.perf_counter() - start

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True,
                 **unknown: Any) -> torch.Tensor:
        """Divides by the accumulation steps, multiplies by the loss scale, and runs backward; gradients go
        to libzero and .grad stays None. Returns the divided loss. Collective."""
        for name, value in unknown.items():
            if value:
                raise NotImplementedError("backward: %s=%r is not in libzero.torch" % (name, value))
        assert self._gradients is not None, "backward: this engine has no optimizer"
        assert isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad, (
            "backward: the loss must be one number that requires a gradient")
        start = time.perf_counter()
        if self._divides and scale_wrt_gas and self._resolved_steps > 1:
            loss = loss / self._resolved_steps
        scale = self.runtime.loss_scale
        if self.loans:
            self.loans.engine_backward = True
        try:
            with explained(self.runtime), self._gradients.running_backward():
                (loss.float() * scale if scale != 1.0 else loss).backward(retain_graph=retain_graph)
            self._gradients.finish()
        except BaseException:
            self._gradients.abandon()
            if self.loans:
                self.loans.unwind()
            raise
        finally:
            if self.loans:
                self.loans.engine_backward = False
            self._seconds["backward"] += time.perf_counter() - start
        return loss

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """For a backward without the engine: the loss times the loss scale, over the accumulation steps."""
        self._scaled = True
        return loss * (self.runtime.loss_scale / (self._resolved_steps if self._divides else 1))

    _scaled = False

    def _bare_divisor(self) -> float:
        """The accumulation steps, which engine.scale has divided by already."""
        if self.fp16_enabled() and not self._scaled:
            raise RuntimeError("backward of a loss that engine.scale(loss) did not scale: under fp16 call "
                               "engine.backward(loss)")
        return 1.0 if self._scaled or not self._divides else float(self._resolved_steps)

    def _pass_finished(self) -> None:
        self._scaled = False
        if self.loans:
            self.loans.end_of_backward()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Stages 0 and 1: nothing is exchanged before the step anyway; this only guards the call."""
        assert self._stage < 2, "no_sync: stage %d reduces every micro-batch; expected stage 0 or 1" % self._stage
        assert not self._unsynchronised, "no_sync: inside another one"
        self._unsynchronised = True
        try:
            yield
        finally:
            self._unsynchronised = False

    # ---- step ------------------------------------------------------------------------------------------

    def is_gradient_accumulation_boundary(self) -> bool:
        if self._boundary is not None:
            return self._boundary
        return not self._divides or (self.micro_steps + 1) % self._resolved_steps == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        self._boundary = bool(is_boundary)

    def step(self, lr_kwargs: Optional[dict] = None) -> None:
        """On an accumulation boundary: reduce, unscale, clip, update, and a step of the scheduler. Collective."""
        assert not self._unsynchronised, "step: not inside no_sync"
        start = time.perf_counter()
        self._applied = False
        if self.is_gradient_accumulation_boundary():
            self._update(lr_kwargs)
        self.micro_steps += 1
        self._seconds["step"] += time.perf_counter() - start
        self._report()

    def _update(self, lr_kwargs: Optional[dict] = None) -> None:
        assert self._gradients is not None, "step: this engine has no optimizer"
        self._gradients.take_left()
        if self._gradients.passes == 0:
            raise RuntimeError("step: no backward since the last one")
        if self.loans:
            self.loans.check_untouched()
        self._send_groups()
        with explained(self.runtime):
            info = self.runtime.step(gradient_divisor=float(self.world_size))
        self.last_step, self._norm = info, info.grad_norm
        self._gradients.updated()
        self.optimizer.overflow, self.optimizer.loss_scale = info.skipped, info.loss_scale
        self._applied = not info.skipped
        if info.skipped:
            self.skipped_steps += 1
        else:
            stepped(self.optimizer.optimizer)
            stepped(self.optimizer)
            if self.lr_scheduler is not None:
                self._step_scheduler(lr_kwargs or {})
        self.global_steps += 1
        self.global_samples += self.train_batch_size()

    def _step_scheduler(self, kwargs: dict) -> None:
        try:
            self.lr_scheduler.step(**kwargs)
        except TypeError:
            self.lr_scheduler.step(self.train_batch_size())

    def _send_groups(self) -> None:
        """A script or scheduler writes into the groups; what has changed goes to libzero."""
        for index, (group, before) in enumerate(zip(self.optimizer.param_groups, self._groups)):
            values = group_values(group)
            if values != before:
                self.runtime.set_group(self.registry.groups[index], **values)
                self._groups[index] = values

    def _report(self) -> None:
        every = self.steps_per_print()
        if self._applied and self.global_rank == 0 and every and every < 1e15 and self.global_steps % int(every) == 0:
            log.info("step=%d, skipped=%d, lr=%s, mom=%s", self.global_steps, self.skipped_steps, self.get_lr(),
                     self.get_mom())
        if self._applied or (self.last_step and self.last_step.skipped):
            if self.wall_clock_breakdown() and self.global_rank == 0 and self.last_step:
                log.info("time (ms) | forward %.2f | backward %.2f | step %.2f, of it reduce %.2f, update %.2f, gather %.2f",
                         *(1e3 * self._seconds[k] for k in ("forward", "backward", "step")), self.last_step.reduce_ns / 1e6,
                         self.last_step.update_ns / 1e6, self.last_step.gather_ns / 1e6)
            self._seconds = dict.fromkeys(self._seconds, 0.0)

    def was_step_applied(self) -> bool:
        return self._applied

    def zero_grad(self, set_to_none: bool = True) -> None:
        """.grad of every parameter becomes None; what libzero has accumulated stays until the step."""
        for parameter in self.module.parameters():
            parameter.grad = None

    def get_global_grad_norm(self) -> Optional[float]:
        """Of the last step: all ranks', unscaled, before clipping. None before the first."""
        return self._norm

    # ---- the module's -----------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        if "module" in self._modules:
            self.module.train(mode)

    def eval(self) -> None:  # type: ignore[override]
        self.train(False)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None:
                raise
            return getattr(module, name)

    def __getstate__(self) -> Any:
        raise TypeError("an engine cannot be pickled: save_checkpoint, or torch.save(engine.module_state_dict())")

    def __deepcopy__(self, _: Any) -> Any:
        raise TypeError("an engine cannot be copied: it owns a runtime")

    # ---- files ---------------------------------------------------------------------------------------------

    def save_checkpoint(self, save_dir: Any, tag: Any = None, client_state: Optional[dict] = None, save_latest: bool = True,
                        exclude_frozen_parameters: bool = False) -> bool:
        """save_dir/tag, by default global_step<N>, and save_dir/latest that names it. Collective."""
        return files.save(self, save_dir, tag, client_state or {}, save_latest)

    def load_checkpoint(self, load_dir: Any, tag: Any = None, load_module_strict: bool = True,
                        load_optimizer_states: bool = True, load_lr_scheduler_states: bool = True,
                        load_module_only: bool = False, custom_load_fn: Any = None) -> Any:
        """(folder, client_state); (None, None) where there is no latest. Collective."""
        if custom_load_fn is not None:
            raise NotImplementedError("load_checkpoint: custom_load_fn is not in libzero.torch")
        return files.load(self, load_dir, tag, load_optimizer_states, load_lr_scheduler_states, load_module_only,
                          load_module_strict)

    def module_state_dict(self, exclude_frozen_parameters: bool = False) -> dict:
        if self.loans:
            raise NotImplementedError("module_state_dict at stage 3: _zero3_consolidated_16bit_state_dict() on all ranks")
        frozen = {n for n, p in self.module.named_parameters() if exclude_frozen_parameters and not p.requires_grad}
        return {k: v for k, v in self.module.state_dict().items() if k not in frozen}

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> Any:
        if self._stage != 3:
            raise ValueError("_zero3_consolidated_16bit_state_dict at stage %d: module.state_dict() has it all" % self._stage)
        return files.full_state_dict(self, exclude_frozen_parameters)

    def save_16bit_model(self, save_dir: Any, save_filename: str = "pytorch_model.bin",
                         exclude_frozen_parameters: bool = False) -> bool:
        """Whole weights by torch.save on rank 0. False at stage 3 without the config's key. Collective."""
        return files.save_whole(self, save_dir, save_filename, exclude_frozen_parameters)

    def destroy(self) -> None:
        """Ends the engine: hooks are gone; at stages 0 to 2 the parameters stay readable."""
        if self._gradients:
            self._gradients.remove()
        if self.loans:
            self.loans.remove(self.module)
        self.runtime.destroy()
