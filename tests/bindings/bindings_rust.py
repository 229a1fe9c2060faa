#!/usr/bin/env python3
"""The Rust crates: built offline without other crates, tested, documented."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys

from languages import BINDINGS, cargo, expect, once, run_cargo

from harness import Skip, run_tests  # noqa: E402


@once
def outcome():
    """name -> "ok" or else, of every test of both crates and of their documentation."""
    code, said = run_cargo("test", "--offline", "-p", "libzero")
    found = dict(re.findall(r"^test (.+?) (?:- compile fail |- compile )?\.\.\. (\w+)", said, re.M))
    expect(found, "exit code %d" % code, said)
    return code, found, said


def passed(prefix, at_least):
    _, found, said = outcome()
    names = [name for name in found if name.startswith(prefix)]
    expect(len(names) >= at_least, "only %s" % names, said)
    expect(all(found[name] == "ok" for name in names), said)


def test_state_is_readable_and_survives():
    passed("state_", 5)


def test_misuse_is_an_error_value():
    passed("misuse_", 10)


def test_read_only_memory_is_no_place_for_what_is_written():
    passed("libzero/src/misuse.rs - misuse::ReadOnlyMemory", 5)


def test_a_handle_that_was_given_up_does_not_compile():
    passed("libzero/src/misuse.rs - misuse::FreedHandle", 4)


def test_a_runtime_in_two_threads_does_not_compile():
    passed("libzero/src/misuse.rs - misuse::TwoThreads", 2)


def test_a_process_that_ends_with_a_live_runtime_ends():
    passed("misuse_a_process_that_ends_with_a_live_runtime_ends", 1)


def test_ranks_and_transports_give_the_same_bits():
    passed("ranks_", 3)


def test_logs_configs_and_plans_are_reported():
    passed("report_", 3)


def test_sharing_a_runtime_and_stepping_under_a_loan_do_not_compile():
    passed("libzero/src/runtime.rs", 2)
    code, _, said = outcome()
    expect(code == 0, said)


def test_the_crates_need_no_others():
    for crate in ("libzero", "libzero-sys"):
        text = (BINDINGS / "rust" / crate / "Cargo.toml").read_text()
        names = re.findall(r"^([\w-]+) *= *[{\"]", text.split("[dependencies]")[1], re.M) if "[dependencies]" in text else []
        expect(names == (["libzero-sys"] if crate == "libzero" else []), crate, names)
        expect('rust-version = "1.63"' in text, crate)


def test_a_build_without_a_library_says_what_to_set():
    code, said = run_cargo("build", "--offline", "-p", "libzero-sys", ZERO_LIB_DIR="", PKG_CONFIG="/bin/false",
                           PKG_CONFIG_LIBDIR="/no/such/folder", PKG_CONFIG_PATH="/no/such/folder")
    # An empty ZERO_LIB_DIR is none: pkg-config is asked, and has nothing.
    expect(code != 0 and "ZERO_LIB_DIR" in said, code, said)


def test_the_documentation_is_clean():
    code, said = run_cargo("doc", "--offline", "--no-deps", RUSTDOCFLAGS="-D warnings")
    expect(code == 0 and "warning" not in said.replace("-D warnings", ""), said)


if __name__ == "__main__":
    try:
        cargo()
    except Skip as reason:
        print(reason)
        sys.exit(77)
    sys.exit(run_tests(sys.modules[__name__]))
