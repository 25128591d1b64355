"""Writes real.json.gz: small pickles that Python itself wrote, with what they mean, for real_test.go.

Each entry has a name, the protocol, the pickle (deflated, in base64) and the text of the value in the form of
describe(), which the test builds from the Go values in the same way; of long texts, the SHA-256. Run it with Python 3.8 or later from any directory:

    python make_pickles.py

It needs nothing but Python: numpy's and PyTorch's pickles are tested where their globals mean something.
"""

import base64
import collections
import datetime
import decimal
import gzip
import hashlib
import json
import os
import pathlib
import pickle
import pickletools
import struct
import sys
import zlib


class Plain:
    def __init__(self):
        self.a, self.b = 1, [2.5, None]


class Slots:
    __slots__ = ("x", "y")

    def __init__(self):
        self.x, self.y = "left", (1, 2)


class ListOf(list):
    pass


class DictOf(dict):
    pass


class Keywords:
    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        self.made = (args, kwargs)
        return self

    def __getnewargs_ex__(self):
        return (1, 2), {"key": "word"}


for cls in (Plain, Slots, ListOf, DictOf, Keywords):
    cls.__module__ = "models"
sys.modules["models"] = sys.modules[__name__]


def recursive():
    a = [1]
    a.append(a)
    return a


def shared():
    a = ["once"]
    return [a, a, (a, a)]


def many(n):
    return {"layer%d.weight" % i: (i, float(i)) for i in range(n)}


def ordered():
    d = collections.OrderedDict([("b", 1), ("a", 2)])
    d._metadata = collections.OrderedDict([("", {"version": 1})])
    return d


def defaults():
    d = collections.defaultdict(list)
    d["k"].append(1)
    return d


def listof():
    v = ListOf([1, 2])
    v.extra = True
    return v


def dictof():
    v = DictOf(k=1)
    v.extra = True
    return v


VALUES = {
    "none": lambda: None,
    "bools": lambda: [True, False],
    "ints": lambda: [0, 1, -1, 255, 256, 65535, 65536, -32769, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1,
                     -(2**63)],
    "long_ints": lambda: [2**63, -(2**63) - 1, 2**64 - 1, 2**100, -(2**100), 2**200 + 12345],
    "floats": lambda: [0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"), 0.1],
    "strings": lambda: ["", "ascii", "tab\tnewline\nnul\0quote'\"back\\slash", "gr\u00fc\u00dfe \u20ac \U0001f600",
                        "x" * 255, "y" * 256, "\\u0041"],
    "bytes": lambda: [b"", b"abc", bytes(range(256)), b"z" * 300],
    "bytearrays": lambda: [bytearray(b""), bytearray(b"\x00\xff")],
    "big_string": lambda: "\u20ac" * 40000,
    "big_bytes": lambda: b"\x80" * 100000,
    "tuples": lambda: [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((1, 2), (3, (4,)))],
    "lists": lambda: [[], [1], [[1], [2, [3]]], list(range(2000))],
    "dicts": lambda: [{}, {"a": 1}, {"b": 1, "a": {"c": [2]}}, {1: "x", (1, 2): "t", None: 0, b"k": 1.5, True: 2}],
    "sets": lambda: [set(), {7}, {"only"}, frozenset(), frozenset([3])],
    "complex": lambda: [1 + 2j, complex(0, -1.5)],
    "slices": lambda: [slice(1, None, 2), range(1, 10, 3)],
    "references": lambda: [int, float, str, list, dict, Ellipsis, object],
    "recursive": recursive,
    "shared": shared,
    "ordered": ordered,
    "defaultdict": defaults,
    "counter": lambda: collections.Counter({"a": 3}),
    "deque": lambda: collections.deque([1, 2], 5),
    "plain_object": Plain,
    "nested_objects": lambda: {"m": [Plain(), Plain()]},
    "slots_object": Slots,
    "list_subclass": listof,
    "dict_subclass": dictof,
    "keywords": Keywords,
    "datetime": lambda: datetime.timedelta(1, 2, 3),
    "decimal": lambda: decimal.Decimal("1.5"),
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "many": lambda: many(300),
    "deep": lambda: eval("[" * 50 + "]" * 50),
}

# What the text of a value cannot be told from the value alone, because the pickle keeps how it was made.
OBJECTS = (Plain, Slots, ListOf, DictOf, Keywords, collections.deque, slice, range, datetime.timedelta,
           decimal.Decimal, pathlib.PurePosixPath)


def bits(f):
    return struct.pack(">d", f).hex()


def describe(v, depth=0):
    """A text of v: the same as describe in real_test.go."""
    if depth > 60:
        return "..."
    d = depth + 1
    if v is Ellipsis:
        return "global Ellipsis"
    if v is None or v is True or v is False:
        return str(v)
    if isinstance(v, type):
        return "global " + v.__name__
    if isinstance(v, collections.OrderedDict):
        meta = getattr(v, "_metadata", None)
        text = "mapping " + describe_items(v, d)
        return text if meta is None else text + " with {_metadata: " + describe(meta, d) + "}"
    if isinstance(v, (collections.defaultdict, collections.Counter)):
        return "mapping " + describe_items(v, d)
    if isinstance(v, OBJECTS):
        return "object " + type(v).__name__
    if isinstance(v, int):
        return "int %d" % v
    if isinstance(v, float):
        return "float " + bits(v)
    if isinstance(v, complex):
        return "complex %s %s" % (bits(v.real), bits(v.imag))
    if isinstance(v, str):
        return "str " + v.encode().hex()
    if isinstance(v, (bytes, bytearray)):
        return "bytes " + v.hex()
    if isinstance(v, tuple):
        return "(" + ", ".join(describe(x, d) for x in v) + ")"
    if isinstance(v, list):
        return "[" + ", ".join(describe(x, d) for x in v) + "]"
    if isinstance(v, (set, frozenset)):
        return "set {" + ", ".join(describe(x, d) for x in v) + "}"
    if isinstance(v, dict):
        return describe_items(v, d)
    raise TypeError(type(v))


def describe_items(v, d):
    return "{" + ", ".join(describe(k, d) + ": " + describe(x, d) for k, x in v.items()) + "}"


# Written by Python 2, which is not at hand, as its pickle modules write them.
PYTHON2 = {
    "py2_long_zero": (b"\x80\x02\x8a\x00.", "int 0"),
    "py2_str": (b"\x80\x02U\x03abcq\x01.", "str 616263"),
    "py2_str_bytes": (b"\x80\x02U\x02\xff\x00q\x01.", "str ff00"),
    "py2_binstring": (b"\x80\x02T\x02\x00\x00\x00hiq\x01.", "str 6869"),
    "py2_protocol0_str": (b"S'it\\'s\\x00\\n\\\\'\np0\n.", "str 69742773000a5c"),
    "py2_long": (b"L123456789012345678901234567890L\n.", "int 123456789012345678901234567890"),
    "py2_negative_long": (b"L-123456789012345678901234567890L\n.", "int -123456789012345678901234567890"),
    "py2_ordered": (b"\x80\x02ccollections\nOrderedDict\nq\x01]q\x02(]q\x03(U\x01aK\x01e]q\x04(U\x01bK\x02ee\x85q\x05Rq"
                    b"\x06.", "mapping {str 61: int 1, str 62: int 2}"),
    "py2_set": (b"\x80\x02c__builtin__\nset\nq\x01]q\x02K\x07a\x85q\x03Rq\x04.", "set {int 7}"),
    "py2_int64": (b"I9223372036854775807\n.", "int 9223372036854775807"),
    "py2_dict_text": (b"(dp0\nS'a'\np1\nI01\ns.", "{str 61: True}"),
}


def main():
    entries = []

    def add(name, protocol, data, text):
        if len(text) > 300:
            text = "sha256 " + hashlib.sha256(text.encode()).hexdigest()
        packed = base64.b64encode(zlib.compress(data, 9)).decode()
        entries.append({"name": name, "protocol": protocol, "pickle": packed, "want": text})

    for name, make in VALUES.items():
        for protocol in range(6):
            value = make()
            try:
                data = pickle.dumps(value, protocol)
            except (TypeError, pickle.PicklingError):
                continue  # slots need protocol 2
            if name in ("keywords",) and protocol < 4 or name == "slots_object" and protocol < 2:
                continue  # functools.partial, copyreg's own refusal
            if name.startswith("big_") and protocol == 0:
                continue  # lines are limited
            if protocol not in (0, 2, 4) and len(data) > 2000:
                continue
            want = describe(value)
            add(name, protocol, data, want)
            if protocol in (2, 4):
                add(name + "_optimized", protocol, pickletools.optimize(data), want)
                add(name + "_by_pickle.py", protocol, pickle._dumps(value, protocol), want)
    for name, (data, text) in PYTHON2.items():
        add(name, 2 if data[:1] == b"\x80" else 0, data, text)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "real.json.gz")
    text = "[\n" + ",\n".join(json.dumps(e, sort_keys=True) for e in entries) + "\n]\n"
    with open(path, "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))
    print(len(entries), "pickles")


if __name__ == "__main__":
    main()
