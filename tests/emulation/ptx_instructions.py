"""One PTX instruction as a C++ statement, for ptx_to_cpp.py.

Registers hold raw bits; ptx::R reads them as a type, ptx::W writes them (include/ptx_runtime.h).
"""
# SPDX-License-Identifier: BSD-3-Clause
import re
import sys

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
# What an operand is in C++, and what the register is that holds it.
VALUE = {"b8": "uint8_t", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t", "f32": "float",
         "f64": "double", "pred": "bool", "f16": "uint16_t", "bf16": "uint16_t"}
VALUE.update({t: ("" if t[0] == "s" else "u") + "int%s_t" % t[1:] for t in INTEGERS})
REGISTER = {"pred": "bool", "f16": "uint16_t", "bf16": "uint16_t", "f32": "uint32_t",
            "f64": "uint64_t"}
REGISTER.update({t: "uint%s_t" % t[1:] for t in INTEGERS + ["b8", "b16", "b32", "b64"]})
WIDE = {"u16": "uint32_t", "s16": "int32_t", "u32": "uint64_t", "s32": "int64_t"}
SPECIAL = {"%tid": "threadIdx", "%ntid": "blockDim", "%ctaid": "blockIdx", "%nctaid": "gridDim"}
WORDS = {"%laneid": "(cuemu::W.cur->lin & 31)", "%warpid": "(cuemu::W.cur->lin >> 5)",
         "WARP_SZ": "32"}
OTHER_ROUNDINGS = ("rz", "rm", "rp", "sat")
FLOATS = ("f32", "f64")


def bytes_of(ptx_type):
    return int(re.sub(r"\D", "", ptx_type)) // 8


def split(text):
    """Operands of an instruction: commas inside {} and [] do not count."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    return parts + [part.strip()] if part.strip() else parts


def identifier(name):
    return re.sub(r"[^A-Za-z0-9_]", "_", name.lstrip("%$")) + ("_r" if name.startswith("%") else "")


class Instruction:
    """One instruction: its opcode's parts, operands, and what they have in common."""

    def __init__(self, opcode, operands):
        self.opcode = opcode
        self.parts = opcode.split(".")
        self.name, self.type = self.parts[0], self.parts[-1]
        self.operands = split(operands)
        self.is_float = self.type in FLOATS

    def has(self, *words):
        return any(word in self.parts for word in words)

    def first(self, *words, default=None):
        return next((part for part in self.parts if part in words), default)


class Statements:
    """Statements of one kernel's instructions; what it knows of the kernel is set by whoever reads
    the kernel's declarations."""

    def __init__(self, name, parameter_names, module_shared):
        self.name, self.module_shared = name, module_shared
        self.line = 0  # of the PTX file
        self.symbols = {}  # of arrays: place in shared memory, or the C++ expression of it
        self.parameter_index = {parameter: k for k, parameter in enumerate(parameter_names)}

    def fail(self, message):
        sys.exit("ptx_to_cpp: %s: PTX line %d: %s" % (self.name, self.line, message))

    # ---- operands ------------------------------------------------------------------------------

    def bits(self, operand):
        """The C++ expression of an operand's raw bits."""
        operand = operand.strip()
        if match := re.fullmatch(r"(%n?(?:tid|ctaid))\.([xyz])", operand):
            return "%s.%s" % (SPECIAL[match[1]], match[2])
        if operand in WORDS:
            return WORDS[operand]
        if match := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", operand):
            return "0x%su" % match[1]
        if match := re.fullmatch(r"0[dD]([0-9A-Fa-f]{16})", operand):
            return "0x%sull" % match[1]
        if re.fullmatch(r"-?\d+U?|-?0x[0-9a-fA-F]+U?", operand):
            return "(%s%s)" % (operand.rstrip("U"), "ull" if operand.startswith("0x") else "ll")
        if operand.startswith("%"):
            return identifier(operand)
        if operand in self.symbols:
            place = self.symbols[operand]
            return "%du" % place if isinstance(place, int) else place
        if operand in self.module_shared and self.module_shared[operand][1] is None:
            return "SM.dynbase"
        if operand in self.parameter_index:
            return "(uint64_t)&a%d" % self.parameter_index[operand]
        self.fail("operand " + operand)

    def predicate(self, operand):
        return "!" + self.bits(operand[1:]) if operand.startswith("!") else self.bits(operand)

    def read(self, ptx_type, operand):
        return "ptx::R<%s>(%s)" % (VALUE[ptx_type], self.bits(operand))

    def write(self, operand, expression):
        if operand.strip() == "_":
            return ""
        return "ptx::W(%s, %s);" % (identifier(operand.strip()), expression)

    def address(self, operand, space, ptx_type, count):
        match = re.fullmatch(r"\[\s*([^\]+]+?)\s*(?:\+\s*(-?\w+))?\s*\]", operand.strip())
        if not match:
            self.fail("address " + operand)
        offset, value = int(match[2], 0) if match[2] else 0, VALUE[ptx_type]
        if space == "param" and match[1] in self.parameter_index:
            return "(%s*)((char*)&a%d + %d)" % (value, self.parameter_index[match[1]], offset)
        base = self.bits(match[1])
        if space == "shared":
            return "ptx::sp<%s>(SM, (uint32_t)(%s + %d), %d, %d)" % (value, base, offset,
                                                                     self.line, count)
        return "ptx::gp<%s>(%s + %d, %d, %d)" % (value, base, offset, self.line, count)

    def flushed(self, i):
        """Wraps a float's expression where the instruction flushes denormals."""
        return (lambda e: "ptx::ftz(%s)" % e) if i.has("ftz") else (lambda e: e)

    def float_operands(self, i):
        flush = self.flushed(i)
        return [flush(self.read(i.type, operand)) for operand in i.operands[1:]]

    # ---- instructions: each returns a statement --------------------------------------------------

    def mov(self, i):
        target, source = i.operands[:2]
        if source.startswith("{"):
            parts = split(source[1:-1])
            width = bytes_of(i.type) * 8 // len(parts)
            return self.write(target, " | ".join(
                "((uint64_t)(uint%d_t)%s << %d)" % (width, self.bits(part), k * width)
                for k, part in enumerate(parts)))
        if target.startswith("{"):
            parts = split(target[1:-1])
            width = bytes_of(i.type) * 8 // len(parts)
            return " ".join(self.write(part, "(uint%d_t)(%s >> %d)" % (width, self.bits(source),
                                                                      k * width))
                            for k, part in enumerate(parts))
        if i.type == "pred":
            return self.write(target, self.bits(source))
        return self.write(target, "(%s)%s" % (REGISTER[i.type], self.bits(source)))

    def memory(self, i):
        space = i.first("param", "global", "shared", "local", "const", default="generic")
        count = next((int(part[1]) for part in i.parts if re.fullmatch(r"v[24]", part)), 1)
        stores = i.name == "st"
        registers, place = i.operands[::-1] if stores else i.operands[:2]
        registers = split(registers[1:-1]) if registers.startswith("{") else [registers]
        atomic = i.has("volatile", "relaxed", "acquire", "release")
        pointer, value, register = (self.address(place, space, i.type, count), VALUE[i.type],
                                    REGISTER[i.type])
        statements = []
        if stores:
            for k, operand in enumerate(registers):
                statements.append(
                    "__atomic_store_n((%s*)P, (%s)%s, __ATOMIC_RELAXED);" % (
                        register, register, self.bits(operand)) if atomic else
                    "P[%d] = %s;" % (k, self.read(i.type, operand)))
            return "{ auto* P = %s; %s }" % (pointer, " ".join(statements))
        for k in range(count):
            statements.append(
                "{ auto u = __atomic_load_n((%s*)P, __ATOMIC_RELAXED); memcpy(T, &u, sizeof u); }"
                % register if atomic else "T[%d] = P[%d];" % (k, k))
        statements += [self.write(operand, "T[%d]" % k) for k, operand in enumerate(registers)]
        return "{ auto* P = %s; %s T[%d]; %s }" % (pointer, value, count, " ".join(statements))

    def cvta(self, i):
        target, source = i.operands[0], self.bits(i.operands[1])
        if not i.has("shared"):
            return self.write(target, source)
        return self.write(target, ("ptx::to_shared(SM, %s)" if i.has("to") else
                                   "ptx::generic(SM, %s)") % source)

    def carried(self, i):
        if i.type not in WIDE and i.type not in ("u64", "s64"):
            self.fail(i.opcode)
        unsigned = "u" + i.type[1:]
        return "{ auto Q = ptx::%s_carry<%s>(%s, %s, %s); %s%s }" % (
            i.name[:3], VALUE[unsigned], self.read(unsigned, i.operands[1]),
            self.read(unsigned, i.operands[2]), "CC" if i.name.endswith("c") else "false",
            "CC = Q.carry; " if i.has("cc") else "", self.write(i.operands[0], "Q.value"))

    def arithmetic(self, i):
        if i.has("cc") and i.name in ("add", "sub"):
            return self.carried(i)
        if i.type not in FLOATS + tuple(WIDE) + ("u64", "s64") or i.has("cc", *OTHER_ROUNDINGS):
            self.fail(i.opcode)
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}[i.name]
        target, value = i.operands[0], VALUE[i.type]
        if i.is_float:
            left, right = self.float_operands(i)
            return self.write(target, self.flushed(i)("%s %s %s" % (left, sign, right)))
        left, right = (self.read(i.type, operand) for operand in i.operands[1:])
        if i.has("wide"):
            return self.write(target, "(%s)%s * %s" % (WIDE[i.type], left, right))
        if i.has("hi"):
            return self.write(target, "ptx::mulhi<%s>(%s, %s)" % (value, left, right))
        if i.name in ("div", "rem"):
            return self.write(target, "(%s)((%s)%s %s %s)" % (value, value, left, sign, right))
        left, right = (self.read("u" + i.type[1:], operand) for operand in i.operands[1:])
        return self.write(target, "(%s)((uint64_t)%s %s %s)" % (value, left, sign, right))

    def fma(self, i):
        target, value = i.operands[0], VALUE[i.type]
        if i.is_float:
            if i.has(*OTHER_ROUNDINGS):
                self.fail(i.opcode)
            return self.write(target, self.flushed(i)(
                "std::fma(%s, %s, %s)" % tuple(self.float_operands(i))))
        a, b, c = i.operands[1:]
        if i.has("wide"):
            wide = WIDE[i.type]
            return self.write(target, "(%s)((uint64_t)((%s)%s * %s) + (uint64_t)ptx::R<%s>(%s))" % (
                wide, wide, self.read(i.type, a), self.read(i.type, b), wide, self.bits(c)))
        unsigned = "u" + i.type[1:]
        if i.has("lo"):
            return self.write(target, "(%s)((uint64_t)%s * %s + %s)" % (
                value, self.read(unsigned, a), self.read(unsigned, b), self.read(unsigned, c)))
        return self.write(target, "(%s)(ptx::mulhi<%s>(%s, %s) + %s)" % (
            value, value, self.read(i.type, a), self.read(i.type, b), self.read(i.type, c)))

    def extreme(self, i):
        if not i.is_float:
            return self.write(i.operands[0], "std::%s(%s, %s)" % (
                i.name, self.read(i.type, i.operands[1]), self.read(i.type, i.operands[2])))
        if i.has("NaN"):
            self.fail(i.opcode)
        left, right = self.float_operands(i)
        return self.write(i.operands[0],
                          self.flushed(i)("ptx::f%s_(%s, %s)" % (i.name, left, right)))

    def sign(self, i):
        target = i.operands[0]
        if i.is_float:
            form = "std::abs(%s)" if i.name == "abs" else "-%s"
            return self.write(target, form % self.float_operands(i)[0])
        bits = self.bits(i.operands[1])
        if i.name == "neg":
            return self.write(target, "(%s)(0ull - %s)" % (VALUE[i.type], bits))
        return self.write(target, "(%s)(%s < 0 ? 0ull - %s : %s)" % (
            VALUE[i.type], self.read(i.type, i.operands[1]), bits, bits))

    def function(self, i):
        if not i.is_float or i.has("rz", "rm", "rp"):
            self.fail(i.opcode)
        form = {"sqrt": "std::sqrt(%s)", "rcp": VALUE[i.type] + "(1) / %s",
                "rsqrt": VALUE[i.type] + "(1) / std::sqrt(%s)", "ex2": "std::exp2(%s)",
                "lg2": "std::log2(%s)", "sin": "std::sin(%s)", "cos": "std::cos(%s)",
                "tanh": "std::tanh(%s)"}[i.name]
        return self.write(i.operands[0], self.flushed(i)(form % self.float_operands(i)[0]))

    def logic(self, i):
        sign = {"and": "&", "or": "|", "xor": "^"}[i.name]
        return self.write(i.operands[0], "(%s)(%s %s %s)" % (
            VALUE[i.type], self.read(i.type, i.operands[1]), sign,
            self.read(i.type, i.operands[2])))

    def complement(self, i):
        if i.type == "pred":
            return self.write(i.operands[0], "!" + self.bits(i.operands[1]))
        return self.write(i.operands[0],
                          "(%s)~%s" % (VALUE[i.type], self.read(i.type, i.operands[1])))

    def shift(self, i):
        return self.write(i.operands[0], "ptx::%s_<%s>(%s, (uint32_t)%s)" % (
            i.name, VALUE[i.type], self.read(i.type, i.operands[1]), self.bits(i.operands[2])))

    def funnel(self, i):
        if i.type != "b32":
            self.fail(i.opcode)
        low, high, by = (self.bits(operand) for operand in i.operands[1:])
        by = ("((uint32_t)%s & 31)" if i.has("wrap") else "std::min(32u, (uint32_t)%s)") % by
        both = "((uint64_t)(uint32_t)%s << 32 | (uint32_t)%s)" % (high, low)
        form = "(uint32_t)(%s << %s >> 32)" if i.has("l") else "(uint32_t)(%s >> %s)"
        return self.write(i.operands[0], form % (both, by))

    def comparison(self, i):
        """The expression of setp's and set's comparison."""
        kind, unordered = i.parts[1], False
        left, right = (self.float_operands(i)[:2] if i.is_float else
                       [self.read(i.type, operand) for operand in i.operands[1:3]])
        if kind in ("num", "nan"):
            ordered = "(%s == %s && %s == %s)" % (left, left, right, right)
            return ordered if kind == "num" else "!" + ordered
        if i.is_float and kind in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
            unordered, kind = True, kind[:2]
        sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<",
                "ls": "<=", "hi": ">", "hs": ">="}[kind]
        result = "(%s %s %s)" % (left, sign, right)
        if i.is_float and unordered and kind != "ne":
            return "(%s != %s || %s != %s || %s)" % (left, left, right, right, result)
        if i.is_float and not unordered and kind == "ne":
            return "(%s == %s && %s == %s && %s)" % (left, left, right, right, result)
        return result

    def setp(self, i):
        expression = self.comparison(i)
        if i.name == "set":
            yes = "0x3f800000u" if i.parts[-2] == "f32" else "~0u"
            return self.write(i.operands[0], "(%s ? %s : 0u)" % (expression, yes))
        joined = next((part for part in i.parts[2:] if part in ("and", "or", "xor")), None)
        sign = {"and": "&&", "or": "||", "xor": "!="}.get(joined)
        results = ["E", "!E"]
        if joined:
            other = self.predicate(i.operands[3])
            results = ["(%s %s %s)" % (result, sign, other) for result in results]
        targets = i.operands[0].split("|")
        writes = [self.write(target, "E%d" % (k + 1)) for k, target in enumerate(targets)]
        return "{ bool E = %s; bool E1 = %s, E2 = %s; (void)E2; %s }" % (
            expression, results[0], results[1], " ".join(writes))

    def selp(self, i):
        return self.write(i.operands[0], "(%s ? %s : %s)" % (
            self.bits(i.operands[3]), self.read(i.type, i.operands[1]),
            self.read(i.type, i.operands[2])))

    def cvt(self, i):
        to, source = i.parts[-2], i.type
        rounding = next((part for part in i.parts if re.fullmatch(r"r[nzmp]i?", part)), "")
        target, flush = i.operands[0], self.flushed(i)
        halves = ("f16", "bf16")
        if i.has("sat") and to in FLOATS:
            self.fail(i.opcode)
        if to in halves and source == "f32" and rounding == "rn":
            return self.write(target, "ptx::to_%s(%s)" % (to, self.read("f32", i.operands[1])))
        if to in ("bf16x2", "f16x2") and source == "f32" and rounding == "rn":
            half = to[:-2]
            return self.write(target, "(uint32_t)ptx::to_%s(%s) << 16 | ptx::to_%s(%s)" % (
                half, self.read("f32", i.operands[1]), half, self.read("f32", i.operands[2])))
        if to == "f32" and source in halves:
            return self.write(target, "ptx::from_%s(%s)" % (source, self.bits(i.operands[1])))
        if to not in VALUE or source not in VALUE or to in halves or source in halves:
            self.fail(i.opcode)
        value = self.read(source, i.operands[1])
        if to in FLOATS and source in FLOATS:
            if rounding.endswith("i"):
                return self.write(target, "ptx::rnd(%s, %r)" % (flush(value), rounding[1]))
            if rounding not in ("", "rn"):
                self.fail(i.opcode)
            return self.write(target, flush("(%s)%s" % (VALUE[to], flush(value))))
        if source in FLOATS:
            return self.write(target, "ptx::f2i<%s>(ptx::rnd(%s, %r))" % (VALUE[to], flush(value),
                                                                        rounding[1]))
        if to in FLOATS and rounding != "rn":
            self.fail(i.opcode)
        if i.has("sat"):
            limits = "std::numeric_limits<%s>" % VALUE[to]
            return self.write(target, "(%s)std::min<__int128>(%s::max(), std::max<__int128>("
                                      "%s::min(), %s))" % (VALUE[to], limits, limits, value))
        return self.write(target, "(%s)%s" % (VALUE[to], value))

    def barrier(self, i):
        if i.parts[1] == "warp":
            return "__syncwarp((uint32_t)%s, %d);" % (self.bits(i.operands[0]), self.line)
        if i.parts[1] == "sync" and i.operands == ["0"]:
            return "cuemu::barrier(%d, 0);" % (self.line * 1000)
        if i.parts[1] == "red" and i.operands[1] == "0":
            kind = {"popc": 0, "or": 1, "and": 2}[i.parts[2]]
            return self.write(i.operands[0], "%scuemu::barrier(%d, %s, %d)" % (
                "(bool)" if kind else "", self.line * 1000, self.predicate(i.operands[2]), kind))
        self.fail(i.opcode)

    def shuffle(self, i):
        targets = i.operands[0].split("|")
        arguments = ", ".join("(uint32_t)" + self.bits(operand) for operand in i.operands[1:5])
        writes = [self.write(target, value) for target, value in zip(targets, "VP")]
        return "{ bool P; uint32_t V = ptx::shfl(%r, %s, P, %d); %s }" % (
            i.parts[2][0], arguments, self.line, " ".join(writes))

    def vote(self, i):
        predicate, mask = self.predicate(i.operands[1]), "(uint32_t)" + self.bits(i.operands[2])
        form = {"ballot": "cuemu::ballot(%s, %s, %d)", "any": "(cuemu::ballot(%s, %s, %d) != 0)",
                "all": "(cuemu::ballot(%s, !(%s), %d) == 0)"}[i.parts[2]]
        return self.write(i.operands[0], form % (mask, predicate, self.line))

    def redux(self, i):
        value = VALUE[i.type]
        form = {"add": "x + y", "min": "std::min(x, y)", "max": "std::max(x, y)", "and": "x & y",
                "or": "x | y", "xor": "x ^ y"}[i.parts[2]]
        return self.write(i.operands[0], "cuemu::reduce<%s>((uint32_t)%s, %s, [](%s x, %s y) "
                                         "{ return (%s)(%s); }, %d)" % (
            value, self.bits(i.operands[2]), self.read(i.type, i.operands[1]), value, value, value,
            form, self.line))

    def atomic(self, i):
        kinds = {"add": "x + Y", "exch": "Y", "min": "std::min(x, Y)", "max": "std::max(x, Y)",
                 "and": "x & Y", "or": "x | Y", "xor": "x ^ Y", "inc": "x >= Y ? 0 : x + 1",
                 "dec": "x == 0 || x > Y ? Y : x - 1", "cas": "x == Y ? Z : x"}
        kind = i.first(*kinds)
        space = i.first("global", "shared", default="generic")
        at, value = (1 if i.name == "atom" else 0), VALUE[i.type]
        third = "%s Z = %s; " % (value, self.read(i.type, i.operands[at + 2])) \
            if kind == "cas" else ""
        result = self.write(i.operands[0], "O") if at else ""
        return "{ %s Y = %s; %sauto O = cuemu::rmw(%s, [=](%s x) { return (%s)(%s); }); (void)O; " \
               "%s }" % (value, self.read(i.type, i.operands[at + 1]), third,
                         self.address(i.operands[at], space, i.type, 1), value, value, kinds[kind],
                         result)

    def fence(self, _):
        return "__threadfence();"

    def count(self, i):
        value = self.read(i.type, i.operands[1])
        if i.name == "popc":
            return self.write(i.operands[0], "(uint32_t)__builtin_popcountll(%s)" % value)
        return self.write(i.operands[0], "(uint32_t)(%s ? __builtin_clzll(%s) - %d : %d)" % (
            value, value, 64 - bytes_of(i.type) * 8, bytes_of(i.type) * 8))

    def extract(self, i):
        if i.type != "u32":
            self.fail(i.opcode)
        return self.write(i.operands[0], "(uint32_t)(((uint64_t)%s >> std::min(255ull & %s, 63ull))"
                                         " & ((1ull << std::min(255ull & %s, 32ull)) - 1))" % (
            self.read(i.type, i.operands[1]), self.bits(i.operands[2]), self.bits(i.operands[3])))

    def permute(self, i):
        return self.write(i.operands[0], "ptx::prmt(%s)" % ", ".join(
            "(uint32_t)" + self.bits(operand) for operand in i.operands[1:4]))

    def copysign(self, i):
        return self.write(i.operands[0], "std::copysign(%s, %s)" % (
            self.read(i.type, i.operands[2]), self.read(i.type, i.operands[1])))

    def branch(self, i):
        return "goto %s;" % identifier(i.operands[0])

    def leave(self, _):
        return "return;"

    def trap(self, _):
        return 'cuemu::die("trap", %d);' % self.line

    def statement(self, opcode, operands):
        i = Instruction(opcode, operands)
        if i.name not in FAMILIES:
            self.fail("unsupported instruction %s %s" % (opcode, operands))
        return FAMILIES[i.name](self, i)


FAMILIES = {
    "mov": Statements.mov, "cvta": Statements.cvta, "fma": Statements.fma, "mad": Statements.fma,
    "not": Statements.complement, "shf": Statements.funnel, "selp": Statements.selp, "cvt": Statements.cvt,
    "shfl": Statements.shuffle, "vote": Statements.vote, "redux": Statements.redux, "bfe": Statements.extract,
    "prmt": Statements.permute, "copysign": Statements.copysign, "bra": Statements.branch, "trap": Statements.trap,
}
for family, names in {
        Statements.memory: "ld ldu st", Statements.arithmetic: "add sub mul div rem",
        Statements.carried: "addc subc", Statements.extreme: "min max", Statements.sign: "abs neg",
        Statements.function: "sqrt rcp rsqrt ex2 lg2 sin cos tanh", Statements.logic: "and or xor",
        Statements.shift: "shl shr", Statements.setp: "setp set", Statements.barrier: "bar barrier",
        Statements.atomic: "atom red", Statements.fence: "membar fence", Statements.count: "popc clz",
        Statements.leave: "ret exit"}.items():
    FAMILIES.update(dict.fromkeys(names.split(), family))
