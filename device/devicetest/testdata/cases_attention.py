"""Cases of attention, and of dropout in evaluation."""

import torch

from recorder import aten, case, ints, rand, save, special

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
FLOATS = (F32, F64, F16, BF16)
sdpa = aten.scaled_dot_product_attention.default
flash = aten._scaled_dot_product_flash_attention_for_cpu.default
math = aten._scaled_dot_product_attention_math.default


def coarse(*shape, dtype=F32):
    """Few different numbers, which are stored in little space."""
    return (ints(-9, 10, *shape) / 10).to(dtype)


def qkv(batch, queries, keys, width, value_width=None, dtype=F32, make=rand):
    return (make(*batch, queries, width, dtype=dtype), make(*batch, keys, width, dtype=dtype),
            make(*batch, keys, value_width or width, dtype=dtype))


def seen(*shape):
    return ints(0, 2, *shape).bool()


for d in FLOATS:
    case(sdpa, *qkv((1, 2), 3, 5, 4, dtype=d))
    case(sdpa, *qkv((2, 2), 4, 4, 4, dtype=d), is_causal=True)
    case(sdpa, *qkv((1, 2), 4, 5, 4, dtype=d), rand(4, 5, dtype=d), scale=0.3)
    case(sdpa, *qkv((1, 2), 4, 5, 4, dtype=d), seen(1, 1, 4, 5))
    case(math, *qkv((1, 2), 4, 5, 4, dtype=d), seen(4, 5))
    case(flash, *qkv((1, 2), 4, 5, 4, dtype=d))
case(sdpa, *qkv((1, 2), 4, 5, 4, dtype=BF16), rand(2, 4, 5), note="a float32 mask")
case(sdpa, *qkv((2,), 3, 5, 4), note="rank 3")
case(sdpa, *qkv((), 3, 5, 4), note="rank 2")
case(sdpa, *qkv((2, 1, 2), 3, 5, 4), note="rank 5")
case(sdpa, *qkv((1, 2), 3, 5, 4, 6), note="values of another width")
case(sdpa, *qkv((1, 2), 3, 5, 4, 6), seen(3, 5))
case(sdpa, *qkv((1, 2), 3, 5, 4), is_causal=True, note="more keys than queries")
case(sdpa, *qkv((1, 2), 5, 3, 4), is_causal=True, note="fewer keys than queries")
case(sdpa, *qkv((2, 2), 3, 5, 4), seen(2, 1, 1, 5), note="padding")
case(sdpa, *qkv((2, 2), 3, 5, 4), seen(3, 1), note="whole queries masked")
case(sdpa, *qkv((2, 2), 3, 5, 4), torch.zeros(3, 5, dtype=torch.bool), note="nothing seen")
case(sdpa, *qkv((1, 2), 3, 3, 4), torch.triu(torch.full((3, 3), -float("inf")), 1), note="−∞ adds")
case(sdpa, *qkv((1, 1), 3, 3, 4), torch.full((3, 3), -float("inf")))
case(sdpa, *qkv((1, 1), 3, 3, 4), torch.full((3, 3), torch.finfo(F32).min), note="the lowest number instead of −∞")
case(sdpa, *qkv((1, 1), 4, 4, 4), special().reshape(4, 4), note="NaN and infinities in the mask")
case(sdpa, rand(1, 1, 3, 4), special().reshape(1, 1, 4, 4), rand(1, 1, 4, 4), note="NaN and infinities in the keys")
case(sdpa, rand(1, 1, 3, 4), rand(1, 1, 4, 4), special().reshape(1, 1, 4, 4), note="NaN and infinities in the values")
case(sdpa, rand(1, 1, 3, 4, scale=100), rand(1, 1, 4, 4, scale=100), rand(1, 1, 4, 4), note="large scores")
case(sdpa, rand(2, 1, 3, 4), rand(1, 2, 5, 4), rand(2, 2, 5, 4), note="broadcast")
case(sdpa, rand(1, 2, 3, 4), rand(5, 4), rand(2, 5, 4), note="different ranks")
case(sdpa, rand(2, 3, 2, 4).transpose(1, 2), rand(2, 5, 2, 4).transpose(1, 2), rand(2, 5, 2, 4).transpose(1, 2),
     note="heads after positions, as projections give them")
case(sdpa, rand(2, 3, 24)[..., :8].unflatten(-1, (2, 4)).transpose(1, 2),
     rand(2, 3, 24)[..., 8:16].unflatten(-1, (2, 4)).transpose(1, 2),
     rand(2, 3, 24)[..., 16:].unflatten(-1, (2, 4)).transpose(1, 2), is_causal=True, note="slices of one projection")
for d in (F32, BF16):
    case(sdpa, rand(2, 6, 3, 4, dtype=d), rand(2, 2, 5, 4, dtype=d), rand(2, 2, 5, 4, dtype=d), enable_gqa=True)
case(sdpa, rand(2, 6, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4), seen(2, 1, 3, 5), enable_gqa=True)
case(sdpa, rand(2, 6, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4), rand(6, 3, 5), enable_gqa=True)
case(sdpa, rand(2, 6, 3, 4), rand(2, 1, 5, 4), rand(2, 1, 5, 4), is_causal=True, enable_gqa=True)
case(sdpa, rand(2, 6, 3, 4), rand(2, 6, 5, 4), rand(2, 6, 5, 4), enable_gqa=True)
case(sdpa, rand(1, 4, 3, 4), rand(1, 2, 5, 4), rand(1, 1, 5, 4), enable_gqa=True)
case(math, rand(1, 4, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4), enable_gqa=True)
case(math, *qkv((1, 2), 3, 5, 4), is_causal=True)
case(math, *qkv((1, 2), 3, 5, 4), torch.zeros(3, 5, dtype=torch.bool))
case(flash, *qkv((2, 3), 3, 5, 4), 0.0, True)
case(flash, *qkv((1, 2), 3, 5, 4), attn_mask=torch.tensor([[0.0, -1.0, -float("inf"), 2.0, 0.5]] * 3), scale=2.0)
case(flash, *qkv((1, 1), 2, 3, 4), attn_mask=torch.full((2, 3), -float("inf")))
case(sdpa, *qkv((0, 2), 3, 5, 4), note="empty")
case(sdpa, *qkv((1, 2), 0, 5, 4), note="no queries")
case(sdpa, *qkv((1, 2), 3, 0, 4), note="no keys")
case(sdpa, *qkv((1, 2), 1, 70, 16, make=coarse), note="one query")
case(sdpa, *qkv((2, 1), 70, 66, 8, make=coarse), note="across blocks of queries")
case(sdpa, *qkv((1, 1), 131, 131, 3, make=coarse), is_causal=True, note="across blocks of queries")
case(sdpa, *qkv((1, 1), 3, 600, 5, make=coarse), note="across blocks of keys")
case(sdpa, *qkv((1, 1), 70, 40, 4, make=coarse, dtype=F16), seen(70, 40))
case(sdpa, *qkv((40, 1), 2, 2, 3, make=coarse), note="more work than parts")

# whole layers
x, more = rand(2, 3, 8), [rand(24, 8, scale=0.3), rand(24), rand(8, 8), rand(8)]
padding = torch.zeros(2, 3, dtype=torch.bool)
padding[0, 2] = True
masked = torch.tensor([[False, False, True], [True, True, True]])
causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
mha = aten._native_multi_head_attention.default
case(mha, x, x, x, 8, 2, *more)
case(mha, x, x, x, 8, 2, *more, None, True, False)
case(mha, x, x, x, 8, 2, *more, padding, True, True, 1)
case(mha, x, x, x, 8, 2, *more, masked, True, True, 1, note="a query that sees nothing is NaN")
case(mha, x, x, x, 8, 2, *more, causal, True, True, 0)
case(mha, x, x, x, 8, 2, *more, causal.expand(2, 2, 3, 3).contiguous(), True, False, 2)
case(mha, x.double(), x.double(), x.double(), 8, 4, *(t.double() for t in more))
rest = [rand(8) for _ in range(4)] + [rand(16, 8), rand(16), rand(8, 16), rand(8)]
for gelu in (False, True):
    for norm_first in (False, True):
        case(aten._transformer_encoder_layer_fwd.default, x, 8, 2, *more, gelu, norm_first, 1e-5, *rest, bound=1e-5,
             note="two norms and a product after each other")
case(aten._transformer_encoder_layer_fwd.default, x, 8, 2, *more, False, False, 1e-5, *rest, padding, 1, bound=1e-5)

for op in (aten.dropout, aten.dropout_, aten.feature_dropout, aten.feature_dropout_, aten.alpha_dropout,
           aten.alpha_dropout_, aten.feature_alpha_dropout, aten.feature_alpha_dropout_):
    case(op.default, rand(2, 3), 0.5, False)
case(aten.dropout.default, rand(2, 3), 0.0, True)
case(aten.native_dropout.default, rand(2, 3), 0.5, False)
case(aten.native_dropout.default, rand(3, 2).t(), 0.5, False)

save("attention")
