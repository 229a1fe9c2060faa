#!/usr/bin/env python3
"""The reader on docs/checkpoint-format.md reads a checkpoint, with flatc's and xxhash's packages."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from harness import Skip, expect, run_tests  # noqa: E402

SCHEMA = ROOT / "src" / "checkpoint" / "manifest.fbs"
PAGE = ROOT / "docs" / "checkpoint-format.md"
LIBRARY = pathlib.Path(os.environ["LIBZERO_BUILD_ROOT"], "src", "libzero.so")
VALUE, MASTER, STATE = 0, 2, 3


def saved(folder):
    """One rank, AdamW: "a" of 5 elements and "big" of 700,000, saved before any step."""
    zero = ctypes.CDLL(str(LIBRARY))

    def call(name, *arguments):
        status = getattr(zero, name)(*arguments)
        expect(status == 0, name, status)

    u64, i64 = ctypes.c_uint64, ctypes.c_int64
    config, comm, runtime, model = (ctypes.c_void_p() for _ in range(4))
    text = b'{"optimizer": {"type": "AdamW"}, "libzero": {"comm": "self"}}'
    call("zero_config_load_text", text, u64(len(text)), ctypes.byref(config))
    call("zero_init", config, None, ctypes.byref(runtime))
    call("zero_model_create", ctypes.byref(model))
    sizes = {"a": 5, "big": 700000}
    for name, count in sizes.items():
        param = ctypes.c_int32()
        call("zero_param_add", model, name.encode(), (i64 * 1)(count), 1, None, ctypes.byref(param))
    call("zero_shard_params", runtime, model)
    written = {}
    for number, (name, count) in enumerate(sizes.items()):
        for part, index in ((VALUE, 0), (STATE, 0), (STATE, 1)):
            values = (ctypes.c_float * count)(*(1000 * (number + part + index) + i % 997
                                                for i in range(count)))
            call("zero_param_set", runtime, number, part, index, values, u64(4 * count))
            written[name, MASTER if part == VALUE else part, index] = bytes(values)
    path = os.path.join(folder, "c")
    call("zero_checkpoint_save", runtime, path.encode(), None)
    call("zero_runtime_close", runtime)
    for handle, end in ((runtime, "runtime"), (model, "model"), (config, "config"), (comm, "comm")):
        getattr(zero, "zero_%s_destroy" % end)(handle)
    return path, written


def page_python():
    """A Python of its own with the packages that the page's reader imports."""
    folder = pathlib.Path(os.environ["LIBZERO_BUILD_ROOT"], "checkpoint-page-venv")
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import flatbuffers, xxhash"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return str(python)
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
    if made.returncode != 0:
        raise Skip("no virtual environment can be made: " + made.stdout[-300:])
    installed = subprocess.run([str(python), "-m", "pip", "install", "-q", "flatbuffers", "xxhash"],
                               capture_output=True, text=True, timeout=150)
    if installed.returncode != 0 or subprocess.run(check, capture_output=True).returncode != 0:
        raise Skip("pip cannot install flatbuffers and xxhash here: " + installed.stderr[-300:])
    return str(python)


# Each line read: name, kind, index.  Answers with the SHA-256 of what it read, or "refused".
ASKS = """

import hashlib, sys
for line in sys.stdin:
    name, kind, index = line.split()
    try:
        print(hashlib.sha256(read(sys.argv[1], name, int(kind), int(index))).hexdigest())
    except AssertionError:
        print("refused")
"""


def test_the_reader_on_the_page_reads_a_checkpoint():
    python = page_python()
    page = re.search(r"```py\n(.*?)```", PAGE.read_text(), re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["flatc", "--python", "-o", folder, str(SCHEMA)], check=True)
        path, written = saved(folder)
        expect(len(written) == 6)

        def ask():
            lines = "".join("%s %d %d\n" % key for key in written)
            done = subprocess.run([python, "-c", page + ASKS, path], input=lines, text=True,
                                  capture_output=True, env={**os.environ, "PYTHONPATH": folder})
            expect(done.returncode == 0, done.stdout, done.stderr)
            return done.stdout.split()

        expect(ask() == [hashlib.sha256(values).hexdigest() for values in written.values()])
        # Its checks are checks: all masters lie in the first sections.
        piece = pathlib.Path(path, "piece-00000.zero")
        damaged = bytearray(piece.read_bytes())
        damaged[4096] ^= 1
        piece.write_bytes(damaged)
        answers = dict(zip(written, ask()))
        expect(answers["a", MASTER, 0] == "refused", answers)
        expect(answers["big", STATE, 1] != "refused", answers)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
