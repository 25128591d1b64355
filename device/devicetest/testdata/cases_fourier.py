"""Fourier transforms: of all kinds, lengths that are products of factors and prime ones, sizes, norms; of windows."""

import torch

from recorder import aten, case, rand, save


def comp(*shape, dtype=torch.complex64):
    return torch.complex(rand(*shape, dtype=torch.float64), rand(*shape, dtype=torch.float64)).to(dtype)


ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL = ("rfft", "ihfft")
for name in ONE:
    op = getattr(aten, "fft_" + name).default
    for n in (1, 2, 7, 12):
        x = rand(2, n) if name in REAL else comp(2, n)
        if n > 1 or name not in ("irfft", "hfft"):
            case(op, x)
        case(op, x, 9)
        case(op, x, 6, -1, "ortho")
        case(op, x.double() if name in REAL else x.to(torch.complex128), 5, -1, "forward")
    case(op, rand(6, 4).t()[1:])
    case(op, rand(3, 5, 2), None, 1, "backward")
    if name not in REAL:
        case(op, comp(4, 5, 2).permute(2, 0, 1), None, 1)
        case(op, rand(3, 6))
    two, many = getattr(aten, f"fft_{name}2").default, getattr(aten, f"fft_{name}n").default
    x = rand(2, 4, 6) if name in REAL else comp(2, 4, 6)
    case(two, x)
    case(two, x, [3, 8], [0, 2], "ortho")
    case(many, x)
    case(many, x, [5, 4])
    case(many, x, None, [2, 0], "forward")
# Long ones: 2 × 257, 1021 is prime, 600 and 4096 are products of products.
for n in (300, 514, 600):
    case(aten.fft_rfft.default, rand(n))
    case(aten.fft_fft.default, comp(2, n), None, -1, "ortho")
    case(aten.fft_ifft.default, rand(n))
    case(aten.fft_irfft.default, comp(n // 2 + 1), n)
case(aten.fft_irfft.default, comp(300), 599)
case(aten.fft_irfft.default, comp(301), 601)
case(aten.fft_rfft.default, rand(525))
case(aten.fft_irfft.default, comp(263), 525)

for norm in range(3):
    case(aten._fft_r2c.default, rand(2, 6), [1], norm, True)
    case(aten._fft_r2c.default, rand(2, 6), [0, 1], norm, False)
    case(aten._fft_c2r.default, comp(2, 4), [1], norm, 7)
    for forward in (True, False):
        case(aten._fft_c2c.default, comp(3, 4), [1, 0], norm, forward)
for n in (5, 6):
    case(aten.fft_fftfreq.default, n)
    case(aten.fft_rfftfreq.default, n, 0.25)
    for shift in (aten.fft_fftshift, aten.fft_ifftshift):
        case(shift.default, rand(n, 4))
        case(shift.default, comp(2, n), [1])

wave, window = rand(2, 90), torch.hann_window(16)
for onesided in (True, False):
    case(aten.stft.center, wave, 16, 5, 16, window, True, "reflect", False, onesided, True)
    case(aten.stft.center, wave, 16, 4, 12, rand(12), True, "constant", True, onesided, True)
case(aten.stft.default, wave[0, 3:], 16, None, None, None, False, None, True)
case(aten.stft.default, wave[:, ::2], 12, 7, 9, None, True, None, True)
case(aten.stft.center, wave.double(), 15, 6, None, None, False, return_complex=True)
for length in (None, 70, 100):
    case(aten.istft.default, comp(2, 9, 12), 16, 5, 16, window, True, False, True, length)
case(aten.istft.default, comp(9, 12), 16, 4, 16, window + 0.5, False, True, True)
case(aten.istft.default, comp(2, 16, 5), 16, 4, None, None, True, False, False)
save("fourier")
