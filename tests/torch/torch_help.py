"""What the suite needs: a Python that has torch, the package built for it, programs on two ranks."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings"))
import languages  # noqa: E402
from languages import BUILD, PROGRAM, SOURCE, TIER  # noqa: E402, F401

from harness import Skip, expect  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
WORK = BUILD / "torch"


def torch_python():
    """The interpreter that LIBZERO_PEERS_PYTHON names, or the one of an environment made here."""
    named = os.environ.get("LIBZERO_PEERS_PYTHON")
    if named:
        return pathlib.Path(named)
    made = pathlib.Path(os.environ.get("LIBZERO_TORCH_VENV", SOURCE / "build/torch-venv")) / "bin/python"
    if made.exists():
        return made
    if os.environ.get("LIBZERO_TORCH_INSTALL") == "1":
        done = subprocess.run([str(HERE / "get_torch.sh"), str(made.parent.parent)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode == 0:
            return made
        raise Skip("torch: skipped, " + (done.stderr.strip().splitlines() or ["not to be had"])[-1])
    raise Skip("torch: skipped, LIBZERO_PEERS_PYTHON names no Python that has it, and LIBZERO_TORCH_INSTALL=1 does not "
               "ask for one to be made")


@languages.once
def package():
    """(python, the folder that holds libzero)."""
    python = torch_python()
    done = subprocess.run([str(python), "-c", "import torch, numpy"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Skip("torch: skipped, %s has none: %s" % (python, (done.stdout.strip().splitlines() or ["?"])[-1]))
    languages.PYTHON, languages.WORK = python, WORK
    return python, languages.python_package()


def has_deepspeed():
    python, _ = package()
    return subprocess.run([str(python), "-c", "import deepspeed"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def environment():
    python, folder = package()
    kept = languages.environment(PYTHONPATH="%s:%s" % (folder, HERE), OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu",
                                 DEEPSPEED_LOG_LEVEL="error", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
    for name in ("CC", "CXX"):  # words with blanks in them, which DeepSpeed's own builds cannot read
        kept.pop(name, None)
    return python, kept


def ranks(script, *words, count=2, seconds=240, check=True, **more):
    """A script of this folder on count ranks of `zero run`; what they said, or a failure with it."""
    python, kept = environment()
    command = [PROGRAM, "run", "-n", str(count), str(python), str(HERE / script), *map(str, words)]
    return finish(command, dict(kept, **more), seconds, check)


def alone(script, *words, seconds=240, **more):
    python, kept = environment()
    return finish([str(python), str(HERE / script), *map(str, words)], dict(kept, **more), seconds)


def torchrun(script, *words, count=2, seconds=240, **more):
    python, kept = environment()
    command = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=%d" % count,
               str(HERE / script), *map(str, words)]
    return finish(command, dict(kept, **more), seconds)


def finish(command, kept, seconds, check=True):
    done = subprocess.run([str(w) for w in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=kept,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False)
    expect(done.returncode == 0 or not check, "exit code %d of %s" % (done.returncode, " ".join(map(str, command))),
           done.stdout)
    return done.stdout


__all__ = ["HERE", "PROGRAM", "SOURCE", "Skip", "TIER", "WORK", "alone", "environment", "expect", "has_deepspeed", "languages",
           "package", "ranks", "torchrun"]
