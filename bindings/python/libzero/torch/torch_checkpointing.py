"""deepspeed.checkpointing: activation checkpointing under the calls that Megatron makes. What it saves is
torch.utils.checkpoint's; one process has one rank of the model, so nothing is partitioned."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
from typing import Any, Dict, Iterator

import torch
import torch.utils.checkpoint

_configured = False


def configure(mpu_: Any = None, deepspeed_config: Any = None, partition_activations: Any = None,
              contiguous_checkpointing: Any = None, num_checkpoints: Any = None, checkpoint_in_cpu: Any = None,
              synchronize: Any = None, profile: Any = None, mpu: Any = None) -> None:
    """Accepts what changes where activations lie or what is measured; refuses to share them among ranks of
    tensor parallelism, of which libzero has one."""
    global _configured
    mpu_ = mpu_ if mpu_ is not None else mpu
    size = getattr(mpu_, "get_model_parallel_world_size", None) or getattr(mpu_, "get_tensor_model_parallel_world_size", None)
    if size is not None and size() > 1:
        raise NotImplementedError("checkpointing.configure: the mpu has %d ranks of model parallelism, which is not in libzero"
                                  % size())
    if checkpoint_in_cpu and torch.cuda.is_available():
        raise NotImplementedError("checkpointing.configure: checkpoint_in_cpu is not in libzero.torch; expected "
                                  "torch.autograd.graph.save_on_cpu around the call")
    _configured = True


def is_configured() -> bool:
    return _configured


def reset() -> None:
    """Forgets nothing that a later call would need: buffers are torch's."""


def checkpoint(function: Any, *args: Any) -> Any:
    """function(*args), computed again in backward, with the random numbers of the first time."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=True)


def non_reentrant_checkpoint(function: Any, *args: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)


class RngTracker:
    """Named random states: fork(name) draws from one of them and leaves the others alone."""

    def __init__(self) -> None:
        self.states_: Dict[str, torch.Tensor] = {}
        self.seeds_: set = set()

    def reset(self) -> None:
        self.states_.clear()
        self.seeds_.clear()

    def get_states(self) -> Dict[str, torch.Tensor]:
        return dict(self.states_)

    def set_states(self, states: Dict[str, torch.Tensor]) -> None:
        self.states_ = dict(states)

    def add(self, name: str, seed: int) -> None:
        if seed in self.seeds_ or name in self.states_:
            raise Exception("seed %d or state %r is there already" % (seed, name))
        self.seeds_.add(seed)
        before = _state()
        torch.manual_seed(seed)
        self.states_[name] = _state()
        _set_state(before)

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        if name not in self.states_:
            raise Exception("random state %r has not been added" % name)
        before = _state()
        _set_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = _state()
            _set_state(before)


def _state() -> torch.Tensor:
    return torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()


def _set_state(state: torch.Tensor) -> None:
    (torch.cuda.set_rng_state if torch.cuda.is_available() else torch.set_rng_state)(state)


_tracker = RngTracker()


def get_cuda_rng_tracker() -> RngTracker:
    return _tracker


def model_parallel_cuda_manual_seed(seed: int) -> None:
    """The default state takes the seed; the one of model parallelism a seed beside it."""
    _tracker.reset()
    torch.manual_seed(seed)
    _tracker.add("model-parallel-rng", seed + 2718)


model_parallel_reconfigure_tp_seed = model_parallel_cuda_manual_seed

NAMES = ("configure is_configured reset checkpoint non_reentrant_checkpoint get_cuda_rng_tracker "
         "model_parallel_cuda_manual_seed model_parallel_reconfigure_tp_seed")
