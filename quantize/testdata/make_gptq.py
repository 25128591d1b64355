"""Records what GPTQ makes of one small matrix: gptq.json.

    python quantize/testdata/make_gptq.py

The loop is the one of the paper's code (IST-DASLab/gptq, gptq.py: fasterquant), one column at a time, in float64: the Hessian of
the inputs is damped by a hundredth of its mean diagonal, inverted by its Cholesky factor, and the upper factor of that inverse says how
the columns that follow make an error good. Scales are found as quantize/group.go says, in float32, when a group's first column's turn
comes; with act order ("by_use") before, of the weights as they are, by groups in the file's order. Weights and inputs are made from a
counter, as the test makes them. Python's packages: torch.
"""

import json
from pathlib import Path

import torch

ROWS, COLUMNS, TOKENS = 8, 96, 160
SHRINKS = [1, 0.9961, 0.975, 0.95, 0.9333, 0.9, 0.875, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6]


def numbers(seed, n):
    """Multiples of 2⁻¹⁵ from −1 to 1."""
    out = []
    for _ in range(n):
        seed = (seed * 1664525 + 1013904223) % 2**32
        out.append(((seed >> 16) - (65536 if seed >> 31 else 0)) / 32768)
    return out


def made(dtype):
    weight = torch.tensor(numbers(1, ROWS * COLUMNS), dtype=torch.float32).reshape(ROWS, COLUMNS) ** 3
    # Inputs that depend on each other, of unequal size.
    x = torch.tensor(numbers(2, TOKENS * COLUMNS), dtype=torch.float64).reshape(TOKENS, COLUMNS)
    for j in range(1, COLUMNS):
        x[:, j] += x[:, j - 1] / 2
    x *= torch.tensor([1 + (7 * j % 13) / 4 for j in range(COLUMNS)], dtype=torch.float64)
    return weight.to(dtype), x


def fit(group, bits, minimum, dtype):
    f32 = lambda v: torch.tensor(v, dtype=torch.float32)
    lo, hi = min(group.min(), f32(0)), max(group.max(), f32(0))
    top, half = f32(2**bits - 1), f32(2 ** (bits - 1))
    best, least = (f32(1), half), float("inf")
    for s in SHRINKS:
        scale, zero = (max(hi, -lo) / (half - 1) * f32(s)).to(dtype).float(), half
        if minimum:
            scale = ((hi / top - lo / top) * f32(s)).to(dtype).float()
            zero = torch.clamp(torch.round(torch.clamp(-lo * f32(s) / scale, min=0)), 0, top)
        code = torch.clamp(torch.round(group * (1 / scale)) + zero, 0, top)
        error = ((group.double() - ((code - zero) * scale).double()) ** 2).sum().item()
        if error < least:
            best, least = (scale, zero), error
    return best


def gptq(weight, x, bits, size, minimum, by_use):
    dtype, plain = weight.dtype, weight.float()
    w, h = plain.double().clone(), x.T @ x
    order = torch.arange(COLUMNS)
    fits = [[fit(row[g : g + size], bits, minimum, dtype) for g in range(0, COLUMNS, size)] for row in plain]
    if by_use:
        order = torch.argsort(torch.diag(h), descending=True, stable=True)
        w, h = w[:, order], h[order][:, order]
    damped = h + 0.01 * torch.mean(torch.diag(h)) * torch.eye(COLUMNS, dtype=torch.float64)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    u = torch.linalg.cholesky(inverse, upper=True)
    original, q, codes = w.clone(), torch.zeros_like(w), torch.zeros(ROWS, COLUMNS, dtype=torch.int64)
    top = torch.tensor(2.0**bits - 1)
    for k in range(COLUMNS):
        column = order[k].item()
        for r in range(ROWS):
            if not by_use and size < COLUMNS and k % size == 0:
                fits[r][k // size] = fit(w[r, k : k + size].float(), bits, minimum, dtype)
            scale, zero = fits[r][column // size]
            code = torch.clamp(torch.round(w[r, k].float() * (1 / scale)) + zero, 0, top)
            codes[r, column] = int(code)
            q[r, k] = ((code - zero) * scale).to(dtype).double()
        e = (w[:, k] - q[:, k]) / u[k, k]
        w[:, k + 1 :] -= e[:, None] * u[k, k + 1 :][None, :]
    lost = lambda d: torch.trace(d @ h @ d.T).item()
    plainly = torch.zeros_like(q)
    for r in range(ROWS):
        for k in range(COLUMNS):
            scale, zero = fit(plain[r, order[k] // size * size :][:size], bits, minimum, dtype)
            code = torch.clamp(torch.round(original[r, k].float() * (1 / scale)) + zero, 0, top)
            plainly[r, k] = ((code - zero) * scale).to(dtype).double()
    all = lost(original)
    return {
        "dtype": str(dtype).removeprefix("torch."), "bits": bits, "group": size % COLUMNS, "minimum": minimum, "by_use": by_use,
        "codes": ["".join(f"{c:0{bits // 4}x}" for c in row) for row in codes.tolist()],
        "scales": [[float(f"{float(f[0]):.9g}") for f in row] for row in fits], "zeros": [[int(f[1]) for f in row] for row in fits],
        "error": ((original - q).norm() / original.norm()).item(), "output_error": (lost(original - q) / all) ** 0.5,
        "plain_output_error": (lost(original - plainly) / all) ** 0.5,
    }


def main():
    cases = []
    for dtype, bits, size, minimum, by_use in [
        (torch.float32, 4, 32, False, False), (torch.float32, 4, 32, True, False), (torch.float32, 4, 32, False, True),
        (torch.bfloat16, 4, 32, True, True), (torch.bfloat16, 4, 96, False, False), (torch.float32, 8, 48, False, False),
    ]:
        weight, x = made(dtype)
        cases.append(gptq(weight, x, bits, size, minimum, by_use))
        print({k: v for k, v in cases[-1].items() if k not in ("codes", "scales", "zeros")})
    Path(__file__).with_name("gptq.json").write_text(json.dumps({"torch": torch.__version__, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
