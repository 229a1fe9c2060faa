"""The name deepspeed, answered by libzero.torch, in programs that ask for it: `zero run --as-deepspeed`
and `python -m libzero.as_deepspeed`. PATH is a folder for PYTHONPATH; child processes inherit it.
Importing this package changes nothing by itself, and needs no torch."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import sys
from typing import List

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SAID = "LIBZERO_AS_DEEPSPEED_SAID"


def python_path(before: str) -> str:
    """A PYTHONPATH with the name first, and libzero itself where a child would not find it."""
    kept = [one for one in before.split(os.pathsep) if one and one != PATH]
    if _PACKAGES not in kept and os.path.basename(_PACKAGES) not in ("site-packages", "dist-packages"):
        kept.append(_PACKAGES)
    return os.pathsep.join([PATH] + kept)


def refuse_the_real_one() -> None:
    """One process has one deepspeed: whoever was imported first has the name."""
    found = sys.modules.get("deepspeed")
    if found is not None and not hasattr(found, "libzero_version"):
        raise RuntimeError("deepspeed %s is imported already, from %s: libzero cannot take its name in this process; expected "
                           "`python -m libzero.as_deepspeed script.py`, or activate() before the first import of deepspeed"
                           % (getattr(found, "__version__", "?"), getattr(found, "__file__", "?")))


def activate(position: int = 0) -> None:
    """From here on `import deepspeed` is libzero.torch, in this process and in those that it starts."""
    refuse_the_real_one()
    path: List[str] = [one for one in sys.path if one != PATH]
    path.insert(position, PATH)
    sys.path[:] = path
    os.environ["PYTHONPATH"] = python_path(os.environ.get("PYTHONPATH", ""))


def say_once(version: str) -> None:
    """One line on stderr by rank 0, or by the launcher that imports the name before it starts the ranks."""
    if os.environ.get("RANK", "0") not in ("", "0") or os.environ.get(_SAID) == "1":
        return
    os.environ[_SAID] = "1"
    from .. import version as own
    sys.stderr.write("deepspeed %s: libzero %s answers to this name (--as-deepspeed)\n" % (version, own()))
    sys.stderr.flush()
