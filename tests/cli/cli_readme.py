#!/usr/bin/env python3
"""README.md: its first screen, and that its commands are run by tests."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS))
from harness import expect, run_tests  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
BUILD = pathlib.Path(os.environ["LIBZERO_BUILD_ROOT"])
TRAINER = """#include <stdio.h>
#include <stdlib.h>
#include <zero.h>
int main(void) { printf("rank %s, %s\\n", getenv("RANK"), zero_status_name(0)); return 0; }
"""

# Commands that are run elsewhere, and the claim (a test's name in tests/claims.tsv) that does.
ELSEWHERE = {
    "tests/run.sh": "tests/run.sh",
    "examples/quickstart.sh": "examples/quickstart:",
}
# Commands that test_the_build_and_use_commands_work runs, one after the other.
HERE = [
    "meson setup build",
    "ninja -C build",
    "ninja -C build install",
    "cc trainer.c $(pkg-config --cflags --libs libzero) -o trainer",
    "zero run -n 2 -- ./trainer",
]

# Commands that test_the_speed_commands_print_measurements runs, with what makes them short.
SPEED = {
    "tests/bench/run.sh kernels": ["1", "1"],
    "tests/bench/run.sh comm": ["1", "1"],
    "tests/bench/run.sh step": ["1", "01", "library", "MODEL"],
    "tests/bench/run.sh plan": [],
}

# Run in the tree, by test_the_commands_for_a_tree_work.
IN_TREE = [
    "zero plan --model examples/models/gpt2-xl-1.5b.tsv "
    "--config examples/configs/zero3_offload_config_accelerate.json --world 2 --gpu-memory 24GB "
    "--host-memory 60GB --transformer 1600,48,25,128,50257",
]


def commands():
    for block in re.findall(r"^```sh\n(.*?)^```", README, flags=re.S | re.M):
        for line in block.splitlines():
            line = line.split("  #")[0].strip()
            if line and not line.startswith("#"):
                yield line


def test_the_first_screen_has_what_a_newcomer_needs():
    screen = "\n".join(README.splitlines()[:40])
    for part in ("examples/quickstart.sh", "tests/run.sh", "```diff", "quickstart table: begin",
                 "quickstart table: end", "Not yet:", "For people who"):
        expect(part in screen, "not in the first 40 lines:", part)
    diff = re.search(r"^```diff\n(.*?)^```", README, flags=re.S | re.M).group(1).splitlines()
    expect(len(diff) == 6 and all(line[0] in "+-" for line in diff), *diff)


def test_every_command_of_the_readme_is_run_by_a_test():
    claims = (TESTS / "claims.tsv").read_text(encoding="utf-8")
    for command in commands():
        name = ELSEWHERE.get(command)
        expect(name or command in HERE or command in IN_TREE or command in SPEED, "run by no test:", command)
        expect(not name or re.search(r"\t(TODO:)?%s" % re.escape(name), claims),
               "no claim names", name)


def test_functions_that_the_readme_names_are_in_the_header():
    text = (ROOT / "include" / "zero.h").read_text()
    for name in re.findall(r"\b(zero_[a-z_]+)\b", README):
        expect(re.search(r"\b%s\b" % name, text), name)


def test_paths_that_the_readme_names_are_there():
    for path in re.findall(r"`((?:src|tests|examples|include|kernels|\.ci)[\w./-]*)`", README):
        expect((ROOT / path).exists(), path)


def test_the_build_and_use_commands_work():
    """In a folder of its own, with a prefix instead of the system.  `build` is what this test run
    was built into: configuring and compiling once more would show nothing new."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "meson.build", folder + "/meson.build")
        pathlib.Path(folder, "trainer.c").write_text(TRAINER)
        environment = dict(os.environ)
        for command in HERE:
            expect(command in list(commands()), "not in the README any more:", command)
            words = shlex.split(command)
            if words[:2] == ["meson", "setup"]:
                done = subprocess.run(["meson", "setup", "--prefix", folder + "/prefix",
                                       folder + "/fresh", str(ROOT)], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                os.symlink(BUILD, folder + "/build")
            elif words[-1] == "install":
                done = subprocess.run(["meson", "install", "-C", "build", "--no-rebuild",
                                       "--quiet", "--destdir", folder + "/root"], cwd=folder,
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                file = next(pathlib.Path(folder, "root").rglob("libzero.pc"))
                prefix = folder + "/root" + re.search(r"^prefix=(.*)", file.read_text(), re.M)[1]
                file.write_text(re.sub(r"^prefix=.*", "prefix=" + prefix, file.read_text(),
                                       flags=re.M))
                environment.update(PKG_CONFIG_PATH=str(file.parent),
                                   LD_LIBRARY_PATH=str(file.parent.parent),
                                   PATH=prefix + "/bin:" + os.environ["PATH"])
            else:
                done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment,
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            expect(done.returncode == 0, command, done.stdout)
        expect(sorted(done.stdout.splitlines()) == ["[0] rank 0, ZERO_OK", "[1] rank 1, ZERO_OK"],
               done.stdout)


def test_the_commands_for_a_tree_work():
    environment = dict(os.environ, PATH="%s:%s" % (BUILD / "src" / "cli", os.environ["PATH"]))
    for command in IN_TREE:
        expect(command in list(commands()), "not in the README any more:", command)
        done = subprocess.run(shlex.split(command), cwd=ROOT, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        expect(done.returncode == 0 and "optimizer+params" in done.stdout, command, done.stdout)


def test_the_speed_commands_print_measurements():
    environment = {**os.environ, "LIBZERO_BENCH_BUILD": str(BUILD)}
    for command, short in SPEED.items():
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as model:
            lines = (ROOT / "examples/models/gpt2-124m.tsv").read_text().splitlines(True)
            model.writelines(line for line in lines if ".h." not in line or ".h.0." in line)
            model.flush()
            words = [model.name if word == "MODEL" else word for word in command.split() + short]
            done = subprocess.run(words, cwd=ROOT, env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(done.returncode == 0, command, done.stdout, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        expect(rows, command)
        for row in rows:
            expect({"name", "value", "unit", "baseline", "ratio"} <= set(row), command, row)
            expect(row["value"] >= 0 and row["baseline"] > 0, command, row)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules["__main__"]))
