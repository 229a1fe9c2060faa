"""A handle's life: destroyed when the last object that needs it is gone, or at the interpreter's end."""
# SPDX-License-Identifier: BSD-3-Clause
import weakref
from typing import Any, Callable

from . import raw
from .errors import StateError


class Life:
    """Owns a handle; keeps is what must stay alive with it (arrays whose memory libzero uses)."""

    def __init__(self, handle: Any, destroy: Callable[[Any], None], *keeps: Any):
        self.handle = handle
        self.keeps = list(keeps)
        # Never communicates; also runs at the interpreter's exit, before modules are torn down.
        weakref.finalize(self, _end, destroy, handle, self.keeps)


def _end(destroy: Callable[[Any], None], handle: Any, keeps: list) -> None:
    destroy(handle)
    keeps.clear()


class Owned:
    """Something with a handle that can be closed; used after that it raises StateError."""

    _life: Any = None

    @property
    def handle(self) -> Any:
        """The raw handle, for libzero.checked and libzero.raw."""
        life = self._life
        if life is None:
            raise StateError("this %s is closed" % type(self).__name__.lower(), raw.ZERO_ERR_INVALID_STATE)
        return life.handle

    @property
    def closed(self) -> bool:
        return self._life is None

    def destroy(self) -> None:
        """Lets go of it, without a word to other ranks. Memory that arrays still show stays until
        they are gone."""
        self._life = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()
