"""The command `zero` of the wheel: the program that lies in the package takes this one's place."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "bin" / "zero"


def main() -> None:
    if not PROGRAM.exists():
        sys.exit("zero: %s is not there; the command of a libzero that was not installed by pip is "
                 "its own program, bin/zero" % PROGRAM)
    os.execv(str(PROGRAM), ["zero", *sys.argv[1:]])


if __name__ == "__main__":
    main()
