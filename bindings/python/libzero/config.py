"""A DeepSpeed configuration: read, set, checked, explained."""
# SPDX-License-Identifier: BSD-3-Clause
import json
import os
from typing import Any, List, NamedTuple, Optional, Tuple

from . import checked, raw
from .errors import ConfigError, ZeroError, fail, new
from .life import Life, Owned


class Diagnostic(NamedTuple):
    """One finding; line and column are 1-based, 0 where no line is to blame."""
    is_error: bool
    line: int
    column: int
    key: str
    value: str
    message: str
    suggestion: str


class Option(NamedTuple):
    """One option that a configuration may have."""
    key: str
    kind: str
    default: str
    choices: Tuple[str, ...]
    help: str
    minimum: float
    maximum: float


_KINDS = {raw.ZERO_OPTION_INTEGER: "integer", raw.ZERO_OPTION_NUMBER: "number",
          raw.ZERO_OPTION_BOOLEAN: "boolean", raw.ZERO_OPTION_TEXT: "text", raw.ZERO_OPTION_CHOICE: "choice"}


def options() -> List[Option]:
    """Every option that libzero knows."""
    found = []
    for index in range(raw.zero_option_count()):
        o = checked.option_at(index)
        found.append(Option(o.key, _KINDS.get(o.kind, "?"), o.default_value,
                            tuple(o.choices.split("|")) if o.choices else (), o.help, o.minimum, o.maximum))
    return found


class Config(Owned):
    """Config() is all defaults; Config({"zero_optimization": {"stage": 2}}) a dict; Config("ds.json")
    a file; Config('{"..."}') its text. Keys are dotted paths: config["zero_optimization.stage"]."""

    def __init__(self, source: Any = None):
        if source is None:
            handle = checked.config_create()
        elif isinstance(source, dict):
            handle = checked.config_load_text(json.dumps(source))
        elif isinstance(source, str) and source.lstrip().startswith("{"):
            handle = checked.config_load_text(source)
        else:
            handle = checked.config_load_file(os.fspath(source))
        self._life = Life(handle, raw.zero_config_destroy)

    def __getitem__(self, key: str) -> str:
        return checked.config_get(self.handle, key)

    def __setitem__(self, key: str, value: Any) -> None:
        checked.config_set(self.handle, key, value if isinstance(value, str) else json.dumps(value))

    def origin(self, key: str) -> str:
        """Where a value comes from: "file", "set", "facts", "derived" or "default"."""
        return raw.zero_config_origin(self.handle, key)

    def fill_auto(self, **facts: Any) -> None:
        """Fills every "auto" that facts determine: world_size, micro_batch_size (samples),
        accumulation_steps, hidden_size, learning_rate, ... (the fields of zero_config_facts)."""
        made = new(raw.zero_config_facts)
        for name, value in facts.items():
            if not hasattr(made, name):
                raise TypeError("there is no fact %r" % name)
            setattr(made, name, value)
        checked.config_fill_auto(self.handle, made)

    def findings(self) -> List[Diagnostic]:
        """Checks, and returns every finding, errors and warnings, in file order."""
        raw.zero_config_check(self.handle)
        return self._findings()

    def _findings(self) -> List[Diagnostic]:
        found = []
        for index in range(raw.zero_config_diagnostic_count(self.handle)):
            d = checked.config_diagnostic_at(self.handle, index)
            found.append(Diagnostic(bool(d.is_error), d.line, d.column, d.key, d.value, d.message, d.suggestion))
        return found

    def check(self) -> List[Diagnostic]:
        """Raises ConfigError with every error in its text; returns the warnings."""
        status = raw.zero_config_check(self.handle)
        if status:
            try:
                fail(status)
            except ZeroError as error:
                texts = [d.message for d in self._findings() if d.is_error and d.message != error.message]
                if texts:
                    error.args = ("\n".join([error.message] + texts),)
                raise
        return self._findings()

    def schedule(self, update: int) -> Tuple[float, float]:
        """(learning rate, momentum) of an update; the first is 1."""
        return checked.schedule_at(self.handle, update)

    def text(self) -> str:
        """The whole configuration, defaults filled in, as JSON."""
        return checked.config_text(self.handle)

    def dict(self) -> dict:
        return json.loads(self.text())


def config_of(source: Any) -> Config:
    return source if isinstance(source, Config) else Config(source)


