#!/usr/bin/env python3
# What training adds to forward and backward: libzero's reduction and step beside that of torch DDP,
# ZeroRedundancyOptimizer, FSDP2 and DeepSpeed, GPT-2 of 124 M parameters, 2 ranks, in turn:
#   compare_step.py BENCH_STEP [rounds] [modes, separated by commas] [steps a mode]
# A peer adds what its whole step takes beyond the forward and backward passes that nothing else
# joins (mode none, run just before); libzero adds what bench_step measures: it has no overlap
# with a backward pass there, so this is the most it can add.  One JSON object a line; ratio is how
# many times faster libzero is (of a memory line: how many times less it holds).
# Runs with the interpreter that LIBZERO_PEERS_PYTHON names, else one that make_venv.sh makes.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import statistics
import subprocess
import sys

from peer_runs import interpreter, json_lines, run_ranks

# A mode, and libzero's stage that does the same.
PEERS = {'ddp': 0, 'zero1': 1, 'fsdp2': 3, 'ds0': 0, 'ds1': 1, 'ds2': 2, 'ds3': 3}
TIME_LIMIT_S = 900


def run_peer(python, mode, steps, layers=12):
    return run_ranks(python, 'train_peer.py', mode, steps, layers, time_limit_s=TIME_LIMIT_S)


def run_libzero(bench, steps):
    done = subprocess.run([bench, str(steps), '0123', 'library'], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S)
    return {line['name']: line['value'] for line in json_lines(done.stdout)}


def report(name, ours, theirs, unit):
    print(json.dumps({
        'name': name,
        'value': round(statistics.median(ours), 4),
        'unit': unit,
        'baseline': round(statistics.median(theirs), 4),
        'ratio': round(statistics.median(t / o for o, t in zip(ours, theirs)), 2),
    }), flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit('usage: compare_step.py BENCH_STEP [rounds] [modes] [steps a mode]')
    bench = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    modes = sys.argv[3].split(',') if len(sys.argv) > 3 else list(PEERS)
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    unknown = [mode for mode in modes if mode not in PEERS]
    if unknown:
        sys.exit(f'{unknown[0]} is no peer, expected some of {", ".join(PEERS)}')
    python = interpreter()
    load = os.getloadavg()[0]
    print(json.dumps({'name': 'load average against cores', 'value': load, 'unit': 'processes',
                      'baseline': os.cpu_count(), 'ratio': round(load / os.cpu_count(), 2)}),
          flush=True)
    added = {mode: ([], []) for mode in modes}
    memory = {mode: ([], []) for mode in modes}
    for _ in range(rounds):
        ours = run_libzero(bench, steps)
        for mode in modes:
            # The machine drifts: each peer has its own bare run in the same minute.
            bare = run_peer(python, 'none', steps)
            if bare is None:
                sys.exit(f'{python} trains nothing here')
            theirs = run_peer(python, mode, steps)
            if theirs is None:
                continue
            stage = f'step_stage{PEERS[mode]}_library'
            added[mode][0].append(ours[stage])
            added[mode][1].append(theirs['step_s'] - bare['forward_backward_s'])
            memory[mode][0].append(ours[f'{stage}_pss'])
            memory[mode][1].append(theirs['peak_mb'])
            print(f'{mode}: {theirs}, none: {bare}', file=sys.stderr)
    for mode in modes:
        if not added[mode][0]:
            continue
        report(f'added_to_forward_and_backward_stage{PEERS[mode]}_against_{mode}', *added[mode], 's')
        report(f'peak_pss_stage{PEERS[mode]}_against_{mode}', *memory[mode], 'MB')
    return 0


if __name__ == '__main__':
    sys.exit(main())
