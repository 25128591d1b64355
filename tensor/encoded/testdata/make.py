"""Writes blocks.json: what Python's package gguf makes of pseudo-random blocks of every encoding.

    pip install gguf && python make.py

The blocks are not in it: Go's test makes the same ones.
"""

import hashlib
import json

import gguf
import numpy as np

# Where the float16 scales lie in a block. The top bit of their exponent is cleared: none is infinite or no number.
SCALES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
    "BF16": [0], "F32": [2], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [54],
}
BLOCKS = 64


def blocks(kind, size):
    state, out = kind, bytearray()
    for _ in range(BLOCKS * size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


result = {}
for name, scales in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = blocks(int(kind), size)
    for b in range(BLOCKS):
        for s in scales:
            data[b * size + s + 1] &= 0xBF
    if name == "MXFP4":  # the smallest exponents, which are subnormal
        data[0], data[size], data[2 * size] = 0, 1, 2
    numbers = gguf.dequantize(np.frombuffer(data, dtype=np.uint8).reshape(1, -1), kind).astype(np.float32).reshape(-1)
    assert len(numbers) == BLOCKS * elements
    result[name] = {
        "id": int(kind), "elements": elements, "bytes": size, "scales": scales, "first": [float(x) for x in numbers[:4]],
        "sha256": hashlib.sha256(numbers.astype("<f4").tobytes()).hexdigest(),
    }
# Q8_1 and Q8_K are of activations and never in files.
sizes = {t.name: [int(t), *gguf.GGML_QUANT_SIZES[t]] for t in gguf.GGML_QUANT_SIZES if t.name not in ("Q8_1", "Q8_K")}
with open("blocks.json", "w") as f:
    json.dump({"blocks": BLOCKS, "encodings": result, "sizes": sizes}, f, indent=1)
    f.write("\n")
