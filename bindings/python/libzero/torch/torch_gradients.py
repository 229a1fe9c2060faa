"""Gradients from autograd to libzero as they come; one backward pass is one micro-batch."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
from typing import Any, Callable, ClassVar, Iterator, List, Optional, Set, Tuple

import torch

from .. import checked
from ..errors import NoOpenBucketError
from ..runtime import Runtime
from .torch_registry import Registry
from .torch_tensors import memory_of_tensor, stream_of

Parameter = torch.nn.Parameter


class Gradients:
    """Each gradient is handed over, and freed, the moment it is complete. What cannot be yet (too many
    buckets are open), or comes twice in one pass (shared weights under re-entrant checkpointing), goes
    as a micro-batch of its own after it: the step divides by the ranks alone. What comes in a backward of
    another engine (a GAN's discriminator under its generator's loss) stays in .grad, as in torch: zero_grad
    drops it, the next backward or step of this engine takes it."""

    running: ClassVar[Optional["Gradients"]] = None  # of the engine whose backward runs

    def __init__(self, runtime: Runtime, registry: Registry, stage: int, device: torch.device):
        self._runtime, self._registry, self._stage, self._device = runtime, registry, stage, device
        self._trained_ids = [registry.ids[p] for p in registry.trained]
        self._open = self._abandoned = False
        self._arrived: Set[int] = set()
        self._blocked: List[Tuple[int, torch.Tensor]] = []
        self._late: List[Tuple[int, torch.Tensor]] = []
        self._hooks: List[Any] = []
        self._left = False  # another engine's backward may have left something in .grad
        self.passes = 0  # since the last update
        # Asked when a backward without the engine begins: by what its gradients are divided. It may refuse.
        self.bare_divisor: Optional[Callable[[], float]] = None
        self._divisor = 1.0
        self.finished: Optional[Callable[[], None]] = None
        for parameter in registry.trained:
            self._listen(parameter, registry.ids[parameter])

    def _listen(self, parameter: Parameter, number: int) -> None:
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(lambda p: self._came(p, number)))
            return
        # torch before 2.1: the node that accumulates calls back after it has.
        with torch.enable_grad():
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._hooks += [node.register_hook(lambda *_: self._came(parameter, number)), node]

    def remove(self) -> None:
        for hook in self._hooks:
            if hasattr(hook, "remove"):
                hook.remove()
        self._hooks = []

    @property
    def inside(self) -> bool:
        """A backward of the engine runs, which will call finish."""
        return Gradients.running is self

    @contextlib.contextmanager
    def running_backward(self) -> Iterator[None]:
        before, Gradients.running = Gradients.running, self
        try:
            yield
        finally:
            Gradients.running = before

    def take_left(self) -> None:
        """What another engine's backward left in .grad counts as a pass of its own. Collective."""
        if not self._left:
            return
        self._left = False
        left = [p for p in self._registry.trained if p.grad is not None]
        if left:
            with self.running_backward():
                for parameter in left:
                    self._came(parameter, self._registry.ids[parameter])
            self.finish()

    def _begin(self) -> None:
        if self._abandoned:
            checked.grads_clear(self._runtime.handle, stream_of(self._device))
            self._abandoned = self._open = False
            self.passes = 0
        if not self._open:
            # 0: another pass may follow before the step, as scripts with two losses do.
            checked.micro_begin(self._runtime.handle, 0)
            self._open = True
            self._arrived.clear()

    def _came(self, parameter: Parameter, number: int) -> None:
        gradient = parameter.grad
        if gradient is None:
            return
        if Gradients.running not in (None, self):
            self._left = True
            return
        parameter.grad = None
        if not self.inside and (not self._open or self._abandoned):
            self._divisor = self.bare_divisor() if self.bare_divisor else 1.0
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        if not self.inside and self._divisor != 1.0:
            gradient = gradient / self._divisor
        self._begin()
        if number in self._arrived:
            self._late.append((number, gradient))
            return
        self._arrived.add(number)
        if not self._submit(number, gradient):
            self._blocked.append((number, gradient))
        elif self._blocked:
            self._retry()

    def _submit(self, number: int, gradient: torch.Tensor) -> bool:
        if gradient.layout != torch.strided:
            gradient = gradient.to_dense()
        try:
            checked.grad_submit(self._runtime.handle, number, memory_of_tensor(gradient).buffer(),
                                stream_of(self._device))
        except NoOpenBucketError:
            return False
        return True

    def _retry(self) -> None:
        self._blocked = [one for one in self._blocked if not self._submit(*one)]

    def finish(self) -> None:
        """The pass is over: what has not come does not come. Collective."""
        self._begin()
        if self._stage >= 2:
            missing = [number for number in self._trained_ids if number not in self._arrived]
            if missing:
                checked.grads_close(self._runtime.handle, missing, stream_of(self._device))
            before = -1
            while self._blocked and len(self._blocked) != before:
                before = len(self._blocked)
                self._retry()
            # An order that needs more open buckets than there are: the rest is a micro-batch of its own,
            # which changes no sum. All ranks make as many.
            self._late, self._blocked = self._blocked + self._late, []
        self._end()
        while self._more():
            late, self._late = self._late, []
            self._begin()
            for number, gradient in late:
                if number in self._arrived or not self._submit(number, gradient):
                    self._late.append((number, gradient))
                else:
                    self._arrived.add(number)
            self._end()
        self.passes += 1
        if self.finished:
            self.finished()

    def _more(self) -> bool:
        mine = float(len(self._late) > 0)
        return bool(self._runtime.comm.all_reduce(mine, "max") if self._stage >= 2 else mine)

    def _end(self) -> None:
        checked.micro_end(self._runtime.handle, stream_of(self._device))
        self._open = False

    def abandon(self) -> None:
        """After an exception in a backward pass: what came since the last step is forgotten when the next begins."""
        self._blocked, self._late = [], []
        self._abandoned = self._abandoned or self._open

    def updated(self) -> None:
        self.passes = 0
