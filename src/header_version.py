#!/usr/bin/env python3
# Prints the version that include/zero.h states, the only place where it is written.
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re

header = pathlib.Path(__file__).resolve().parent.parent / "include" / "zero.h"
found = dict(re.findall(r"#define ZERO_VERSION_(\w+) (\d+)", header.read_text()))
print("{MAJOR}.{MINOR}.{PATCH}".format(**found))
