"""Time single ops in PyTorch on the GPU: those of BenchmarkOps in cuda/ops_bench_test.go, by the same names.

    python single_ops.py [--device cuda] [--only TEXT]

(It is not called kernels.py, since transformers imports a package of that name, and would get this one.)

Prints a JSON object for each: seconds, TFLOP/s and GB/s; first what the device gives at best as far as PyTorch can tell:
a large product in each precision, and a copy within its memory. TF32 and autocast are off but where the name says it.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def linear(dtype, m, n, k, precision=""):
    def make(device):
        x, w, b = (torch.randn(*s, device=device, dtype=dtype) for s in ((m, k), (n, k), (n,)))
        return rounding(precision, device, lambda: F.linear(x, w, b)), 2.0 * m * n * k, x, w, b

    return make


def matmul(dtype, batch, m, n, k, precision=""):
    def make(device):
        x, y = (torch.randn(batch, *s, device=device, dtype=dtype) for s in ((m, k), (k, n)))
        return rounding(precision, device, lambda: x @ y), 2.0 * batch * m * n * k, x, y

    return make


def rounding(precision, device, run):
    """A run whose factors of float32 may be rounded: to TF32, or by autocast, whose result is bfloat16."""

    def in_precision():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        try:
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                return run()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return in_precision


def conv(rows, channels, size, kernels, width, stride, groups=1, dtype=F32, precision="", last=False):
    def make(device):
        given = {"device": device, "dtype": dtype}
        x = torch.randn(rows, channels, size, size, **given)
        w, b = torch.randn(kernels, channels // groups, width, width, **given), torch.randn(kernels, **given)
        if last:
            x, w = (v.to(memory_format=torch.channels_last) for v in (x, w))
        out = (size - 1) // stride + 1
        flops = 2.0 * rows * kernels * out * out * channels // groups * width * width

        def run():
            torch.backends.cudnn.allow_tf32 = precision == "tf32"
            return F.conv2d(x, w, b, stride=stride, padding=width // 2, groups=groups)

        return rounding(precision, device, run), flops, x, w, b

    return make


def tensor_convs(name, rows, channels, size, kernels, width, groups=1):
    """Convolutions on tensor cores, from N x C x H x W and with channels last."""
    for how, dtype, precision in (
        ("f16", F16, ""),
        ("bf16", BF16, ""),
        ("bf16 factors", F32, "bf16"),
        ("tf32", F32, "tf32"),
    ):
        for last in (False, True):
            label = f"{name} {how}, channels last" if last else f"{name} {how}"
            OPS[label] = conv(rows, channels, size, kernels, width, 1, groups, dtype, precision, last)


def attention(dtype, batch, heads, rows, keys, width, causal):
    def make(device):
        q, k, v = (torch.randn(batch, heads, n, width, device=device, dtype=dtype) for n in (rows, keys, keys))
        flops = 4.0 * batch * heads * rows * keys * width / (2 if causal else 1)
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), flops, q, k, v

    return make


def over(rows, f, *more):
    def make(device):
        x = torch.randn(*rows, device=device)
        rest = [torch.randn(*s, device=device) for s in more]
        return lambda: f(x, *rest), 0.0, x, *rest

    return make


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


ROWS, IMAGE, HEADS = (8192, 4096), (16, 64, 128, 128), (1, 32, 2048, 128)
OPS = {
    "linear 4096": linear(F32, 4096, 4096, 4096),
    "linear 4096 tf32": linear(F32, 4096, 4096, 4096, "tf32"),
    "linear 4096 bf16 factors": linear(F32, 4096, 4096, 4096, "bf16"),
    "linear 4096 f16": linear(F16, 4096, 4096, 4096),
    "linear 4096 bf16": linear(BF16, 4096, 4096, 4096),
    "linear 128x3072x768": linear(F32, 128, 3072, 768),
    "linear 128x3072x768 tf32": linear(F32, 128, 3072, 768, "tf32"),
    "linear 128x3072x768 f16": linear(F16, 128, 3072, 768),
    "linear 128x768x3072": linear(F32, 128, 768, 3072),
    "linear 128x768x3072 tf32": linear(F32, 128, 768, 3072, "tf32"),
    "linear 128x768x3072 f16": linear(F16, 128, 768, 3072),
    "linear 16x4096x4096 f16": linear(F16, 16, 4096, 4096),
    "matmul 96x128x128x64": matmul(F32, 96, 128, 128, 64),
    "matmul 96x128x128x64 tf32": matmul(F32, 96, 128, 128, 64, "tf32"),
    "matmul 96x128x128x64 bf16": matmul(BF16, 96, 128, 128, 64),
    "linear 1x4096x4096": linear(F32, 1, 4096, 4096),
    "linear 1x4096x4096 bf16": linear(BF16, 1, 4096, 4096),
    "conv 7x7/2 3 to 64, 512": conv(1, 3, 512, 64, 7, 2),
    "conv 3x3 64, 128": conv(1, 64, 128, 64, 3, 1),
    "conv 3x3 256, 32": conv(1, 256, 32, 256, 3, 1),
    "conv 1x1 256 to 1024, 32": conv(1, 256, 32, 1024, 1, 1),
    "conv 3x3 256, 32, 16 rows": conv(16, 256, 32, 256, 3, 1),
    "conv 3x3 256, 32, 16 rows, winograd": conv(16, 256, 32, 256, 3, 1),  # by what cuDNN chooses
    "attention 12x128x64": attention(F32, 1, 12, 128, 128, 64, True),
    "attention 32x2048x128": attention(F32, 1, 32, 2048, 2048, 128, True),
    "attention 32x2048x128 bf16": attention(BF16, 1, 32, 2048, 2048, 128, True),
    "attention 32x1 of 2048x128": attention(F32, 1, 32, 1, 2048, 128, False),
    "relu 4 KiB": over((1024,), F.relu),
    "relu 128 MiB": over(ROWS, F.relu),
    "add 128 MiB": over(ROWS, torch.add, ROWS),
    "gelu 128 MiB": over(ROWS, F.gelu),
    "softmax 8192x4096": over(ROWS, lambda x: F.softmax(x, 1)),
    "layer_norm 8192x4096": over(ROWS, lambda x, w, b: F.layer_norm(x, (4096,), w, b), (4096,), (4096,)),
    "sum 8192x4096": over(ROWS, lambda x: x.sum(1)),
    "rotary 32x2048x128": over(HEADS, rotary, HEADS, HEADS),
    "turned 8192x4096": over(ROWS, lambda x: x.T.contiguous()),
    "max_pool 3x3/2 16x64x128": over(IMAGE, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool 5x5 16x64x128": over(IMAGE, lambda x: F.max_pool2d(x, 5, 1, 2)),
    "avg_pool to 1 16x2048x16": over((16, 2048, 16, 16), lambda x: F.adaptive_avg_pool2d(x, 1)),
    "upsample nearest 16x64x128": over(IMAGE, lambda x: F.interpolate(x, size=256, mode="nearest")),
    "upsample linear 16x64x128": over(IMAGE, lambda x: F.interpolate(x, size=256, mode="bilinear")),
    "cat of channels 16x64x128": over(IMAGE, lambda x, y: torch.cat((x, y), 1), IMAGE),
}
tensor_convs("conv 3x3 64, 128", 1, 64, 128, 64, 3)
tensor_convs("conv 3x3 256, 32, 16 rows", 16, 256, 32, 256, 3)
tensor_convs("conv 1x1 256 to 1024, 32", 1, 256, 32, 1024, 1)
tensor_convs("conv 3x3 96 by themselves, 112, 16 rows", 16, 96, 112, 96, 3, 96)


def timed(run, device):
    """The median seconds of a run among several given out at once, as a graph where there is a GPU."""
    together = 16
    run()
    if device.type == "cuda":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(together):
                y = run()
        torch.cuda.synchronize()
        all_of_them, sync = graph.replay, torch.cuda.synchronize
    else:
        together = 1
        all_of_them, sync = run, lambda: None
    seconds = []
    end = time.perf_counter() + 0.3
    while len(seconds) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        all_of_them()
        sync()
        seconds.append((time.perf_counter() - begin) / together)
    return statistics.median(seconds)


def emit(name, seconds, flops, touched):
    print(json.dumps({"op": name, "seconds": seconds, "tflops": flops / seconds / 1e12,
                      "gb_per_second": touched / seconds / 1e9}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        if device.type == "cuda":
            for name, dtype, tf32 in (("f32", F32, False), ("tf32", F32, True), ("bf16", BF16, False)):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                n = 8192
                a = torch.randn(n, n, device=device, dtype=dtype)
                emit(f"peak, product in {name}", timed(lambda: a @ a, device), 2.0 * n**3, 3 * a.nbytes)
            torch.backends.cuda.matmul.allow_tf32 = False
            a = torch.empty(1 << 30, dtype=torch.uint8, device=device)
            b = torch.empty_like(a)
            emit("peak, copy", timed(lambda: b.copy_(a), device), 0.0, 2 * a.nbytes)
            del a, b
        for name, make in OPS.items():
            if args.only and args.only not in name:
                continue
            run, flops, *operands = make(device)
            y = run()
            emit(name, timed(run, device), flops, sum(t.nbytes for t in (*operands, y)))
            del run, operands, y


main()
