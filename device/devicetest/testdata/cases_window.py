"""Windows of signals."""

import torch

from recorder import aten, case, save

for name in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
    op = getattr(aten, name + "_window")
    for n in (1, 3, 7, 16):
        case(op.default, n)
        case(op.periodic, n, False)
        case(op.periodic, n, True, dtype=torch.float64, bound=2e-7 if name == "kaiser" else 1e-13)
case(aten.hamming_window.periodic_alpha, 9, False, 0.6)
case(aten.hamming_window.periodic_alpha_beta, 9, True, 0.6, 0.3)
case(aten.kaiser_window.beta, 9, True, 5.5)
save("window")
