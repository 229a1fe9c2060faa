# What the comparisons share: the peers' interpreter, and two ranks of one of their programs.
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def interpreter():
    """The one that LIBZERO_PEERS_PYTHON names, else one that make_venv.sh makes."""
    named = os.environ.get('LIBZERO_PEERS_PYTHON')
    if named:
        return named
    made = subprocess.run([HERE / 'make_venv.sh'], check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout.split()[-1]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def run_ranks(python, program, mode, *arguments, time_limit_s):
    """The last JSON object that two ranks of the program print; None, and why on stderr, if none."""
    environment = dict(os.environ, OMP_NUM_THREADS='1', DS_ACCELERATOR='cpu')
    # DeepSpeed's operators are compiled on first use, by tools of the same environment; a wrapper
    # of the compiler would end that.
    environment.pop('CC', None)
    environment.pop('CXX', None)
    environment['PATH'] = f'{pathlib.Path(python).parent}:{environment["PATH"]}'
    done = subprocess.run(
        [python, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2',
         HERE / program, mode, *map(str, arguments)],
        capture_output=True, text=True, env=environment, timeout=time_limit_s)
    lines = json_lines(done.stdout)
    if done.returncode != 0 or not lines:
        words = [line for line in done.stderr.splitlines() if 'Error' in line]
        print(f'{mode} left out: {(words or ["no reason given"])[0][:300]}', file=sys.stderr)
        return None
    return lines[-1]
