"""What the parameters of a C function mean to a caller in a language with values and exceptions.

Rules, not lists: a function that zero.h gains tomorrow falls under them by the header's own
manner (outputs last, text as buffer + capacity + length, arrays as pointer + count).
"""
# SPDX-License-Identifier: BSD-3-Clause
from dataclasses import dataclass, field

# Left to the raw floor: the checked floor uses them, or hands them to the idiom floor as they are.
ERROR_FUNCTIONS = {"zero_last_error", "zero_last_error_text", "zero_set_last_error"}


@dataclass
class Argument:
    """kind says how parameters (one or more of C's) are passed or returned:

    handle string text scalar pointer struct (may be missing) buffer_in items bytes_in bytes_inout
    doubles | handle_out scalar_out pointer_out struct_out (optional where C takes NULL) frozen_out
    frozen_items_out text_out bytes_out
    """
    kind: str
    name: str
    type: object
    parameters: list = field(default_factory=list)

    @property
    def is_output(self):
        return self.kind.endswith("_out")


@dataclass
class Signature:
    function: object
    arguments: list
    outputs: list

    @property
    def checked(self):
        return self.function.returns.base == "zero_status" and \
            self.function.name not in ("zero_runtime_status",)

    @property
    def doc(self):
        return self.function.doc


def is_init(function):
    return function.name.endswith("_init") and len(function.parameters) == 2 and \
        function.parameters[1].name == "struct_size"


def is_counted(parameters, i, names):
    return i + 1 < len(parameters) and parameters[i + 1].name in names and \
        parameters[i + 1].type.pointers == 0 and \
        parameters[i + 1].type.base in ("uint64_t", "int32_t")


def classify(interface, p, following):
    """(kind, number of C parameters) of the parameter p."""
    t = p.type
    handle = t.base in interface.handles
    struct = interface.structs.get(t.base)
    scalar = interface.scalar(t.base)
    names = [q.name for q in following]
    counted = names[:1] and names[0] in ("count", "bytes", "length", "dimensions") and \
        following[0].type.pointers == 0
    if t.pointers == 0:
        return "scalar", 1
    if t.pointers == 2:
        return ("handle_out" if handle else "pointer_out"), 1
    if handle:
        return "handle", 1
    if struct:
        if t.const:
            return ("struct" if struct.growing else "buffer_in"), 1
        if struct.growing:
            return "struct_out", 1
        return ("frozen_items_out" if p.name.endswith("s") else "frozen_out"), 1
    if t.base == "char":
        if t.const:
            return ("text", 2) if counted else ("string", 1)
        return "text_out", 3
    if t.base == "void":
        if names[:1] == ["capacity"]:
            return "bytes_out", 3
        if counted:
            return ("bytes_in" if t.const else "bytes_inout"), 2
        return "pointer", 1
    if counted:
        if t.const:
            return "items", 2
        if t.base == "double":
            return "doubles", 2
    if not t.const and scalar:
        return "scalar_out", 1
    raise ValueError("no rule for %s" % t.c(p.name))


def of(interface, function):
    arguments, i = [], 0
    while i < len(function.parameters):
        p = function.parameters[i]
        kind, used = classify(interface, p, function.parameters[i + 1:])
        arguments.append(Argument(kind, p.name, p.type, function.parameters[i:i + used]))
        i += used
    inputs = [a for a in arguments if not a.is_output]
    outputs = [a for a in arguments if a.is_output]
    return Signature(function, inputs, outputs)


def all_of(interface):
    """The signatures that the checked floor has."""
    return [of(interface, f) for f in interface.functions
            if not is_init(f) and f.name not in ERROR_FUNCTIONS]


def short(name):
    """zero_config_create -> config_create; zero_init -> init."""
    return name[len("zero_"):]
