#!/usr/bin/env python3
"""What nvcc makes of the CUDA kernels: PTX, registers, spills; and a table of the kernels.

    tests/emulation/nvcc_kernels.py [ARCH...]      (default: 75 80 86 90 100)

prints for each kernel the bytes that it moves, and registers and occupancy at each architecture,
and fails on a spill or a warning.  No GPU is needed, only nvcc.

Occupancy is computed, not measured: warps of a block x registers of a warp (rounded up to the
allocation unit of 256) against a quarter of the multiprocessor's 65,536 registers, shared memory,
and the device's limits of blocks and warps; the result is warps over the most that there may be.
"""
# SPDX-License-Identifier: BSD-3-Clause
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = sorted((ROOT / "kernels" / "cuda").glob("*.cu"))
RELEASE = (75, 80, 86, 90, 100)  # and PTX of the last
FLAGS = ["-std=c++20", "-O3", "-I" + str(ROOT), "-I" + str(ROOT / "include")]
NO_NVCC = "nvcc is not there: the kernels were run from their source only"

# Of a multiprocessor: warps, blocks, bytes of shared memory (a block's reserved KiB included).
LIMITS = {75: (32, 16, 65536), 80: (64, 32, 167936), 86: (48, 16, 102400), 90: (64, 32, 233472),
          100: (64, 32, 233472)}
THREADS = {"verdict_kernel": 1, "note_kernel": 1}  # of a block; 256 elsewhere

Usage = collections.namedtuple("Usage", "registers shared spilled")


def find_nvcc():
    """The compiler's path, or None."""
    return shutil.which("nvcc") or next(
        (path for path in ("/usr/local/cuda/bin/nvcc",) if os.path.exists(path)), None)


def known(nvcc, architectures):
    """Those that this nvcc knows."""
    listing = subprocess.run([nvcc, "--list-gpu-arch"], check=True, stdout=subprocess.PIPE,
                             text=True).stdout.split()
    return [arch for arch in architectures if "compute_%d" % arch in listing]


def run(command):
    """Output of a command that must succeed and say nothing of a warning."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0 or "warning" in done.stdout.lower():
        raise AssertionError("%s\nexit code %d\n%s" % (" ".join(map(str, command)),
                                                        done.returncode, done.stdout))
    return done.stdout


def make_ptx(nvcc, source, arch, folder):
    """Path of the PTX of one source for compute_ARCH, made once; warnings are errors."""
    ptx = pathlib.Path(folder) / ("%s_%d.ptx" % (source.stem, arch))
    if ptx.exists():
        return ptx
    run([nvcc, *FLAGS, "-Werror", "all-warnings", "-arch=compute_%d" % arch, "-ptx", source,
         "-o", ptx])
    return ptx


def assemble(nvcc, ptx, arch, folder):
    """{kernel: Usage} of a PTX file, as ptxas makes machine code of it."""
    cubin = pathlib.Path(folder) / (ptx.stem + ".cubin")
    text = run([pathlib.Path(nvcc).parent / "ptxas", "-O3", "-v", "-arch=sm_%d" % arch, ptx, "-o",
                cubin])
    usage = {}
    for part in re.split(r"Compiling entry function '", text)[1:]:
        name = part[:part.index("'")]
        shared = re.search(r"(\d+) bytes smem", part)
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        usage[name] = Usage(int(re.search(r"Used (\d+) registers", part)[1]),
                            int(shared[1]) if shared else 0, int(spilled[1]) + int(spilled[2]))
    return usage


def demangled(names):
    """{mangled: readable} without namespaces and parameter lists."""
    filt = subprocess.run(["c++filt"], input="\n".join(names), check=True, stdout=subprocess.PIPE,
                          text=True).stdout.splitlines()
    short = {}
    for name, text in zip(names, filt):
        text = re.sub(r"zero::(cuda|kernels)::", "", text)
        text = re.sub(r"^void ", "", text)
        short[name] = re.sub(r"\([^()]*\)$", "", text).replace(" >", ">")
    return short


DTYPE = {"1": "fp32", "2": "fp16", "3": "bf16", "-1": None}
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2, None: 0}


def bytes_moved(name):
    """Of a kernel, in words: what it reads and writes for each element."""
    states = {"AdamRule": 2, "LambRule": 2, "SgdRule": 1, "AdagradRule": 1, "LionRule": 1,
              "MuonRule": 1, "ApplyRule": 0}
    match = re.match(r"update_kernel<(\w+), PlainStreams<(\d+), (-?\d+)>>", name)
    if match:
        state = 8 * states[match[1]]
        grad, model = SIZE[DTYPE[match[2]]], SIZE[DTYPE[match[3]]]
        return "%d (reads %d, writes %d)" % (8 + state + grad + model, 4 + state // 2 + grad,
                                             4 + state // 2 + model)
    match = re.match(r"update_kernel<(\w+), AnyStreams>", name)
    if match:
        return "2 x (master + %d states) + grad + model, as narrow as they are" % states[match[1]]
    match = re.match(r"direction_kernel<(\w+), (\d+)>", name)
    if match:
        state, master = 8 * states[match[1]], 4 if match[1] == "LambRule" else 0
        return "%d" % (state + master + SIZE[DTYPE[match[2]]] + 4)
    match = re.match(r"reduce_kernel<(\d+), (\d+)>", name)
    if match:
        return "%d x ranks + %d (+ %d where it adds)" % ((SIZE[DTYPE[match[1]]],) +
                                                         2 * (SIZE[DTYPE[match[2]]],))
    match = re.match(r"convert_kernel<(\d+), (\d+), (\d+)>", name)
    if match:
        source, target = SIZE[DTYPE[match[2]]], SIZE[DTYPE[match[3]]]
        return "%d" % (source + target * (2 if match[1] == "1" else 1))
    match = re.match(r"norm_kernel<(\d+)>", name)
    if match:
        return "%d" % SIZE[DTYPE[match[1]]]
    return {"norm_tiles_kernel": "4 or 2", "split_kernel": "8 1/8", "join_kernel": "8 1/8",
            "divide_kernel": "8", "transpose_kernel": "8",
            "product_kernel<true>": "of 64 by 64: 512 an inner index, 16,384 at its end",
            "product_kernel<false>": "of 64 by 64: 512 an inner index, 16,384 at its end",
            "norm_clear_kernel": "168 a sum", "verdict_kernel": "some 300 in all",
            "prepare_kernel": "some 130 a parameter",
            "trust_ratio_kernel": "some 430 a parameter", "note_kernel": "8, where all is finite",
            "record_kernel": "some 400, 0.5 a parameter"}[name]


def occupancy(usage, threads, arch):
    """Of the multiprocessor, in per cent."""
    warps, blocks, shared = LIMITS[arch]
    own_warps = (threads + 31) // 32
    of_warp = (usage.registers * 32 + 255) // 256 * 256
    by_registers = 16384 // of_warp * 4 // own_warps
    reserved = 0 if arch == 75 else 1024
    by_shared = shared // max(1, (usage.shared + reserved + 127) // 128 * 128)
    resident = min(blocks, warps // own_warps, by_registers, by_shared)
    return 100 * resident * own_warps // warps


def jobs():
    return int(os.environ.get("LIBZERO_JOBS", os.cpu_count() or 1))


def usage_by_arch(nvcc, architectures, folder):
    """{arch: {kernel: Usage}}"""
    table = {arch: {} for arch in architectures}
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        work = [(arch, pool.submit(
            lambda s, a: assemble(nvcc, make_ptx(nvcc, s, a, folder), a, folder), source, arch))
                for arch in architectures for source in SOURCES]
        for arch, future in work:
            table[arch].update(future.result())
    return table


def main():
    nvcc = find_nvcc()
    if nvcc is None:
        print(NO_NVCC)
        return 77
    wanted = [int(word) for word in sys.argv[1:]] or list(RELEASE)
    architectures = known(nvcc, wanted)
    with tempfile.TemporaryDirectory() as folder:
        table = usage_by_arch(nvcc, architectures, folder)
    names = demangled(sorted({name for kernels in table.values() for name in kernels}))
    print("| kernel | bytes an element | %s |" % " | ".join(
        "sm_%d registers, occupancy" % arch for arch in architectures))
    print("|---|---|%s" % ("---|" * len(architectures)))
    spilled = []
    for name, text in sorted(names.items(), key=lambda pair: pair[1]):
        cells = []
        for arch in architectures:
            usage = table[arch][name]
            threads = THREADS.get(text, 256)
            cells.append("%d, %d %%" % (usage.registers, occupancy(usage, threads, arch)))
            if usage.spilled:
                spilled.append("%s spills %d bytes at sm_%d" % (text, usage.spilled, arch))
        print("| `%s` | %s | %s |" % (text, bytes_moved(text), " | ".join(cells)))
    print(*spilled, sep="\n")
    print("%d kernels, %d architectures, %d spills" % (len(names), len(architectures),
                                                       len(spilled)))
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
