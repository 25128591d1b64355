"""Writes the pictures of this folder, and expected.json: what Pillow, and so libjpeg-turbo, makes of them.

    python make_jpegs.py

Needs Pillow and numpy, on x86-64 (the transform of "loud.jpg" overflows, differently elsewhere). Every picture is drawn
from seeded numbers. For each one expected.json has height, width, the SHA-256 of all levels of convert("RGB"), and 16 of
them (the i-th is at i * 2654435761 modulo their number, in the order height, width, channel).
"""

import hashlib
import io
import json
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent


def scene(height, width, seed, channels=3):
    """Waves, a disc, hard edges in colour and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / 48.0
    planes = []
    for c in range(channels):
        p = 128 + 100 * np.sin(5 * x + 2 * c) * np.cos(7 * y + c)
        p += 90 * ((x - 0.4) ** 2 + (y - 0.5) ** 2 < 0.03 * (c + 1))
        p -= 120 * ((np.floor(9 * x) + np.floor((6 + c) * y)) % 3 == c % 3)
        planes.append(p + rng.normal(0, 8, p.shape))
    return np.clip(np.rint(np.stack(planes, -1)), 0, 255).astype(np.uint8)


def rgb(height, width, seed):
    return Image.fromarray(scene(height, width, seed))


def saved(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 85, **options})
    return out.getvalue()


def segments(data):
    """The segments up to the scan's header, each with its marker, and the scan's data."""
    at, found = 2, []
    while not found or found[-1][1] != 0xDA:
        length = 2 + int.from_bytes(data[at + 2:at + 4], "big")
        found.append(data[at:at + length])
        at += length
    return found, data[at:-2]


def adobe(transform):
    return b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([transform])


JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"


def composed(height, width, samplings, seed, ids=b"\1\2\3\4", segment=b""):
    """A picture of any sampling: a gray one for each component, as scans of their own."""
    across, down = max(s >> 4 for s in samplings), max(s & 15 for s in samplings)
    tables, scans = b"", b""
    frame = b"\xff\xc0" + (8 + 3 * len(samplings)).to_bytes(2, "big") + b"\x08"
    frame += height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([len(samplings)])
    for i, s in enumerate(samplings):
        plane = scene(-(-height * (s & 15) // down), -(-width * (s >> 4) // across), seed + i)[..., i % 3]
        head, data = segments(saved(Image.fromarray(plane)))
        tables = b"".join(h for h in head if h[1] in (0xDB, 0xC4))
        frame += bytes([ids[i], s, 0])
        scans += b"\xff\xda\x00\x08\x01" + bytes([ids[i], 0, 0, 63, 0]) + data
    return b"\xff\xd8" + segment + tables + frame + scans + b"\xff\xd9"


def pictures():
    for sampling in "4:4:4", "4:2:2", "4:2:0":
        name = sampling.replace(":", "")
        for kind, progressive in ("baseline", False), ("progressive", True):
            options = {"subsampling": sampling, "progressive": progressive}
            yield f"{kind}_{name}", saved(rgb(37, 51, 1), **options)
            yield f"{kind}_{name}_restarts", saved(rgb(41, 35, 2), restart_marker_blocks=2, **options)
        for height, width in (1, 1), (3, 2), (5, 6), (16, 16), (17, 9):
            yield f"small_{name}_{height}x{width}", saved(rgb(height, width, 3), subsampling=sampling)
    yield "gray", saved(Image.fromarray(scene(29, 43, 4)[..., 0]))
    yield "gray_progressive", saved(Image.fromarray(scene(29, 43, 5)[..., 0]), progressive=True)
    yield "coarse", saved(rgb(40, 40, 6), quality=3)
    yield "fine", saved(rgb(40, 40, 7), quality=100, subsampling=0)
    noise = np.random.default_rng(8).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    yield "noise", saved(Image.fromarray(noise), quality=100, progressive=True)
    yield "own_codes", saved(rgb(40, 40, 9), optimize=True)
    head, data = segments(saved(rgb(24, 20, 16)))
    yield "no_codes", b"\xff\xd8" + b"".join(h for h in head if h[1] != 0xC4) + data + b"\xff\xd9"
    yield "wide", saved(rgb(3, 700, 10), restart_marker_rows=1)
    yield "rgb", saved(rgb(30, 41, 11), keep_rgb=True)
    yield "cmyk", saved(Image.fromarray(scene(30, 41, 12, 4), "CMYK"))
    yield "cmyk_progressive", saved(Image.fromarray(scene(30, 41, 13, 4), "CMYK"), progressive=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    yield "turned", saved(rgb(20, 30, 14), exif=turned)
    between = saved(rgb(20, 30, 15))
    at = between.index(b"\xff\xda")
    yield "fill_bytes", between[:at] + b"\xff\xff\xff" + between[at:-2] + b"\0\1\2" + between[-2:] + b"after"
    for name, samplings in {
        "440": (0x12, 0x11, 0x11), "411": (0x41, 0x11, 0x11), "410": (0x42, 0x11, 0x11), "441": (0x14, 0x11, 0x11),
        "311": (0x31, 0x11, 0x11), "full_chroma": (0x11, 0x22, 0x11), "mixed": (0x22, 0x21, 0x12),
        "quarters": (0x44, 0x22, 0x24), "all_2x2": (0x22, 0x22, 0x22), "inks": (0x22, 0x11, 0x11, 0x22),
    }.items():
        yield f"scans_{name}", composed(45, 31, samplings, 20)
    plain = (0x11,) * 3
    yield "adobe_rgb", composed(9, 11, plain, 30, segment=adobe(0))
    yield "adobe_ycc", composed(9, 11, plain, 31, segment=adobe(1))
    yield "adobe_other", composed(9, 11, plain, 32, segment=adobe(7))
    yield "adobe_jfif", composed(9, 11, plain, 33, segment=adobe(0) + JFIF)
    yield "ids_rgb", composed(9, 11, plain, 34, ids=b"RGB")
    yield "ids_rgb_jfif", composed(9, 11, plain, 35, ids=b"RGB", segment=JFIF)
    yield "ids_other", composed(9, 11, plain, 36, ids=b"\0\1\2")
    yield "adobe_cmyk", composed(9, 11, plain + (0x11,), 37, segment=adobe(0))
    yield "adobe_ycck", composed(9, 11, plain + (0x11,), 38, segment=adobe(2))
    loud = bytearray(saved(Image.fromarray(noise), quality=100, subsampling=0))
    at = loud.index(b"\xff\xdb")
    loud[at + 5:at + 69] = bytes(np.random.default_rng(40).integers(1, 256, 64, dtype=np.uint8))
    yield "loud", bytes(loud)


def main():
    expected = []
    for name, data in pictures():
        (HERE / f"{name}.jpg").write_bytes(data)
        levels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        expected.append({
            "file": f"{name}.jpg", "height": levels.shape[0], "width": levels.shape[1],
            "sha256": hashlib.sha256(levels.tobytes()).hexdigest(),
            "levels": [int(levels.reshape(-1)[i * 2654435761 % levels.size]) for i in range(16)],
        })
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in expected)
    (HERE / "expected.json").write_text(f"[\n{lines}\n]\n")


main()
