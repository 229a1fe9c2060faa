"""deepspeed.ops: the optimizers' names."""
# SPDX-License-Identifier: BSD-3-Clause
import types

from .torch_optimizers import DeepSpeedCPUAdam, FusedAdam

ops = types.SimpleNamespace(adam=types.SimpleNamespace(FusedAdam=FusedAdam, DeepSpeedCPUAdam=DeepSpeedCPUAdam))
