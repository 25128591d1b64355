"""Makes expressions.json and numbers.json beside this script.

    python expressions.py

expressions.json has random symbolic expressions, in both notations in which PyTorch has written them, with their
values as PyTorch's own functions compute them. A value is null where it is no integer, or is not computed here.
numbers.json has the numbers by which torch.export's files name dtypes, layouts and memory formats.
"""

import functools
import json
import os
import random

import sympy
import torch
from torch._export.serde.serialize import (
    _TORCH_TO_SERIALIZE_DTYPE as DTYPES,
    _TORCH_TO_SERIALIZE_LAYOUT as LAYOUTS,
    _TORCH_TO_SERIALIZE_MEMORY_FORMAT as FORMATS,
)
from torch.utils._sympy import functions as F

HERE = os.path.dirname(os.path.abspath(__file__))
VALUES = [{"a": 7, "b": 3}, {"a": 12, "b": 4}, {"a": 1, "b": 5}]
NAMES = sorted(VALUES[0])
LEAVES = NAMES + ["1", "2", "3", "-2", "Rational(1, 2)"]

# How a function is written, and how it is computed for numbers.
INFIX = {"FloorDiv": "({} // {})", "Mod": "({} % {})", "Add": "({} + {})", "Sub": "({} - {})"}
FUNCTIONS = {
    "Add": lambda x, y: x + y,
    "Mul": lambda x, y: x * y,
    "Sub": lambda x, y: x - y,
    "FloorDiv": F.FloorDiv,
    "CeilDiv": F.CeilDiv,
    "Mod": F.PythonMod,
    "Max": F.Max,
    "Min": F.Min,
    "RShift": F.RShift,
    "LShift": F.LShift,
    "IntTrueDiv": lambda x, y: x / y,
    "CeilToInt": lambda x: sympy.ceiling(x),
    "FloorToInt": lambda x: sympy.floor(x),
    "TruncToInt": F.TruncToInt,
    "Abs": sympy.Abs,
    "Lt": sympy.Lt, "Le": sympy.Le, "Gt": sympy.Gt, "Ge": sympy.Ge, "Eq": sympy.Eq, "Ne": sympy.Ne,
}
COMPARISONS = ["Lt", "Le", "Gt", "Ge", "Eq", "Ne"]
ONE = ["CeilToInt", "FloorToInt", "TruncToInt", "Abs"]


class Undefined(Exception):
    pass


def draw(rng, depth):
    """A tree: a leaf's text, or a function's name and its operands."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(LEAVES)
    name = rng.choice([n for n in FUNCTIONS if n not in COMPARISONS])
    count = 1 if name in ONE else 2
    return [name] + [draw(rng, depth - 1) for _ in range(count)]


def compute(tree, values):
    if isinstance(tree, str):
        return sympy.Integer(values[tree]) if tree in values else sympy.sympify(tree)
    args = [compute(t, values) for t in tree[1:]]
    name = tree[0]
    if name in ("FloorDiv", "CeilDiv", "Mod") and not all(a.is_integer for a in args):
        raise Undefined  # PyTorch has these of integers only
    if name in ("FloorDiv", "CeilDiv", "Mod", "IntTrueDiv") and args[1] == 0:
        raise Undefined
    if name in ("RShift", "LShift") and not (args[0].is_integer and args[1].is_integer and 0 <= args[1] < 8):
        raise Undefined
    if name == "TruncToInt":  # torch's has a float for an operand
        return sympy.Integer(int(args[0]))
    value = functools.reduce(FUNCTIONS[name], args) if len(args) > 2 else FUNCTIONS[name](*args)
    if name in COMPARISONS:
        return bool(value)
    if not value.is_Rational:
        raise Undefined
    return value


def written(tree):
    """As PyTorch 2.6 and later write it."""
    if isinstance(tree, str):
        if tree in NAMES:
            return f"Symbol('{tree}')"
        return tree if tree.startswith("Rational") else f"Integer({tree})"
    args = [written(t) for t in tree[1:]]
    if tree[0] == "Sub":
        return f"Add({args[0]}, Mul(Integer(-1), {args[1]}))"
    name = "PythonMod" if tree[0] == "Mod" else tree[0]
    return f"{name}({', '.join(args)})"


def infix(tree):
    """As PyTorch wrote it before, with more parentheses than it needs."""
    if isinstance(tree, str):
        return "(1/2)" if tree.startswith("Rational") else f"({tree})" if tree[0] == "-" else tree
    args = [infix(t) for t in tree[1:]]
    if tree[0] == "Mul":
        return "(" + " * ".join(args) + ")"
    return INFIX.get(tree[0], tree[0] + "(" + ", ".join("{}" for _ in args) + ")").format(*args)


def expressions():
    rng = random.Random(0)
    rows, seen = [], set()

    def add(tree):
        if infix(tree) in seen:
            return
        seen.add(infix(tree))
        row = []
        for values in VALUES:
            try:
                value = compute(tree, values)
                row.append(int(value) if value == int(value) else None)
            except Undefined:
                row.append(None)
        if row != [None] * len(VALUES) and all(v is None or abs(v) < 2**60 for v in row):
            rows.append([written(tree), infix(tree), row])

    for name in FUNCTIONS:  # each one over leaves
        for _ in range(3):
            add([name] + [rng.choice(LEAVES) for _ in range(1 if name in ONE else 2)])
    for name in COMPARISONS:  # of fractions
        add([name, ["IntTrueDiv", "a", "2"], ["IntTrueDiv", "b", "3"]])
        add([name, ["IntTrueDiv", "a", "b"], ["IntTrueDiv", "12", "4"]])
    for shift in ("RShift", "LShift"):
        add([shift, "-2", "1"])
        add([shift, ["Sub", "1", "a"], "2"])
    for outer in ("Sub", "FloorDiv", "Mod", "Mul"):  # what parentheses are for
        for inner in ("Sub", "Add", "FloorDiv", "Mod", "Mul"):
            add([outer, "a", [inner, "b", "2"]])
            add([outer, [inner, "a", "b"], "2"])
    for inner in ("Sub", "FloorDiv", "Mod", "IntTrueDiv"):  # where a sign goes
        add(["Mul", "-1", [inner, "a", "2"]])
        add(["Mul", "-1", [inner, "a", "2"], "b"])
        add(["Mul", "-1", "b", [inner, "a", "2"]])
        add(["Add", ["Mul", "-1", [inner, "a", "2"]], "b"])
        add([inner, ["Mul", "-1", "a"], "2"])
    while len(rows) < 120:
        add(draw(rng, 3))
    return rows


def main():
    with open(os.path.join(HERE, "expressions.json"), "w") as f:
        f.write('{"values": ' + json.dumps(VALUES) + ',\n"rows": [\n')
        f.write(",\n".join(json.dumps(row) for row in expressions()) + "\n]}\n")
    name = lambda value: str(value).removeprefix("torch.")
    numbers = {kind: {name(k): int(v) for k, v in table.items()}
               for kind, table in (("dtypes", DTYPES), ("layouts", LAYOUTS), ("memory_formats", FORMATS))}
    with open(os.path.join(HERE, "numbers.json"), "w") as f:
        json.dump(numbers, f, indent=1)
        f.write("\n")
    print("torch", torch.__version__)


if __name__ == "__main__":
    main()
