#!/usr/bin/env python3
"""The kernels as nvcc makes them: no spill, no warning, and their PTX, run by the emulation in place
of what the host compiler makes of the source, has the host kernels' bits.

PTX is where nvcc's optimiser and its choice of instructions are seen.  Every kernel of it must have
been run by one of the test programs.  Quick: compute_80, and of the fused updates only Adam's.
"""
# SPDX-License-Identifier: BSD-3-Clause
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from harness import Skip, expect, run_tests  # noqa: E402
import nvcc_kernels  # noqa: E402

TESTS = ("constants", "convert", "matrix", "record", "reduce", "step", "update")
RACE = 66
INCLUDES = ["-isystem", HERE / "include", "-I", HERE, "-I", HERE.parent / "unit",
            "-I", nvcc_kernels.ROOT, "-I", nvcc_kernels.ROOT / "include",
            "-I", nvcc_kernels.ROOT / "src"]
FULL = os.environ.get("LIBZERO_TEST_TIER") == "full"
QUICK_KERNELS = r"^(?!.*update_kernel)|AdamRule"
CXX = (["ccache"] if shutil.which("ccache") else []) + ["g++"]
FLAGS = ["-std=c++20", "-w", "-ffp-contract=off", "-fno-strict-aliasing"]
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)
POOL = concurrent.futures.ThreadPoolExecutor(nvcc_kernels.jobs())
nvcc = nvcc_kernels.find_nvcc()
host_objects = {}  # by sanitizer: compiled once


def compile_cc(source, target, *flags):
    nvcc_kernels.run([*CXX, *FLAGS, *INCLUDES, *flags, "-x", "c++", "-c", source, "-o", target])
    return target


def compiled_host(sanitizer=()):
    """Objects of the tests and of the launchers; unoptimised, so that no kernel is inlined and what
    comes from PTX can take its place."""
    sources = [HERE / ("emulation_%s.cc" % name) for name in TESTS] + nvcc_kernels.SOURCES
    sources.append(nvcc_kernels.ROOT / "kernels" / "cuda" / "cuda_table.cc")
    tag = "thread" if sanitizer else "host"
    return [POOL.submit(compile_cc, source, WORK / ("%s_%s.o" % (tag, source.stem)), "-O0",
                        *sanitizer) for source in sources]


def translated(ptx, only, *sanitizer):
    """The object of a PTX file's kernels, and their names."""
    source = ptx.with_suffix(".cc")
    with open(source, "w", encoding="utf-8") as stream:
        done = subprocess.run([sys.executable, HERE / "ptx_to_cpp.py", ptx, only], stdout=stream,
                              stderr=subprocess.PIPE, text=True)
    expect(done.returncode == 0, done.stderr)
    names = re.findall(r'^static ptx::Kernel \w+\("(\w+)"\)', source.read_text(), re.M)
    target = ptx.with_suffix(".thread.o" if sanitizer else ".o")
    return compile_cc(source, target, "-O1", *sanitizer), names


def run_program(objects, library, sanitizer=(), arguments=()):
    """Exit code, output, and the kernels that ran from PTX."""
    program, ran = WORK / "program", WORK / "ran"
    nvcc_kernels.run(["g++", *sanitizer, "-Wl,-z,muldefs", *objects, *library, "-o", program])
    ran.write_text("")
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300,
                          env={**os.environ, "CUEMU_RAN": str(ran), "CUEMU_ORDER": "rand:1",
                               "TSAN_OPTIONS": "exitcode=%d" % RACE})
    return done.returncode, done.stdout, set(ran.read_text().split())


def run_from_ptx(arch, sanitizer=()):
    """All test programs with the kernels of compute_ARCH."""
    if sanitizer not in host_objects:
        host_objects[sanitizer] = compiled_host(sanitizer)
    only = "." if FULL else QUICK_KERNELS
    parts = [POOL.submit(lambda s: translated(nvcc_kernels.make_ptx(nvcc, s, arch, WORK), only,
                                              *sanitizer), source)
             for source in nvcc_kernels.SOURCES]
    objects = [part.result()[0] for part in parts]
    names = {name for part in parts for name in part.result()[1]}
    host = [future.result() for future in host_objects[sanitizer]]
    kernels = [path for path in host if "emulation_" not in path.name]
    ran = set()
    for path in host:
        if "emulation_" not in path.name:
            continue
        code, output, by_this = run_program(
            [*objects, path, *kernels], [os.environ["LIBZERO_CORE"], "-lcmocka", "-lhwy"],
            sanitizer)
        expect(code == 0 and "[  PASSED  ]" in output, path.name, arch, code, output)
        ran |= by_this
    expect(len(names) > 40 and ran == names, "not run: %s" % sorted(names - ran))
    print("%d kernels of compute_%d" % (len(names), arch))


def test_no_kernel_spills_or_warns():
    wanted = nvcc_kernels.RELEASE if FULL else (80,)
    architectures = nvcc_kernels.known(nvcc, wanted)
    for arch, kernels in nvcc_kernels.usage_by_arch(nvcc, architectures, FOLDER.name).items():
        expect(len(kernels) > 70, arch, len(kernels))
        for name, usage in kernels.items():
            expect(usage.spilled == 0, arch, name, usage)


def test_a_spill_is_seen():
    source = WORK / "spilling.cu"
    source.write_text("""__global__ void __launch_bounds__(1024, 2) spilling(float* p) {
      float a[64];
      for (int i = 0; i < 64; i++) a[i] = p[i * 1024 + threadIdx.x];
      for (int j = 0; j < 64; j++) {
        float s = 0;
        for (int i = 0; i < 64; i++) s += a[i] * a[(i * 7 + j) % 64];
        p[j * 1024 + threadIdx.x] = s;
      }
    }""")
    usage = nvcc_kernels.assemble(nvcc, nvcc_kernels.make_ptx(nvcc, source, 80, WORK), 80, WORK)
    expect([kernel.spilled > 0 for kernel in usage.values()] == [True], usage)


def kernels_of(source):
    """{kernel: its PTX} of one source, for compute_80."""
    ptx = nvcc_kernels.make_ptx(nvcc, source, 80, WORK)
    found = re.findall(r"\.entry (\w+)\((.*?)^}", ptx.read_text(), re.S | re.M)
    short = nvcc_kernels.demangled([name for name, _ in found])
    return {short[name]: body for name, body in found}


def test_sums_are_added_up_by_integers_and_not_by_atomics_of_floats():
    atomics = set()
    for source in nvcc_kernels.SOURCES:
        for body in kernels_of(source).values():
            atomics |= set(re.findall(r"\b(?:atom|red)\.[\w.:]+", body))
    expect(any(".add.u64" in atomic for atomic in atomics), atomics)
    expect(all(atomic.endswith(".u64") for atomic in atomics), atomics)


def test_streams_are_read_and_written_16_bytes_at_a_time():
    update = next(path for path in nvcc_kernels.SOURCES if path.stem == "update")
    states = {"AdamRule": 2, "SgdRule": 1, "AdagradRule": 1, "LionRule": 1, "ApplyRule": 0}
    seen = 0
    for name, body in kernels_of(update).items():
        match = re.match(r"update_kernel<(\w+), PlainStreams<(\d+), (-?\d+)>>", name)
        if match is None:
            continue
        # Eight elements a thread: two accesses of an fp32 stream, one of a 16-bit one.
        of_grad = 2 if match[2] == "1" else 1
        of_model = 0 if match[3] == "-1" else 1
        own = 2 + 2 * states[match[1]]
        loads = len(re.findall(r"\bld(?:\.global)?\.v4\.[ubf]32", body))
        stores = len(re.findall(r"\bst(?:\.global)?\.v4\.[ubf]32", body))
        expect(loads == own + of_grad and stores == own + of_model, name, loads, stores)
        seen += 1
    expect(seen == 23, seen)


def test_kernels_from_nvccs_ptx_have_the_hosts_bits():
    for arch in nvcc_kernels.known(nvcc, (80, 90) if FULL else (80,)):
        run_from_ptx(arch)


def test_kernels_from_nvccs_ptx_have_no_races():
    if not FULL:
        raise Skip("in the full tier")
    run_from_ptx(80, ("-fsanitize=thread",))


def test_missing_barriers_and_a_missing_fence_are_seen_in_ptx():
    if not FULL:
        raise Skip("in the full tier")
    for defect in ("none", "barrier", "barrier_before", "fence"):
        flags = ["-DDEFECT_" + defect.upper()]
        ptx = WORK / ("defects_%s.ptx" % defect)
        source = WORK / ("defects_%s.cu" % defect)
        source.write_text('#include "defects.h"\n')
        nvcc_kernels.run([nvcc, *nvcc_kernels.FLAGS, "-I", HERE, *flags, "-arch=compute_80", "-ptx",
                          source, "-o", ptx])
        kernels, _ = translated(ptx, "two_sums", "-fsanitize=thread")
        host = compile_cc(HERE / "defects.cc", WORK / "defects.o", "-O0", "-fsanitize=thread",
                          *flags)
        code, output, ran = run_program([kernels, host], [], ["-fsanitize=thread"], ["two_sums"])
        expect(len(ran) == 1, ran)
        if defect == "none":
            expect(code == 0 and "total 768" in output, code, output)
        else:
            expect(code == RACE and "data race" in output, defect, code, output)


if nvcc is None:
    print(nvcc_kernels.NO_NVCC)
    sys.exit(77)
sys.exit(run_tests(sys.modules[__name__]))
