"""An HF Trainer script as people write them: a small Llama learns a fixed text. It names neither DeepSpeed nor libzero.

    trainer_script.py OUT [--steps N] [--save-steps N] [--resume] [--from FOLDER] [--sizes tiny|small] [--accumulation N]
                      [--deepspeed CONFIG] [--evaluate] [--schedule NAME] [--bf16]
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import os
import pathlib
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

SIZES = {"tiny": dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=128),
         "small": dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4, vocab_size=4096)}

parser = argparse.ArgumentParser()
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--save-steps", type=int, default=3)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--from", dest="start")
parser.add_argument("--sizes", default="tiny")
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--deepspeed")
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--schedule", default="linear")
parser.add_argument("--no-save", action="store_true")
options = parser.parse_args()

training = TrainingArguments(
    output_dir=str(options.out), per_device_train_batch_size=2, per_device_eval_batch_size=2, max_steps=options.steps,
    gradient_accumulation_steps=options.accumulation, learning_rate=1e-3, weight_decay=0.01, warmup_steps=2, logging_steps=1,
    lr_scheduler_type=options.schedule, save_strategy="no" if options.no_save else "steps", save_steps=options.save_steps,
    eval_strategy="steps" if options.evaluate else "no", eval_steps=options.save_steps, max_grad_norm=0.5, seed=7, report_to=[],
    disable_tqdm=True, ddp_backend="gloo", deepspeed=options.deepspeed, dataloader_num_workers=0)


class Clock(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_step_end(self, *_, **__):
        self.times.append((time.perf_counter(), time.process_time()))


torch.manual_seed(3)
sizes = dict(SIZES[options.sizes], max_position_embeddings=64, pad_token_id=0, tie_word_embeddings=False)
if options.start:
    model = LlamaForCausalLM.from_pretrained(options.start)
else:
    model = LlamaForCausalLM(LlamaConfig(**sizes))
if os.environ.get("RANK", "0") == "0":
    print("SHAPES %s" % [tuple(p.shape) for p in model.parameters()][:3], flush=True)
draw = torch.Generator().manual_seed(11)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(1, sizes["vocab_size"], (64, 16), generator=draw)]
clock = Clock()
trainer = Trainer(model=model, args=training, train_dataset=rows, eval_dataset=rows[:6], callbacks=[clock])
trainer.train(resume_from_checkpoint=options.resume or None)
if options.evaluate:
    print("EVALUATED %r" % trainer.evaluate()["eval_loss"], flush=True)
if not options.no_save:
    trainer.save_model(str(options.out / "final"))
if trainer.is_world_process_zero():
    gaps, work = ([b[i] - a[i] for a, b in zip(clock.times, clock.times[1:])] for i in (0, 1))
    (options.out / "result.json").write_text(json.dumps({
        "history": [row for row in trainer.state.log_history if "loss" in row],
        "evaluations": [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row],
        "step_seconds": gaps, "step_cpu_seconds": work, "model": type(trainer.model_wrapped).__module__}))
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
