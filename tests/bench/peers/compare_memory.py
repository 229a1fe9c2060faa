#!/usr/bin/env python3
# Peak memory of a rank's whole process, GPT-2 of 124 M parameters, 2 ranks: libzero under torch's
# forward and backward passes beside torch's and DeepSpeed's own ways to train the same model.
#   compare_memory.py LIBZERO.so [rounds] [steps a mode] [layers]
# PSS, sampled 20 times a second, above the bare imports.  One JSON object a line: value is
# libzero's peak at a stage in MB, baseline the peer's at that stage; ratio how many times less.
# Runs with the interpreter that LIBZERO_PEERS_PYTHON names, else one that make_venv.sh makes.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import statistics
import sys

from compare_step import run_peer
from peer_runs import interpreter

STAGES = {1: ('ddp', 'zero1', 'ds1'), 2: ('ddp', 'zero1', 'ds2'), 3: ('ddp', 'fsdp2', 'ds3')}


def main():
    if len(sys.argv) < 2:
        sys.exit('usage: compare_memory.py LIBZERO.so [rounds] [steps a mode] [layers]')
    os.environ['LIBZERO_LIBRARY'] = os.path.abspath(sys.argv[1])
    rounds, steps, layers = (int(sys.argv[i]) if len(sys.argv) > i else default
                             for i, default in ((2, 1), (3, 4), (4, 12)))
    python = interpreter()
    modes = sorted({mode for peers in STAGES.values() for mode in peers})
    peaks, losses = {}, {}
    for _ in range(rounds):
        for mode in ['none', 'libzero1', 'libzero2', 'libzero3'] + modes:
            row = run_peer(python, mode, steps, layers)
            if row is None:
                continue
            peaks.setdefault(mode, []).append(row['peak_mb'])
            losses[mode] = row['loss']
            print(f'{mode}: {row}', file=sys.stderr, flush=True)
    for stage, peers in STAGES.items():
        ours = f'libzero{stage}'
        for mode in ('none',) + peers:
            if mode not in peaks or ours not in peaks:
                continue
            value, baseline = statistics.median(peaks[ours]), statistics.median(peaks[mode])
            print(json.dumps({'name': f'peak_pss_stage{stage}_against_{mode}', 'value': value,
                              'unit': 'MB', 'baseline': baseline,
                              'ratio': round(baseline / value, 2), 'loss': losses[ours],
                              'baseline_loss': losses[mode]}), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
