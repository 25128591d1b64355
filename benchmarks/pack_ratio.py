"""Bytes of a model's files after optimem pack and after zstd, whole and in planes of bytes.

    python benchmarks/pack_ratio.py OPTIMEM FILE.safetensors [LEVEL …]

zstd is the package zstandard's, over blocks of 128 KiB, as optimem pack has them, and over the whole file in one frame. "planes" has the
bytes of each two-byte number apart, the high ones of a block before the low ones, as ZipNN has them. Sizes only: nothing is timed.
"""

import os
import subprocess
import sys
import tempfile

import zstandard

BLOCK = 128 << 10


def blocks(path, planes, level):
    c, total = zstandard.ZstdCompressor(level=level), 0
    with open(path, "rb") as f:
        while b := f.read(BLOCK):
            if planes:
                b = b[1::2] + b[::2]
            total += min(len(c.compress(b)), len(b))
    return total


def whole(path, level):
    c = zstandard.ZstdCompressor(level=level).compressobj(size=os.path.getsize(path))
    total = 0
    with open(path, "rb") as f:
        while b := f.read(1 << 20):
            total += len(c.compress(b))
    return total + len(c.flush())


def main():
    program, path = sys.argv[1:3]
    levels = [int(x) for x in sys.argv[3:]] or [3]
    before = os.path.getsize(path)
    say = lambda name, n: print(f"| {name} | {n} | {100 * n / before:.2f} % |", flush=True)
    print(f"| {os.path.basename(path)} | bytes | of {before} |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as at:
        to = os.path.join(at, "packed.safetensors")
        subprocess.run([program, "pack", path, "-o", to, "--quiet"], check=True, capture_output=True)
        say("optimem pack", os.path.getsize(to))
    for level in levels:
        say(f"zstd -{level}, one frame", whole(path, level))
        say(f"zstd -{level}, blocks of 128 KiB", blocks(path, False, level))
        say(f"zstd -{level}, blocks of 128 KiB in planes", blocks(path, True, level))


if __name__ == "__main__":
    main()
