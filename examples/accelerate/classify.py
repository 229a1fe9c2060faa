#!/usr/bin/env python3
"""Says which part of the book a verse is from: a DeBERTa-v2 of random weights, trained by Accelerate.

    classify.py [--batch 8] [--epochs 2] [--rate 5e-4] [--seed 1] [--train 4000] [--held-out 1000]
                [--width 384] [--layers 3] [--steps N] [--book FILE] [--save FOLDER] [--json FILE]

An Accelerate script like any other: nothing in it knows who answers to `deepspeed`, or whether
anybody does. How it runs is the launcher's business (docs/accelerate.md).
"""
# SPDX-License-Identifier: BSD-3-Clause
import argparse
import json
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification, get_linear_schedule_with_warmup

import book


def make_model(arguments):
    return DebertaV2ForSequenceClassification(DebertaV2Config(
        vocab_size=arguments.vocabulary, hidden_size=arguments.width, num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.width // 64, intermediate_size=4 * arguments.width, num_labels=len(book.PARTS),
        max_position_embeddings=2 * arguments.length, relative_attention=True, position_buckets=arguments.length // 2,
        max_relative_positions=-1, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False, type_vocab_size=0, pad_token_id=book.PAD, pooler_hidden_size=arguments.width))


def make_data(arguments):
    """Training and held-out samples, the same on every rank."""
    verses = book.read_verses(arguments.book)
    train = [verse for verse in verses if not book.is_held_out(verse[1])]
    held_out = [verse for verse in verses if book.is_held_out(verse[1])]
    words = book.Words([verse[2] for verse in train], arguments.vocabulary)
    draw = random.Random(0)
    chosen = draw.sample(train, arguments.train), draw.sample(held_out, arguments.held_out)
    return [[(words.row(text, arguments.length), part) for part, _, text in rows] for rows in chosen]


def collate(rows):
    tokens = torch.tensor([row for row, _ in rows])
    return {"input_ids": tokens, "attention_mask": (tokens != book.PAD).long(),
            "labels": torch.tensor([part for _, part in rows])}


def evaluate(accelerator, model, loader):
    """Share that is right, and the mean over the parts of F1."""
    model.eval()
    said, wanted = [], []
    for batch in loader:
        with torch.no_grad():
            best = model(**batch).logits.argmax(-1)
        best, labels = accelerator.gather_for_metrics((best, batch["labels"]))
        said.append(best)
        wanted.append(labels)
    said, wanted = torch.cat(said), torch.cat(wanted)
    scores = []
    for part in range(len(book.PARTS)):
        both = ((said == part) & (wanted == part)).sum().item()
        either = (said == part).sum().item() + (wanted == part).sum().item()
        scores.append(2 * both / max(either, 1))
    return (said == wanted).float().mean().item(), sum(scores) / len(scores)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8, help="samples a rank")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="ends the training early; no validation then")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", type=int, default=4000, help="verses")
    parser.add_argument("--held-out", type=int, default=1000, help="verses")
    parser.add_argument("--length", type=int, default=32, help="tokens a verse")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--book", help="what `bible -f gen1:1-rev22:21` prints")
    parser.add_argument("--save", help="folder for save_pretrained")
    parser.add_argument("--json", help="file for what was measured")
    return parser.parse_args()


def main():
    arguments = parse()
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    set_seed(arguments.seed)
    train, held_out = make_data(arguments)
    model = make_model(arguments)
    train_loader = DataLoader(train, batch_size=arguments.batch, shuffle=True, collate_fn=collate)
    loader = DataLoader(held_out, batch_size=arguments.batch, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01)
    updates = arguments.epochs * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, updates // 10, updates)
    model, optimizer, train_loader, loader, scheduler = accelerator.prepare(model, optimizer, train_loader, loader, scheduler)

    epochs, steps, losses = [], [], []
    for _ in range(arguments.epochs):
        model.train()
        begin = time.perf_counter()
        for batch in train_loader:
            start = time.perf_counter()
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            steps.append(time.perf_counter() - start)
            if len(steps) == arguments.steps:
                break
        epochs.append(time.perf_counter() - begin)
        if len(steps) == arguments.steps:
            break
    right, f1 = (None, None) if arguments.steps else evaluate(accelerator, model, loader)
    result = {"parameters": sum(p.numel() for p in accelerator.unwrap_model(model).parameters()), "batch": arguments.batch,
              "ranks": accelerator.num_processes, "epoch_seconds": epochs, "step_seconds": steps,
              "losses": losses, "accuracy": right, "f1": f1}
    if arguments.save:
        accelerator.unwrap_model(model).save_pretrained(
            arguments.save, is_main_process=accelerator.is_main_process, save_function=accelerator.save,
            state_dict=accelerator.get_state_dict(model))
    if accelerator.is_main_process:
        print("%d ranks, batch %d: %d steps, first loss %.6f, last %.6f" % (
            accelerator.num_processes, arguments.batch, len(steps), losses[0], losses[-1]))
        if right is not None:
            print("accuracy %.4f, F1 %.4f" % (right, f1))
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    accelerator.end_training()


if __name__ == "__main__":
    main()
