"""Names that libzero does not answer: they can be imported, as scripts do before they know what they will
use, and whoever calls one reads a sentence."""
# SPDX-License-Identifier: BSD-3-Clause
import sys
import types
from typing import Any, Dict


def sentence(name: str, what: str, instead: str) -> str:
    return "%s: %s is not in libzero%s" % (name, what, "; " + instead if instead else "")


class _Refused(type):
    """Calling the class, or a class made of it, is refused; so is looking into it."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(cls.libzero_refused)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError("%s (asked for .%s)" % (cls.libzero_refused, name))


def refuse(name: str, what: str, instead: str = "") -> Any:
    """A class of that name: isinstance of it is false, subclasses can be written, and none can be made."""
    return _Refused(name.rsplit(".", 1)[-1], (), {"libzero_refused": sentence("deepspeed." + name, what, instead),
                                                  "__doc__": "Not in libzero.", "__module__": __name__})


class RefusedModule(types.ModuleType):
    """Has any name, and each of them is refused."""

    def __init__(self, name: str, path: str, what: str, instead: str):
        super().__init__(name, sentence("deepspeed." + path, what, instead))
        self._libzero_path, self._libzero_what, self._libzero_instead = path, what, instead
        self._libzero_made: Dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        made = self._libzero_made
        if name not in made:
            inner = sys.modules.get(self.__name__ + "." + name)
            made[name] = inner or refuse(self._libzero_path + "." + name, self._libzero_what, self._libzero_instead)
        return made[name]


def is_refused(thing: Any) -> bool:
    return isinstance(thing, (_Refused, RefusedModule))
