"""The runtime: shards, gradients, loans, steps."""
# SPDX-License-Identifier: BSD-3-Clause
import logging
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import checked, raw
from .arrays import DTYPES, Buffer, Memory, bytes_at, dtype_name, in_logical_order, memory_of, scatter, wrong
from .checkpoint import CheckpointCalls
from .comm import Comm
from .config import config_of
from .errors import NotFoundError, StateError, fail, grow, new
from .life import Life, Owned
from .model import PLACES, USES, Model, choice, group_options

PARTS = {"value": raw.ZERO_PART_VALUE, "grad": raw.ZERO_PART_GRAD, "master": raw.ZERO_PART_MASTER,
         "state": raw.ZERO_PART_STATE}
Param = Union[int, str]
_LEVELS = {raw.ZERO_LOG_ERROR: logging.ERROR, raw.ZERO_LOG_WARN: logging.WARNING,
           raw.ZERO_LOG_INFO: logging.INFO, raw.ZERO_LOG_DEBUG: logging.DEBUG}
log = logging.getLogger("libzero")


class StepInfo(NamedTuple):
    """What a step did. Times are nanoseconds, bytes_sent this rank's. nonfinite_param is an id, None
    where every gradient was finite; grad_norm is over all ranks, unscaled, before clipping."""
    skipped: bool
    step: int
    skipped_total: int
    lr: float
    grad_norm: float
    clip_scale: float
    loss_scale: float
    nonfinite_param: Optional[int]
    nonfinite_rank: Optional[int]
    nonfinite_element: int
    reduce_ns: int
    update_ns: int
    gather_ns: int
    bytes_sent: int


def _info(found: Any) -> StepInfo:
    values = {name: getattr(found, name) for name in StepInfo._fields}
    values["skipped"] = bool(found.skipped)
    for name in ("nonfinite_param", "nonfinite_rank"):
        values[name] = values[name] if values[name] >= 0 else None
    return StepInfo(**values)


class ParamInfo(NamedTuple):
    name: str
    shape: Tuple[int, ...]
    dtype: str
    role: int
    group: int
    tied_to: Optional[int]
    elements: int


def _stream(stream: Any) -> Optional[int]:
    """None, an address, or an object that has one (torch.cuda.Stream, cupy.cuda.Stream)."""
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        if isinstance(getattr(stream, name, None), int):
            return getattr(stream, name)
    raise wrong("%r is no stream" % (stream,))


class Runtime(CheckpointCalls, Owned):
    """A rank's runtime. Use it as a context manager: leaving it closes it with all ranks, or, on an
    exception, lets go of it without waiting for them.

        with Runtime("ds.json", model) as runtime:
            runtime.submit("w", gradient)
            print(runtime.step().grad_norm)

    Calls are made by one thread at a time (StateError otherwise), save grad_ready, status, text,
    step_count, loss_scale and memory. Parameters are named by name or id."""

    def __init__(self, config: Any, model: Optional[Model] = None, comm: Optional[Comm] = None, device: int = -1):
        options = new(raw.zero_init_options)
        options.device = device
        if comm is not None:
            options.comm = comm.handle
        config = config_of(config)
        self._life = Life(checked.init(config.handle, options), raw.zero_runtime_destroy, comm and comm._life)
        self._busy = threading.Lock()
        self._ids: Dict[str, int] = {}
        self._infos: Dict[int, ParamInfo] = {}
        if model is not None:
            try:
                self.shard(model)
            except BaseException:
                self.destroy()
                raise

    # ---- one thread at a time ----------------------------------------------------------------

    @contextmanager
    def _one(self) -> Iterator[Any]:
        life = self._life
        if life is None:
            raise StateError("this runtime is closed", raw.ZERO_ERR_INVALID_STATE)
        if not self._busy.acquire(blocking=False):
            raise StateError("another thread is in a call on this runtime: one thread at a time",
                             raw.ZERO_ERR_INVALID_STATE)
        try:
            yield life.handle
        finally:
            self._busy.release()

    def close(self) -> None:
        """Waits for work in flight, agrees with the other ranks to end, and lets go. Collective."""
        if self._life is None:
            return
        try:
            with self._one() as handle:
                checked.runtime_close(handle)
                self._pump(handle)
        finally:
            self.destroy()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.destroy()

    # ---- model ----------------------------------------------------------------------------------

    def shard(self, model: Model) -> None:
        """Lays out the shards, agrees with all ranks, allocates all that steps need, and makes the
        values equal. Arrays with storage="caller" are kept alive from here on. Collective."""
        with self._one() as handle:
            checked.shard_params(handle, model.handle)
            self._life.keeps.append(list(model._in_place))
            self._pump(handle)

    @property
    def comm(self) -> Comm:
        """Its communicator, borrowed."""
        life = Life(raw.zero_runtime_comm(self.handle), lambda _: None, self._life)
        return Comm(None, life=life)

    @property
    def rank(self) -> int:
        return raw.zero_comm_rank(raw.zero_runtime_comm(self.handle))

    @property
    def size(self) -> int:
        return raw.zero_comm_size(raw.zero_runtime_comm(self.handle))

    def config(self, key: str) -> str:
        """A value of the config as it took effect."""
        return checked.config_get(raw.zero_runtime_config(self.handle), key)

    def plan_text(self) -> str:
        """The plan that is carried out."""
        return checked.plan_text(raw.zero_runtime_plan(self.handle))

    def find(self, name: Param) -> int:
        """The id of a parameter."""
        if isinstance(name, str):
            if name not in self._ids:
                self._ids[name] = checked.param_find(self.handle, name)
            return self._ids[name]
        return int(name)

    def _find_all(self, params: Any) -> List[int]:
        if isinstance(params, (str, int)):
            return [self.find(params)]
        return [self.find(p) for p in params]

    def describe(self, param: Param) -> ParamInfo:
        """Name, shape, dtype, role, group, tie, number of elements."""
        which = self.find(param)
        if which not in self._infos:
            i = checked.param_describe(self.handle, which)
            self._infos[which] = ParamInfo(i.name, i.shape, dtype_name(i.dtype), i.role, i.group,
                                           i.tied_to if i.tied_to >= 0 else None, i.elements)
        return self._infos[which]

    def names(self) -> List[str]:
        """The parameters' names; a name's position is its id."""
        return [self.describe(i).name for i in range(raw.zero_param_count(self.handle))]

    def param(self, param: Param) -> Buffer:
        """The whole parameter where it lives between steps, in its shape (stages 0 to 2)."""
        which = self.find(param)
        with self._one() as handle:
            return Buffer(checked.param_buffer(handle, which), self.describe(which).shape, self._life)

    def shard_span(self, param: Param, rank: Optional[int] = None) -> Tuple[int, int]:
        """(first element, number of elements) of the part that a rank owns."""
        span = checked.param_shard(self.handle, self.find(param), self.rank if rank is None else rank)
        return span.offset, span.count

    def set_group(self, group: int, **values: Any) -> None:
        """New values for a group, between steps; equal on all ranks."""
        with self._one() as handle:
            checked.group_set(handle, group, group_options(**values))

    # ---- gradients --------------------------------------------------------------------------------

    def micro_begin(self, is_last: Optional[bool] = None) -> None:
        """Says whether this micro-batch ends the step, so that its reduction can start early."""
        with self._one() as handle:
            checked.micro_begin(handle, -1 if is_last is None else int(is_last))

    def grad_buffer(self, param: Param, stream: Any = None) -> Tuple[Buffer, bool]:
        """(where the gradient goes, in the parameter's shape; whether to add to it instead of writing
        every element). grad_ready must follow."""
        which = self.find(param)
        with self._one() as handle:
            found, add = checked.grad_buffer(handle, which, _stream(stream))
            return Buffer(found, self.describe(which).shape, self._life), bool(add)

    def grad_ready(self, params: Any, stream: Any = None) -> None:
        """These gradients (one, or several) are complete. From any thread."""
        status = raw.zero_grad_ready(self.handle, self._find_all(params), _stream(stream))
        if status:
            fail(status)

    def submit(self, param: Param, gradient: Any, stream: Any = None, dtype: Any = None) -> None:
        """Hands over a complete gradient that lies elsewhere: an array of the parameter's number of
        elements, read in logical order before this returns (on a device: in stream order)."""
        which = self.find(param)
        memory = memory_of(gradient, dtype or self._bits_of(which, gradient))
        expected = self.describe(which)
        if memory.shape != expected.shape and memory.count != expected.elements:
            raise wrong("the gradient of %r has shape %s, expected %s" % (expected.name, memory.shape, expected.shape))
        memory = in_logical_order(memory)
        with self._one() as handle:
            checked.grad_submit(handle, which, memory.buffer(), _stream(stream))
            if memory.device is not None:  # read in stream order: alive until the step has been
                self._life.keeps.append(memory)

    def _bits_of(self, which: int, array: Any) -> Any:
        """bf16 bits in uint16 are accepted for a bf16 parameter."""
        kind = getattr(array, "dtype", None)
        return "bf16" if self.describe(which).dtype == "bf16" and str(kind) in ("uint16", "bfloat16") else None

    def grads_close(self, params: Any, stream: Any = None) -> None:
        """No more gradient comes for these in this micro-batch."""
        with self._one() as handle:
            checked.grads_close(handle, self._find_all(params), _stream(stream))

    def micro_end(self, stream: Any = None) -> None:
        """Ends a micro-batch. Collective."""
        with self._one() as handle:
            checked.micro_end(handle, _stream(stream))

    def grads_clear(self, stream: Any = None) -> None:
        """Forgets what the micro-batches since the last step have brought. Collective."""
        with self._one() as handle:
            checked.grads_clear(handle, _stream(stream))

    # ---- loans --------------------------------------------------------------------------------------

    def acquire(self, params: Any, stream: Any = None) -> List[Buffer]:
        """Whole parameters on loan until release, each in its shape. Collective."""
        ids = self._find_all(params)
        with self._one() as handle:
            found = checked.params_acquire(handle, ids, _stream(stream))
            return [Buffer(b, self.describe(i).shape, self._life) for i, b in zip(ids, found)]

    def release(self, params: Any, keep_changes: bool = False, stream: Any = None) -> None:
        """Ends a loan; keep_changes: what was written into it becomes the value."""
        with self._one() as handle:
            checked.params_release(handle, self._find_all(params), int(keep_changes), _stream(stream))

    @contextmanager
    def loan(self, params: Any, keep_changes: bool = False, stream: Any = None) -> Iterator[List[Buffer]]:
        """with runtime.loan(["w1", "b1"]) as (w1, b1): ... - released at the end, with an exception too."""
        buffers = self.acquire(params, stream)
        kept = False
        try:
            yield buffers
            kept = keep_changes
        finally:
            for buffer in buffers:
                buffer.end("this loan has ended")
            if not self.closed:
                self.release(params, kept, stream)

    def prefetch(self, params: Any) -> None:
        """A hint, in the order of the coming acquires. Collective."""
        with self._one() as handle:
            checked.params_prefetch(handle, self._find_all(params))

    def broadcast(self, root: int = 0) -> None:
        """root's values and buffers to all (stages 0 to 2). Collective."""
        with self._one() as handle:
            checked.params_broadcast(handle, root)

    # ---- step -----------------------------------------------------------------------------------------

    def step(self, lr: Optional[float] = None, gradient_divisor: Optional[float] = None, stream: Any = None,
             info: bool = True) -> Optional[StepInfo]:
        """Reduces, decides on overflow, clips, updates and gathers. info=False: nothing comes back,
        and on a device the host does not wait. Collective."""
        options = self._options(lr, gradient_divisor)
        with self._one() as handle:
            if not info:
                status = raw.zero_step(handle, options, _stream(stream), None)
                if status:
                    fail(status)
                self._step_done(handle)
                return None
            found = checked.step(handle, options, _stream(stream))
            self._step_done(handle)
            return _info(found)

    def _options(self, lr: Optional[float], gradient_divisor: Optional[float]) -> Any:
        if lr is None and gradient_divisor is None:
            return None
        options = new(raw.zero_step_options)
        if lr is not None:
            options.lr = lr
        if gradient_divisor is not None:
            options.gradient_divisor = gradient_divisor
        return options

    def _step_done(self, handle: Any) -> None:
        # One step back: what a device may still be reading.
        keeps = self._life.keeps
        old = getattr(self, "_submitted", 0)
        gradients = [k for k in keeps if isinstance(k, Memory)]
        if gradients:
            keeps[:] = [k for k in keeps if not isinstance(k, Memory)] + gradients[old:]
            self._submitted = len(gradients) - old
        self._pump(handle)

    def step_begin(self, lr: Optional[float] = None, gradient_divisor: Optional[float] = None,
                   stream: Any = None) -> StepInfo:
        """The first half of a step with an optimizer of your own (libzero.host). Collective."""
        with self._one() as handle:
            return _info(checked.step_begin(handle, self._options(lr, gradient_divisor), _stream(stream)))

    def step_end(self, stream: Any = None) -> None:
        """The second half: writes back and gathers. Collective."""
        with self._one() as handle:
            checked.step_end(handle, _stream(stream))
            self._step_done(handle)

    @property
    def step_count(self) -> int:
        """Updates done so far."""
        return raw.zero_step_count(self.handle)

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before backward; 1 without fp16."""
        return raw.zero_loss_scale(self.handle)

    def grad_norm(self, param: Param) -> float:
        """Of the last step, one parameter's; needs "libzero.param_norms"."""
        return checked.param_grad_norm(self.handle, self.find(param))

    def shard_buffer(self, param: Param, part: str = "value", index: int = 0) -> Buffer:
        """This rank's part of one parameter, in place and flat: "value", "grad", "master", "state"."""
        with self._one() as handle:
            found = checked.shard_buffer(handle, self.find(param), choice(PARTS, part, "part"), index)
            return Buffer(found, (found.count,), self._life)

    def get(self, param: Param, part: str = "value", index: int = 0, out: Any = None) -> Any:
        """The whole of one part, gathered: "value" in its dtype, "master" and "state" (index 0 is m, 1 is
        v) as fp32. Into out (any writable array of the same dtype and number of elements; strided ones
        are written in logical order), else a new numpy array, or bytes without numpy. Collective."""
        info = self.describe(param)
        kind = info.dtype if choice(PARTS, part, "part") == raw.ZERO_PART_VALUE else "fp32"
        size = DTYPES[kind][1] * info.elements
        copy = bytearray(size)
        target = None
        if out is not None:
            target = memory_of(out, kind if kind == "bf16" else None)
            if target.dtype != kind or target.count != info.elements:
                raise wrong("out has %d elements of %s, expected %d of %s" % (
                    target.count, target.dtype, info.elements, kind))
            if target.readonly:
                raise wrong("out is read-only")
            if target.device is not None:
                raise wrong("out is on a device: get writes host memory")
        with self._one() as handle:
            checked.param_get(handle, self.find(param), choice(PARTS, part, "part"), index, copy)
        if target is not None:
            scatter(copy, target)
            return out
        try:
            import numpy
        except ImportError:
            return bytes(copy)
        return numpy.frombuffer(copy, DTYPES[kind][2]).reshape(info.shape)

    def set(self, param: Param, values: Any, part: str = "value", index: int = 0) -> None:
        """Overwrites one part with an array of the same dtype and number of elements (also strided),
        on all ranks; moments and step count stay. Collective."""
        info = self.describe(param)
        kind = info.dtype if choice(PARTS, part, "part") == raw.ZERO_PART_VALUE else "fp32"
        source = in_logical_order(memory_of(values, kind if kind == "bf16" else None))
        if source.dtype != kind or source.count != info.elements:
            raise wrong("%r: %d elements of %s, expected %d of %s" % (
                info.name, source.count, source.dtype, info.elements, kind))
        with self._one() as handle:
            checked.param_set(handle, self.find(param), choice(PARTS, part, "part"), index,
                              bytes_at(source.address, source.count * DTYPES[kind][1]))

    # ---- reports -----------------------------------------------------------------------------------------

    def status(self) -> None:
        """Raises what failed this runtime, also between calls. Never blocks."""
        status = raw.zero_runtime_status(self.handle)
        if status:
            fail(status)

    def text(self) -> str:
        """Where it stands: step, open loans, pending buckets, whom each rank waits for."""
        return checked.runtime_text(self.handle)

    def memory(self, use: Any = "total", place: Any = "host") -> Tuple[int, int, int]:
        """(planned, current, peak) bytes of one use."""
        found = checked.memory_usage(self.handle, choice(PLACES, place, "place"), choice(USES, use, "use"))
        return found.planned, found.current, found.peak

    def reset_peak(self) -> None:
        checked.memory_reset_peak(self.handle)

    def explain_memory(self, failed_bytes: int = 0, place: Any = "host") -> str:
        """What holds the memory, and the cheapest changes that would make failed_bytes fit."""
        return checked.memory_explain(self.handle, choice(PLACES, place, "place"), failed_bytes)

    def pump_log(self) -> None:
        """Hands what libzero has to say to the logger "libzero"; shard, step and close do it too."""
        self._pump(self.handle)

    def _pump(self, handle: Any) -> None:
        while True:
            try:
                level, text = grow(lambda buffer: raw.zero_log_read(handle, buffer))
            except NotFoundError:
                return
            log.log(_LEVELS.get(level, logging.INFO), "%s", text.decode(errors="replace"))
