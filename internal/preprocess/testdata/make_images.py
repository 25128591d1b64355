"""Writes the pictures of this folder, expected.json.gz: what torchvision and Pillow make of them, and look.pt2, a program
that gives the pictures it gets and the mean of each colour.

    python make_images.py

Needs torch, torchvision, Pillow and numpy. Every picture is drawn from seeded numbers. For each picture and
preprocessing, expected.json.gz has the CRC-32 of all grey levels after decoding, resizing and cropping, 64 of them (the
i-th is at i * 2654435761 modulo their number, in the order height, width, channel), and 16 values of the tensor.
"""

import gzip
import io
import json
import pathlib
import zlib

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

HERE = pathlib.Path(__file__).parent
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
HALF = ([0.5] * 3, [0.5] * 3)
BILINEAR, BICUBIC = InterpolationMode.BILINEAR, InterpolationMode.BICUBIC

# Specification as optimem writes it: resize, crop, interpolation, mean and deviation.
SPECS = {
    "none": (None, None, BILINEAR, None),
    "imagenet": (256, 224, BILINEAR, IMAGENET),
    "imagenet:resize=40,crop=33": (40, 33, BILINEAR, IMAGENET),
    "imagenet:resize=61,crop=32,filter=bicubic": (61, 32, BICUBIC, IMAGENET),
    "imagenet:resize=29x54,crop=none,mean=0.1/0.2/0.3,std=0.5": (
        (29, 54), None, BILINEAR, ([0.1, 0.2, 0.3], [0.5] * 3)),
    "clip": (224, 224, BICUBIC, CLIP),
    "vit": ((224, 224), None, BILINEAR, HALF),
}


def scene(height, width, seed, channels=3):
    """Gradients, a disc, hard edges in colour and a little noise: what resampling and chroma can go wrong on."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    y, x = y / max(height - 1, 1), x / max(width - 1, 1)
    planes = []
    for c in range(channels):
        p = 128 + 90 * np.sin(3 * x + 2 * c) * np.cos(4 * y + c)
        p += 80 * ((x - 0.4) ** 2 + (y - 0.6) ** 2 < 0.05 * (c + 1))
        p -= 110 * ((np.floor(7 * x) + np.floor((5 + c) * y)) % 3 == c % 3)
        planes.append(p + rng.normal(0, 6, p.shape))
    return np.clip(np.rint(np.stack(planes, -1)), 0, 255).astype(np.uint8)


def pictures():
    rgb = lambda h, w, seed: Image.fromarray(scene(h, w, seed))
    yield "odd.png", rgb(47, 63, 1), {}
    yield "tall.png", rgb(91, 37, 2), {}
    yield "wide.png", rgb(23, 110, 3), {}
    yield "tiny.png", rgb(3, 5, 4), {}
    yield "dot.png", rgb(1, 1, 5), {}
    yield "exact.png", rgb(40, 50, 6), {}
    yield "gray.png", Image.fromarray(scene(50, 41, 7)[..., 0]), {}
    yield "bilevel.png", Image.fromarray(scene(50, 41, 8)[..., 0]).convert("1"), {}
    yield "palette.png", rgb(45, 61, 9).quantize(40), {}
    clear = rgb(45, 61, 10).quantize(12)
    yield "palette_clear.png", clear, {"transparency": 3}
    yield "rgba.png", Image.fromarray(scene(52, 47, 11, 4)), {}
    yield "la.png", Image.fromarray(scene(31, 47, 12, 2), "LA"), {}
    yield "rgb_clear.png", rgb(33, 35, 13), {"transparency": tuple(int(v) for v in scene(33, 35, 13)[5, 5])}
    deep = scene(37, 41, 14)[..., 0].astype(np.uint16) * 251 + 77
    yield "gray16.png", Image.fromarray(deep), {}
    yield "gray.jpg", Image.fromarray(scene(70, 85, 15)[..., 1]), {"quality": 85}
    yield "420.jpg", rgb(75, 99, 16), {"quality": 90, "subsampling": "4:2:0"}
    yield "422.jpg", rgb(74, 83, 17), {"quality": 80, "subsampling": "4:2:2"}
    yield "444.jpg", rgb(64, 72, 20), {"quality": 95, "subsampling": "4:4:4"}
    yield "progressive.jpg", rgb(77, 101, 21), {"quality": 75, "progressive": True}
    yield "small.jpg", rgb(5, 4, 22), {"quality": 85}
    yield "rgb.jpg", rgb(30, 41, 23), {"quality": 90, "keep_rgb": True}
    yield "cmyk.jpg", Image.fromarray(scene(46, 55, 24, 4), "CMYK"), {"quality": 90}
    yield "lossy.webp", rgb(71, 90, 25), {"quality": 70}
    yield "lossy_odd.webp", rgb(33, 47, 26), {"quality": 90}
    yield "lossy_tiny.webp", rgb(1, 3, 27), {"quality": 90}
    yield "lossy_alpha.webp", Image.fromarray(scene(40, 52, 28, 4)), {"quality": 80, "exact": True}
    yield "lossless.webp", rgb(40, 53, 29), {"lossless": True}
    yield "lossless_alpha.webp", Image.fromarray(scene(38, 31, 30, 4)), {"lossless": True, "exact": True}


def png16(path, pixels):
    """Pillow writes no 16 bits of colour: a PNG by hand."""
    height, width, channels = pixels.shape
    chunk = lambda kind, data: (
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big"))
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([16, {3: 2, 4: 6}[channels], 0, 0, 0])
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) +
                     chunk(b"IEND", b""))


def sampled(path, image, subsampling, factors, height, width):
    """Pillow writes three samplings. The units of others hold as many blocks, so another header makes one of them."""
    data = io.BytesIO()
    image.save(data, "JPEG", quality=85, subsampling=subsampling)
    data = bytearray(data.getvalue())
    frame = data.index(b"\xff\xc0")
    data[frame + 5:frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    data[frame + 11] = factors
    path.write_bytes(data)


class Look(torch.nn.Module):
    def forward(self, x):
        return {"same": x * 1, "mean": x.mean((2, 3))}


def main():
    torch.set_num_threads(1)
    files = []
    for name, image, options in pictures():
        image.save(HERE / name, **options)
        files.append(name)
    for name, channels in ("rgb16.png", 3), ("rgba16.png", 4):
        png16(HERE / name, scene(30, 28, 40 + channels, channels).astype(np.uint16) * 253 + 128)
        files.append(name)
    sampled(HERE / "440.jpg", Image.fromarray(scene(64, 48, 18)), "4:2:2", 0x12, 122, 23)
    sampled(HERE / "411.jpg", Image.fromarray(scene(64, 48, 19)), "4:2:0", 0x41, 31, 91)
    files += ["440.jpg", "411.jpg"]
    frames = [Image.fromarray(scene(20, 24, s)) for s in (50, 51)]
    frames[0].save(HERE / "animated.webp", save_all=True, append_images=frames[1:])

    sizes = {0: torch.export.Dim("n"), 2: torch.export.Dim("h"), 3: torch.export.Dim("w")}
    program = torch.export.export(Look(), (torch.zeros(2, 3, 4, 5),), dynamic_shapes=({**sizes},))
    torch.export.save(program, HERE / "look.pt2")

    cases = []
    for name in files:
        for spec, (size, crop, interpolation, scaling) in SPECS.items():
            image = Image.open(HERE / name).convert("RGB")
            if size:
                image = F.resize(image, size if isinstance(size, int) else list(size), interpolation, antialias=True)
            if crop:
                image = F.center_crop(image, [crop, crop])
            levels = np.asarray(image)
            t = F.convert_image_dtype(F.pil_to_tensor(image), torch.float32)
            if scaling:
                t = F.normalize(t, *scaling)
            flat, n = levels.reshape(-1), levels.size
            values = t.reshape(-1)
            cases.append({
                "file": name, "spec": spec, "height": levels.shape[0], "width": levels.shape[1],
                "crc": zlib.crc32(levels.tobytes()),
                "levels": [int(flat[i * 2654435761 % n]) for i in range(64)],
                "values": [float(values[i * 2654435761 % n]) for i in range(16)],
            })
    out = io.StringIO()
    out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    (HERE / "expected.json.gz").write_bytes(gzip.compress(out.getvalue().encode(), 9, mtime=0))


main()
