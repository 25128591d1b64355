"""Records in encode.json what ggml's C code makes of numbers, by the SHA-256 of the blocks of each 256 of them.

    cc -O1 -ffp-contract=off -shared -fPIC -Iinclude -Isrc -Isrc/ggml-cpu src/ggml-quants.c \
        -o libq.so -lm -Wl,--unresolved-symbols=ignore-all      # in a checkout of github.com/ggml-org/ggml
    python make_encoded.py libq.so

d99724f2b141fed9e1a9f402213506c081433465 was the checkout. Where Python's package gguf (0.19) has the encoding, it
agrees.
"""

import ctypes
import hashlib
import json
import sys

import gguf
import numpy as np

BLOCKS = 48


def numbers():
    """The numbers of encode_test.go: sums of four draws, with a scale of its own for each 64."""
    state, out = 1, np.zeros(BLOCKS * 256, np.float32)

    def draw():
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state >> 16

    for i in range(len(out)):
        if i % 64 == 0:
            scale = np.float32(2.0 ** (draw() % 12 - 18))
        total = draw() + draw() + draw() + draw() - 2 * 65536
        out[i] = np.float32(total) * scale / np.float32(64)
    blocks = out.reshape(BLOCKS, 256)
    blocks[1] = 0
    blocks[2] = np.abs(blocks[2])
    blocks[3] = -np.abs(blocks[3])
    blocks[4, 1:] = 0
    blocks[5] = np.float32(0.25)
    blocks[6, ::7] *= 1000
    blocks[7, 32:] = 0
    blocks[8] = blocks[8] * np.float32(2.0**-60)
    blocks[9] = np.float32(-3)
    blocks[10] = np.arange(256, dtype=np.float32) % 32 / 2 - 8  # halves, where the scale is 1
    blocks[10, ::32] = 127
    return out


def main():
    library = ctypes.CDLL(sys.argv[1], mode=1)
    x = numbers()
    recorded = {}
    for name, size, elements in [
        ("Q4_0", 18, 32), ("Q4_1", 20, 32), ("Q5_0", 22, 32), ("Q8_0", 34, 32), ("Q4_K", 144, 256), ("Q6_K", 210, 256),
    ]:
        out = np.zeros(len(x) // elements * size, np.uint8)
        row = getattr(library, f"quantize_row_{name[0].lower() + name[1:]}_ref")
        row(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(x)))
        if not name.endswith("K"):
            with np.errstate(all="ignore"):
                same = gguf.quants.quantize(x, getattr(gguf.GGMLQuantizationType, name)).reshape(-1)
            assert (same == out).all(), name
        recorded[name] = [hashlib.sha256(b.tobytes()).hexdigest()[:16] for b in out.reshape(BLOCKS, -1)]
    with open("encode.json", "w") as file:
        json.dump({"numbers": hashlib.sha256(x.tobytes()).hexdigest(), "blocks": recorded}, file, indent=1)
        file.write("\n")


main()
