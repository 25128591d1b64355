"""Records what PyTorch makes of small floats in floats.json: python3 make_floats.py

widen:  per float8 dtype, the float32 bits of all 256 values (every NaN as 7fc00000).
narrow: float32 bits, and the bits of their float16 and bfloat16 (no NaN: PyTorch's depends on the processor).
half:   the float32 bits of some float16 values.
"""

import json
import pathlib
import random

import torch

NAN = 0x7FC00000


def bits(t):
    return [NAN if n != n else b & 0xFFFFFFFF for n, b in zip(t.tolist(), t.view(torch.int32).tolist())]


widen = {}
for name in ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]:
    raw = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    widen[name] = "".join("%08x" % b for b in bits(raw.to(torch.float32)))

rng = random.Random(1)
singles = [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x00000001, 0x80000001, 0x007FFFFF]
singles += [0x477FE000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x32FFFFFF, 0x38800000, 0x387FFFFF, 0x387FE000]
for _ in range(40):  # exact ties of both formats, and their neighbours
    top = rng.randrange(0x38800000 >> 13, 0x477FE000 >> 13) << 13
    singles += [top | 0x1000, top | 0x0FFF, top | 0x1001]
    top = rng.randrange(0x7F80) << 16
    singles += [top | 0x8000, top | 0x7FFF, top | 0x8001, top | 0x80008000]
singles += [rng.randrange(0x33000000, 0x38800000) for _ in range(20)]  # float16 subnormals
t = torch.tensor([b - (b >> 31 << 32) for b in singles], dtype=torch.int32).view(torch.float32)
narrow = {
    "float32": "".join("%08x" % b for b in singles),
    "float16": "".join("%04x" % (b & 0xFFFF) for b in t.to(torch.float16).view(torch.int16).tolist()),
    "bfloat16": "".join("%04x" % (b & 0xFFFF) for b in t.to(torch.bfloat16).view(torch.int16).tolist()),
}
half = list(range(0, 0x10000, 97)) + [0x7C00, 0xFC00, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8000]
h = torch.tensor([b - (b >> 15 << 16) for b in half], dtype=torch.int16).view(torch.float16)
wide = {"float16": "".join("%04x" % b for b in half), "float32": "".join("%08x" % b for b in bits(h.to(torch.float32)))}

out = {"torch": torch.__version__.split("+")[0], "widen": widen, "narrow": narrow, "half": wide}
pathlib.Path(__file__).with_name("floats.json").write_text(json.dumps(out, indent=1) + "\n")
