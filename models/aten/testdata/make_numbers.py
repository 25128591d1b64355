"""Writes numbers.json.gz: operators on numbers, with which programs compute sizes, and what Python and PyTorch give.

    python make_numbers.py

A number is an int, a float as text in hex, or a bool; null is an error. Made with torch 2.11."""

import gzip
import json
import math
import operator
import pathlib

import torch

PAIRS = {
    "_operator.add": operator.add, "_operator.sub": operator.sub, "_operator.mul": operator.mul,
    "_operator.floordiv": operator.floordiv, "_operator.mod": operator.mod, "_operator.truediv": operator.truediv,
    "_operator.eq": operator.eq, "_operator.ne": operator.ne, "_operator.lt": operator.lt, "_operator.le": operator.le,
    "_operator.gt": operator.gt, "_operator.ge": operator.ge, "torch.sym_max": torch.sym_max, "torch.sym_min": torch.sym_min,
}
SINGLES = {
    "_operator.neg": operator.neg, "torch.sym_float": torch.sym_float, "torch.sym_int": torch.sym_int, "math.trunc": math.trunc,
    "math.ceil": math.ceil, "math.floor": math.floor, "builtins.round": round, "math.sqrt": math.sqrt,
}
NUMBERS = [0, 1, 2, 3, 7, -1, -2, -7, 224, 0.1, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7.25, -7.25, 2.0]


def written(v):
    return v.hex() if isinstance(v, float) else v


def call(f, *args):
    try:
        return written(f(*args))
    except (ZeroDivisionError, ValueError, TypeError):
        return None


def main():
    others = [["_operator.pow", [a, b], a ** b] for a in (0, 1, 2, -2, 3, 7) for b in (0, 1, 2, 3, 13)]
    others += [["_operator.pow", [3, 33], 3 ** 33], ["_operator.pow", [-5, 21], (-5) ** 21]]
    for a in (True, False):
        others += [["torch.sym_ite", [a, 2, 3], torch.sym_ite(a, 2, 3)], ["torch.sym_not", [a], torch.sym_not(a)]]
        for b in (True, False):
            others += [["_operator.and_", [a, b], a and b], ["_operator.or_", [a, b], a or b]]
    record = {
        "numbers": [written(a) for a in NUMBERS],
        "pairs": {name: [call(f, a, b) for a in NUMBERS for b in NUMBERS] for name, f in PAIRS.items()},
        "singles": {name: [call(f, a) for a in NUMBERS] for name, f in SINGLES.items()},
        "others": others,
    }
    text = json.dumps(record, separators=(",", ":"))
    path = pathlib.Path(__file__).parent / "numbers.json.gz"
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
