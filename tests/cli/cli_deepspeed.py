#!/usr/bin/env python3
"""`zero checkpoint import-deepspeed`: layouts, numbers of ranks, paddings, what is refused."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import io
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from harness import Skip, expect, run_tests  # noqa: E402
import torch_files  # noqa: E402

PROGRAM = os.environ.get("LIBZERO_PROGRAM", "zero")
LIBRARY = pathlib.Path(os.environ.get("LIBZERO_BUILD_ROOT", "")) / "src" / "libzero.so"
SHARED = pathlib.Path(os.environ.get("LIBZERO_SHARED", ROOT.parent / "shared"))
VALUE, MASTER, STATE = 0, 2, 3


def zero_checkpoint(*words):
    return subprocess.run([PROGRAM, "checkpoint", *map(str, words)], text=True,
                          capture_output=True)


def succeed(*words):
    done = zero_checkpoint(*words)
    expect(done.returncode == 0, words, done.stdout, done.stderr)
    return done.stdout


def refused(words, *phrases):
    """Could not be done: exit code 2 and a sentence that has all of these in it."""
    done = zero_checkpoint(*words)
    expect(done.returncode == 2, words, done.returncode, done.stderr)
    for phrase in phrases:
        expect(phrase in done.stderr, phrase, done.stderr)


class Folder:
    """A folder of one test's own."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return pathlib.Path(self.folder.name)

    def __exit__(self, *unused):
        self.folder.cleanup()


class Opened:
    """A checkpoint through the C interface, for its parts."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.handle = ctypes.c_void_p()
        status = self.library.zero_checkpoint_open(os.fsencode(path), ctypes.byref(self.handle))
        expect(status == 0, path, status)

    def close(self):
        self.library.zero_checkpoint_destroy(self.handle)

    def read(self, name, part, index, count):
        values = (ctypes.c_float * max(count, 1))()
        status = self.library.zero_checkpoint_read(
            self.handle, name.encode(), part, index, ctypes.c_uint64(0), ctypes.c_uint64(count),
            values, ctypes.c_uint64(4 * count))
        expect(status == 0, name, part, index, status)
        return list(values)[:count]


def numbers(first, count):
    return [float(first + i) for i in range(count)]


def expect_parts(path, groups):
    """Master and moments of every parameter are those that were cut up."""
    opened = Opened(path)
    for group in groups:
        for name, master, exp_avg, exp_avg_sq in group:
            count = len(master)
            expect(opened.read(name, MASTER, 0, count) == list(master), name, "master")
            expect(opened.read(name, STATE, 0, count) == list(exp_avg), name, "exp_avg")
            expect(opened.read(name, STATE, 1, count) == list(exp_avg_sq), name, "exp_avg_sq")
    opened.close()


def layouts():
    """Of every stage, with and without the map of slices where there is one."""
    return [(1, True), (2, True), (2, False), (3, True)]


def test_more_than_ten_ranks_are_read_in_the_order_of_their_numbers():  # R082
    groups = [[("w", numbers(0, 120), numbers(1000, 120), numbers(2000, 120))]]
    for stage, with_maps in layouts():
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", stage, 12, groups, with_maps=with_maps)
            for world in (1, 5, 12):
                out = folder / ("out-%d" % world)
                succeed("import-deepspeed", folder / "in", out, "--world", world)
                expect_parts(out, groups)


def test_more_than_a_hundred_ranks():  # R082
    groups = [[("w", numbers(0, 1200), numbers(5000, 1200), numbers(9000, 1200))]]
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 2, 103, groups)
        succeed("import-deepspeed", folder / "in", folder / "out", "--world", 2)
        expect_parts(folder / "out", groups)


def test_a_missing_or_a_second_file_of_a_rank_names_the_rank():  # R082
    groups = [[("w", numbers(0, 40), numbers(0, 40), numbers(0, 40))]]
    for stage in (2, 3):
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", stage, 12, groups)
            tag = folder / "in" / "tag"
            name = "zero_pp_rank_%d_mp_rank_00_optim_states.pt"
            shutil.copy(tag / (name % 7), tag / ("bf16_" + name % 7))
            refused(("import-deepspeed", folder / "in", folder / "out"), "two", "rank 7")
            (tag / ("bf16_" + name % 7)).unlink()
            (tag / (name % 11)).unlink()
            refused(("import-deepspeed", folder / "in", folder / "out"), "rank 11 is missing")
            (tag / (name % 3)).unlink()
            refused(("import-deepspeed", folder / "in", folder / "out"), "rank 3 is missing")
            expect(not (folder / "out").exists())


def test_padding_is_no_data():  # R083
    sizes = [2160000, 500, 22]
    expect(sum(sizes) == 2160522)
    at, group = 0, []
    for i, size in enumerate(sizes):
        values = [float((at + k) % 65521) for k in range(size)]
        group.append(("p%d" % i, values, values, values))
        at += size
    for with_maps in (True, False):
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", 2, 2, [group], alignment=2,
                                         with_maps=with_maps)
            succeed("import-deepspeed", folder / "in", folder / "out")
            succeed("export", folder / "out", folder / "w.safetensors")
            data = (folder / "w.safetensors").read_bytes()
            header = int.from_bytes(data[:8], "little")
            expect(len(data) - 8 - header == 4 * 2160522)
            expect_parts(folder / "out", [group])


def test_moments_lie_at_their_parameters_whatever_the_alignment():  # R087
    group = []
    for i, size in enumerate((5, 3, 9)):
        group.append(("p%d" % i, numbers(10 * i, size), numbers(100 * i, size),
                      numbers(1000 * i, size)))
    for stage, with_maps in layouts():
        for alignment in (1, 2, 8):
            with Folder() as folder:
                torch_files.write_checkpoint(folder / "in", stage, 2, [group], alignment,
                                             with_maps=with_maps)
                for world in (2, 3):
                    out = folder / str(world)
                    succeed("import-deepspeed", folder / "in", out, "--world", world)
                    expect_parts(out, [group])


def test_several_groups_and_sub_groups():  # R090
    def group(names, first):
        return [(name, numbers(first + 100 * i, size), numbers(first + 100 * i + 5000, size),
                 numbers(first + 100 * i + 7000, size)) for i, (name, size) in enumerate(names)]
    groups = [group([("a", 25), ("b", 7)], 0), group([("c", 13), ("d", 1)], 1000)]
    for sub_group in (10, 3, None):
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", 3, 3, groups, sub_group=sub_group)
            succeed("import-deepspeed", folder / "in", folder / "out", "--world", 2)
            expect_parts(folder / "out", groups)
            text = succeed("inspect", folder / "out")
            expect('group "default", lr 0.1' in text and "weight_decay 0.01" in text, text)
            expect('param "d" 1 fp32 trained, group 1, 6 updates' in text, text)


def test_a_parameter_that_is_cut_between_sub_groups():  # R090
    groups = [[("a", numbers(0, 25), numbers(100, 25), numbers(200, 25)),
               ("b", numbers(40, 7), numbers(140, 7), numbers(240, 7))],
              [("c", numbers(60, 50), numbers(160, 50), numbers(260, 50))]]
    for world in (1, 3):
        for sub_group in (1, 4, 7, 11):
            with Folder() as folder:
                torch_files.write_checkpoint(folder / "in", 3, world, groups, sub_group=sub_group,
                                             cut=True)
                succeed("import-deepspeed", folder / "in", folder / "out", "--world", 2)
                expect_parts(folder / "out", groups)


def test_bf16_optimizer_is_read_as_stage_1():
    bf16 = {"ds_config": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}}
    groups = [[("a", numbers(0, 25), numbers(100, 25), numbers(200, 25)),
               ("b", numbers(40, 6), numbers(140, 6), numbers(240, 6))],
              [("c", numbers(60, 5), numbers(160, 5), numbers(260, 5))]]
    for with_maps in (True, False):
        for world in (2, 11):
            with Folder() as folder:
                torch_files.write_checkpoint(
                    folder / "in", 1, world, groups, alignment=2, with_maps=with_maps,
                    prefix="bf16_", extra=bf16, of_bf16_optimizer=True)
                succeed("import-deepspeed", folder / "in", folder / "out", "--world", 3)
                expect_parts(folder / "out", groups)
                text = succeed("inspect", folder / "out")
                expect('param "c" 5 fp32 trained, group 1, 6 updates' in text, text)
                missing = "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt" % (world - 1)
                (folder / "in" / "tag" / missing).unlink()
                refused(("import-deepspeed", folder / "in", folder / "again"),
                        "rank %d is missing" % (world - 1))


def test_an_empty_group_keeps_its_place_and_its_values():  # R038, R039
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))], []]
    for stage in (1, 2, 3):
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", stage, 2, groups)
            succeed("import-deepspeed", folder / "in", folder / "out", "--world", 3)
            lines = [line for line in succeed("inspect", folder / "out").splitlines()
                     if line.startswith("group ")]
            expect(len(lines) == 2 and "beta2 0.95999" in lines[1], lines)
            expect_parts(folder / "out", groups)


def test_fewer_elements_than_ranks():  # R033
    groups = [[("three", numbers(1, 3), numbers(4, 3), numbers(7, 3)),
               ("one", [9.0], [8.0], [7.0])]]
    for stage, with_maps in layouts():
        with Folder() as folder:
            torch_files.write_checkpoint(folder / "in", stage, 8, groups, with_maps=with_maps)
            succeed("import-deepspeed", folder / "in", folder / "out", "--world", 5)
            expect_parts(folder / "out", groups)


def test_the_scaler_comes_with_its_counters():  # R010, R011
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))]]
    scaler = torch_files.objects(
        torch_files.DynamicLossScaler, cur_scale=256.0, cur_iter=9, last_overflow_iter=4,
        scale_factor=2.0, scale_window=3, min_scale=1, delayed_shift=2, cur_hysteresis=1,
        raise_error_at_min_scale=True, consecutive_hysteresis=False, dynamic=True)
    with Folder() as folder:
        torch_files.write_checkpoint(
            folder / "in", 2, 2, groups, scaler=scaler,
            extra={"skipped_steps": 2, "ds_config": {"fp16": {"enabled": True}}})
        succeed("import-deepspeed", folder / "in", folder / "out")
        text = succeed("inspect", folder / "out")
        expect("loss scale 256 (credits 1, iteration 9, last overflow 4)" in text, text)
        expect("step 4, 2 skipped" in text, text)


def test_the_pointer_is_needed_unless_the_tag_is_given():  # R097
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))]]
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 1, 2, groups)
        latest = folder / "in" / "latest"
        succeed("import-deepspeed", folder / "in" / "tag", folder / "explicit")
        latest.write_text("elsewhere\n")
        refused(("import-deepspeed", folder / "in", folder / "out"), "elsewhere", str(latest))
        latest.write_text("")
        refused(("import-deepspeed", folder / "in", folder / "out"), str(latest))
        latest.write_text("../in/tag")
        refused(("import-deepspeed", folder / "in", folder / "out"), str(latest))
        latest.unlink()
        refused(("import-deepspeed", folder / "in", folder / "out"), str(latest))
        refused(("import-deepspeed", folder / "nowhere", folder / "out"), "nowhere")
        succeed("import-deepspeed", folder / "in" / "tag", folder / "again")
        expect(not (folder / "out").exists())


def test_client_state_comes_as_json_and_an_unknown_class_in_it_is_named():
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))]]
    with Folder() as folder:
        client = {"epoch": 7, "rng": b"\x00\xff", "seed": 2**64 - 1, "lists": [(1, 2), {"x": None}],
                  "state": torch_files.Tensor([1.5])}
        torch_files.write_checkpoint(folder / "in", 2, 2, groups, extra=client)
        succeed("import-deepspeed", folder / "in", folder / "out")
        opened = Opened(folder / "out")
        count = ctypes.c_uint64()
        text = ctypes.create_string_buffer(4096)
        status = opened.library.zero_checkpoint_get(opened.handle, 0, b"deepspeed.client_state", text,
                                                    ctypes.c_uint64(4096), ctypes.byref(count))
        opened.close()
        expect(status == 0, status)
        expect(text.raw[:count.value].decode() ==
               '{"epoch":7,"lists":[[1,2],{"x":null}],"rng":{"hex":"00ff"},'
               '"seed":"18446744073709551615",'
               '"state":{"dtype":"fp32","hex":"0000c03f","shape":[1]}}', text.raw[:count.value])
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 2, 2, groups,
                                     extra={"args": pathlib.PurePosixPath("x")})
        refused(("import-deepspeed", folder / "in", folder / "out"), "pathlib.PurePosixPath")


class Call:
    """Pickles as a call of a function, which the reader must not make."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def test_what_a_pickle_asks_for_is_not_executed():
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))]]
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 2, 2, groups)
        model = folder / "in" / "tag" / "mp_rank_00_model_states.pt"
        mark = folder / "executed"
        for function, arguments, name in (
                (os.system, ("touch %s" % mark,), "posix.system"),
                (subprocess.Popen, (["touch", str(mark)],), "Popen"),
                (eval, ("open(%r, 'w')" % str(mark),), "builtin")):
            for protocol in (2, 3, 4, 5):
                stream = io.BytesIO()
                pickle.Pickler(stream, protocol).dump({"module": Call(function, *arguments)})
                torch_files.write_archive(model, stream.getvalue())
                refused(("import-deepspeed", folder / "in", folder / "out"), name)
                expect(not mark.exists() and not (folder / "out").exists())


def test_every_damaged_storage_is_noticed_before_anything_is_there():
    groups = [[("w", numbers(0, 8), numbers(10, 8), numbers(20, 8))]]
    with Folder() as folder:
        torch_files.write_checkpoint(folder / "in", 2, 2, groups)
        path = folder / "in" / "tag" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        whole = path.read_bytes()
        at = whole.index(b"\x00\x00\x80\x40")  # 4.0, the first master of rank 1
        path.write_bytes(whole[:at] + b"\x01" + whole[at + 1:])
        refused(("import-deepspeed", folder / "in", folder / "out"), "CRC", str(path))
        for size in range(0, len(whole), 97):
            path.write_bytes(whole[:size])
            refused(("import-deepspeed", folder / "in", folder / "out"), str(path))
        expect(not (folder / "out").exists())


def test_every_checkpoint_of_the_corpus_is_the_same_state_at_any_number_of_ranks():
    corpus = SHARED / "corpus" / "deepspeed-checkpoints"
    if not corpus.exists():
        raise Skip("no ../shared/corpus beside the tree; LIBZERO_SHARED can name it")
    for source in sorted(corpus.iterdir()):
        with Folder() as folder:
            succeed("import-deepspeed", source, folder / "one", "--world", 1)
            for world in (2, 7):
                out = folder / str(world)
                succeed("import-deepspeed", source, out, "--world", world)
                expect("whole" in succeed("verify", out))
                expect(succeed("diff", folder / "one", out) == "equal\n")


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
