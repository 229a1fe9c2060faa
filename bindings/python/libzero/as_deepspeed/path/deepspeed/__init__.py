"""The name deepspeed: libzero.torch's own names, under it and under its submodules."""
# SPDX-License-Identifier: BSD-3-Clause
import sys as _sys

try:
    from libzero.torch import torch_names as _names
except ModuleNotFoundError as _error:
    if _error.name != "libzero":
        raise
    raise ModuleNotFoundError("deepspeed: this name is libzero's here (PYTHONPATH), but %s has no libzero: install it there, or "
                              "run without --as-deepspeed" % _sys.executable, name="libzero") from None

_names.answer_to(_sys.modules[__name__])


def __getattr__(name):
    return _names.top(name)
