"""What the scripts hold before they have a model: imports, ranks and data. Its memory is measured from outside."""
# SPDX-License-Identifier: BSD-3-Clause
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

import answer
import classify

script = {"classify.py": classify, "answer.py": answer}[sys.argv.pop(1)]
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
kept = script.make_data(classify.parse())
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # imports more
if accelerator.state.deepspeed_plugin is not None:
    import deepspeed  # noqa: F401
time.sleep(1.5)
accelerator.end_training()
