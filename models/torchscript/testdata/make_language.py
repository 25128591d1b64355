"""Writes language.json.gz: functions in the language of TorchScript, as an archive has their code, and what PyTorch gives.

    python make_language.py

Each function below has no arguments but x, a tensor of 2×3, and k, which is 3. What it gives has tags, since JSON does not
tell 1 from 1.0: see `tagged`. Made with torch 2.11."""

import gzip
import json
import linecache
import math  # noqa: F401, the functions use it
import pathlib
import textwrap
from typing import Dict, List, Optional, Tuple  # noqa: F401

import torch

CASES = {
    "integers": """
        out: List[int] = []
        for a in [7, -7, 6, -6, 0, 1, -1, 9223372036854775807]:
            for b in [2, -2, 3, -3, 5]:
                out += [a // b, a % b, a & b, a | b, a ^ b, a - b, max(a, b), min(a, b), abs(a)]
        for a in [5, -5, 0]:
            for b in [0, 1, 3, 62]:
                out += [a << b, a >> b]
        return out
    """,
    "floats": """
        out: List[float] = []
        for a in [7.5, -7.5, 6.0, -6.0, 0.0, 1e300]:
            for b in [2.0, -2.0, 0.75, -3.25]:
                out += [a // b, a % b, math.fmod(a, b), a / b, math.copysign(a, b), math.atan2(a, b), max(a, b)]
        for c in [7, -7]:
            out += [c / 2, c // 2.0, c % -2.0, 2.0 ** c, c * 0.5, float(c), c ** 2, 10.0 - c]
        return out
    """,
    "rounding": """
        ints: List[int] = []
        floats: List[float] = []
        for a in [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.7, -2.7, 3.0]:
            ints += [int(a), math.floor(a), math.ceil(a)]
            floats += [round(a)]
        return ints, floats, int(True), int("-42"), float("1e3"), bool(0), bool(-1), bool(0.0), bool("")
    """,
    "powers": """
        return [2 ** 10, 2 ** -1, (-2) ** 3, 2.0 ** 0.5, 0 ** 0], pow(k, 2)
    """,
    "comparisons": """
        out: List[bool] = []
        for a in [1, 2, -3]:
            for b in [1.0, 2.5, -3.0]:
                out += [a < b, a <= b, a > b, a >= b, a == b, a != b]
        out += [1 == True, k == 3 and not k < 2, "a" < "b", "b" <= "a", "ab" > "a", "a" == "a"]
        big = [9007199254740993, 9007199254740992]
        out += [1 < k <= 3, big[0] == big[1], big[0] > big[1], big[1] < big[0], big[0] <= big[1]]
        return out
    """,
    "lists_compared": """
        a, b, c = [1, 2, 3], [1, 2, 4], [1, 2]
        return [a == b, a == [1, 2, 3], a != c, a == [3, 2, 1], ["a"] == ["a"], [0.5] != [0.5]]
    """,
    "ranges": """
        out: List[int] = []
        for first, last, step in [(0, 10, 3), (0, 9, 3), (10, 0, -3), (10, 1, -3), (5, 5, 1), (5, 4, 1), (4, 5, -1), (-3, 3, 2),
                                  (3, -4, -7), (3, -4, -8), (0, 1, 100)]:
            out.append(1000)
            for i in range(first, last, step):
                out.append(i)
        return out, [i for i in range(-2)], [i for i in range(4, 0, -2)]
    """,
    "slices": """
        a = [0, 1, 2, 3, 4]
        s = "hello"
        out = [a[1:], a[:-1], a[-2:], a[-9:2], a[3:99], a[4:1], a[::2], a[1::2], a[:4:3], a[-4:-1:2], a[7:9]]
        texts = [s[1:], s[:-1], s[-2:], s[-9:2], s[3:99], s[4:1], s[::2], s[1:4:2], s[-1], s[0]]
        b = a[:]
        b.append(9)
        return out, texts, len(a), b, (1, "x", 2.5)[1:], (1, 2, 3)[-1]
    """,
    "backward_slices": """
        a = [0, 1, 2, 3, 4]
        return [a[::-1], a[::-2], a[3::-1], a[:1:-1], a[3:0:-2], a[-1:-4:-1], a[0:3:-1], a[9:-9:-3], a[9:2:-1],
                a[3:-9:-1], a[-9::-1], a[:-9:-2]]
    """,
    "list_methods": """
        a = [3, 1, 2]
        b = a
        b.append(5)
        b.extend([7, 8])
        a += [9]
        a.insert(0, 10)
        a.insert(-1, 11)
        a.insert(99, 12)
        a.insert(-99, 13)
        first, last, third = a.pop(0), a.pop(), a.pop(-3)
        a[0] = -1
        a[-1] = -2
        del a[1]
        a.remove(5)
        c = a.copy()
        c.reverse()
        d = c * 2
        d[0] = 100
        e = a + c
        e.clear()
        n = [a.index(7), a.count(-1), len(b), len(e), a.count(99)]
        return a, b, c, d, e, n, first, last, third, 7 in a, 99 in a, a * 0, 2 in a
    """,
    "list_aliases": """
        a = [[0] * 2] * 2
        a[0][1] = 5
        b = [1, 2]
        c = b
        c += [3]
        d = b
        d = d + [4]
        e = list(b)
        e.append(6)
        t = (b, 1)
        t[0].append(7)
        g = b
        g *= 2
        return a, b, c, d, e, t
    """,
    "sorting": """
        a = [3, -1, 2, 2, 0]
        b = sorted(a)
        a.sort(reverse=True)
        words = ["b", "a", "ab", ""]
        words.sort()
        f = [2.5, -1.0, 1e9]
        f.sort(reverse=True)
        g = sorted(["x", "y", "w"])
        return a, b, words, f, g
    """,
    "folds": """
        a = [3, -1, 2]
        f = [0.5, 2.25]
        return (min(a), max(a), sum(a), min(f), max(f), sum(f), any([k > 2, k > 3]), all([k > 2, k > 3]), any([k > 4, k > 5]),
                all([k > 1, k > 2]), any([0.5] * (k - 3)), all([0.5] * (k - 3)), any([0, k]), all([1, k - 3]),
                max(2, 2.5), min(1, 0.5), max([1, 2], [1, 3]), min([1, 2], [1, 3]))
    """,
    "dictionaries": """
        d: Dict[str, int] = {}
        d["b"] = 1
        d["a"] = 2
        d["c"] = 3
        d["b"] = 4
        del d["a"]
        d["a"] = 5
        d["c"] += 10
        seen: List[str] = []
        for key, value in d.items():
            seen.append(key + str(value))
        e = d.copy()
        e["z"] = 26
        e.update({"b": 7, "y": 25})
        got = e.pop("c")
        last = e.popitem()
        n = [d.get("b", -1), d.get("q", -1), d.setdefault("a", 9), d.setdefault("n", 9), len(d), got, last[1]]
        return d, e, seen, n, list(d.keys()), list(d.values()), "a" in d, "q" in d, last[0], [k2 for k2 in d]
    """,
    "dictionaries_of_numbers": """
        d = {3: "x", 1: "y"}
        d[2] = "z"
        squares = {i: i * i for i in range(3, 0, -1)}
        f = {1.5: 1, 0.5: 2}
        e: Dict[int, List[int]] = {}
        e[0] = [3]
        e[0].append(4)
        same = e
        same[7] = [1]
        d.clear()
        return d, squares, f, e, len(d)
    """,
    "formats": """
        return ["{} {}".format(1, 2.0), "{}".format([1.5, 2.0]), "{}".format("a"), "{}-{}".format(True, None),
                "{}".format((1, "b")), "%d of %s" % (3, "x"), "100%% %s" % (k / 2), "{}".format({"k": [1]}), "a{}b{}c".format(-1, -0.0),
                f"{k}+{k * 2}", "{}".format([])]
    """,
    "texts_of_numbers": """
        out: List[str] = []
        for a in [0.1, 1.0, -0.0, 1e9, 1e20, 1.5e-7, 123456789.125, -2.5, 1e-5, 0.0001, 3.0e100, 2.0 / 3.0]:
            out.append(str(a))
        for e in [9, 10, 15, 16, 18, 19]:  # literals of that size are written like integers
            out += [str(10.0 ** e), str(-3 * 10.0 ** e)]
        out += [str(float("inf")), str(-float("inf")), str(float("nan")), str(-7), str(True), str([1, 2]), str("q"), str(None)]
        return out + [hex(255), hex(-255), oct(8), bin(5), bin(-5), chr(65)]
    """,
    "texts": """
        w = ["  Hello, World  ", "a,b,,c", "xxabxx", "hELLO wORLD", "7", "-7", "ab", "abc", " a  b ", "a\\nb\\n", "12", "1a", "AB",
             "Ab", "", " ", "aaa", "hello"]
        s, t = w[0], w[1]
        return ([s.strip(), s.lstrip(), s.rstrip(), s.upper(), s.lower(), w[2].strip("x"), w[3].capitalize(),
                 "ab" + "c", t.replace(",", ";"), t.replace(",", "", 2), "-".join(["a", "b", "c"]), "".join(["x"]),
                 w[4].zfill(3), w[5].zfill(4), w[6].rjust(4), w[6].ljust(4, "."), w[7].zfill(2)],
                [t.split(","), t.split(",", 1), w[8].split(), w[9].splitlines(), w[7].split("x")],
                [t.find("b"), t.find("z"), t.rfind(","), t.find(",", 2), t.find("b", 3), t.find(",", 2, 3), t.count(","),
                 t.index("c"), t.rindex(","), len(t), ord("a"), w[16].count("a"), w[17].find("")],
                [t.startswith("a,"), t.endswith("c"), t.startswith("b", 2), w[10].isdigit(), w[11].isdigit(), w[6].isalpha(),
                 w[14].isdigit(), w[12].isupper(), w[13].isupper(), w[6].islower(), w[15].isspace(), "b" in t, "z" in t])
    """,
    "unpacking": """
        a, b = 1, 2
        a, b = b, a
        (c, d), e = (3, [4, 5]), "f"
        g, h = d
        i, j, l = [7, 8, 9]
        n, m = x.size()
        pairs: List[Tuple[int, str]] = [(1, "x"), (2, "y")]
        out: List[str] = []
        for num, word in pairs:
            out.append(word + str(num))
        for at, (p, q) in enumerate(zip([1, 2, 3], ["a", "b", "c"])):
            out.append(q + str(p * at))
        for at, w in enumerate(["u", "v"], 5):
            out.append(w + str(at))
        return a, b, c, d, e, g, h, i, j, l, n, m, out
    """,
    "loops": """
        out: List[int] = []
        i = 0
        while i < 10:
            i += 1
            if i == 2:
                continue
            if i > 5:
                break
            for j in range(4):
                if j == i:
                    break
                if j % 2 == 1:
                    continue
                out.append(i * 10 + j)
        a, b = 0, 1
        for _ in range(k + 4):
            a, b = b, a + b
            out.append(a)
        n = 100
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            out.append(n)
        s = 0
        for c in "abc":
            s += ord(c)
        return out, i, s
    """,
    "returns": """
        total = 0
        for i in range(10):
            for j in range(10):
                total += 1
                if i * j == 42:
                    return total, i, j
        return -1, -1, -1
    """,
    "returns_of_branches": """
        if k > 5:
            return "large"
        elif k == 3:
            if x.dim() == 2:
                return "three"
            return "no"
        return "small"
    """,
    "nothing": """
        a: Optional[int] = None
        b: Optional[int] = 0
        c: Optional[List[int]] = []
        out: List[int] = []
        if a is None:
            out.append(1)
        if b is not None:
            out.append(b + 2)
        if c is not None and len(c) == 0:
            out.append(3)
        if a is None or a > 5:
            out.append(4)
        if not (b is None):
            out.append(5)
        d: Optional[int] = None
        for i in range(4):
            if i == 2:
                d = i
        return out, a, b, d, a is None and b is None
    """,
    "shorted": """
        seen: List[int] = []
        def_: List[int] = [0]
        if len(seen) > 0 and seen[0] == 1:
            def_.append(1)
        if len(seen) == 0 or seen[0] == 1:
            def_.append(2)
        a = 5 if k == 3 else def_[9]
        return def_, a, not True or k > 2 and k < 4
    """,
    "mathematics": """
        a, b, f = [12, 0, -4], [-18, 5, -6], [-2.75, 10.0, 7.5, -0.3]
        return ([math.gcd(a[i], b[i]) for i in range(3)], math.factorial(k + 2),
                [math.sqrt(2.0), math.exp(1.0), math.log(10.0), math.log(8.0, 2.0), math.log10(1000.0),
                 math.log1p(0.5), math.degrees(1.0), math.radians(180.0), math.ldexp(0.75, 3), math.fabs(-2.5), math.sinh(1.0),
                 math.acos(0.5), math.erf(0.5), math.lgamma(4.5), math.expm1(1e-5)],
                [math.isnan(float("nan")), math.isinf(-float("inf")), math.isfinite(1.0), math.isnan(1.0)],
                [math.modf(g) for g in f], [math.frexp(g) for g in f], divmod(a[2], 3), divmod(f[2], -2.0))
    """,
    "sizes": """
        n = x.size(0) * x.shape[-1]
        y: List[int] = [x.size(-2), x.numel(), x.dim(), len(x), n // 4, -n // 4, n % 4]
        return y, x.shape, list(x.size()), x.stride(), x.stride(0), x.is_floating_point(), x.dtype == torch.float32, x.is_complex()
    """,
    "tensors_of_numbers": """
        a = torch.tensor([[1, 2], [3, -4]])
        b = torch.tensor([1.5, -2.0])
        c = torch.tensor([True, False])
        d = torch.tensor(7)
        l: List[List[int]] = a.tolist()
        m: List[float] = b.tolist()
        n: List[bool] = c.tolist()
        return l, m, n, int(d), float(d), d.item(), int(torch.tensor(-2.7)), bool(torch.tensor(0.0)), a.size(), a.dtype, b.dtype, \\
            c.dtype, torch.tensor([1, 2], dtype=torch.uint8).dtype, torch.tensor([1.0, 2.5]).dtype
    """,
    "known_tensors": """
        out: List[float] = []
        for a in [7, -7, 6]:
            for b in [2, -2, 3]:
                t, u = torch.tensor(a), torch.tensor(b)
                for y in [t + u, t - u, t * u, torch.floor_divide(t, u), torch.remainder(t, u), torch.div(t, u, rounding_mode="floor"),
                          torch.div(t, u, rounding_mode="trunc"), t / u, torch.rsub(t, u), torch.maximum(t, u), torch.minimum(t, u),
                          torch.neg(t), torch.abs(t)]:
                    out.append(float(y))
        for f in [2.5, -2.5, 1.5, -0.5]:
            v = torch.tensor(f)
            for y in [torch.floor(v), torch.ceil(v), torch.trunc(v), torch.round(v), torch.sqrt(torch.abs(v)), v / 3, torch.remainder(v, 2),
                      torch.floor_divide(v, -2.0), v.to(torch.int64), v.to(torch.float64) / 3]:
                out.append(float(y))
        t = torch.tensor(5)
        flags = [bool(torch.tensor(0.1) == 0.1), bool(torch.tensor(0.1) > 0.1), bool(t > 4), bool(t <= 4.5), bool(t == 5), bool(torch.logical_not(t)), bool(torch.logical_and(t, torch.tensor(0)))]
        types = [(t / 2).dtype, (t + 1).dtype, (t * 1.5).dtype, (t > 1).dtype, torch.sqrt(t).dtype, torch.floor_divide(t, 2).dtype,
                 (t + torch.tensor(1.5)).dtype, (torch.tensor(True) + 1).dtype, (t.to(torch.int32) + t).dtype,
                 (torch.tensor(1.5) + torch.tensor(1.5, dtype=torch.float64)).dtype, torch.floor(t).dtype]
        return out, flags, types
    """,
    "complex_numbers": """
        a, b = complex(1.0, 2.0), complex(3, -1)
        return [abs(complex(3.0, 4.0)), (a * b).real if False else 0.0], a == b, a != b, a == complex(1.0, 2.0)
    """,
    "types": """
        a: List[int] = []
        b: Optional[str] = None
        return [isinstance(k, int), isinstance(x, torch.Tensor), isinstance("a", str), isinstance(1.5, float), isinstance(a, List[int]),
                isinstance(b, str), isinstance(True, int), isinstance((1, 2), Tuple[int, int])]
    """,
}


def tagged(v):
    """A value with its type: ["int", "7"], ["float", hex], ["list", [...]], ["dict", [[key, value], ...]], ["none"], ..."""
    if v is None:
        return ["none"]
    if isinstance(v, bool):
        return ["bool", v]
    if isinstance(v, int):
        return ["int", str(v)]
    if isinstance(v, float):
        return ["float", v.hex() if math.isfinite(v) else str(v)]
    if isinstance(v, str):
        return ["str", v]
    if isinstance(v, torch.dtype):
        return ["int", str(NUMBERS[v])]
    if isinstance(v, dict):
        return ["dict", [[str(k), tagged(x)] for k, x in v.items()]]
    if isinstance(v, (list, tuple)):
        return ["list", [tagged(x) for x in v]]
    raise TypeError(repr(v))


# What dtypes are in the language.
NUMBERS = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
           torch.float64: 7, torch.bool: 11, torch.bfloat16: 15}


def compiled(name, body):
    """A module whose forward has the given body."""
    text = f"def forward(self, x: torch.Tensor, k: int = 3):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = {"__name__": "language"}
    exec(compile(text, file, "exec"), globals(), scope)
    module = type("M", (torch.nn.Module,), {"forward": scope["forward"], "__module__": __name__})
    return torch.jit.script(module())


def main():
    records = []
    for name, body in CASES.items():
        module = compiled(name, body)
        code = textwrap.dedent(module.code[module.code.index(":\n", module.code.index(") ->")) + 2:]).rstrip()
        if "CONSTANTS." in code:
            raise ValueError(f"{name} has tensors among its constants")
        records.append({"name": name, "code": code, "gives": tagged(module(torch.zeros(2, 3)))})
    text = "[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in records) + "\n]\n"
    path = pathlib.Path(__file__).parent / "language.json.gz"
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(len(records), "functions,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
