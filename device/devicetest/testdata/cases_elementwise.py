"""Records the elementwise ops: functions, arithmetic, comparisons, logic, activations, where and clamp.

PyTorch's promotion of dtypes is what most of these calls are about: tensors with dimensions, 0-dimensional tensors and
Python numbers of every category against each other.
"""

import itertools

import torch

from recorder import aten, case, ints, rand, save, special

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = FLOATS + INTEGERS + [torch.bool]
FEW = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def attempt(op, *args, **kwargs):
    """Records a call that PyTorch may refuse, such as a logarithm of half precision or a shift of floats."""
    try:
        case(op, *args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ZeroDivisionError):
        pass


def some(dtype, *shape, positive=False):
    """Numbers of a dtype that are not too large; shape () is that of a 0-dimensional tensor."""
    if shape in ((), ((),)):
        return some(dtype, 1, positive=positive)[0].clone()
    if dtype == torch.bool:
        return ints(0, 2, *shape, dtype=dtype)
    if dtype.is_floating_point:
        t = (rand(*shape, scale=16).round() / 8).to(dtype)  # few bits, so that the file stays small
        return t.abs() + 0.25 if positive else t
    return ints(1 if positive or dtype == torch.uint8 else -5, 6, *shape, dtype=dtype)


def overload(name, suffix="default"):
    packet = getattr(aten, name, None)
    if packet is None or suffix not in packet.overloads():
        return None
    return getattr(packet, suffix)


def views(dtype=torch.float32):
    """Tensors that do not lie in order."""
    return [some(dtype, 4, 3).t(), some(dtype, 1, 5).expand(3, 5), some(dtype, 4, 1).expand(4, 3),
            some(dtype, 6, 7)[1:5:2, 2:6], some(dtype, 2, 3, 4).permute(2, 0, 1), some(dtype, (), positive=True),
            some(dtype, 0, 3), some(dtype, 1).expand(3, 2)]


# Functions of one number.

FUNCTIONS = """abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil
cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma log log10 log1p log2 logical_not neg negative
rad2deg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt square tan tanh trunc signbit isnan isinf isfinite
isposinf isneginf isreal special_erf special_erfc special_erfinv special_exp2 special_expm1 special_expit special_log1p
special_sinc special_ndtr special_gammaln special_psi special_digamma nan_to_num logit special_logit
relu silu mish hardswish hardsigmoid gelu relu6 hardtanh elu selu celu leaky_relu softplus hardshrink softshrink
log_sigmoid log_sigmoid_forward rrelu""".split()
HOT = ["exp", "tanh", "sigmoid", "erf", "gelu", "silu", "relu"]

for name in FUNCTIONS:
    op = overload(name)
    # PyTorch's vectorised gelu gives NaN for infinity, its scalar one infinity.
    odd = special()[2:] if name == "gelu" else special()
    attempt(op, odd)
    attempt(op, odd.half())
    attempt(op, torch.tensor([0.01, -0.003, 1e-4, 1e-7, 0.09, 0.11, 0.0625, 0.24, 0.26]))
    for dtype in FLOATS:
        attempt(op, some(dtype, 4, 2).t())
    for dtype in (torch.int64, torch.bool):
        attempt(op, some(dtype, 4))
    if name in HOT:
        attempt(op, special(torch.float64)[3:])
        for view in views():
            attempt(op, view)
    twin = overload(name + "_")
    if twin is not None:
        attempt(twin, some(torch.float32, 6, 5)[::2, 1:4])
        attempt(twin, some(torch.int64, 4))
for name in HOT:
    case(overload(name), torch.linspace(-12, 12, 97))
    case(overload(name), some(torch.float32, 37, 33).t())
case(aten.exp.default, torch.linspace(-104, 89, 65))
case(aten.gelu.default, torch.linspace(-6, 6, 97), approximate="tanh")
case(aten.gelu_.default, rand(5, 7, dtype=torch.bfloat16), approximate="tanh")
for dtype in FLOATS:
    case(aten.gelu.default, special(dtype), approximate="tanh")
    case(aten.gelu.default, rand(4, 5, dtype=dtype, scale=2), approximate="tanh")
case(aten.round.default, torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 8388609.0, -0.0]))
for decimals in (0, 1, 3, -1):
    attempt(aten.round.decimals, rand(9, scale=40), decimals=decimals)
    attempt(aten.round.decimals, rand(9, dtype=torch.float64, scale=40), decimals=decimals)
    attempt(aten.round.decimals, rand(9, dtype=torch.float16, scale=40), decimals=decimals)
    attempt(aten.round_.decimals, rand(9, scale=40), decimals=decimals)
    attempt(aten.special_round.default, rand(9, scale=40), decimals=decimals)
for dtype in FLOATS:
    case(aten.nan_to_num.default, special(dtype), nan=1.5, posinf=100.0, neginf=-7.0)
    case(aten.nan_to_num.default, special(dtype), nan=2.0)
case(aten.nan_to_num_.default, special(), posinf=3.0)
for eps in (None, 0.1, 1e-6):
    case(aten.logit.default, torch.tensor([0.0, 0.05, 0.2, 0.5, 0.97, 1.0, 1.5, -0.5, float("nan")]), eps)
    case(aten.logit_.default, torch.rand(5, generator=torch.Generator().manual_seed(1)), eps)

# Activations with arguments.

for x in (special(), rand(4, 5, scale=3), rand(3, 4, dtype=torch.float64), rand(5, dtype=torch.float16, scale=3),
          rand(2, 5, dtype=torch.bfloat16, scale=3), rand(5, 3, scale=3).t()):
    for suffix in ("", "_") if x.dtype == torch.bfloat16 else ("",):
        x = x.clone()
        attempt(overload("hardtanh" + suffix), x.clone(), -0.5, 2)
        attempt(overload("hardtanh" + suffix), x.clone(), 0.0, 6.0)
        attempt(overload("elu" + suffix), x.clone(), 0.7, 1.3, 0.9)
        attempt(overload("celu" + suffix), x.clone(), 0.3)
        attempt(overload("leaky_relu" + suffix), x.clone(), 0.2)
        attempt(overload("leaky_relu" + suffix), x.clone(), -1)
        attempt(overload("threshold" + suffix), x.clone(), 0.1, 20)
        attempt(overload("threshold" + suffix), x.clone(), 1, -2.5)
        attempt(overload("rrelu" + suffix), x.clone(), 0.1, 0.4, False)
    attempt(aten.softplus.default, x, 2, 3.5)
    attempt(aten.softplus.default, x, 0.5)
    attempt(aten.hardshrink.default, x, 0.8)
    attempt(aten.softshrink.default, x, 0.8)
    attempt(aten.glu.default, torch.cat([x, x.flip(0)], 0), 0)
    attempt(aten.prelu.default, x, torch.tensor([0.3], dtype=x.dtype))
    if x.dim() > 1:
        attempt(aten.prelu.default, x, rand(x.shape[1], dtype=x.dtype))
        attempt(aten._prelu_kernel.default, x, rand(1, x.shape[1], dtype=x.dtype))
attempt(aten.hardtanh.default, ints(-9, 9, 8), -2, 5)
attempt(aten.hardtanh_.default, ints(-9, 9, 8, dtype=torch.int32), -2, 5)
attempt(aten.threshold.default, ints(-9, 9, 8), 1, 7)
attempt(aten.relu6.default, ints(-9, 9, 8))
case(aten.glu.default, rand(2, 3, 8), -1)
case(aten.glu.default, rand(2, 6, 5).transpose(0, 2), 1)
case(aten.glu.default, rand(4, 6, dtype=torch.bfloat16))
case(aten.prelu.default, rand(2, 3, 4, 5), rand(3))
case(aten.prelu.default, rand(6), rand(1))
case(aten.prelu.default, rand(2, 0, 4), rand(0))

# Two operands: every pair of dtypes, as tensors with dimensions, 0-dimensional tensors and Python numbers.

NUMBERS = [-3, 1.5, True]


def operand(dtype, kind, positive):
    return some(dtype, *{"dims": (2, 3), "zero": (), "row": (3,)}[kind], positive=positive)


def pairs(op, positive=False, dtypes=FEW, bound=None):
    """One call for each pair of dtypes, the ranks taking turns."""
    kinds = itertools.cycle([("dims", "dims"), ("dims", "zero"), ("zero", "dims"), ("dims", "row"), ("zero", "zero")])
    for a, b in itertools.product(dtypes, dtypes):
        ka, kb = next(kinds)
        attempt(op, operand(a, ka, False), operand(b, kb, positive), bound=bound)


def with_numbers(op, dtypes=FEW, numbers=NUMBERS, bound=None):
    for dtype in dtypes:
        for n in numbers:
            attempt(op, some(dtype, 3), n, bound=bound)
    attempt(op, some(torch.int64, ()), 1.5, bound=bound)


def reversed_numbers(op, dtypes=FEW, numbers=NUMBERS):
    for dtype in dtypes:
        for n in numbers:
            attempt(op, n, some(dtype, 5, positive=True))


def strided(op, dtype=torch.float32):
    """Operands that do not lie in order, and ones that broadcast: all of it once for each kind of kernel."""
    if op not in (aten.add.Tensor, aten.div.Tensor, aten.eq.Tensor, aten.bitwise_and.Tensor):
        attempt(op, some(dtype, 6, 8)[::2, 1::3], some(dtype, 3, 1, positive=True))
        attempt(op, some(dtype, 0, 3), some(dtype, 3, positive=True))
        return
    attempt(op, some(dtype, 4, 3).t(), some(dtype, 3, 4, positive=True))
    attempt(op, some(dtype, 2, 3, 4), some(dtype, 3, 1, positive=True))
    attempt(op, some(dtype, 2, 1, 4), some(dtype, 3, 1, positive=True))
    attempt(op, some(dtype, 5, 1), some(dtype, 7, positive=True))
    attempt(op, some(dtype, 6, 8)[::2, 1::3], some(dtype, 3, positive=True).expand(3, 3))
    attempt(op, some(dtype, 0, 3), some(dtype, 3, positive=True))
    attempt(op, some(dtype, 5), some(dtype, 1, positive=True))
    attempt(op, some(dtype, 2, 3, 4).permute(2, 0, 1), some(dtype, 4, 1, 3, positive=True))


def in_place(op, dtypes=(torch.float32, torch.int64), numbers=False):
    for dtype in dtypes:
        other = 2 if numbers else some(dtype, 4, positive=True)
        attempt(op, some(dtype, 3, 4), other)
        attempt(op, some(dtype, 6, 9)[::2, 2:6], other)
    if not numbers and op in (aten.add_.Tensor, aten.mul_.Tensor):
        attempt(op, some(torch.float32, 3), some(torch.float64, ()))
        attempt(op, some(torch.float32, 3), some(torch.int64, 3, positive=True))


# A bound of zero: there is one rounding, which PyTorch and we must do alike.
for name in "add sub mul div remainder fmod floor_divide".split():
    suffix = "default" if name == "floor_divide" else "Tensor"
    pairs(overload(name, suffix), positive=name != "mul", dtypes=ALL if name == "add" else FEW[:4], bound=0.0)
    strided(overload(name, suffix))
    with_numbers(overload(name, "Scalar"), bound=0.0)
    in_place(overload(name + "_", "Tensor"))
    in_place(overload(name + "_", "Scalar"), dtypes=[torch.float32, torch.int64], numbers=True)
    # Sleef's fmod gives NaN for quotients that are too large for it.
    odd = special()[:10] if "mod" in name or name == "remainder" else special()
    attempt(overload(name, suffix), odd[:, None], odd, bound=0.0)
    for dtype in FLOATS:
        attempt(overload(name, "Scalar"), some(dtype, 15), 0.1, bound=0.0)
        attempt(overload(name, suffix), some(dtype, 15), torch.tensor(0.1), bound=0.0)
        attempt(overload(name, suffix), torch.tensor(0.1), some(dtype, 15), bound=0.0)
    attempt(overload(name, suffix), torch.tensor([127, -128, 100], dtype=torch.int8),
            torch.tensor([2, 3, -3], dtype=torch.int8))
    attempt(overload(name, suffix), ints(-9, 9, 40), torch.tensor([-4]))
case(aten.add.Tensor, ints(-5, 6, 35, 67).float(), ints(-5, 6, 67, 35).float().t(), bound=0.0)
case(aten.mul.Tensor, ints(-5, 6, 2, 31, 37).bfloat16(), ints(-5, 6, 31, 1).bfloat16(), bound=0.0)
case(aten.sub.Tensor, ints(-5, 6, 35, 37), ints(-5, 6, 35, 1, dtype=torch.int32))
for name in "subtract multiply divide true_divide".split():
    strided(overload(name, "Tensor"))
    with_numbers(overload(name, "Scalar"), dtypes=[torch.float32, torch.int32])
    in_place(overload(name + "_", "Tensor"), dtypes=[torch.float32])
    in_place(overload(name + "_", "Scalar"), dtypes=[torch.float32], numbers=True)
for name in ("div", "divide"):
    for mode in (None, "floor", "trunc"):
        if name == "div":
            for a, b in itertools.product(FEW[:4] + [torch.int8], repeat=2):
                attempt(overload(name, "Tensor_mode"), some(a, 2, 3), some(b, 3, positive=True), rounding_mode=mode,
                        bound=0.0)
            case(overload(name, "Tensor_mode"), special()[:10, None], special()[:10], rounding_mode=mode, bound=0.0)
            for dtype in FLOATS:
                attempt(overload(name, "Tensor_mode"), rand(20, dtype=dtype, scale=20), torch.tensor(0.1),
                        rounding_mode=mode, bound=0.0)
                attempt(overload(name, "Scalar_mode"), rand(20, dtype=dtype, scale=20), 0.1, rounding_mode=mode,
                        bound=0.0)
        for n in (3, 0.7):
            attempt(overload(name, "Scalar_mode"), ints(-9, 9, 12), n, rounding_mode=mode)
            attempt(overload(name, "Scalar_mode"), rand(12, scale=9), n, rounding_mode=mode)
            attempt(overload(name + "_", "Scalar_mode"), rand(12, scale=9), n, rounding_mode=mode)
        case(overload(name, "Tensor_mode"), rand(5, scale=9), some(torch.float32, 5, positive=True), rounding_mode=mode)
        attempt(overload(name + "_", "Tensor_mode"), rand(3, 4, scale=9), some(torch.float32, 4, positive=True),
                rounding_mode=mode)
for name in ("add", "sub", "rsub", "subtract"):
    for alpha in (2, 0.3):
        for dtype in FEW if name != "subtract" else [torch.float32]:
            # In half precision PyTorch's vectorised loop rounds once, its scalar one twice.
            attempt(overload(name, "Tensor"), some(dtype, 2, 3), some(dtype, 3), alpha=alpha,
                    bound=0.0 if dtype == torch.float32 else None)
            attempt(overload(name, "Scalar"), some(dtype, 4), 3, alpha)
            if overload(name + "_", "Tensor"):
                attempt(overload(name + "_", "Tensor"), some(dtype, 2, 3), some(dtype, 3), alpha=alpha)
        attempt(overload(name, "Tensor"), rand(8), ints(-5, 5, 8), alpha=alpha)
        if overload(name + "_", "Scalar"):
            attempt(overload(name + "_", "Scalar"), rand(4), 3, alpha)
pairs(aten.rsub.Tensor, dtypes=[torch.float32, torch.bfloat16, torch.int64, torch.int8])
with_numbers(aten.rsub.Scalar)
reversed_numbers(aten.remainder.Scalar_Tensor)

for name in "atan2 arctan2 hypot nextafter heaviside gcd lcm maximum minimum fmax fmin logaddexp logaddexp2".split():
    op = overload(name)
    pairs(op, dtypes=FEW[:3])
    attempt(op, some(torch.bool, 3), some(torch.bool, 3))
    strided(op, torch.int64 if name in ("gcd", "lcm") else torch.float32)
    attempt(op, special()[:, None], special())
    attempt(op, special(torch.float64), special(torch.float64).flip(0))
    attempt(op, special(torch.float16), special(torch.float16).flip(0))
    if overload(name + "_"):
        in_place(overload(name + "_"))
for op in (aten.max.other, aten.min.other):
    pairs(op, dtypes=[torch.float32, torch.float16, torch.int32, torch.bool])
    strided(op)
for name in ("copysign", "xlogy"):
    for suffix in ("Tensor", "Scalar", "Scalar_Other"):
        op, twin = overload(name, suffix), overload(name + "_", suffix)
        if op is None:
            continue
        if suffix == "Tensor":
            pairs(op)
            strided(op)
            attempt(op, special()[:, None], special())
            in_place(twin)
        else:
            with_numbers(op, dtypes=[torch.float32, torch.int64], numbers=[2, -0.0, 1.5, True])
            in_place(twin, numbers=True)
reversed_numbers(aten.xlogy.Scalar_Self, dtypes=[torch.float32, torch.int64])
reversed_numbers(aten.special_xlogy.self_scalar, dtypes=[torch.float32])
strided(aten.special_xlogy.default)
with_numbers(aten.special_xlogy.other_scalar, dtypes=[torch.float32, torch.int64])
strided(aten.ldexp.Tensor)
case(aten.ldexp.Tensor, rand(5), ints(-4, 5, 5))
case(aten.ldexp.Tensor, ints(-4, 5, 5), ints(-4, 5, 5))
case(aten.ldexp_.default, rand(5), ints(-4, 5, 5))

# Powers.

POWERS = [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.0, 2.5, True]
for dtype in FEW + [torch.float16, torch.float64]:
    for n in POWERS:
        attempt(aten.pow.Tensor_Scalar, some(dtype, 4), n)
        if dtype.is_floating_point:
            attempt(aten.pow.Tensor_Scalar, special(dtype), n)
    for n in (2, 0.5, True):
        attempt(aten.pow.Scalar, n, some(dtype, 5))
    attempt(aten.pow_.Scalar, some(dtype, 5, positive=True), 2.5)
    attempt(aten.pow_.Scalar, some(dtype, 5, positive=True), 2)
    attempt(aten.float_power.Tensor_Scalar, some(dtype, 5, positive=True), 2.5)
    attempt(aten.float_power.Scalar, 2, some(dtype, 5))
pairs(aten.pow.Tensor_Tensor)
strided(aten.pow.Tensor_Tensor)
in_place(aten.pow_.Tensor)
for dtype in (torch.float32, torch.float16):
    case(aten.pow.Tensor_Tensor, special(dtype)[:, None], special(dtype))
case(aten.pow.Tensor_Tensor, ints(-3, 4, 40), ints(-3, 30, 40))
case(aten.pow.Tensor_Scalar, some(torch.float32, 45, 33).t(), 3.0)
case(aten.float_power.Tensor_Tensor, some(torch.float32, 5, positive=True), rand(5))
case(aten.float_power_.Scalar, some(torch.float64, 5, positive=True), 1.5)
case(aten.float_power_.Tensor, some(torch.float64, 5, positive=True), rand(5))

# Comparisons, logic and bits.

for name in "eq ne lt le gt ge not_equal less less_equal greater greater_equal".split():
    short = len(name) == 2
    pairs(overload(name, "Tensor"), dtypes=FEW if name in ("eq", "lt") else [torch.bfloat16, torch.int64])
    strided(overload(name, "Tensor"))
    with_numbers(overload(name, "Scalar"), dtypes=FEW if short else [torch.float32])
    in_place(overload(name + "_", "Tensor"), dtypes=[torch.float32, torch.int64])
    in_place(overload(name + "_", "Scalar"), dtypes=[torch.bfloat16, torch.bool], numbers=True)
    if short:
        case(overload(name, "Tensor"), special()[:, None], special())
        case(overload(name, "Tensor"), special(torch.float16), special(torch.float16).flip(0))
        case(overload(name, "Tensor"), ints(-2, 3, 35, 33), ints(-2, 3, 33, 35).t())
        case(overload(name, "Scalar"), torch.arange(12), 5)
case(aten.eq.Tensor, torch.tensor([2**53, 2**53 + 1, -1]), torch.tensor([2**53 + 1, 2**53 + 1, -1]))
for name in "logical_and logical_or logical_xor".split():
    pairs(overload(name))
    strided(overload(name), torch.bool)
    case(overload(name), special()[:, None], special())
    in_place(overload(name + "_"))
BITS = INTEGERS + [torch.bool]
for name in "bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__".split():
    pairs(overload(name, "Tensor"), dtypes=[torch.int64, torch.uint8, torch.bool])
    strided(overload(name, "Tensor"), torch.int64)
    strided(overload(name, "Tensor"), torch.bool)
    with_numbers(overload(name, "Scalar"), dtypes=BITS, numbers=[6, -3, True])
    if overload(name, "Scalar_Tensor"):
        reversed_numbers(overload(name, "Scalar_Tensor"), dtypes=BITS, numbers=[6, -3, True])
    twin = "__i" + name[2:] if name[0] == "_" else name + "_"
    in_place(overload(twin, "Tensor"))
    attempt(overload(twin, "Scalar"), ints(-9, 9, 5, 4).t(), 6)
    attempt(overload(twin, "Scalar"), ints(0, 2, 5, dtype=torch.bool), True)
for name in "bitwise_left_shift bitwise_right_shift __lshift__ __rshift__".split():
    scalar = "Tensor_Scalar" if name[0] == "b" else "Scalar"
    for dtype in INTEGERS:
        attempt(overload(name, "Tensor"), ints(0 if dtype == torch.uint8 else -100, 100, 6, dtype=dtype),
                torch.tensor([0, 1, 3, 5, 6, 2], dtype=dtype))
        attempt(overload(name, scalar), ints(0 if dtype == torch.uint8 else -100, 100, 6, dtype=dtype), 2)
    case(overload(name, "Tensor"), ints(-9, 9, 5)[:, None], torch.tensor([0, 1, 62]))
    twin = "__i" + name[2:] if name[0] == "_" else name + "_"
    attempt(overload(twin, "Tensor"), ints(-9, 9, 5), ints(0, 5, 5))
    attempt(overload(twin, scalar), ints(-9, 9, 5, 4).t(), 3)
    if overload(name, "Scalar_Tensor"):
        attempt(overload(name, "Scalar_Tensor"), 77, ints(0, 5, 5))
for rtol, atol, nan in ((1e-5, 1e-8, False), (1e-2, 0.0, True), (0.0, 0.0, True), (0.0, 0.5, False)):
    a = rand(20)
    case(aten.isclose.default, a, a + rand(20, scale=0.005), rtol, atol, nan)
    case(aten.isclose.default, special()[:, None], special(), rtol, atol, nan)
    case(aten.isclose.default, ints(-3, 3, 20), ints(-3, 3, 20), rtol, atol, nan)
    case(aten.isclose.default, rand(3, 1, dtype=torch.float64), rand(4, dtype=torch.float64), rtol, atol, nan)

# where, masked_fill and clamp.

for a, b in itertools.product(FEW, FEW):
    attempt(aten.where.self, ints(0, 2, 3, dtype=torch.bool), some(a, 2, 3), some(b, 3) if a != b else some(b, ()))
    attempt(aten.where.self, ints(0, 2, 2, 1, dtype=torch.bool), some(a, ()), some(b, 3))
for dtype in FEW + [torch.float64]:
    for n in NUMBERS:
        attempt(aten.where.ScalarOther, ints(0, 2, 4, dtype=torch.bool), some(dtype, 4), n)
        attempt(aten.where.ScalarSelf, ints(0, 2, 4, dtype=torch.bool), n, some(dtype, 2, 4))
        attempt(aten.masked_fill.Scalar, some(dtype, 2, 4), ints(0, 2, 4, dtype=torch.bool), n)
        attempt(aten.masked_fill_.Scalar, some(dtype, 2, 4), ints(0, 2, 4, dtype=torch.bool), n)
    attempt(aten.masked_fill.Tensor, some(dtype, 3, 4), ints(0, 2, 4, dtype=torch.bool), some(dtype, ()))
    attempt(aten.masked_fill_.Tensor, some(dtype, 4, 3).t(), ints(0, 2, 4, dtype=torch.bool), some(dtype, ()))
    attempt(aten.where.self, ints(0, 2, 3, 4, dtype=torch.bool).t(), some(dtype, 4, 3), some(dtype, 3, 4).t())
for a, b in ((1, 2), (1.5, 2), (True, False), (float("-inf"), 0.0)):
    case(aten.where.Scalar, ints(0, 2, 5, dtype=torch.bool), a, b)
case(aten.where.self, ints(0, 2, 5, dtype=torch.uint8), rand(5), rand(5))
case(aten.where.self, ints(0, 2, 65, 33, dtype=torch.bool), ints(0, 9, 33, 65).float().t(), some(torch.float32, 33))
case(aten.where.self, ints(0, 2, 0, 3, dtype=torch.bool), rand(0, 3), rand(3))
case(aten.where.self, ints(0, 2, 3, dtype=torch.bool), torch.complex(rand(3), rand(3)), torch.complex(rand(3), rand(3)))
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    case(aten.masked_fill.Scalar, rand(2, 1, 4, dtype=dtype), ints(0, 2, 3, 4, dtype=torch.bool), float("-inf"))
    case(aten.masked_fill.Scalar, rand(2, 3, dtype=dtype), ints(0, 2, 3, dtype=torch.bool), torch.finfo(dtype).min)
    case(aten.masked_fill_.Scalar, rand(2, 6, dtype=dtype)[:, ::2], ints(0, 2, 2, 1, dtype=torch.bool), -1e4)
for name in ("clamp", "clip"):
    for dtype in ALL if name == "clamp" else [torch.float32]:
        for low, high in ((-1, 2), (None, 1), (0, None), (-0.5, 1.5), (2, -2), (1, 2.5), (-300, 300)):
            attempt(overload(name), some(dtype, 5), low, high)
        attempt(overload(name + "_"), some(dtype, 4, 3).t(), -1.5, 1)
        attempt(overload(name + "_"), some(dtype, 5), -1, 3)
        attempt(overload(name, "Tensor"), some(dtype, 3, 5), some(dtype, 5), some(dtype, 3, 1))
        attempt(overload(name, "Tensor"), some(dtype, 3, 2), None, some(dtype, ()))
        attempt(overload(name + "_", "Tensor"), some(dtype, 3, 2), some(dtype, 2), None)
    case(overload(name, "Tensor"), ints(-5, 5, 6), rand(6), rand(1)[0])
    for dtype in FLOATS:
        case(overload(name), special(dtype), -1.0, 2.0)
        case(overload(name), special(dtype), None, 0.1)
        case(overload(name), special(dtype)[:5], float("nan"), 2.0)
        case(overload(name), special(dtype)[:5], -1.0, float("nan"))
    case(overload(name, "Tensor"), special()[:, None], special(), special().flip(0))
for name in ("clamp_min", "clamp_max"):
    for dtype in FEW:
        for n in (1, 0.5, -2):
            attempt(overload(name), some(dtype, 4), n)
        attempt(overload(name + "_"), some(dtype, 4, 3).t(), 1)
        attempt(overload(name, "Tensor"), some(dtype, 3, 2), some(dtype, 2))
        attempt(overload(name + "_", "Tensor"), some(dtype, 3, 2), some(dtype, ()))
    case(overload(name), special(), float("nan"))
    case(overload(name, "Tensor"), ints(-5, 5, 6), rand(6))

# Three operands.

for dtype in FEW + [torch.float64, torch.float16]:
    for value in (1, 2, 0.3):
        for name in ("addcmul", "addcdiv"):
            column, row = some(dtype, 3, 1), some(dtype, 4, positive=True)
            attempt(overload(name), some(dtype, 3, 4), column, row, value=value)
            attempt(overload(name + "_"), some(dtype, 4, 3).t(), column, row, value=value)
    for w in (0.25, 0.5, 0.9, 2, -1.5):
        attempt(aten.lerp.Scalar, some(dtype, 3, 4), some(dtype, 4), w)
        attempt(aten.lerp_.Scalar, some(dtype, 3, 4), some(dtype, 4), w)
    attempt(aten.lerp.Tensor, some(dtype, 3, 4), some(dtype, 4), some(dtype, 3, 1))
    attempt(aten.lerp_.Tensor, some(dtype, 3, 4), some(dtype, 4), some(dtype, 3, 1))
case(aten.addcmul.default, rand(3), rand(3, dtype=torch.float64), ints(0, 5, 3))
case(aten.lerp.Tensor, special(), special().flip(0), rand(16))
# Halves against thresholds between two of them.
for dtype in (torch.float16, torch.bfloat16):
    near = torch.tensor([0.1, 0.3, 1 / 3, 2.7]).to(dtype)
    near = torch.cat([near, torch.nextafter(near, near + 1), torch.nextafter(near, near - 1), special(dtype)])
    for low in (0.1, 0.3, 1 / 3, 2.7, 70000.0):
        case(aten.threshold.default, near, low, -9)
        case(aten.threshold_.default, near.clone(), low, 0.1)

save("elementwise")
