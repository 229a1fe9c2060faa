#!/usr/bin/env python3
"""Answers a verse with the next one: a BlenderBot of random weights, trained by Accelerate.

    answer.py [the options of classify.py]

Prints the loss a token on held-out verses. As classify.py, it does not know who answers to `deepspeed`.
"""
# SPDX-License-Identifier: BSD-3-Clause
import json
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch.utils.data import DataLoader
from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration, get_linear_schedule_with_warmup

import book
import classify


def make_model(arguments):
    heads = arguments.width // 64
    return BlenderbotForConditionalGeneration(BlenderbotConfig(
        vocab_size=arguments.vocabulary, d_model=arguments.width, encoder_layers=1, decoder_layers=arguments.layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * arguments.width,
        decoder_ffn_dim=4 * arguments.width, max_position_embeddings=arguments.length, scale_embedding=True,
        pad_token_id=book.PAD, bos_token_id=book.START, decoder_start_token_id=book.START, eos_token_id=book.END,
        forced_eos_token_id=None))


def make_data(arguments):
    verses = book.read_verses(arguments.book)
    pairs = [(first, second) for first, second in zip(verses, verses[1:]) if first[1] == second[1]]
    train = [pair for pair in pairs if not book.is_held_out(pair[0][1])]
    held_out = [pair for pair in pairs if book.is_held_out(pair[0][1])]
    words = book.Words([first[2] for first, _ in train], arguments.vocabulary)
    draw = random.Random(0)
    chosen = draw.sample(train, arguments.train), draw.sample(held_out, arguments.held_out)
    return [[tuple(words.row(verse[2], arguments.length) for verse in pair) for pair in rows] for rows in chosen]


def collate(rows):
    heard, said = torch.tensor([row for row, _ in rows]), torch.tensor([row for _, row in rows])
    labels = said[:, 1:].clone()
    labels[labels == book.PAD] = -100
    return {"input_ids": heard, "attention_mask": (heard != book.PAD).long(), "labels": labels}


def evaluate(accelerator, model, loader):
    """Loss a token."""
    model.eval()
    losses = []
    for batch in loader:
        with torch.no_grad():
            loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(len(batch["labels"]))))
    return torch.cat(losses).mean().item()


def main():
    arguments = classify.parse()
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
    held_out_loss = None if arguments.steps else evaluate(accelerator, model, loader)
    result = {"parameters": sum(p.numel() for p in accelerator.unwrap_model(model).parameters()), "batch": arguments.batch,
              "ranks": accelerator.num_processes, "epoch_seconds": epochs, "step_seconds": steps, "losses": losses,
              "held_out_loss": held_out_loss}
    if accelerator.is_main_process:
        print("%d ranks, batch %d: %d steps, first loss %.6f, last %.6f" % (
            accelerator.num_processes, arguments.batch, len(steps), losses[0], losses[-1]))
        if held_out_loss is not None:
            print("held-out loss %.4f" % held_out_loss)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    accelerator.end_training()


if __name__ == "__main__":
    main()
