"""Normalisations."""

import torch

from recorder import aten, case, rand, save

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64) + HALVES
nan, inf = float("nan"), float("inf")


def short(*shape, dtype=torch.float32):
    """Numbers of eight bits, which take less room here."""
    return rand(*shape, dtype=torch.bfloat16).to(dtype)


PATTERN = rand(61)


def tiled(*shape, dtype=torch.float32):
    """A short pattern over and over, which takes little room here."""
    n = 1
    for d in shape:
        n *= d
    return PATTERN.repeat(n // 61 + 1)[:n].reshape(shape).to(dtype)


def parameters(n, dtype=torch.float32):
    return short(n, dtype=dtype) + 1, short(n, dtype=dtype), short(n, dtype=dtype), short(n, dtype=dtype).abs() + 0.5


# Batch normalisation in evaluation.
for x in (short(2, 3, 4, 5), short(3, 2, 5, 4).transpose(0, 1), short(2, 5, 4, 3).permute(0, 3, 2, 1),
          short(1, 3, 1, 1).expand(2, 3, 2, 2),
          short(4, 3), short(3, 4).t(), short(2, 3, 6), short(2, 3, 2, 2, 2), short(2, 3, 1, 1), rand(0, 3, 2), rand(2,
                                                                                                                     3, 0),
          tiled(2, 3, 17, 19), short(4, 6)[:, ::2], short(2, 3, 8, 8)[:, :, 1:7:2, ::3]):
    w, b, m, v = parameters(3)
    case(aten.batch_norm.default, x, w, b, m, v, False, 0.1, 1e-5, True)
    case(aten._native_batch_norm_legit_no_training.default, x, w, b, m, v, 0.1, 1e-3)
x = short(2, 3, 4)
w, b, m, v = parameters(3)
case(aten.batch_norm.default, x, None, None, m, v, False, 0.1, 1e-5, True)
case(aten.batch_norm.default, x, w, None, m, v, False, 0.1, 1e-5, True)
case(aten.batch_norm.default, x, None, b, m, v, False, 0.1, 1e-5, True)
case(aten.batch_norm.default, torch.tensor([[nan, inf, -inf], [1, 0.0, -0.0]]), w, b, m, v, False, 0.1, 1e-5, True)
case(aten.native_batch_norm.default, x, w, b, m, v, False, 0.1, 1e-5)
case(aten._native_batch_norm_legit.default, x, w, b, m.clone(), v.clone(), False, 0.1, 1e-5)
for dtype in FLOATS:
    w, b, m, v = parameters(3, dtype)
    case(aten.batch_norm.default, short(2, 3, 4, dtype=dtype), w, b, m, v, False, 0.1, 1e-5, True)
    case(aten.batch_norm.default, short(5, 3, dtype=dtype), w, b, m, v, False, 0.1, 1e-5, True)
for dtype in HALVES:
    w, b, m, v = parameters(3)
    case(aten.batch_norm.default, short(2, 3, 4, dtype=dtype), w, b, m, v, False, 0.1, 1e-5, True)
case(aten.batch_norm.default, tiled(3, 300), *parameters(300), False, 0.1, 1e-5, True)

# By the batch's own statistics, in training.
for x in (short(2, 3, 4, 5), short(3, 6, 4).permute(1, 0, 2), short(7, 3), tiled(3, 3, 30)):
    w, b, m, v = parameters(3)
    case(aten.batch_norm.default, x, w, b, m.clone(), v.clone(), True, 0.1, 1e-5, True)
    case(aten.batch_norm.default, x, w, b, None, None, True, 0.1, 1e-5, True)
    case(aten._native_batch_norm_legit.no_stats, x, w, b, True, 0.1, 1e-5)
    case(aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5)
    case(aten._native_batch_norm_legit.default, x, w, b, m.clone(), v.clone(), True, 0.1, 1e-5)
    case(aten.native_batch_norm.default, x, w, b, m.clone(), v.clone(), True, 0.1, 1e-5)
for dtype in HALVES:
    case(aten.batch_norm.default, short(4, 3, 5, dtype=dtype), *parameters(3)[:2], None, None, True, 0.1, 1e-5, True)

# Instance normalisation.
for x in (short(2, 3, 4, 5), short(2, 3, 7), short(3, 2, 4, 4).transpose(0, 1), short(2, 3, 2, 3, 2),
          tiled(2, 3, 13, 30)):
    w, b, m, v = parameters(3)
    case(aten.instance_norm.default, x, w, b, None, None, True, 0.1, 1e-5, True)
    case(aten.instance_norm.default, x, None, None, None, None, True, 0.1, 1e-3, True)
    case(aten.instance_norm.default, x, w, b, m, v, False, 0.1, 1e-5, True)

# Layer normalisation.
for x, dims in ((short(3, 4, 5), [5]), (short(3, 4, 5), [4, 5]), (short(3, 4, 5), [3, 4, 5]),
                (short(5, 4, 3).transpose(0, 2), [5]),
                (short(5, 3, 4).permute(1, 2, 0), [4, 5]), (short(3, 1, 5).expand(3, 4, 5),
                                                            [4, 5]), (short(3, 8, 10)[:, ::2, 1::2], [5]),
                (short(6), [6]), (short(3, 1), [1]), (rand(0, 4), [4]), (tiled(5, 65), [65]), (tiled(3, 700), [700]),
                (tiled(2, 3, 257), [3, 257]), (tiled(300, 3), [3])):
    w, b = short(*dims) + 1, short(*dims)
    case(aten.layer_norm.default, x, dims, w, b, 1e-5)
    case(aten.native_layer_norm.default, x, dims, w, b, 1e-5)
    case(aten.rms_norm.default, x, dims, w, 1e-6)
x = short(4, 6)
case(aten.layer_norm.default, x, [6])
case(aten.layer_norm.default, x, [6], short(6))
case(aten.layer_norm.default, x, [6], None, short(6), 1e-3)
case(aten.native_layer_norm.default, x, [6], None, None, 1e-12)
case(aten.layer_norm.default, torch.tensor([[nan, 1, 2, 3], [inf, 1, 2, 3], [1, 1, 1, 1], [0, -0.0, 0, 0]]), [4])
case(aten.layer_norm.default, short(3, 4, 6), [6], short(12)[::2], short(1).expand(6))
case(aten.layer_norm.default, x + 100, [6], bound=1e-4, note="PyTorch's own error for a large mean")
for dtype in FLOATS:
    case(aten.layer_norm.default, short(4, 6, dtype=dtype), [6], short(6, dtype=dtype), short(6, dtype=dtype))
    case(aten.native_layer_norm.default, short(4, 6, dtype=dtype), [6], short(6, dtype=dtype), short(6, dtype=dtype),
         1e-5)
    case(aten.rms_norm.default, short(4, 6, dtype=dtype), [6], short(6, dtype=dtype))
    case(aten.rms_norm.default, short(4, 6, dtype=dtype) * 1e-3, [6])
    case(aten.rms_norm.default, short(4, 6, dtype=dtype), [6], None, 1e-5)
for dtype in HALVES:
    case(aten.layer_norm.default, short(4, 6, dtype=dtype), [6], short(6), short(6))
    case(aten.native_layer_norm.default, short(4, 6, dtype=dtype), [6], short(6), short(6), 1e-5)
    case(aten.layer_norm.default, tiled(2, 300, dtype=dtype), [300], short(300, dtype=dtype), None)
case(aten.rms_norm.default, torch.zeros(2, 4), [4])
case(aten.rms_norm.default, torch.zeros(2, 4), [4], None, 0.0)
case(aten._fused_rms_norm.default, short(4, 6), [6], short(6), 1e-6)
case(aten._fused_rms_norm.default, short(2, 4, 6), [4, 6], None, None)

# Group normalisation.
for x in (short(2, 6, 4, 5), short(6, 2, 7).transpose(0, 1), short(2, 4, 6).transpose(1, 2), short(2, 6, 2, 2, 2),
          short(2, 6, 8)[:, :, ::2], tiled(2, 6, 11, 31), rand(0, 6, 3)):
    w, b, _, _ = parameters(6)
    for groups in (1, 2, 6):
        case(aten.group_norm.default, x, groups, w, b, 1e-5)
    case(aten.group_norm.default, x, 3)
    case(aten.group_norm.default, x, 3, w)
case(aten.group_norm.default, short(2, 6), 2, w, b, bound=1e-4, note="PyTorch's own error where nothing varies")
x = short(2, 6, 4, 5)
case(aten.native_group_norm.default, x, w, b, 2, 6, 20, 3, 1e-5)
case(aten.native_group_norm.default, x, None, None, 2, 6, 20, 2, 1e-5)
case(aten.native_group_norm.default, short(2, 6), w, b, 2, 6, 1, 2, 1e-5)
for dtype in FLOATS:
    w, b, _, _ = parameters(6, dtype)
    case(aten.group_norm.default, short(2, 6, 5, dtype=dtype), 2, w, b)
    case(aten.native_group_norm.default, short(2, 6, 5, dtype=dtype), w, b, 2, 6, 5, 3, 1e-5)
for dtype in HALVES:
    w, b, _, _ = parameters(6)
    case(aten.group_norm.default, short(2, 6, 5, dtype=dtype), 2, w, b)

# Weight normalisation.
for v, dim, g in ((short(4, 3, 5), 0, short(4, 1, 1)), (short(4, 3, 5), 2, short(1, 1, 5)),
                  (short(3, 4).t(), 0, short(4, 1)),
                  (short(4, 5), -1, torch.tensor(1.5))):
    case(aten._weight_norm.default, v, g, dim)
    case(aten.norm_except_dim.default, v, 2, dim)
    if dim >= 0 and v.is_contiguous():
        case(aten._weight_norm_interface.default, v, g, dim)

# Batch normalisation as programs in training and their decompositions call it.
for x in (short(2, 3, 4, 5), short(7, 3)):
    w, b, m, v = parameters(3)
    for training in (False, True):
        case(aten._native_batch_norm_legit_functional.default, x, w, b, m, v, training, 0.1, 1e-5)
        case(aten._batch_norm_impl_index.default, x, w, b, m.clone(), v.clone(), training, 0.1, 1e-5, True)
    case(aten._batch_norm_with_update.default, x, w, b, m.clone(), v.clone(), 0.1, 1e-5)
    case(aten._batch_norm_with_update_functional.default, x, None, b, m, v, 0.25, 1e-3)
    case(aten._batch_norm_no_update.default, x, w, b, m, v, 0.1, 1e-5)
save("norm")
