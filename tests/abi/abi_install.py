#!/usr/bin/env python3
"""What `ninja install` leaves is enough for a program outside the tree."""
# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import subprocess
import sys
import tempfile

import header

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import expect, run_tests  # noqa: E402

BUILD = pathlib.Path(os.environ["LIBZERO_BUILD_ROOT"])
CONSUMER = """#include <stdio.h>
#include <zero.h>
int main(void) {
  zero_config* config = NULL;
  if (zero_config_create(&config) != ZERO_OK) return 1;
  zero_config_destroy(config);
  printf("%s\\n", zero_status_name(ZERO_ERR_COMM_TIMEOUT));
  return zero_version_number() == 0;
}
"""
EXPECTED = "ZERO_ERR_COMM_TIMEOUT\n"

FOLDER = tempfile.TemporaryDirectory()
PREFIX = None
PKG_CONFIG_PATH = None


def installed():
    """The prefix of one installation, shared by the tests."""
    global PREFIX, PKG_CONFIG_PATH
    if PREFIX is None:
        header.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet",
                    "--destdir", FOLDER.name])
        file = next(pathlib.Path(FOLDER.name).rglob("libzero.pc"))
        PKG_CONFIG_PATH = file.parent
        written = next(line.split("=", 1)[1] for line in file.read_text().splitlines()
                       if line.startswith("prefix="))
        PREFIX = pathlib.Path(FOLDER.name + written)
    return PREFIX


def pkg_config(*options):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PKG_CONFIG_PATH)}
    return header.run(["pkg-config", "--define-variable=prefix=%s" % installed(), *options,
                       "libzero"], env=environment).split()


def build_and_run(flags):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "consumer.c"), pathlib.Path(folder, "consumer")
        source.write_text(CONSUMER)
        header.run([*header.CC, "-std=c99", "-Wall", "-Werror", source, *flags, "-o", program])
        library = pkg_config("--variable=libdir")[0]
        environment = {**os.environ, "LD_LIBRARY_PATH": library}
        needed = header.run(["readelf", "-d", program])
        return header.run([program], env=environment), needed


def test_header_libraries_program_and_pkg_config_file_are_installed():
    prefix = installed()
    files = {path.name for path in prefix.rglob("*") if not path.is_dir()}
    for name in ("zero.h", "libzero.so", "libzero.so.0", "libzero.a", "zero", "libzero.pc",
                 "zero_loader.h"):
        expect(name in files, name, files)
    inner = [name for name in files if name.startswith("libzero_") or name.endswith((".cc",))
             or (name.endswith(".h") and name not in ("zero.h", "zero_loader.h"))]
    expect(not inner, inner)


def test_a_program_outside_the_tree_builds_by_pkg_config_alone():
    installed()
    output, needed = build_and_run(pkg_config("--cflags", "--libs"))
    expect(output == EXPECTED, output)
    expect("libzero.so.0" in needed, needed)


def test_licence_and_notices_are_there():
    names = {path.name for path in installed().rglob("share/doc/libzero/*")}
    expect(names == {"LICENSE", "THIRD_PARTY_NOTICES", "CHANGELOG.md", "README.md"}, names)
    licence = (header.ROOT / "LICENSE").read_text()
    expect(licence.startswith("BSD 3-Clause License") and "the libzero authors" in licence)
    notices = (header.ROOT / "THIRD_PARTY_NOTICES").read_text().lower()
    requires = pkg_config("--print-requires-private")
    expect(requires, "nothing required")
    for name in requires:
        expect({"libhwy": "highway", "libxxhash": "xxhash"}.get(name, name) in notices, name)


def test_it_needs_no_flag_of_the_libraries_inside():
    installed()
    flags = pkg_config("--libs")
    expect(not [flag for flag in flags if "json" in flag or "hwy" in flag or "stdc++" in flag],
           flags)


def test_the_static_library_links_by_pkg_config_static():
    installed()
    flags = ["-l:libzero.a" if flag == "-lzero" else flag
             for flag in pkg_config("--static", "--cflags", "--libs")]
    output, needed = build_and_run(flags)
    expect(output == EXPECTED, output)
    expect("libzero.so" not in needed, needed)


def test_the_installed_program_runs():
    program = installed() / "bin" / "zero"
    environment = {**os.environ, "LD_LIBRARY_PATH": pkg_config("--variable=libdir")[0]}
    expect(header.run([program, "--version"], env=environment).startswith("zero "))


def test_the_version_in_the_pkg_config_file_is_the_header_s():
    installed()
    version = pkg_config("--modversion")[0]
    source = ('#include <stdio.h>\n#include <zero.h>\nint main(void) { printf("%d.%d.%d", '
              "ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR, ZERO_VERSION_PATCH); return 0; }\n")
    expect(header.run_program(source) == version, version)


def configure(*options):
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(["meson", "setup", folder, str(header.ROOT), *options], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_an_option_that_cannot_be_had_is_an_error_that_says_so():
    for name in ("gloo",):
        done = configure("-D%s=enabled" % name)
        expect(done.returncode != 0, name)
        expect("this version of libzero has no %s part" % name in done.stdout, done.stdout)


def test_a_missing_dependency_of_an_enabled_option_is_named():
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            ["meson", "setup", empty + "/b", str(header.ROOT), "-Dtests=enabled"], text=True,
            env={**os.environ, "PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": without("cmocka", empty)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    expect(done.returncode != 0 and "cmocka" in done.stdout.splitlines()[-3:].__str__(), done.stdout)


def test_auto_leaves_out_what_is_not_found_and_says_so():
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            ["meson", "setup", empty + "/b", str(header.ROOT)], text=True,
            env={**os.environ, "PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": without("cmocka", empty)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    expect(done.returncode == 0, done.stdout)
    expect("no (cmocka not found, or disabled)" in done.stdout, done.stdout)


def without(module, folder):
    """A folder of links to this machine's pkg-config files, save one."""
    links = pathlib.Path(folder, "pkgconfig")
    links.mkdir()
    paths = header.run(["pkg-config", "--variable", "pc_path", "pkg-config"]).strip().split(":")
    for path in reversed(paths):
        if os.path.isdir(path):
            for file in pathlib.Path(path).glob("*.pc"):
                if file.stem != module:
                    link = links / file.name
                    link.unlink(missing_ok=True)
                    link.symlink_to(file)
    return str(links)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules["__main__"]))
