"""Checkpoints: saved and loaded by a runtime, read by anybody."""
# SPDX-License-Identifier: BSD-3-Clause
import os
from typing import Any, List, NamedTuple, Tuple

from . import checked, raw
from .arrays import DTYPES, dtype_name, dtype_number
from .errors import grow, new
from .life import Life, Owned

_PARTS = {"value": raw.ZERO_PART_VALUE, "master": raw.ZERO_PART_MASTER, "state": raw.ZERO_PART_STATE}


class CheckpointInfo(NamedTuple):
    """What a checkpoint is of: updates done, ranks and stage of the run that wrote it, bytes of its files."""
    format_version: int
    step: int
    skipped_total: int
    loss_scale: float
    world_size: int
    stage: int
    param_count: int
    bytes: int
    weights_only: int
    state_count: int


def _options(struct: Any, given: dict) -> Any:
    made = new(struct)
    for name, value in given.items():
        if not hasattr(made, name):
            raise TypeError("there is no option %r" % name)
        setattr(made, name, int(value) if isinstance(value, bool) else value)
    return made


class Checkpoint(Owned):
    """An opened checkpoint: no runtime, no device, any number of ranks."""

    def __init__(self, path: Any):
        self._life = Life(checked.checkpoint_open(os.fspath(path)), raw.zero_checkpoint_destroy)

    def describe(self) -> CheckpointInfo:
        found = checked.checkpoint_describe(self.handle)
        return CheckpointInfo(*(getattr(found, name) for name in CheckpointInfo._fields))

    def params(self) -> List[Tuple[str, Tuple[int, ...], str]]:
        """(name, shape, dtype) of every parameter."""
        infos = (checked.checkpoint_param_at(self.handle, i) for i in range(self.describe().param_count))
        return [(i.name, i.shape, dtype_name(i.dtype)) for i in infos]

    def read(self, name: str, part: str = "value", index: int = 0) -> Any:
        """One part of a parameter, whole: "value" in its dtype, "master" and "state" as fp32."""
        shape, dtype = next(((s, d) for n, s, d in self.params() if n == name), ((), "fp32"))
        dtype = dtype if part == "value" else "fp32"
        count = 1
        for length in shape:
            count *= length
        values = bytearray(count * DTYPES[dtype][1])
        checked.checkpoint_read(self.handle, name, _PARTS[part], index, 0, count, values)
        try:
            import numpy
        except ImportError:
            return bytes(values)
        return numpy.frombuffer(values, DTYPES[dtype][2]).reshape(shape)

    def get(self, rank: int, key: str) -> bytes:
        """A blob that the program of a rank had put."""
        return grow(lambda buffer: raw.zero_checkpoint_get(self.handle, rank, key, buffer))

    def param_steps(self, index: int) -> int:
        """The updates that a parameter itself has had."""
        return checked.checkpoint_param_steps(self.handle, index)

    def verify(self) -> None:
        """Reads every byte and compares checksums."""
        checked.checkpoint_verify(self.handle)

    def text(self) -> str:
        """What is in it; after verify also each damaged range."""
        return checked.checkpoint_text(self.handle)


class CheckpointCalls:
    """What a Runtime does with files."""
    _one: Any  # the runtime's guard

    def save(self, path: Any, **options: Any) -> None:
        """Writes a checkpoint: path is whole or absent. Options: replace, in_background, weights_only,
        keep_last, keep_every, latest. Collective."""
        made = _options(raw.zero_save_options, options)
        with self._one() as handle:
            checked.checkpoint_save(handle, os.fspath(path), made)

    def load(self, path: Any, **options: Any) -> None:
        """From a path or a Checkpoint, of any world size and stage. Options: weights_only, allow_missing,
        allow_extra. Collective."""
        opened = path if isinstance(path, Checkpoint) else Checkpoint(path)
        made = _options(raw.zero_load_options, options)
        with self._one() as handle:
            checked.checkpoint_load(handle, opened.handle, made)

    def save_done(self) -> bool:
        """Whether no save is in flight; raises a background save's error."""
        with self._one() as handle:
            return bool(checked.checkpoint_poll(handle))

    def wait_saved(self) -> None:
        """Waits for a background save. Collective."""
        with self._one() as handle:
            checked.checkpoint_wait(handle)

    def put(self, key: str, blob: bytes) -> None:
        """The program's own state of this rank, for the next save."""
        with self._one() as handle:
            checked.checkpoint_put(handle, key, blob)

    def export_weights(self, path: Any, dtype: Any = None, max_file_bytes: int = 0) -> None:
        """Whole weights as safetensors; dtype of the floats, None: each its own. Collective."""
        with self._one() as handle:
            checked.weights_export(handle, os.fspath(path), 0 if dtype is None else dtype_number(dtype),
                                   max_file_bytes)

    def import_weights(self, path: Any, **options: Any) -> None:
        """From a safetensors file, an index or a folder, straight into the shards. Collective."""
        made = _options(raw.zero_load_options, options)
        with self._one() as handle:
            checked.weights_import(handle, os.fspath(path), made)
