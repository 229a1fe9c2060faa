"""An Accelerate script that uses what such scripts use; it names neither DeepSpeed nor libzero. Says OK at its end.

    accelerate_script.py FOLDER [--model FOLDER]
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import pathlib
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

folder = pathlib.Path(sys.argv[1])
accelerator = Accelerator(gradient_accumulation_steps=2, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
plugin = accelerator.state.deepspeed_plugin
config = plugin.deepspeed_config
stage = plugin.zero_stage
set_seed(5)
if "--model" in sys.argv:
    model = LlamaForCausalLM.from_pretrained(sys.argv[sys.argv.index("--model") + 1])
else:
    model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                         vocab_size=128, max_position_embeddings=64, pad_token_id=0))
born = {name: hasattr(p, "ds_id") for name, p in model.named_parameters()}
rows = torch.randint(1, 128, (48, 12), generator=torch.Generator().manual_seed(9))
loader, held_out = DataLoader(rows, batch_size=2), DataLoader(rows[:7], batch_size=2)
if "optimizer" in config:
    optimizer = DummyOptim(model.parameters(), lr=2e-3, weight_decay=0.01)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
if "scheduler" in config:
    scheduler = DummyScheduler(optimizer, total_num_steps=24, warmup_num_steps=2)
else:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
model, optimizer, loader, held_out, scheduler = accelerator.prepare(model, optimizer, loader, held_out, scheduler)


def epoch(most=99):
    losses, norms, rates = [], [], []
    model.train()
    for number, batch in enumerate(loader):
        if number == most:
            break
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
    return losses, norms, rates


def evaluate():
    model.eval()
    with torch.no_grad():
        losses = [accelerator.gather_for_metrics(model(input_ids=batch, labels=batch).loss.float().repeat(len(batch)))
                  for batch in held_out]
    losses = torch.cat(losses)
    assert len(losses) == 7, losses
    return losses.mean().item()


losses, norms, rates = epoch()
first = evaluate()
accelerator.save_state(str(folder / "state"))
again = epoch(6)
accelerator.load_state(str(folder / "state"))
assert abs(evaluate() - first) < 1e-6, "the state that was loaded is another"
repeated = epoch(6)
assert repeated[0] == again[0], (repeated, again)

weights = accelerator.get_state_dict(model)
dtypes = sorted({str(value.dtype) for value in weights.values()}) if accelerator.is_main_process else []
sizes = [value.numel() for value in weights.values()] if accelerator.is_main_process else []
unwrapped = accelerator.unwrap_model(model)
assert isinstance(unwrapped, LlamaForCausalLM), type(unwrapped)
unwrapped.save_pretrained(folder / "saved", is_main_process=accelerator.is_main_process, save_function=accelerator.save,
                          state_dict=weights)
accelerator.wait_for_everyone()
if accelerator.is_main_process:
    assert sizes and all(sizes), "empty weights were saved"
    (folder / "accelerate.json").write_text(json.dumps({
        "losses": losses, "norms": norms, "rates": rates, "evaluation": first, "stage": stage,
        "born": sum(born.values()), "parameters": len(born), "engine": type(model).__module__,
        "dtypes": dtypes}))
    print("OK stage %d, %s" % (stage, type(model).__module__), flush=True)
accelerator.end_training()
