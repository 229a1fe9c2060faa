#!/usr/bin/env python3
# The fused AdamW beside the peers' - torch's fused one and DeepSpeed's CPUAdam - a round of each in
# turn, medians: adam_peers.py BENCH_KERNELS [million parameters] [rounds]
# Runs with the interpreter that LIBZERO_PEERS_PYTHON names; exits with 77 and a word where that has
# no torch.  One JSON object a line; GB/s at 28 bytes a parameter.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import statistics
import subprocess
import sys
import time

SKIPPED = 77


def torch_steps(millions, threads):
    """A function that runs one step, for each peer that this interpreter has."""
    import torch
    torch.set_num_threads(threads)

    def stepper(make):
        p = torch.nn.Parameter(torch.full((millions * 1_000_000,), 1e-2))
        p.grad = torch.full_like(p, 1e-3)
        optimizer = make([p])
        optimizer.step()
        return optimizer.step

    steps = {'torch_fused': stepper(lambda ps: torch.optim.AdamW(ps, lr=1e-4, fused=True))}
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        steps['deepspeed_cpu_adam'] = stepper(
            lambda ps: DeepSpeedCPUAdam(ps, lr=1e-4, adamw_mode=True))
    except Exception as error:  # not installed, or its operator does not compile here
        print(f'deepspeed_cpu_adam left out: {type(error).__name__}: {str(error)[:200]}',
              file=sys.stderr)
    return steps


def serve(millions, threads):
    """Runs a round of each peer for every line on stdin."""
    steps = torch_steps(millions, threads)
    for _ in sys.stdin:
        figures = {}
        for name, step in steps.items():
            times = []
            for _ in range(3):
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            figures[name] = millions * 28e6 / statistics.median(times) / 1e9
        print(json.dumps(figures), flush=True)


def ours(bench, millions, threads):
    lines = subprocess.run([bench, str(millions), '5', 'adamw', str(threads)], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[0])['value']


def compare(bench, python, millions, rounds, threads):
    environment = dict(os.environ, DS_ACCELERATOR='cpu', OMP_NUM_THREADS=str(threads))
    # DeepSpeed compiles its operator on first use, by the ninja beside the interpreter and the
    # machine's own compiler.
    environment['PATH'] = f'{os.path.dirname(python)}:{environment["PATH"]}'
    environment.pop('CC', None)
    environment.pop('CXX', None)
    peers = subprocess.Popen([python, __file__, '--serve', str(millions), str(threads)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment)
    figures = {}
    ratios = {}
    for _ in range(rounds):
        mine = ours(bench, millions, threads)
        figures.setdefault('ours', []).append(mine)
        peers.stdin.write('round\n')
        peers.stdin.flush()
        while True:  # DeepSpeed writes its own lines to stdout
            line = peers.stdout.readline()
            if not line:
                sys.exit(f'the peers in {python} ended early')
            if line.startswith('{'):
                break
        for name, value in json.loads(line).items():
            figures.setdefault(name, []).append(value)
            ratios.setdefault(name, []).append(mine / value)
    peers.stdin.close()
    peers.wait()
    for name, values in ratios.items():
        print(json.dumps({
            'name': f'adamw_against_{name}_{threads}_threads',
            'value': round(statistics.median(figures['ours']), 2),
            'unit': 'GB/s',
            'baseline': round(statistics.median(figures[name]), 2),
            'ratio': round(statistics.median(values), 3),
        }), flush=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == '--serve':
        return serve(int(sys.argv[2]), int(sys.argv[3]))
    if len(sys.argv) < 2:
        sys.exit('usage: adam_peers.py BENCH_KERNELS [million parameters] [rounds]')
    python = os.environ.get('LIBZERO_PEERS_PYTHON')
    if not python:
        print('skipped: LIBZERO_PEERS_PYTHON names no interpreter that has torch')
        return SKIPPED
    probe = subprocess.run([python, '-c', 'import torch'], capture_output=True, text=True)
    if probe.returncode != 0:
        reason = (probe.stderr.strip().splitlines() or ['no reason given'])[-1]
        print(f'skipped: {python} has no torch ({reason})')
        return SKIPPED
    millions = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    for threads in (1, 2):
        compare(sys.argv[1], python, millions, rounds, threads)
    return 0


if __name__ == '__main__':
    sys.exit(main())
