"""libzero: ZeRO training as an embedded runtime, for a training loop of your own.

Three floors: libzero.raw is the C interface, libzero.checked turns each status into an exception,
and this module has the classes: Config, Model, Plan, Comm, Runtime, Checkpoint.
"""
# SPDX-License-Identifier: BSD-3-Clause
from . import checked, errors, raw
from .arrays import Buffer
from .checkpoint import Checkpoint, CheckpointInfo
from .comm import Comm
from .config import Config, Diagnostic, Option, options
from .errors import (ArgumentError, CommError, ConfigError, DeviceError, FailedError, FileError, InternalError,
                     NoOpenBucketError, NotFoundError, OutOfMemory, OverflowedError, ResourceError, StateError,
                     UnsupportedError, UserError, ZeroError)
from .model import Model, Plan
from .runtime import ParamInfo, Runtime, StepInfo

__version__ = "%d.%d.%d" % (raw.ZERO_VERSION_MAJOR, raw.ZERO_VERSION_MINOR, raw.ZERO_VERSION_PATCH)


def version() -> str:
    """The loaded library's, with its revision."""
    return raw.zero_version_string()


def feature_text(feature: str) -> str:
    """Which library of "cuda", "nccl", "gloo" or "local" was found, or why not."""
    return checked.feature_text(getattr(raw, "ZERO_FEATURE_" + feature.upper()))


__all__ = ["ArgumentError", "Buffer", "Checkpoint", "CheckpointInfo", "Comm", "CommError", "Config", "ConfigError",
           "DeviceError", "Diagnostic", "FailedError", "FileError", "InternalError", "Model", "NoOpenBucketError",
           "NotFoundError", "Option", "OutOfMemory", "OverflowedError", "ParamInfo", "Plan", "ResourceError", "Runtime",
           "StateError", "StepInfo", "UnsupportedError", "UserError", "ZeroError", "checked", "errors",
           "feature_text", "options", "raw", "version"]
