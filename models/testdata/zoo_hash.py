"""Weights and inputs that are stored nowhere: they come from an integer hash of a name and an index.

The rule is in README.md; the same rule in Go gives the same bits.
"""

import numpy as np
import torch

GOLDEN = 0x9E3779B97F4A7C15
CHUNK = 1 << 22


def key(name):
    """FNV-1a over the UTF-8 bytes of the name, 64 bits."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def bits(name, start, stop):
    """The hashes of the indices start to stop: the sequence of splitmix64 seeded with the key."""
    with np.errstate(over="ignore"):
        z = np.arange(start + 1, stop + 1, dtype=np.uint64)
        z *= np.uint64(GOLDEN)
        z += np.uint64(key(name))
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def unit(name, start, stop):
    """The uniform numbers in [-1, 1), multiples of 2^-23, as float64."""
    return ((bits(name, start, stop) >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float64) * 2.0**-23


def numel(shape):
    n = 1
    for s in shape:
        n *= s
    return n


def floats(name, shape, dtype, offset, scale):
    """offset + u·scale. offset and scale are rounded to float32 first, so the product is exact in float64."""
    n = numel(shape)
    offset, scale = float(np.float32(offset)), float(np.float32(scale))
    out = torch.empty(n, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    for at in range(0, n, CHUNK):
        end = min(n, at + CHUNK)
        v = unit(name, at, end) * scale + offset
        if dtype != torch.float64:
            v = v.astype(np.float32)
        out[at:end] = torch.from_numpy(v)
    return out.to(dtype).reshape(shape)


def integers(name, shape, dtype, low, high):
    """Integers in [low, high)."""
    n = numel(shape)
    span = np.uint64(high - low)
    with np.errstate(over="ignore"):
        v = ((bits(name, 0, n) >> np.uint64(32)) * span) >> np.uint64(32)
    return torch.from_numpy(v.astype(np.int64) + low).reshape(shape).to(dtype)


def vectors():
    """The test vectors of README.md."""
    for name in ("conv1.weight", "input:x"):
        yield name, key(name), [int(b) for b in bits(name, 0, 3)], [float(u) for u in unit(name, 0, 3)]


if __name__ == "__main__":
    for name, k, h, u in vectors():
        print(name, hex(k), [hex(b) for b in h], u)
    print(floats("fc.bias", (3,), torch.float32, 1.0, 0.1).tolist())
    print(floats("fc.bias", (3,), torch.bfloat16, 1.0, 0.1).tolist())
    print(floats("fc.bias", (3,), torch.float64, 1.0, 0.1).tolist())
    print(integers("input:ids", (6,), torch.int64, 0, 200).tolist())
