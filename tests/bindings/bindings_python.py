#!/usr/bin/env python3
"""The Python package: arrays in place, errors, misuse, reports, two ranks in two threads."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import sys

from languages import PYTHON, SOURCE, python_package

from harness import Skip, run_tests  # noqa: E402

if __name__ == "__main__" and "LIBZERO_PYTHON_PACKAGE" not in os.environ:
    # The tests below run in the Python that the package was built for.
    try:
        folder = str(python_package())
    except Skip as reason:
        print(reason)
        sys.exit(77)
    os.environ.update(LIBZERO_PYTHON_PACKAGE=folder, PYTHONPATH=folder)
    os.execv(PYTHON, [str(PYTHON), os.path.abspath(__file__)])

import array  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import logging  # noqa: E402
import subprocess  # noqa: E402
import threading  # noqa: E402

import libzero  # noqa: E402
import numpy as np  # noqa: E402
from libzero import checked, raw  # noqa: E402
from libzero.arrays import memory_of  # noqa: E402

from harness import expect  # noqa: E402

CONFIG = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0,
          "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.9, 0.999], "weight_decay": 0.0}},
          "zero_optimization": {"stage": 1}}


def config(stage=1, **more):
    return dict(CONFIG, zero_optimization={"stage": stage}, **more)


def alone(arrays, settings=None, **options):
    """A runtime of one rank over arrays by name."""
    model = libzero.Model()
    for name, values in arrays.items():
        model.add(name, values, **options)
    return libzero.Runtime(settings or config(), model, comm=libzero.Comm.alone())


def raised(kind, call, *words):
    """The exception of a kind that a call raises; words stand in its text."""
    try:
        call()
    except kind as error:
        for word in words:
            expect(word in str(error), "%r is not in: %s" % (word, error))
        return error
    raise AssertionError("no %s" % kind.__name__)


def two_ranks(work):
    """work(rank, comm) in two threads; their answers, in order of rank."""
    answers, errors = [None, None], []
    name = "python-%d-%d" % (os.getpid(), two_ranks.count)
    two_ranks.count += 1

    def run(rank):
        try:
            with libzero.Comm.local(name, rank, 2, timeout_s=60) as comm:
                answers[rank] = work(rank, comm)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


two_ranks.count = 0
INDEX = np.arange(12, dtype=np.float32).reshape(3, 4)  # the value of an element is its logical index


# ---- floors ------------------------------------------------------------------------------------------

def test_the_raw_floor_returns_statuses():
    expect(raw.zero_version_string() == libzero.version())
    status, handle = raw.zero_config_load_file("/no/such/file")
    expect(status == raw.ZERO_ERR_NOT_FOUND and handle is None, status, handle)
    status, handle = raw.zero_config_create()
    expect(status == raw.ZERO_OK)
    expect(raw.zero_config_set(handle, "no.such.key", "1") == raw.ZERO_ERR_CONFIG_UNKNOWN_KEY)
    raw.zero_config_destroy(handle)


def test_the_checked_floor_raises_by_family():
    raised(libzero.NotFoundError, lambda: checked.config_load_file("/no/such/file"), "/no/such/file")
    handle = checked.config_create()
    error = raised(libzero.ConfigError, lambda: checked.config_set(handle, "zero_optimisation.stage", "1"),
                   "zero_optimisation")
    expect(error.name == "ZERO_ERR_CONFIG_UNKNOWN_KEY" and error.origin == "libzero" and error.rank is None, error.name)
    expect('"stage"' in checked.config_text(handle))
    raw.zero_config_destroy(handle)


def test_every_status_has_a_class_and_a_number_of_tomorrow_is_a_zero_error():
    for name in dir(raw):
        if name.startswith("ZERO_ERR_"):
            kind = libzero.errors.class_of(getattr(raw, name))
            expect(kind is not libzero.ZeroError and issubclass(kind, libzero.ZeroError), name)
    expect(libzero.errors.class_of(12345) is libzero.ZeroError)


def test_a_config_is_read_set_checked_and_explained():
    made = libzero.Config(config(stage=2))
    expect(made["zero_optimization.stage"] == "2" and made.origin("zero_optimization.stage") == "file")
    made["optimizer.params.lr"] = 0.25
    expect(float(made["optimizer.params.lr"]) == 0.25 and made.origin("optimizer.params.lr") == "set")
    expect(made.check() == [d for d in made.findings() if not d.is_error])
    wrong = libzero.Config({"train_batch_size": 1, "zero_optimization": {"stage": 9}})
    raised(libzero.ConfigError, wrong.check, "stage")
    found = [d for d in wrong.findings() if d.is_error]
    expect(found and found[0].key and found[0].message, found)
    expect(any(o.key == "zero_optimization.stage" for o in libzero.options()))
    auto = libzero.Config({"train_micro_batch_size_per_gpu": "auto"})
    auto.fill_auto(micro_batch_size=3)
    expect(auto["train_micro_batch_size_per_gpu"] == "3")
    raised(TypeError, lambda: auto.fill_auto(no_such_fact=1))


def test_a_plan_needs_no_rank():
    model = libzero.Model.load(SOURCE / "examples/models/gpt2-124m.tsv")
    totals = [libzero.Plan(config(stage), model, 4).memory() for stage in range(4)]
    expect(totals == sorted(totals, reverse=True) and totals[3] < totals[0] / 2, totals)
    expect("stage" in libzero.Plan(config(2), model, 4).text())


# ---- arrays ------------------------------------------------------------------------------------------

def test_strided_parameters_keep_their_logical_order():  # R132
    strided = {"t": INDEX.T, "fortran": np.asfortranarray(INDEX), "step": INDEX[::2], "back": INDEX[::-1, ::-1],
               "conv": np.ascontiguousarray(np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2).transpose(0, 2, 3, 1)
                                            ).transpose(0, 3, 1, 2)}
    with alone(strided) as runtime:
        for name, values in strided.items():
            expect((runtime.get(name) == values).all() and (runtime.param(name).numpy() == values).all(), name)
            expect(runtime.describe(name).shape == values.shape, name)


def test_a_strided_gradient_is_read_in_logical_order():
    def step(gradient):
        with alone({"w": np.zeros((4, 3), np.float32)}, config(optimizer={"type": "SGD", "params": {"lr": 1.0}})) as r:
            r.submit("w", gradient)
            r.step()
            return r.get("w")
    expect((step(INDEX.T) == -INDEX.T).all() and (step(np.ascontiguousarray(INDEX.T)) == -INDEX.T).all())


def test_a_strided_array_is_written_back_in_its_own_order():
    with alone({"w": INDEX}) as runtime:
        whole = np.full((8, 6), 9, np.float32)
        runtime.get("w", out=whole[::2, ::2].T)
        expect((whole[::2, ::2] == INDEX.T).all() and (whole[1::2] == 9).all() and (whole[:, 1::2] == 9).all(), whole)
        runtime.set("w", (INDEX + 1)[:, ::-1])
        expect((runtime.get("w") == (INDEX + 1)[:, ::-1]).all())


def test_a_strided_array_cannot_be_kept_in_place():
    model = libzero.Model()
    raised(libzero.ArgumentError, lambda: model.add("w", INDEX.T, storage="caller"), "strides", "'w'")
    raised(libzero.ArgumentError, lambda: model.add("w", INDEX[::2], storage="caller"), "contiguous")


def test_the_callers_array_is_kept_up_to_date_in_place():
    values = np.ones((3, 4), np.float32)
    with alone({"w": values}, config(2), storage="caller") as runtime:
        runtime.submit("w", np.ones((3, 4), np.float32))
        runtime.step()
        expect(abs(values - 0.9).max() < 1e-6, values)
        expect(runtime.param("w").address == values.ctypes.data)


def test_any_buffer_and_any_array_interface_is_an_array():
    class Interface:  # pylint: disable=too-few-public-methods
        def __init__(self, interface):
            self.__array_interface__ = interface

    class OnlyDlpack:  # pylint: disable=too-few-public-methods
        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **_):
            return self.values.__dlpack__()

    values = np.arange(6, dtype=np.float32)
    gradients = [array.array("f", range(6)), memoryview(values), (ctypes.c_float * 6)(*range(6)), values.tolist() and values,
                 Interface(values.__array_interface__), OnlyDlpack(values)]
    for gradient in gradients:
        with alone({"w": np.zeros(6, np.float32)}, config(optimizer={"type": "SGD", "params": {"lr": 1.0}})) as runtime:
            runtime.submit("w", gradient)
            runtime.step()
            expect((runtime.get("w") == -values).all(), type(gradient))
    strided = OnlyDlpack(INDEX.T)
    with alone({"w": strided}) as runtime:
        expect((runtime.get("w") == INDEX.T).all())


def test_a_cuda_array_interface_is_device_memory_with_its_strides_refused():
    class Cuda:  # pylint: disable=too-few-public-methods
        def __init__(self, strides=None):
            self.__cuda_array_interface__ = {"version": 3, "shape": (2, 3), "typestr": "<f4", "strides": strides,
                                             "data": (0x7f0000000000, False)}
    found = memory_of(Cuda())
    buffer = found.buffer()
    expect(found.device == 0 and buffer.place == raw.ZERO_PLACE_DEVICE and buffer.data == 0x7f0000000000)
    expect(buffer.count == 6 and buffer.bytes == 24 and buffer.dtype == raw.ZERO_DTYPE_FP32)
    with alone({"w": np.zeros((2, 3), np.float32)}) as runtime:
        raised(libzero.ArgumentError, lambda: runtime.submit("w", Cuda((4, 8))), "strides")
        raised(libzero.ZeroError, lambda: runtime.submit("w", Cuda()))  # a host runtime


def test_library_memory_is_an_array_in_place_and_outlives_the_runtime():
    runtime = alone({"w": INDEX})
    buffer = runtime.param("w")
    as_numpy, as_dlpack, as_bytes = np.asarray(buffer), np.from_dlpack(buffer), buffer.view()
    as_numpy[0, 1] = 50
    expect(as_dlpack[0, 1] == 50 and as_bytes.cast("f")[1] == 50 and runtime.get("w", "value")[0, 1] == 50)
    runtime.close()
    del runtime, buffer
    gc.collect()
    expect(as_numpy[0, 1] == 50 and as_dlpack[2, 3] == 11 and as_bytes.cast("f")[11] == 11)


def test_bf16_bits_come_as_uint16():
    bits = (np.arange(8, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    model = libzero.Model()
    model.add("w", bits, dtype="bf16")
    raised(libzero.ArgumentError, lambda: model.add("v", bits), "bf16")
    with libzero.Runtime(config(bf16={"enabled": True}), model, comm=libzero.Comm.alone()) as runtime:
        expect(runtime.describe("w").dtype == "bf16" and (runtime.get("w") == bits).all())
        runtime.submit("w", np.full(8, 0x3f80, np.uint16))
        runtime.step()
        expect(abs(runtime.get("w", "master") - (np.arange(8) - 0.1)).max() < 1e-5)


# ---- state -------------------------------------------------------------------------------------------

def test_moments_survive_a_clamped_parameter():  # R072
    with alone({"w": np.full(4, 5, np.float32)}) as runtime:
        for _ in range(2):
            runtime.submit("w", np.full(4, 0.5, np.float32))
            runtime.step()
            runtime.set("w", runtime.get("w").clip(-1, 1))
        expect(runtime.step_count == 2 and abs(runtime.get("w") - 0.9).max() < 1e-6)  # 1 after the first clamp
        expect(abs(runtime.get("w", "state", 0) - 0.095).max() < 1e-8)
        expect(abs(runtime.get("w", "state", 1) - 0.00049975).max() < 1e-10)


def test_master_and_moments_are_readable_at_every_stage():  # R135
    def work(rank, comm):
        found = []
        for stage in range(4):
            model = libzero.Model()
            model.add("w", np.ones((5, 7), np.float32))
            with libzero.Runtime(config(stage), model, comm=comm) as runtime:
                for _ in range(2):
                    runtime.submit("w", np.full((5, 7), rank + 0.5, np.float32))  # mean 1
                    runtime.step()
                found.append([runtime.get("w", *part).copy() for part in (("value",), ("master",), ("state", 0), ("state", 1))])
        return found
    for stages in two_ranks(work):
        for value, master, m, v in stages:
            expect(abs(m - 0.19).max() < 1e-7 and abs(v - 0.001999).max() < 1e-9 and abs(value - 0.8).max() < 1e-5)
            expect((value == master).all() and (value == stages[0][0]).all())


def test_an_optimizer_of_the_programs_own_updates_its_shards():
    settings = config(optimizer={"type": "libzero.host", "params": {"states": 1}})
    with alone({"w": np.ones(4, np.float32)}, settings) as runtime:
        runtime.submit("w", np.full(4, 2, np.float32))
        runtime.step_begin()
        gradient, master, state = (runtime.shard_buffer("w", part).numpy() for part in ("grad", "master", "state"))
        state += gradient
        master -= 0.25 * state
        runtime.step_end()
        expect((runtime.get("w") == 0.5).all() and (runtime.get("w", "state", 0) == 2).all())


def test_a_gradient_is_written_where_it_belongs():
    with alone({"w": np.zeros(4, np.float32)}, config(optimizer={"type": "SGD", "params": {"lr": 1.0}})) as runtime:
        buffer, add = runtime.grad_buffer("w")
        expect(not add)
        buffer.copy_from(np.arange(4, dtype=np.float32))
        runtime.grad_ready("w")
        runtime.micro_end()
        info = runtime.step()
        expect((runtime.get("w") == -np.arange(4)).all() and not info.skipped and info.step == 1)


def test_a_loan_is_a_context_and_ends_with_an_exception_too():
    with alone({"w": INDEX, "b": np.zeros(4, np.float32)}, config(3)) as runtime:
        with runtime.loan(["w", "b"], keep_changes=True) as (w, b):
            expect((w.numpy() == INDEX).all() and len(b) == 4)
            w.numpy()[:] = 3
        raised(libzero.StateError, w.numpy, "loan")
        expect((runtime.get("w") == 3).all())

        def broken():
            with runtime.loan("w", keep_changes=True) as (w,):
                raise RuntimeError("in the middle")
        raised(RuntimeError, broken, "in the middle")
        expect("0 loans" in runtime.text(), runtime.text())


def test_what_libzero_has_to_say_goes_to_logging():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))
    logger = logging.getLogger("libzero")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    with alone({"w": INDEX}):
        pass
    logger.removeHandler(handler)
    expect(any(level == logging.INFO and "stage 1" in text for level, text in lines), lines)


# ---- misuse ------------------------------------------------------------------------------------------

def test_a_wrong_dtype_is_an_exception():
    with alone({"w": INDEX}) as runtime:
        raised(libzero.ArgumentError, lambda: runtime.submit("w", INDEX.astype(np.int64)))
        raised(libzero.ArgumentError, lambda: runtime.submit("w", INDEX.astype(complex)), "complex")
        raised(libzero.ArgumentError, lambda: runtime.set("w", INDEX.astype(np.float64)), "fp64")
        raised(libzero.ArgumentError, lambda: runtime.submit("w", "text"))
        raised(libzero.ArgumentError, lambda: runtime.get("w", out=np.zeros(12, np.float16)), "fp16")
        runtime.submit("w", INDEX)
        expect(runtime.step().step == 1)
    raised(libzero.ArgumentError, lambda: libzero.Model().add("w", INDEX, dtype="fp16"), "fp16")
    raised(libzero.ArgumentError, lambda: libzero.Model().add("w", shape=(2,), dtype="fp7"), "fp7")


def test_a_wrong_size_is_an_exception():
    with alone({"w": INDEX}) as runtime:
        raised(libzero.ArgumentError, lambda: runtime.submit("w", INDEX[:2]), "(2, 4)", "(3, 4)")
        raised(libzero.ArgumentError, lambda: runtime.set("w", INDEX[:2]))
        raised(libzero.ArgumentError, lambda: runtime.get("w", out=np.zeros(11, np.float32)), "11")
        expect(raw.zero_param_get(runtime.handle, 0, raw.ZERO_PART_VALUE, 0, bytearray(47)) != raw.ZERO_OK)
        raised(libzero.ArgumentError, lambda: runtime.param("w").copy_from(INDEX[:1]))
        raised(libzero.NotFoundError, lambda: runtime.submit("no such", INDEX), "no such")
    raised(libzero.ArgumentError, lambda: libzero.Model().add("w", INDEX, shape=(4, 3)), "shape")


def test_a_read_only_array_is_an_exception_where_it_would_be_written():
    frozen = INDEX.copy()
    frozen.flags.writeable = False
    raised(libzero.ArgumentError, lambda: libzero.Model().add("w", frozen, storage="caller"), "read-only")
    raised(libzero.ArgumentError, lambda: libzero.Model().add("w", memoryview(b"1234").cast("f"), storage="caller"),
           "read-only")
    with alone({"w": frozen}) as runtime:  # read only, as it should be
        raised(libzero.ArgumentError, lambda: runtime.get("w", out=frozen), "read-only")
        raised(libzero.ArgumentError, lambda: libzero.Comm.alone().all_reduce(memoryview(bytes(8)).cast("d")), "read-only")


def test_a_freed_handle_is_an_exception():
    runtime, comm = alone({"w": INDEX}), libzero.Comm.alone()
    runtime.close()
    runtime.close()  # twice is once
    for call in (runtime.step, runtime.text, lambda: runtime.submit("w", INDEX), lambda: runtime.param("w")):
        raised(libzero.StateError, call, "closed")
    comm.destroy()
    raised(libzero.StateError, lambda: comm.rank, "closed")
    raised(libzero.StateError, lambda: libzero.Runtime(config(), comm=comm), "closed")
    made = libzero.Config()
    made.destroy()
    raised(libzero.StateError, made.text, "closed")


def test_handles_go_in_any_order():
    for order in range(6):
        things = [libzero.Comm.alone(), libzero.Model(), None]
        things[1].add("w", INDEX)
        things[2] = libzero.Runtime(config(), things[1], comm=things[0])
        view = things[2].param("w").numpy()
        for index in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))[order]:
            things[index] = None
            gc.collect()
        expect((view == INDEX).all())


def test_an_exception_in_a_callback_is_the_cause_of_the_error():
    def broken(_send, _recv):
        raise LookupError("the cable")
    comm = libzero.Comm.user(0, 2, broken, broken)
    error = raised(libzero.UserError, lambda: comm.barrier() or comm.all_reduce(1.0), "the cable")
    expect(isinstance(error.__cause__, LookupError), error.__cause__)
    comm.destroy()


def test_two_python_functions_are_a_communicator():
    barrier, sent = threading.Barrier(2), [None, None]
    results = [None, None]

    def run(rank):
        def all_gather(send, recv):
            sent[rank] = bytes(send)
            barrier.wait()
            recv[:] = b"".join(sent)
            barrier.wait()

        def all_to_all(send, recv):
            sent[rank] = bytes(send)
            barrier.wait()
            half = len(recv) // 2
            recv[:] = b"".join(s[rank * half:(rank + 1) * half] for s in sent)
            barrier.wait()
        model = libzero.Model()
        model.add("w", np.ones(100, np.float32))
        settings = config(2)
        settings["zero_optimization"]["overlap_comm"] = False
        with libzero.Comm.user(rank, 2, all_gather, all_to_all) as comm:
            with libzero.Runtime(settings, model, comm=comm) as runtime:
                runtime.submit("w", np.full(100, rank * 2, np.float32))
                norm = runtime.step().grad_norm
                results[rank] = norm, runtime.get("w").sum()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(results[0] == results[1] and results[0][0] == 10.0, results)


def test_a_runtime_used_by_two_threads_is_an_exception():
    inside, go_on, said = threading.Event(), threading.Event(), []

    def hold(_send, recv):
        inside.set()
        go_on.wait(20)
        recv[:] = bytes(len(recv))
    comm = libzero.Comm.user(0, 2, hold, hold)

    def first():
        try:
            libzero.Runtime(config(), comm=comm).shard(libzero.Model())
        except libzero.ZeroError as error:
            said.append(error)
    thread = threading.Thread(target=first)
    with alone({"w": INDEX}) as runtime:
        runtime._busy.acquire()  # as a call in another thread does
        raised(libzero.StateError, runtime.step, "thread")
        raised(libzero.StateError, lambda: runtime.submit("w", INDEX), "thread")
        runtime._busy.release()
        runtime.submit("w", INDEX)
        # The lock of the interpreter is not held in a call that waits: this thread goes on.
        thread.start()
        expect(inside.wait(20))
        runtime.step()
        go_on.set()
        thread.join()


def test_many_threads_on_one_runtime_end_in_answers():
    refused = []
    with alone({"w": INDEX}) as runtime:
        def work():
            for _ in range(200):
                try:
                    runtime.get("w")
                    runtime.text()
                except libzero.StateError as error:
                    refused.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect((runtime.get("w") == INDEX).all())


def test_a_gradient_collected_right_after_submit_was_read():
    count = 50000
    settings = config(2, optimizer={"type": "SGD", "params": {"lr": 1.0}})
    with alone({"p%d" % i: np.zeros(count, np.float32) for i in range(4)}, settings) as runtime:
        for i in range(4):
            gradient = np.full(count, i + 1, np.float32)
            runtime.submit(i, gradient)
            gradient[:] = np.nan
            del gradient
            gc.collect()
            np.full(count, np.inf, np.float32)  # where the collected one lay, as like as not
        runtime.step()
        for i in range(4):
            expect((runtime.get(i) == -(i + 1)).all(), i)


def interpreter(code):
    """Exit code and output of another interpreter."""
    done = subprocess.run([sys.executable, "-c", "import libzero, numpy as np\n" + code], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


MAKE = """
model = libzero.Model()
model.add("w", np.ones(1000, np.float32))
runtime = libzero.Runtime({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}, model,
                          comm=libzero.Comm.alone())
"""


def test_an_interpreter_that_ends_with_a_live_runtime_ends():
    for ending in ("", "view = runtime.param('w').numpy()", "runtime.submit('w', np.ones(1000, np.float32))",
                   "import sys; sys.modules['keep'] = runtime", "runtime.me = runtime", "loan = runtime.acquire('w')",
                   "import atexit; atexit.register(lambda: print(runtime.closed))"):
        code, said = interpreter(MAKE + ending)
        expect(code == 0 and said.strip() in ("", "False"), ending, code, said)
    code, said = interpreter(MAKE + "raise SystemExit(5)")
    expect(code == 5 and not said, code, said)


def test_an_interpreter_that_ends_while_a_peer_is_waited_for_ends():
    code, said = interpreter("""
import os, threading, time
def wait():
    try: libzero.Comm.local("nobody-%d" % os.getpid(), 0, 2, timeout_s=60)
    except libzero.ZeroError: pass
threading.Thread(target=wait, daemon=True).start()
time.sleep(0.2)
""")
    expect(code == 0 and not said, code, said)


def test_wrong_ids_and_streams_are_exceptions():
    with alone({"w": INDEX}) as runtime:
        raised(libzero.ZeroError, lambda: runtime.param(7))
        raised(libzero.ZeroError, lambda: runtime.submit(-3, INDEX))
        raised(OverflowError, lambda: runtime.grad_ready([2**40]))
        raised(libzero.ArgumentError, lambda: runtime.step(stream="here"))
        raised(TypeError, lambda: checked.grad_ready(runtime.handle, b"bytes", None))
        raised((TypeError, ValueError), lambda: checked.step_count("no handle"))
        raised(libzero.ArgumentError, lambda: runtime.get("w", "no such part"), "part")


# ---- ranks -------------------------------------------------------------------------------------------

def test_reduced_values_reach_the_callers_array():
    def work(rank, comm):
        plain, whole = np.array([1.0 + 2 * rank]), np.zeros((4, 4))
        comm.all_reduce(plain)
        view = whole[1]
        view[:] = rank
        comm.all_reduce(view)
        raised(libzero.ArgumentError, lambda: comm.all_reduce(whole[:, 1]), "strides")
        blob = bytearray(b"rank%d" % rank)
        comm.broadcast(blob, 1)
        comm.barrier()
        return plain[0], whole.sum(), comm.all_reduce(float(rank), "max"), bytes(blob), comm.rank, comm.size
    expect(two_ranks(work) == [(4.0, 4.0, 1.0, b"rank1", 0, 2), (4.0, 4.0, 1.0, b"rank1", 1, 2)])


def test_summed_gradients_are_divided_by_what_the_step_says():
    def work(rank, comm):
        model = libzero.Model()
        model.add("w", np.zeros(3, np.float32))
        settings = config(2, optimizer={"type": "SGD", "params": {"lr": 1.0}})
        with libzero.Runtime(settings, model, comm=comm) as runtime:
            runtime.submit("w", np.full(3, 10.0 if rank == 0 else 30.0, np.float32))
            runtime.step(gradient_divisor=40.0)
            return runtime.get("w")[0]
    expect(two_ranks(work) == [-1.0, -1.0])


def test_the_package_is_typed_and_documented():
    package = SOURCE / "bindings/python/libzero"
    expect((package / "py.typed").exists() and (package / "raw.pyi").exists())
    for kind in (libzero.Runtime, libzero.Model, libzero.Config, libzero.Comm, libzero.Plan):
        for name, function in vars(kind).items():
            if callable(function) and not name.startswith("_") and name not in ("reset_peak", "dict"):
                expect(function.__doc__, "%s.%s" % (kind.__name__, name))
                expect(function.__annotations__ or name in ("close",), "%s.%s" % (kind.__name__, name))
    for function in (checked.shard_params, checked.step, checked.grad_submit):
        expect(function.__doc__ and function.__annotations__)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
