"""A script for zero2_config_accelerate.json: optimizer and schedule are the file's.    article_script.py OUT.json"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
set_seed(5)
model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                     vocab_size=128, max_position_embeddings=64, pad_token_id=0))
rows = torch.randint(1, 128, (4, 12), generator=torch.Generator().manual_seed(9)).repeat(24, 1)
optimizer = DummyOptim(model.parameters(), lr=1e-2)
scheduler = DummyScheduler(optimizer, total_num_steps=48, warmup_num_steps=2)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=2), scheduler)
losses = []
for batch in loader:
    loss = model(input_ids=batch, labels=batch).loss
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    losses.append(loss.item())
if accelerator.is_main_process:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"losses": losses}, file)
accelerator.end_training()
