"""What include/zero.h declares: functions, structs with their fields, enumerators."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "include" / "zero.h"
CC = os.environ.get("LIBZERO_CC", "cc").split()
CXX = os.environ.get("LIBZERO_CXX", "c++").split()


def text():
    """The header without comments and preprocessor lines."""
    source = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    return re.sub(r"^[ \t]*#.*?(?<!\\)$", " ", source, flags=re.M)


def functions():
    return re.findall(r"ZERO_API[^;]*?\b(zero_\w+)\s*\(", text())


def structs():
    """name -> fields, in order."""
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text(), flags=re.S):
        fields = []
        for declaration in re.sub(r"\([^()]*\)\s*;", ";", body).split(";"):
            pointer = re.search(r"\(\*(\w+)\)", declaration)
            plain = re.search(r"(\w+)\s*(?:\[\w+\])?\s*$", declaration)
            if declaration.strip():
                fields.append((pointer or plain).group(1))
        found[name] = fields
    return found


def enumerators():
    return [name for body in re.findall(r"enum \w+ \{(.*?)\}", text(), flags=re.S)
            for name in re.findall(r"\b(ZERO_\w+)\s*=", body)]


def run(command, **more):
    """A finished command; its failure is a failure of the test, with its output."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        raise AssertionError("%s\n%s" % (" ".join(map(str, command)), done.stdout))
    return done.stdout


def run_program(source, language="c"):
    """Compiles a program that needs the header alone, and returns what it prints."""
    compiler, standard = (CC, "c99") if language == "c" else (CXX, "c++20")
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(folder, "program." + ("c" if language == "c" else "cc"))
        name.write_text(source)
        program = pathlib.Path(folder, "program")
        run([*compiler, "-std=" + standard, "-I", ROOT / "include", name, "-o", program])
        return run([program])
