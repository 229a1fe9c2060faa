"""Runs examples/gpt for the tests of this folder: under `zero run`, on a text of the tree."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import tempfile

SOURCE = pathlib.Path(os.environ.get("LIBZERO_SOURCE_ROOT", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ["LIBZERO_BUILD_ROOT"])
PROGRAM = os.environ.get("LIBZERO_PROGRAM", str(BUILD / "src/cli/zero"))
GPT = BUILD / "examples/gpt/gpt"
TEXT = SOURCE / "include/zero.h"  # forty kilobytes of English, more or less
# Of the ranks of an outer launcher nothing may be left.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_", "PMI_", "SLURM_")


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return dict(kept, OPENBLAS_NUM_THREADS="1", **more)


def run(command, seconds=100, **more):
    """Exit code, standard output and standard error; cut off after seconds."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, timeout=seconds,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=environment(**more))
    return done.returncode, done.stdout, done.stderr


def config(stage, **more):
    """The quickstart's configuration of that stage as a dictionary, with other values."""
    path = SOURCE / ("examples/configs/gpt_stage%d.json" % stage)
    return dict(json.loads(path.read_text(encoding="utf-8")), **more)


def train(settings, ranks=1, **options):
    """Trains with settings, a dictionary or a file as it is; returns the row that --json wrote,
    with the program's output as row["text"]."""
    with tempfile.TemporaryDirectory() as folder:
        file, row = pathlib.Path(folder, "config.json"), pathlib.Path(folder, "row.json")
        if isinstance(settings, pathlib.Path):
            file = settings
        else:
            file.write_text(json.dumps(settings), encoding="utf-8")
        words = dict({"data": TEXT, "size": "tiny", "steps": 12, "sample": 8}, **options)
        command = [GPT, "--config", file, "--json", row]
        for name, value in words.items():
            command += ["--" + name, value]
        if ranks > 1:
            command = [PROGRAM, "run", "-n", ranks, "--"] + command
        code, text, said = run(command)
        if code != 0:
            raise AssertionError("exit code %d\n%s\n%s" % (code, text, said))
        return dict(json.loads(row.read_text(encoding="utf-8")), text=text)
