"""meson-python, with the tree as meson's subproject `libzero` while it builds: a link, made and removed
here, since one that stays would lead every tool that follows links round in circles."""
# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import pathlib
import shutil

import mesonpy
from mesonpy import get_requires_for_build_wheel  # noqa: F401

LINK = pathlib.Path(__file__).resolve().parent / "subprojects" / "libzero"


@contextlib.contextmanager
def _linked():
    LINK.parent.mkdir(exist_ok=True)
    if not LINK.is_symlink():
        LINK.symlink_to("../../..")
    try:
        yield
    finally:
        LINK.unlink()
        shutil.rmtree(LINK.parent)  # meson leaves a lock file there


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with _linked():
        return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
