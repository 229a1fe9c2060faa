#!/usr/bin/env python3
"""zero_loader.h: a C99 program that opens the library at run time."""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys

from languages import BINDINGS, CC, LIBRARY, SOURCE, WORK, must, run

from harness import expect, run_tests  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests/abi"))
import header  # noqa: E402

PROGRAM = """#define ZERO_LOADER_IMPLEMENTATION
#include <stdio.h>
#include <zero_loader.h>
int main(int argc, char** argv) {
  zero_config* config = NULL;
  zero_error_info info;
  if (zero_load(argc > 1 ? argv[1] : NULL) != 0) {
    printf("%s\\n", zero_load_error());
    return zero_fn.init == NULL ? 3 : 4;
  }
  if (zero_fn.config_create(&config) != ZERO_OK) return 5;
  if (zero_fn.config_set(config, "zero_optimization.stage", "2") != ZERO_OK) return 6;
  zero_fn.config_destroy(config);
  zero_fn.error_info_init(&info, sizeof info);
  if (zero_fn.config_load_file("/no/such/file", &config) == ZERO_OK) return 7;
  zero_fn.last_error(&info);
  printf("%s %d\\n%s\\n", zero_fn.version_string(), (int)zero_fn.version_number(), info.message);
  return 0;
}
"""


def program(standard="c99"):
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / ("loader_%s.c" % standard)
    source.write_text(PROGRAM)
    out = WORK / ("loader_" + standard)
    must([*CC, "-std=" + standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-I" + str(SOURCE / "include"),
          "-I" + str(BINDINGS / "c"), source, "-o", out, "-ldl"])
    return out


def test_a_c99_program_opens_the_library_at_run_time():
    said = must([program(), LIBRARY]).splitlines()
    expect(re.match(r"\d+\.\d+\.\d+", said[0]) and "/no/such/file" in said[1], said)


def test_the_program_is_not_linked_to_the_library():
    out = program()
    if run(["readelf", "--version"])[0] == 0:
        expect("libzero" not in must(["readelf", "-d", out]))


def test_a_file_that_is_not_there_is_named():
    code, said = run([program(), "/no/such/libzero.so"])
    expect(code == 3 and "/no/such/libzero.so" in said, code, said)


def test_a_missing_function_is_named_and_the_table_stays_empty():
    names = header.functions()
    gone = "zero_grad_submit"
    source = WORK / "incomplete.c"
    source.write_text("".join("void %s(void);\nvoid %s(void) {}\n" % (n, n) for n in names if n != gone))
    library = WORK / "libincomplete.so"
    must([*CC, "-shared", "-fPIC", source, "-o", library])
    code, said = run([program(), library])
    expect(code == 3 and gone in said and str(library) in said, code, said)


def test_the_header_is_c_plus_plus_too():
    source = WORK / "loader_cpp.cc"
    source.write_text("#include <zero_loader.h>\nint main() { return zero_load(nullptr); }\n")
    must([*header.CXX, "-std=c++20", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I" + str(SOURCE / "include"),
          "-I" + str(BINDINGS / "c"), "-c", source, "-o", WORK / "loader_cpp.o"])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
