"""zero.h as SWIG's parse tree (`swig -xml`) has it, with the header's comments beside it."""
# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

BINDINGS = pathlib.Path(__file__).resolve().parent.parent
HEADER = BINDINGS.parent / "include" / "zero.h"
SCALARS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "double", "float", "char", "uint8_t"}


@dataclass
class Type:
    """base is a scalar, a typedef of one, a struct, void or a function; const is the pointee's."""
    base: str
    pointers: int = 0
    const: bool = False
    array: int = 0
    parameters: list = None  # of a function pointer; base is then what it returns
    returns_pointer: bool = False

    def c(self, name=""):
        if self.parameters is not None:
            inner = ", ".join(p.type.c(p.name) for p in self.parameters) or "void"
            return "%s%s(*%s)(%s)" % (self.base, "* " if self.returns_pointer else " ", name, inner)
        text = ("const " if self.const else "") + self.base + "*" * self.pointers
        return (text + " " + name).rstrip() + ("[%d]" % self.array if self.array else "")


@dataclass
class Variable:
    name: str
    type: Type
    doc: str = ""


@dataclass
class Function:
    name: str
    returns: Type
    parameters: list
    doc: str = ""
    own: str = ""  # the function that ends what this one returns


@dataclass
class Struct:
    name: str
    fields: list
    doc: str = ""

    @property
    def growing(self):
        return self.fields[0].name == "struct_size"


@dataclass
class Enum:
    name: str
    values: list  # (name, number, doc)
    doc: str = ""
    typedef: str = ""  # "" where it has none


@dataclass
class Interface:
    version: tuple = ()
    typedefs: dict = field(default_factory=dict)  # name -> scalar
    handles: list = field(default_factory=list)
    structs: dict = field(default_factory=dict)
    enums: list = field(default_factory=list)
    functions: list = field(default_factory=list)

    def scalar(self, name):
        """The scalar behind a name, or None."""
        name = self.typedefs.get(name, name)
        return name if name in SCALARS else None


# ---- comments ---------------------------------------------------------------------------------

def clean(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment[2:-2].split("\n")]
    return "\n".join(lines).strip()


class Comments:
    """The comment above a declaration, or behind it on its last line."""

    def __init__(self, text):
        self.text = text
        self.found = [(m.start(), m.end()) for m in re.finditer(r"/\*.*?\*/", text, re.S)]

    def above(self, position):
        start = self.text.rfind("\n", 0, position) + 1
        parts = []
        for begin, end in reversed(self.found):
            if end > start:
                continue
            own_line = self.text[self.text.rfind("\n", 0, begin) + 1:begin].strip() == ""
            if not own_line or self.text[end:start].strip(" ") not in ("\n", ""):
                break
            if self.text.startswith("/* ----", begin):
                break
            parts.insert(0, clean(self.text[begin:end]))
            start = self.text.rfind("\n", 0, begin) + 1
        return "\n".join(parts)

    def behind(self, position):
        line_end = self.text.find("\n", position)
        for begin, end in self.found:
            if position <= begin < line_end:
                return clean(self.text[begin:end])
        return ""

    def of(self, pattern, within=(0, None)):
        match = re.compile(pattern, re.S).search(self.text, within[0], within[1] or len(self.text))
        if not match:
            return ""
        return "\n".join(x for x in (self.above(match.start(1)), self.behind(match.end())) if x)

    def span(self, pattern):
        match = re.search(pattern, self.text, re.S)
        return (match.start(), match.end()) if match else (0, 0)


# ---- the tree -----------------------------------------------------------------------------------

def attributes(element):
    listed = element.find("attributelist")
    if listed is None:
        return {}
    return {a.get("name"): a.get("value") for a in listed.findall("attribute")}


def parameters_of(element):
    found = [attributes(p) for p in element.findall("attributelist/parmlist/parm")]
    return [Variable(a.get("name", ""), type_of(a["type"])) for a in found if a["type"] != "void"]


def after_parameters(text):
    """What follows the brackets of "f(...)."."""
    depth = 0
    for position, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == ")" and depth == 0:
            return text[position + 1:].lstrip(".")
    raise ValueError(text)


def type_of(text, parameters=None):
    """SWIG's spelling: "p.q(const).char", "a(32).char", "p.f(p.void,int32_t).p.void"."""
    made = Type("")
    while True:
        if text.startswith("p.f("):
            text = after_parameters(text)
            made.parameters = parameters
            if text.startswith("p."):
                made.returns_pointer, text = True, text[2:]
        elif text.startswith("p."):
            made.pointers, text = made.pointers + 1, text[2:]
        elif text.startswith("q(const)."):
            made.const, text = True, text[len("q(const)."):]
        elif text.startswith("a("):
            made.array, text = int(text[2:text.index(")")]), text[text.index(").") + 2:]
        else:
            break
    made.base = re.sub(r"^(struct|enum) ", "", text)
    return made


def tree():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "zero.xml")
        subprocess.run(["swig", "-xml", "-DSWIGWORDSIZE64", "-I" + str(HEADER.parent), "-o", str(out),
                        str(BINDINGS / "zero.i")], check=True)
        return ElementTree.parse(out).getroot()


def read():
    """The whole interface, in the header's order."""
    text = HEADER.read_text()
    comments = Comments(text)
    found = Interface()
    version = {}
    tags = []
    for element in tree().iter():
        a = attributes(element)
        name = a.get("name", "")
        if not name.lower().startswith("zero"):
            continue
        if element.tag == "constant" and name.startswith("ZERO_VERSION_"):
            version[name] = int(a["value"])
        elif element.tag == "cdecl" and a.get("kind") == "typedef":
            if a["type"] in SCALARS:
                found.typedefs[name] = a["type"]
            elif a["type"] == "struct " + name:
                tags.append(name)
        elif element.tag == "class":
            within = comments.span(r"typedef struct %s \{.*?\n\} %s;" % (name, name))
            fields = []
            for member in element.findall("cdecl"):
                m = attributes(member)
                kind = type_of(m["decl"] + m["type"], parameters_of(member))
                doc = comments.of(r"\n +([^\n/;]*?\b%s\b(?:\)[^;]*|\[\w+\])?;)" % m["name"], within)
                fields.append(Variable(m["name"], kind, doc))
            found.structs[name] = Struct(name, fields, comments.of(r"(typedef) struct %s \{" % name))
        elif element.tag == "enum":
            within = comments.span(r"enum %s \{.*?\};" % name)
            values, last = [], -1
            for item in element.findall("enumitem"):
                i = attributes(item)
                last = int(i.get("enumvalue", i.get("enumvalueex", str(last + 1))), 0)
                values.append((i["name"], last, comments.of(r"\b(%s)\b[^\n/]*" % i["name"], within)))
            found.enums.append(Enum(name, values, comments.of(r"(typedef) int32_t %s;" % name[:-7])))
        elif element.tag == "cdecl" and a.get("kind") == "function":
            returns = type_of(after_parameters(a["decl"]) + a["type"])
            doc = comments.of(r"(ZERO_API)[^;]*?\b%s\([^;]*;" % name)
            found.functions.append(Function(name, returns, parameters_of(element), doc,
                                            a.get("feature_zero_own", "")))
    found.handles = [name for name in tags if name not in found.structs]
    for enum in found.enums:
        name = enum.name[:-len("_values")]
        enum.typedef = name if enum.name.endswith("_values") and name in found.typedefs else ""
    found.version = tuple(version["ZERO_VERSION_" + part] for part in ("MAJOR", "MINOR", "PATCH"))
    return found
