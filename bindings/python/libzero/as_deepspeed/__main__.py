"""python -m libzero.as_deepspeed script.py [argument...], or -m module, or -c code: becomes the Python
program that these words name, with `import deepspeed` answered by libzero.torch."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import subprocess
import sys

from . import PATH, python_path

USAGE = "usage: python -m libzero.as_deepspeed [-m module | -c code | script.py] [argument...]   or --path\n"


def fail(sentence: str) -> None:
    sys.stderr.write("libzero.as_deepspeed: %s\n" % sentence)
    sys.exit(2)


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "--path prints the folder that a PYTHONPATH needs first.\n")
        sys.exit(0 if words else 2)
    if words[0] == "--path":
        sys.stdout.write(PATH + "\n")
        return
    if sys.flags.ignore_environment:
        fail("this Python was started with -E or -I and reads no PYTHONPATH, by which the name is given; start it without")
    if words[0].startswith("-") and (words[0] not in ("-m", "-c") or len(words) < 2):
        fail("%r is not an option of it, or lacks its word\n%s" % (words[0], USAGE))
    if not words[0].startswith("-") and not os.path.exists(words[0]):
        fail("there is no script %r" % words[0])
    os.environ["PYTHONPATH"] = python_path(os.environ.get("PYTHONPATH", ""))
    flags = subprocess._args_from_interpreter_flags()  # pylint: disable=protected-access
    os.execv(sys.executable, [sys.executable, *flags, *words])


main()
