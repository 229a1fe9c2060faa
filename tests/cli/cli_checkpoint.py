#!/usr/bin/env python3
"""`zero checkpoint` from outside: inspect, verify, reshard, export, diff; and safetensors' own package."""
# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from harness import Skip, expect, run_tests  # noqa: E402
import torch_files  # noqa: E402

PROGRAM = os.environ.get("LIBZERO_PROGRAM", "zero")
BUILD = pathlib.Path(os.environ.get("LIBZERO_BUILD_ROOT", ""))
SHARED = pathlib.Path(os.environ.get("LIBZERO_SHARED", ROOT.parent / "shared"))


def zero_checkpoint(*words):
    return subprocess.run([PROGRAM, "checkpoint", *map(str, words)], text=True,
                          capture_output=True)


def succeed(*words):
    done = zero_checkpoint(*words)
    expect(done.returncode == 0, words, done.stdout, done.stderr)
    return done.stdout


def numbers(first, count):
    return [float(first + i) for i in range(count)]


def groups(shift=0.0):
    return [[("layer one", numbers(0, 100), numbers(1000, 100), numbers(2000, 100)),
             ("b\u00fcro", numbers(50, 3), [7.0 + shift, 8.0, 9.0], numbers(60, 3))]]


class Folder:
    """A folder of one test's own, with blanks and letters beyond ASCII in its path."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name, "a f\u00f6lder")
        path.mkdir()
        return path

    def __exit__(self, *unused):
        self.folder.cleanup()


def make(folder, name, world=2, shift=0.0, extra=None, stage=2):
    source = folder / (name + ".deepspeed")
    torch_files.write_checkpoint(source, stage, 2, groups(shift), extra=extra)
    succeed("import-deepspeed", source, folder / name, "--world", world)
    return folder / name


def tensors(path):
    """Header and values by name of a safetensors file, every byte accounted for."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    end = 0
    for name in sorted(header, key=lambda one: header[one]["data_offsets"]):
        expect(header[name]["data_offsets"][0] == end, "a gap or an overlap", name)
        end = header[name]["data_offsets"][1]
    expect(8 + length + end == len(data), "bytes that belong to no tensor")
    values = {name: data[8 + length + one["data_offsets"][0]:8 + length + one["data_offsets"][1]]
              for name, one in header.items()}
    return header, values, metadata


def test_inspect_says_what_is_in_it():
    with Folder() as folder:
        path = make(folder, "one")
        text = succeed("inspect", path)
        for phrase in ("step 6", "2 ranks, stage 2", 'group "default"', "optimizer adam",
                       'blob "deepspeed.client_state" of rank 0', 'param "layer one" 100 fp32'):
            expect(phrase in text, phrase, text)
        found = json.loads(succeed("inspect", path, "--json"))
        expect(found["step"] == 6 and found["world_size"] == 2 and found["stage"] == 2, found)
        expect([one["name"] for one in found["parameters"]] == ["layer one", "b\u00fcro"], found)
        expect(found["parameters"][0]["shape"] == [100] and
               found["parameters"][0]["updates"] == 6, found)
        expect(found["state_count"] == 2 and not found["weights_only"], found)


def test_verify_names_the_file_the_offset_and_the_parameter():
    with Folder() as folder:
        path = make(folder, "one")
        expect("whole" in succeed("verify", path))
        expect(json.loads(succeed("verify", path, "--json")) == {"whole": True, "damaged": []})
        piece = path / "piece-00000.zero"
        whole = piece.read_bytes()
        at = whole.index(struct.pack("<3f", 10.0, 11.0, 12.0))
        piece.write_bytes(whole[:at] + b"\x01" + whole[at + 1:])
        done = zero_checkpoint("verify", path)
        expect(done.returncode == 1, done.returncode, done.stderr)
        expect("piece-00000.zero" in done.stdout and "layer one" in done.stdout, done.stdout)
        begin, end = done.stdout.split("[")[1].split(")")[0].split(", ")
        expect(int(begin) <= at < int(end), done.stdout, at)
        found = json.loads(zero_checkpoint("verify", path, "--json").stdout)
        expect(not found["whole"] and len(found["damaged"]) == 1, found)
        piece.write_bytes(whole[:-1])
        done = zero_checkpoint("verify", path)
        expect(done.returncode == 1 and "piece-00000.zero" in done.stdout, done.stdout, done.stderr)
        piece.unlink()
        done = zero_checkpoint("verify", path)
        expect(done.returncode in (1, 2) and "piece-00000.zero" in done.stdout + done.stderr, done)


def test_a_resharded_checkpoint_is_the_same_state():
    with Folder() as folder:
        path = make(folder, "one")
        for world in (1, 3, 8):
            succeed("reshard", path, folder / str(world), "--world", world)
            found = json.loads(succeed("inspect", folder / str(world), "--json"))
            expect(found["world_size"] == world, found)
            expect("whole" in succeed("verify", folder / str(world)))
            expect(succeed("diff", path, folder / str(world)) == "equal\n")
        done = zero_checkpoint("reshard", path, folder / "3", "--world", 2)
        expect(done.returncode == 2 and "3" in done.stderr, done.stderr)  # it exists


def test_diff_says_what_differs_bit_for_bit():
    with Folder() as folder:
        one = make(folder, "one")
        same = make(folder, "same", world=3, stage=2)
        other = make(folder, "other", world=5, shift=2.0 ** -20, extra={"epoch": 3})
        expect(succeed("diff", one, same) == "equal\n")
        done = zero_checkpoint("diff", one, other)
        expect(done.returncode == 1, done.returncode, done.stderr)
        expect(done.stdout.splitlines() == [
            'blob "deepspeed.client_state" of rank 0: differs',
            'param "b\u00fcro": state 0: 1 of 3 elements differ, the first is 0'], done.stdout)
        found = json.loads(zero_checkpoint("diff", one, other, "--json").stdout)
        expect(not found["equal"] and len(found["differences"]) == 2, found)
        expect(json.loads(succeed("diff", one, same, "--json"))["equal"])


def test_export_writes_one_file_or_several_with_an_index():
    with Folder() as folder:
        path = make(folder, "one", world=3)
        succeed("export", path, folder / "w.safetensors")
        header, values, metadata = tensors(folder / "w.safetensors")
        expect(set(header) == {"layer one", "b\u00fcro"} and metadata == {"format": "pt"}, header)
        expect(values["layer one"] == struct.pack("<100f", *numbers(0, 100)))
        succeed("export", path, folder / "w.safetensors", "--dtype", "bf16")  # replaced as a whole
        header, values, _ = tensors(folder / "w.safetensors")
        expect(header["layer one"]["dtype"] == "BF16")
        expect(values["layer one"] == b"".join(
            struct.pack("<f", one)[2:] for one in numbers(0, 100)))  # small integers are exact
        succeed("export", path, folder / "sharded", "--max-file-size", "600B")
        index = json.loads((folder / "sharded" / "model.safetensors.index.json").read_text())
        expect(index == {"metadata": {"total_size": 412},
                         "weight_map": {"layer one": "model-00001-of-00002.safetensors",
                                        "b\u00fcro": "model-00002-of-00002.safetensors"}}, index)
        for name, file in index["weight_map"].items():
            expect(name in tensors(folder / "sharded" / file)[0])
        done = zero_checkpoint("export", path, folder / "sharded", "--max-file-size", "5GB")
        expect(done.returncode == 2 and "exists" in done.stderr, done.stderr)
        expect(sorted(one.name for one in folder.iterdir()) ==
               ["one", "one.deepspeed", "sharded", "w.safetensors"])


def test_long_work_shows_progress_on_a_terminal_alone():
    with Folder() as folder:
        path = make(folder, "one")
        for words in (["verify", str(path)], ["reshard", str(path), str(folder / "r"), "--world", "3"],
                      ["diff", str(path), str(path)],
                      ["export", str(path), str(folder / "w.safetensors")]):
            try:
                main, other = pty.openpty()
            except OSError as error:
                raise Skip("no pseudo-terminal here: %s" % error) from error
            done = subprocess.run([PROGRAM, "checkpoint", *words], stderr=other,
                                  stdout=subprocess.PIPE)
            os.close(other)
            expect(done.returncode == 0, words)
            shown = b""
            try:
                while True:
                    piece = os.read(main, 4096)
                    if not piece:
                        break
                    shown += piece
            except OSError:
                pass
            os.close(main)
            expect(b"%" in shown and b"MB" in shown, words, shown)
            expect(zero_checkpoint("verify", path).stderr == "")


def test_wrong_command_lines_and_missing_checkpoints():
    for words in ([], ["nothing"], ["inspect"], ["inspect", "a", "b"], ["reshard", "a", "b"],
                  ["reshard", "a", "b", "--world", "0"], ["export", "a", "b", "--dtype", "int8"],
                  ["export", "a", "b", "--max-file-size", "5 apples"], ["inspect", "--frob", "a"]):
        done = zero_checkpoint(*words)
        expect(done.returncode == 64 and done.stderr and not done.stdout, words, done)
    for words in (["inspect", "/nowhere/x"], ["verify", "/nowhere/x"],
                  ["reshard", "/nowhere/x", "y", "--world", "2"],
                  ["export", "/nowhere/x", "y"], ["diff", "/nowhere/x", "/nowhere/x"],
                  ["import-deepspeed", "/nowhere/x", "y"]):
        done = zero_checkpoint(*words)
        expect(done.returncode == 2 and "/nowhere/x" in done.stderr, words, done)
    text = succeed("--help")
    for word in ("inspect", "verify", "reshard", "export", "diff", "import-deepspeed", "Exit code"):
        expect(word in text, word)


# ---- safetensors' own package


def venv_python():
    """An interpreter that has safetensors and numpy, made once a build."""
    folder = BUILD / "tests" / "safetensors-venv"
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import safetensors.numpy"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return str(python)
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
    if made.returncode != 0:
        raise Skip("no virtual environment can be made: " + made.stdout[-300:])
    installed = subprocess.run([str(python), "-m", "pip", "install", "-q", "safetensors", "numpy"],
                               capture_output=True, text=True)
    if installed.returncode != 0 or subprocess.run(check, capture_output=True).returncode != 0:
        raise Skip("pip cannot install safetensors and numpy here: " + installed.stderr[-300:])
    return str(python)


def run_python(code, *words):
    done = subprocess.run([venv_python(), "-c", code, *map(str, words)], capture_output=True,
                          text=True)
    expect(done.returncode == 0, done.stdout, done.stderr)
    return done.stdout


READS = """
import json, sys, numpy, safetensors, safetensors.numpy
for path in sys.argv[1:]:
    with safetensors.safe_open(path, framework="np") as file:
        found = {"metadata": file.metadata(), "shapes": {}, "sums": {}}
        for name in file.keys():
            part = file.get_slice(name)
            found["shapes"][name] = part.get_shape()
            if part.get_dtype() in ("F32", "I64", "F16"):
                found["sums"][name] = float(file.get_tensor(name).astype("float64").sum())
    print(json.dumps(found))
"""


def test_the_package_of_safetensors_opens_every_file_of_ours():
    corpus = SHARED / "corpus" / "deepspeed-checkpoints"
    with Folder() as folder:
        path = make(folder, "one")
        files = [folder / "w.safetensors"]
        succeed("export", path, files[0])
        for dtype in ("fp16", "bf16"):
            files.append(folder / dtype)
            succeed("export", path, files[-1], "--dtype", dtype)
        succeed("export", path, folder / "sharded", "--max-file-size", "600B")
        files += sorted((folder / "sharded").glob("*.safetensors"))
        lines = [json.loads(line) for line in run_python(READS, *files).splitlines()]
        expect(len(lines) == 5 and len(files) == 5)
        for line in lines[:2]:
            expect(line["shapes"] == {"layer one": [100], "b\u00fcro": [3]}, line)
            expect(line["sums"] == {"layer one": 4950.0, "b\u00fcro": 153.0}, line)
        if not corpus.exists():
            return
        # Tied, frozen, buffers, int64 scalars, bf16.
        for source in ("w2-bf16-s3", "w2-fp32-s1"):
            succeed("import-deepspeed", corpus / source, folder / source)
            succeed("export", folder / source, folder / (source + ".st"))
            found = json.loads(run_python(READS, folder / (source + ".st")))
            expect(found["metadata"] == {"format": "pt", "head.weight": "embedding.weight"}, found)
            expect(found["shapes"]["embedding.weight"] == [37, 8] and found["shapes"]["seen"] == [])
            expect(found["sums"]["seen"] == 30.0 and "head.weight" not in found["shapes"], found)


WRITES = """
import sys, numpy, safetensors.numpy
tensors = {"w": numpy.arange(600, dtype="float32").reshape(20, 30) / 8, "half": numpy.arange(7, dtype="float16"),
           "scalar": numpy.array(2.5, dtype="float32"), "empty": numpy.zeros((0, 4), dtype="float32"),
           "counter": numpy.array(2**53 + 1, dtype="int64"), "double": numpy.arange(3, dtype="float64")}
safetensors.numpy.save_file(tensors, sys.argv[1], metadata={"format": "pt", "tied": "w"})
"""


def test_files_of_the_package_are_read_into_a_run():
    with Folder() as folder:
        path = folder / "theirs.safetensors"
        run_python(WRITES, path)
        library = ctypes.CDLL(str(BUILD / "src" / "libzero.so"))

        def ok(status):
            if status != 0:
                text = ctypes.create_string_buffer(4096)
                length = ctypes.c_uint64()
                library.zero_last_error_text(text, ctypes.c_uint64(4096), ctypes.byref(length))
                raise AssertionError(text.value.decode())

        config, runtime, model = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        text = json.dumps({"optimizer": {"type": "Adam"}, "fp16": {"enabled": True},
                           "zero_optimization": {"stage": 3}}).encode()
        ok(library.zero_config_load_text(text, ctypes.c_uint64(len(text)), ctypes.byref(config)))
        ok(library.zero_init(config, None, ctypes.byref(runtime)))
        ok(library.zero_model_load(os.fsencode(path), ctypes.byref(model)))
        ok(library.zero_shard_params(runtime, model))
        ok(library.zero_weights_import(runtime, os.fsencode(path), None))

        def value(name, code, count):
            param = ctypes.c_int32()
            ok(library.zero_param_find(runtime, name.encode(), ctypes.byref(param)))
            size = struct.calcsize("<%d%s" % (count, code))
            memory = ctypes.create_string_buffer(max(size, 1))
            ok(library.zero_param_get(runtime, param, 0, 0, memory, ctypes.c_uint64(size)))
            return list(struct.unpack("<%d%s" % (count, code), memory.raw[:size]))

        expect(value("w", "f", 600) == [i / 8 for i in range(600)])
        expect(value("tied", "f", 600) == [i / 8 for i in range(600)])
        expect(value("half", "e", 7) == list(range(7)))
        expect(value("scalar", "f", 1) == [2.5] and value("empty", "f", 0) == [])
        expect(value("counter", "q", 1) == [2**53 + 1])
        expect(value("double", "d", 3) == [0.0, 1.0, 2.0])
        # And out again, for the package.
        ok(library.zero_weights_export(runtime, os.fsencode(folder / "ours"), 0, ctypes.c_uint64(0)))
        found = json.loads(run_python(READS, folder / "ours"))
        expect(found["metadata"] == {"format": "pt", "tied": "w"}, found)
        expect(found["shapes"] == {"w": [20, 30], "half": [7], "scalar": [], "empty": [0, 4],
                                   "counter": [], "double": [3]}, found)
        expect(found["sums"]["counter"] == float(2**53 + 1) and found["sums"]["w"] == 22462.5, found)
        library.zero_runtime_destroy(runtime)
        library.zero_model_destroy(model)
        library.zero_config_destroy(config)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
