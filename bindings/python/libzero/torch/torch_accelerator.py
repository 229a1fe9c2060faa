"""get_accelerator(): the device that libzero can work on, CUDA where its build and the machine have it."""
# SPDX-License-Identifier: BSD-3-Clause
import os
from typing import Any, Optional

import torch

from .. import raw


class Accelerator:
    """Names and the calls that scripts make."""

    def __init__(self, kind: str):
        self._name = kind

    def device_name(self, device_index: Optional[int] = None) -> str:
        return self._name if device_index is None or self._name == "cpu" else "%s:%d" % (self._name, device_index)

    def current_device(self) -> int:
        return torch.cuda.current_device() if self._name == "cuda" else 0

    def current_device_name(self) -> str:
        return self.device_name(self.current_device())

    def device(self, device_index: Optional[int] = None) -> Any:
        return torch.device(self.device_name(device_index))

    def device_count(self) -> int:
        return torch.cuda.device_count() if self._name == "cuda" else 1

    def set_device(self, device_index: int) -> None:
        if self._name == "cuda":
            torch.cuda.set_device(device_index)

    def synchronize(self, device_index: Optional[int] = None) -> None:
        if self._name == "cuda":
            torch.cuda.synchronize(device_index)

    def empty_cache(self) -> None:
        if self._name == "cuda":
            torch.cuda.empty_cache()

    def memory_allocated(self, device_index: Optional[int] = None) -> int:
        return torch.cuda.memory_allocated(device_index) if self._name == "cuda" else 0

    def max_memory_allocated(self, device_index: Optional[int] = None) -> int:
        return torch.cuda.max_memory_allocated(device_index) if self._name == "cuda" else 0

    def communication_backend_name(self) -> str:
        return "nccl" if self._name == "cuda" else "gloo"

    def is_available(self) -> bool:
        return True

    def is_bf16_supported(self) -> bool:
        return True

    def is_fp16_supported(self) -> bool:
        return True

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def random(self) -> Any:
        return torch.random


_found: Optional[Accelerator] = None


def get_accelerator() -> Accelerator:
    """DS_ACCELERATOR=cpu forces the host."""
    global _found
    if _found is None:
        wanted = os.environ.get("DS_ACCELERATOR", "")
        usable = torch.cuda.is_available() and raw.zero_has_feature(raw.ZERO_FEATURE_CUDA)
        _found = Accelerator("cuda" if usable and wanted in ("", "cuda") else "cpu")
    return _found


def set_accelerator(accelerator: Any) -> None:
    """Another object to answer get_accelerator."""
    global _found
    _found = accelerator
