#!/usr/bin/env python3
"""Translates the PTX that nvcc emitted into C++ that runs under the emulation.

    ptx_to_cpp.py in.ptx [REGEX] > out.cc

REGEX: of the (mangled) names of the kernels wanted.  An instruction that is not known is an error,
never skipped."""
# SPDX-License-Identifier: BSD-3-Clause
import re, sys
CT = dict(u8='uint8_t', s8='int8_t', b8='uint8_t', u16='uint16_t', s16='int16_t', b16='uint16_t', u32='uint32_t', s32='int32_t',
          b32='uint32_t', u64='uint64_t', s64='int64_t', b64='uint64_t', f32='float', f64='double', pred='bool', f16='uint16_t', bf16='uint16_t')
RT = dict(pred='bool', b8='uint8_t', u8='uint8_t', s8='uint8_t', b16='uint16_t', u16='uint16_t', s16='uint16_t', f16='uint16_t', bf16='uint16_t', b32='uint32_t', u32='uint32_t', s32='uint32_t', f32='uint32_t', b64='uint64_t', u64='uint64_t', s64='uint64_t', f64='uint64_t')
SZ = lambda t: int(re.sub(r'\D', '', t)) // 8
SREG = {'%tid': 'threadIdx', '%ntid': 'blockDim', '%ctaid': 'blockIdx', '%nctaid': 'gridDim'}
WIDE = dict(u16='uint32_t', s16='int32_t', u32='uint64_t', s32='int64_t')
class Tr:
    def __init__(s, name, params, body, mod_sh):
        s.name, s.out, s.line, s.sym, s.extern = name, [], 0, {}, False
        s.params = {p[1]: i for i, p in enumerate(params)}; s.plist = params; s.body = body
        s.off = 0
        for n, (al, sz) in mod_sh.items():
            if sz is None: continue
            if re.search(re.escape(n) + r'\b', body): s.add_sh(n, al, sz)
        s.mod_sh = mod_sh
    def add_sh(s, n, al, sz): s.off = -(-s.off // al) * al; s.sym[n] = s.off; s.off += sz
    def err(s, m): sys.exit(f'ptx_to_cpp: {s.name}: PTX line {s.line}: {m}')
    def ident(s, r): return re.sub(r'[^A-Za-z0-9_]', '_', r.lstrip('%$')) + ('_r' if r.startswith('%') else '')
    def v(s, o):  # operand -> C expression (raw bits)
        o = o.strip()
        if m := re.fullmatch(r'(%n?(?:tid|ctaid))\.([xyz])', o): return f'{SREG[m[1]]}.{m[2]}'
        if o == '%laneid': return '(cuemu::W.cur->lin & 31)'
        if o == '%warpid': return '(cuemu::W.cur->lin >> 5)'
        if o == 'WARP_SZ': return '32'
        if m := re.fullmatch(r'0[fF]([0-9A-Fa-f]{8})', o): return f'0x{m[1]}u'
        if m := re.fullmatch(r'0[dD]([0-9A-Fa-f]{16})', o): return f'0x{m[1]}ull'
        if re.fullmatch(r'-?\d+U?|-?0x[0-9a-fA-F]+U?', o): return f'({o.rstrip("U")}ll)' if not o.startswith('0x') else f'({o.rstrip("U")}ull)'
        if o.startswith('%'): return s.ident(o)
        if o in s.sym: return f'{s.sym[o]}u' if isinstance(s.sym[o], int) else s.sym[o]
        if o in s.mod_sh and s.mod_sh[o][1] is None: return 'SM.dynbase'
        if o in s.params: return f'(uint64_t)&a{s.params[o]}'
        s.err('operand ' + o)
    def R(s, t, o): return f'ptx::R<{CT[t]}>({s.v(o)})'
    def W(s, d, e): return '' if d.strip() == '_' else f'ptx::W({s.ident(d.strip())}, {e});'
    def addr(s, o, space, t, n):
        m = re.fullmatch(r'\[\s*([^\]+]+?)\s*(?:\+\s*(-?\w+))?\s*\]', o.strip())
        if not m: s.err('address ' + o)
        off = int(m[2], 0) if m[2] else 0
        if space == 'param' and m[1] in s.params: return f'({CT[t]}*)((char*)&a{s.params[m[1]]} + {off})'
        a = s.v(m[1])
        if space == 'shared': return f'ptx::sp<{CT[t]}>(SM, (uint32_t)({a} + {off}), {s.line}, {n})'
        return f'ptx::gp<{CT[t]}>({a} + {off}, {s.line}, {n})'
    def split(s, a):
        r, d, c = [], 0, ''
        for ch in a:
            if ch in '{[': d += 1
            if ch in '}]': d -= 1
            if ch == ',' and not d: r.append(c.strip()); c = ''
            else: c += ch
        return r + [c.strip()] if c.strip() else r
    def ins(s, op, a):
        q = op.split('.'); o = q[0]; t = q[-1]; a = s.split(a); R, W, v = s.R, s.W, s.v; fl = t in ('f32', 'f64')
        z = (lambda e: f'ptx::ftz({e})') if 'ftz' in q else (lambda e: e)
        if o == 'mov':
            if a[1].startswith('{'):
                p = s.split(a[1][1:-1]); w = SZ(t) * 8 // len(p)
                return s.W(a[0], ' | '.join(f'((uint64_t)(uint{w}_t){v(x)} << {i * w})' for i, x in enumerate(p)))
            if a[0].startswith('{'):
                p = s.split(a[0][1:-1]); w = SZ(t) * 8 // len(p)
                return ' '.join(W(x, f'(uint{w}_t)({v(a[1])} >> {i * w})') for i, x in enumerate(p))
            return W(a[0], v(a[1]) if t == 'pred' else f'({RT[t]}){v(a[1])}')
        if o in ('ld', 'ldu', 'st'):
            sp = next((x for x in q if x in ('param', 'global', 'shared', 'local', 'const')), 'generic'); n = next((int(x[1]) for x in q if re.fullmatch(r'v[24]', x)), 1)
            if sp == 'shared' or '::' not in op: pass
            reg, mem = (a[0], a[1]) if o != 'st' else (a[1], a[0]); regs = s.split(reg[1:-1]) if reg.startswith('{') else [reg]
            at = any(x in ('volatile', 'relaxed', 'acquire', 'release') for x in q)
            p = s.addr(mem, sp, t, n); i_ = lambda i: f'__atomic_load_n((std::conditional_t<1,{RT[t]},void>*)P+{i}, __ATOMIC_RELAXED)' if at else f'P[{i}]'
            if o == 'st': return f'{{ auto* P = {p}; ' + ' '.join((f'__atomic_store_n(({RT[t]}*)P, ({RT[t]}){v(x)}, __ATOMIC_RELAXED);' if at else f'P[{i}] = {R(t, x)};') for i, x in enumerate(regs)) + ' }'
            return f'{{ auto* P = {p}; {CT[t]} T[{n}]; ' + ' '.join((f'{{ auto u = __atomic_load_n(({RT[t]}*)P, __ATOMIC_RELAXED); memcpy(T, &u, sizeof u); }}' if at else f'T[{i}] = P[{i}];') for i in range(n)) + ' ' + ' '.join(W(x, f'T[{i}]') for i, x in enumerate(regs)) + ' }'
        if o == 'cvta':
            if 'shared' in q: return W(a[0], f'ptx::to_shared(SM, {v(a[1])})' if 'to' in q else f'ptx::generic(SM, {v(a[1])})')
            return W(a[0], v(a[1]))
        if o in ('addc', 'subc') or o in ('add', 'sub') and 'cc' in q:
            u = 'u' + t[1:]
            if t not in WIDE and t not in ('u64', 's64') or 'mul' in q: s.err(op)
            return f'{{ auto Q = ptx::{o[:3]}_carry<{CT[u]}>({R(u, a[1])}, {R(u, a[2])}, {"CC" if o.endswith("c") else "false"}); ' + ('CC = Q.carry; ' if 'cc' in q else '') + W(a[0], 'Q.value') + ' }'
        if o in ('add', 'sub', 'mul', 'div', 'rem') and t in ('f32', 'f64') + tuple(WIDE) + ('u64', 's64'):
            if any(x in ('rz', 'rm', 'rp', 'sat', 'cc') for x in q): s.err(op)
            c = {'add': '+', 'sub': '-', 'mul': '*', 'div': '/', 'rem': '%'}[o]
            if fl: return W(a[0], z(f'{z(R(t, a[1]))} {c} {z(R(t, a[2]))}'))
            if o == 'mul' and 'wide' in q: return W(a[0], f'({WIDE[t]}){R(t, a[1])} * {R(t, a[2])}')
            if o == 'mul' and 'hi' in q: return W(a[0], f'ptx::mulhi<{CT[t]}>({R(t, a[1])}, {R(t, a[2])})')
            u = 'u' + t[1:] if o in ('add', 'sub', 'mul') else t  # wrap-around without UB
            return W(a[0], f'({CT[t]})(({"uint64_t" if o not in ("div", "rem") else CT[t]}){R(u, a[1])} {c} {R(u, a[2])})')
        if o in ('fma', 'mad') and fl:
            if any(x in ('rz', 'rm', 'rp', 'sat') for x in q): s.err(op)
            return W(a[0], z(f'std::fma({z(R(t, a[1]))}, {z(R(t, a[2]))}, {z(R(t, a[3]))})'))
        if o == 'mad':
            if 'wide' in q: return W(a[0], f'({WIDE[t]})((uint64_t)(({WIDE[t]}){R(t, a[1])} * {R(t, a[2])}) + (uint64_t)ptx::R<{WIDE[t]}>({v(a[3])}))')
            if 'lo' in q: return W(a[0], f'({CT[t]})((uint64_t){R("u" + t[1:], a[1])} * {R("u" + t[1:], a[2])} + {R("u" + t[1:], a[3])})')
            return W(a[0], f'({CT[t]})(ptx::mulhi<{CT[t]}>({R(t, a[1])}, {R(t, a[2])}) + {R(t, a[3])})')
        if o in ('min', 'max') and t in CT: return W(a[0], z(f'ptx::f{o}_({z(R(t, a[1]))}, {z(R(t, a[2]))})') if fl and 'NaN' not in q else f'std::{o}({R(t, a[1])}, {R(t, a[2])})' if not fl else s.err(op))
        if o in ('abs', 'neg') and t in CT: return W(a[0], f'std::abs({z(R(t, a[1]))})' if o == 'abs' and fl else f'-{z(R(t, a[1]))}' if fl else f'({CT[t]})({R(t, a[1])} < 0 ? 0ull - {v(a[1])} : {v(a[1])})' if o == 'abs' else f'({CT[t]})(0ull - {v(a[1])})')
        if o in ('sqrt', 'rcp', 'rsqrt', 'ex2', 'lg2', 'sin', 'cos', 'tanh') and fl:
            if any(x in ('rz', 'rm', 'rp') for x in q): s.err(op)
            x = z(R(t, a[1])); return W(a[0], z({'sqrt': f'std::sqrt({x})', 'rcp': f'{CT[t]}(1) / {x}', 'rsqrt': f'{CT[t]}(1) / std::sqrt({x})', 'ex2': f'std::exp2({x})', 'lg2': f'std::log2({x})', 'sin': f'std::sin({x})', 'cos': f'std::cos({x})', 'tanh': f'std::tanh({x})'}[o]))
        if o in ('and', 'or', 'xor'):
            c = {'and': '&', 'or': '|', 'xor': '^'}[o]; return W(a[0], f'({CT[t]})({R(t, a[1])} {c} {R(t, a[2])})')
        if o == 'not': return W(a[0], f'!{v(a[1])}' if t == 'pred' else f'({CT[t]})~{R(t, a[1])}')
        if o in ('shl', 'shr'): return W(a[0], f'ptx::{o}_<{CT[t]}>({R(t, a[1])}, (uint32_t){v(a[2])})')
        if o == 'shf' and t == 'b32':
            n = f'((uint32_t){v(a[3])} & 31)' if 'wrap' in q else f'std::min(32u, (uint32_t){v(a[3])})'; x = f'((uint64_t)(uint32_t){v(a[2])} << 32 | (uint32_t){v(a[1])})'
            return W(a[0], f'(uint32_t)({x} << {n} >> 32)' if 'l' in q else f'(uint32_t)({x} >> {n})')
        if o in ('setp', 'set'):
            cmp = q[1]; bo = next((x for x in q[2:] if x in ('and', 'or', 'xor')), None); x, y = z(R(t, a[1])) if fl else R(t, a[1]), z(R(t, a[2])) if fl else R(t, a[2]); un = False
            if fl and cmp in ('equ', 'neu', 'ltu', 'leu', 'gtu', 'geu'): un, cmp = True, cmp[:2]
            elif cmp in ('num', 'nan'): e = f'({x} == {x} && {y} == {y})'; e = e if cmp == 'num' else '!' + e
            if cmp not in ('num', 'nan'):
                c = dict(eq='==', ne='!=', lt='<', le='<=', gt='>', ge='>=', lo='<', ls='<=', hi='>', hs='>=')[cmp]; e = f'({x} {c} {y})'
                if fl and un and cmp != 'ne': e = f'({x} != {x} || {y} != {y} || {e})'
                if fl and not un and cmp == 'ne': e = f'({x} == {x} && {y} == {y} && {e})'
            neg = lambda p: f'!{v(p[1:])}' if p.startswith('!') else v(p)
            if o == 'set': return W(a[0], f'({e} ? {"0x3f800000u" if q[-2] == "f32" else "~0u"} : 0u)')
            ds = a[0].split('|'); B = dict([('and', '&&'), ('or', '||'), ('xor', '!=')]); f = lambda k: k if not bo else f'({k} {B[bo]} {neg(a[3])})'
            return '{ bool E = ' + e + '; ' + f'bool E1 = {f("E")}, E2 = {f("!E")}; (void)E2; ' + W(ds[0], 'E1') + (W(ds[1], 'E2') if len(ds) > 1 else '') + ' }'
        if o == 'selp': return W(a[0], f'({v(a[3])} ? {R(t, a[1])} : {R(t, a[2])})')
        if o == 'cvt':
            d, st = q[-2], q[-1]; rm = next((x for x in q if re.fullmatch(r'r[nzmp]i?', x)), ''); fd, fs = d in ('f32', 'f64'), st in ('f32', 'f64')
            if 'sat' in q and fd: s.err(op)
            if d in ('bf16', 'f16') and st == 'f32' and rm == 'rn': return W(a[0], f'ptx::to_{d}({R("f32", a[1])})')
            if d in ('bf16x2', 'f16x2') and st == 'f32' and rm == 'rn': h = d[:-2]; return W(a[0], f'(uint32_t)ptx::to_{h}({R("f32", a[1])}) << 16 | ptx::to_{h}({R("f32", a[2])})')
            if d == 'f32' and st in ('bf16', 'f16'): return W(a[0], f'ptx::from_{st}({v(a[1])})')
            if fd and fs:
                if rm.endswith('i'): return W(a[0], f'ptx::rnd({z(R(st, a[1]))}, {rm[1]!r})')
                if rm not in ('', 'rn'): s.err(op)
                return W(a[0], z(f'({CT[d]}){z(R(st, a[1]))}'))
            if fs and d in CT: return W(a[0], f'ptx::f2i<{CT[d]}>(ptx::rnd({z(R(st, a[1]))}, {rm[1]!r}))')
            if fd and rm == 'rn': return W(a[0], f'({CT[d]}){R(st, a[1])}')
            if fd or d not in CT or st not in CT or d in ('f16', 'bf16') or st in ('f16', 'bf16'): s.err(op)
            if 'sat' in q: return W(a[0], f'({CT[d]})std::min<__int128>(std::numeric_limits<{CT[d]}>::max(), std::max<__int128>(std::numeric_limits<{CT[d]}>::min(), {R(st, a[1])}))')
            return W(a[0], f'({CT[d]}){R(st, a[1])}')
        if o in ('bar', 'barrier'):
            if q[1] == 'warp': return f'__syncwarp((uint32_t){v(a[0])}, {s.line});'
            if q[1] == 'sync' and a == ['0']: return f'cuemu::barrier({s.line * 1000}, 0);'
            if q[1] == 'red' and a[1] == '0':
                p = f'!{v(a[2][1:])}' if a[2].startswith('!') else v(a[2]); k = {'popc': 0, 'or': 1, 'and': 2}[q[2]]
                return W(a[0], f'{"(bool)" if k else ""}cuemu::barrier({s.line * 1000}, {p}, {k})')
        if o == 'shfl' and q[1] == 'sync':
            ds = a[0].split('|'); return f'{{ bool P; uint32_t V = ptx::shfl({q[2][0]!r}, {", ".join("(uint32_t)" + v(x) for x in a[1:5])}, P, {s.line}); ' + W(ds[0], 'V') + (W(ds[1], 'P') if len(ds) > 1 else '') + ' }'
        if o == 'vote' and q[1] == 'sync':
            p = f'!{v(a[1][1:])}' if a[1].startswith('!') else v(a[1]); m = f'(uint32_t){v(a[2])}'
            return W(a[0], {'ballot': f'cuemu::ballot({m}, {p}, {s.line})', 'any': f'(cuemu::ballot({m}, {p}, {s.line}) != 0)', 'all': f'(cuemu::ballot({m}, !({p}), {s.line}) == 0)'}[q[2]])
        if o == 'redux':
            f = {'add': 'x + y', 'min': 'std::min(x, y)', 'max': 'std::max(x, y)', 'and': 'x & y', 'or': 'x | y', 'xor': 'x ^ y'}[q[2]]
            return W(a[0], f'cuemu::reduce<{CT[t]}>((uint32_t){v(a[2])}, {R(t, a[1])}, []({CT[t]} x, {CT[t]} y) {{ return ({CT[t]})({f}); }}, {s.line})')
        if o in ('atom', 'red'):
            k = next(x for x in q if x in ('add', 'exch', 'cas', 'min', 'max', 'and', 'or', 'xor', 'inc', 'dec')); sp = next((x for x in q if x in ('global', 'shared')), 'generic')
            i = 1 if o == 'atom' else 0; T = CT[t]; p = s.addr(a[i], sp, t, 1); y = R(t, a[i + 1])
            f = {'add': 'x + Y', 'exch': 'Y', 'min': 'std::min(x, Y)', 'max': 'std::max(x, Y)', 'and': 'x & Y', 'or': 'x | Y', 'xor': 'x ^ Y', 'inc': 'x >= Y ? 0 : x + 1', 'dec': 'x == 0 || x > Y ? Y : x - 1', 'cas': f'x == Y ? Z : x'}[k]
            return f'{{ {T} Y = {y}; ' + (f'{T} Z = {R(t, a[i + 2])}; ' if k == 'cas' else '') + f'auto O = cuemu::rmw({p}, [=]({T} x) {{ return ({T})({f}); }}); (void)O; ' + (W(a[0], 'O') if i else '') + ' }'
        if o in ('membar', 'fence'): return '__threadfence();'
        if o in ('popc', 'clz', 'brev', 'bfind'):
            if o == 'popc': return W(a[0], f'(uint32_t)__builtin_popcountll({R(t, a[1])})')
            if o == 'clz': return W(a[0], f'(uint32_t)({R(t, a[1])} ? __builtin_clzll({R(t, a[1])}) - {64 - SZ(t) * 8} : {SZ(t) * 8})')
        if o == 'bfe' and t == 'u32': return W(a[0], f'(uint32_t)(((uint64_t){R(t, a[1])} >> std::min(255ull & {v(a[2])}, 63ull)) & ((1ull << std::min(255ull & {v(a[3])}, 32ull)) - 1))')
        if o == 'prmt': return W(a[0], f'ptx::prmt((uint32_t){v(a[1])}, (uint32_t){v(a[2])}, (uint32_t){v(a[3])})')
        if o == 'copysign': return W(a[0], f'std::copysign({R(t, a[2])}, {R(t, a[1])})')
        if o == 'activemask': s.err('activemask has no defined result')
        if o == 'bra': return f'goto {s.ident(a[0])};'
        if o in ('ret', 'exit'): return 'return;'
        if o == 'trap': return f'cuemu::die("trap", {s.line});'
        s.err(f'unsupported instruction {op} {a}')
    def run(s, base):
        pos, code, decl = 0, [], []
        text = s.body
        for m in re.finditer(r'\{(?=\s*(?:\.reg|[a-z@]|\n))|^\s*\}|(?<=;)\s*\}|([$%\w]+):(?!:)|((?:@!?%\w+\s+)?[.a-z][^;]*);', text, re.M):
            s.line = base + text.count('\n', 0, m.start() if not m[2] else m.start(2)); k = m[0].strip()
            if k == '{': code.append('{'); continue
            if k == '}': code.append('}'); continue
            if m[1]: code.append(s.ident(m[1]) + ':;'); continue
            st = ' '.join(m[2].split())
            if st.startswith('.reg'):
                _, ty, names = st.split(None, 2); ty = ty[1:]
                for n in names.split(','):
                    n = n.strip(); r = re.fullmatch(r'(%\w+)<(\d+)>', n); ids = [s.ident(f'{r[1]}{i}') for i in range(int(r[2]))] if r else [s.ident(n)]
                    code.append(f'{RT[ty]} ' + ', '.join(ids) + ';')
                continue
            if r := re.fullmatch(r'\.(shared|local)(?: \.align (\d+))? \.(\w+) ([$\w]+)(?:\[(\d+)\])?', st):
                sz = SZ(r[3]) * int(r[5] or 1); al = int(r[2] or SZ(r[3]))
                if r[1] == 'shared': s.add_sh(r[4], al, sz)
                else: code.append(f'alignas({al}) unsigned char {s.ident(r[4])}[{sz}];'); s.sym[r[4]] = f'(uint64_t){s.ident(r[4])}'
                continue
            if st.startswith(('.loc', '.pragma')): continue
            if st.startswith('.'): s.err('directive ' + st)
            g = re.match(r'@(!?)(%\w+)\s+(.*)', st); pre = ''
            if g: pre = f'if ({g[1]}{s.ident(g[2])}) '; st = g[3]
            op, _, args = st.partition(' ')
            code.append(f'  {pre}{{ {s.ins(op, args)} }}')
        ps = []
        for i, (ty, n, al, ar) in enumerate(s.plist):
            if ar: print(f'struct alignas({al}) P{i}_{s.name} {{ unsigned char b[{ar}]; }};'); ps.append(f'P{i}_{s.name} a{i}')
            else: ps.append(f'{CT[ty] if ty != "b64" else "uint64_t"} a{i}')
            if ar and int(ar) <= 16: print(f'// note: {n} is passed by value in <= 16 bytes: check the host ABI class', file=sys.stderr)
        n = max(s.off, 1)
        print(f'static ptx::Kernel kernel_{s.name}("{s.name}");\nextern "C" void {s.name}({", ".join(ps)}) {{\n  ptx::enter(kernel_{s.name});\n  ptx::Smem SM{{&cuemu::shm<unsigned char[{(n + 15) // 16 * 16}]>([] {{}})[0], {s.off}u, {max(16, (n + 15) // 16 * 16)}u}}; (void)SM; bool CC = false; (void)CC;')
        print('\n'.join('  ' + c for c in code)); print('}')
src = open(sys.argv[1]).read()
src = re.sub(r'//[^\n]*', '', src)
print('// generated by ptx_to_cpp.py\n#include "ptx_runtime.h"\n#include <limits>\n#pragma GCC diagnostic ignored "-Wunused-label"\n#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"')
depth0 = re.sub(r'\{.*?^\}', '', src, flags=re.S | re.M)
mod_sh = {}
for m in re.finditer(r'^(\.extern )?(?:\.weak |\.visible )?\.shared (?:\.align (\d+) )?\.(\w+) ([$\w]+)(?:\[(\d*)\])?;', src, re.M):
    mod_sh[m[4]] = (int(m[2] or SZ(m[3])), None if m[1] else SZ(m[3]) * int(m[5] or 1))
for bad in re.finditer(r'^(?:\.visible |\.weak |\.extern )*\.(func|global|const)\b[^;\n]*', src, re.M): sys.exit('ptx_to_cpp: not supported: ' + bad[0])
n = 0
for m in re.finditer(r'^(?:\.visible |\.weak )*\.entry ([$\w]+)\s*\((.*?)\)\s*((?:\.\w+[^\n{]*\n)*)\{\n(.*?)^\}', src, re.S | re.M):
    if len(sys.argv) > 2 and not re.search(sys.argv[2], m[1]): continue
    params = [(p[1], p[2], p[0] or '0', p[3]) for p in re.findall(r'\.param (?:\.align (\d+) )?\.(\w+)(?: \.ptr(?: \.(?:global|shared|local|const))?(?: \.align \d+)?)? ([$\w]+)(?:\[(\d+)\])?', m[2])]
    Tr(m[1], params, m[4], mod_sh).run(src.count('\n', 0, m.start(4)) + 1); n += 1
print(f'ptx_to_cpp: {n} kernels', file=sys.stderr)
