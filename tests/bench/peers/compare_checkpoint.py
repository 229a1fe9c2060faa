#!/usr/bin/env python3
# Saving and loading a checkpoint at 2 ranks: libzero beside torch.save and DeepSpeed, in turn:
#   compare_checkpoint.py BENCH_CHECKPOINT [MiB (2048)] [rounds (3)] [folder]
# The same number of fp32 masters and moments on one disk.  libzero's save is on the disk when it
# returns; a peer's is compared with what it takes until its bytes are synced too.  One JSON object
# a line; ratio is how many times faster libzero is.
# Runs with the interpreter that LIBZERO_PEERS_PYTHON names, else one that make_venv.sh makes.
# SPDX-License-Identifier: BSD-3-Clause
import json
import subprocess
import sys
import tempfile

from peer_runs import interpreter, json_lines, run_ranks

TIME_LIMIT_S = 1800


def run_peer(python, mode, folder, mib, rounds):
    return run_ranks(python, 'checkpoint_peer.py', mode, folder, mib, rounds,
                     time_limit_s=TIME_LIMIT_S)


def main():
    if len(sys.argv) < 2:
        sys.exit('usage: compare_checkpoint.py BENCH_CHECKPOINT [MiB] [rounds] [folder]')
    bench = sys.argv[1]
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 2048
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    above = sys.argv[4] if len(sys.argv) > 4 else tempfile.gettempdir()
    python = interpreter()
    done = subprocess.run([bench, str(mib), str(rounds), above], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=TIME_LIMIT_S)
    ours = {line['name']: line['value'] for line in json_lines(done.stdout)}
    print(done.stdout, end='', flush=True)
    for mode in ('torch', 'ds2'):
        with tempfile.TemporaryDirectory(dir=above) as folder:
            theirs = run_peer(python, mode, folder, mib, rounds)
        if theirs is None:
            continue
        gigabytes = mib * 2**20 / 1e9
        for name, key in (('save', 'synced_s'), ('load', 'load_s')):
            value, baseline = ours[f'{name}_ranks2'], gigabytes / theirs[key]
            print(json.dumps({'name': f'{name}_ranks2_against_{mode}', 'value': value,
                              'unit': 'GB/s', 'baseline': round(baseline, 4),
                              'ratio': round(value / baseline, 2)}), flush=True)
        print(f'{mode}: {theirs}', file=sys.stderr)
    return 0


if __name__ == '__main__':
    sys.exit(main())
