"""Cases of recurrent layers and cells."""

import torch

from recorder import aten, case, ints, rand, save, special

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
FLOATS = (F32, F64, F16, BF16)
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Half floats: PyTorch rounds the gates too, and each step builds on the one before.
HALF_BOUND = {F16: 4e-3, BF16: 3e-2}


def layer(kind, width, hidden, layers=1, both=False, biases=True, project=0, dtype=F32):
    """The parameters as torch.nn.LSTM flattens them."""
    params = []
    directions = 2 if both else 1
    state = project or hidden
    for n in range(layers):
        for _ in range(directions):
            rows = GATES[kind] * hidden
            params += [rand(rows, width if n == 0 else state * directions, dtype=dtype, scale=0.5),
                       rand(rows, state, dtype=dtype, scale=0.5)]
            if biases:
                params += [rand(rows, dtype=dtype, scale=0.5), rand(rows, dtype=dtype, scale=0.5)]
            if project:
                params.append(rand(state, hidden, dtype=dtype, scale=0.5))
    return params


def states(kind, batch, hidden, layers=1, both=False, project=0, dtype=F32):
    n = layers * (2 if both else 1)
    h = rand(n, batch, project or hidden, dtype=dtype)
    return [h, rand(n, batch, hidden, dtype=dtype)] if kind == "lstm" else h


def run(kind, steps, batch, width, hidden, layers=1, both=False, biases=True, project=0, dtype=F32, batch_first=False,
        x=None, train=False, note=""):
    if x is None:
        x = rand(*((batch, steps) if batch_first else (steps, batch)), width, dtype=dtype)
    case(getattr(aten, kind).input, x, states(kind, batch, hidden, layers, both, project, dtype),
         layer(kind, width, hidden, layers, both, biases, project, dtype), biases, layers, 0.0, train, both, batch_first,
         bound=HALF_BOUND.get(dtype), note=note)


def packed(kind, sizes, width, hidden, layers=1, both=False, biases=True, project=0, dtype=F32):
    case(getattr(aten, kind).data, rand(sum(sizes), width, dtype=dtype), torch.tensor(sizes),
         states(kind, sizes[0], hidden, layers, both, project, dtype),
         layer(kind, width, hidden, layers, both, biases, project, dtype), biases, layers, 0.0, False, both)


for kind in GATES:
    for d in FLOATS:
        run(kind, 3, 2, 4, 3, dtype=d)
    run(kind, 3, 2, 4, 3, layers=2, both=True)
    run(kind, 3, 2, 4, 3, biases=False, both=True)
    run(kind, 3, 2, 4, 3, layers=3, batch_first=True)
    run(kind, 2, 5, 4, 3, both=True, batch_first=True, dtype=F64)
    run(kind, 3, 2, 4, 3, train=True, note="training without dropout")
    run(kind, 1, 1, 4, 3)
    run(kind, 300, 1, 2, 2, note="more steps than a chunk")
    run(kind, 140, 2, 2, 2, both=True, note="more steps than a chunk")
    run(kind, 3, 2, 4, 3, x=rand(4, 3, 4).permute(1, 2, 0)[:, 1:3], note="a strided sequence")
    run(kind, 4, 4, 4, 3, x=special().reshape(4, 1, 4).expand(4, 4, 4), note="NaN and infinities")
    packed(kind, [3, 2, 2, 1], 4, 3)
    packed(kind, [3, 2, 2, 1], 4, 3, layers=2, both=True)
    packed(kind, [2, 2], 4, 3, biases=False)
    for d in FLOATS:
        x, h = rand(3, 5, dtype=d), states(kind, 3, 4, dtype=d)
        h = [s[0] for s in h] if kind == "lstm" else h[0]
        case(getattr(aten, kind + "_cell").default, x, h, *layer(kind, 5, 4, dtype=d), bound=HALF_BOUND.get(d))
    h = states(kind, 3, 4)
    h = [s[0] for s in h] if kind == "lstm" else h[0]
    case(getattr(aten, kind + "_cell").default, rand(5, 3).t(), h, *layer(kind, 5, 4, biases=False))
run("lstm", 3, 2, 4, 5, project=2)
run("lstm", 3, 2, 4, 5, layers=2, both=True, project=2)
run("lstm", 3, 2, 4, 5, both=True, project=2, biases=False, dtype=F64)
packed("lstm", [3, 3, 1], 4, 5, layers=2, both=True, project=2)
run("lstm", 2, 33, 9, 17, both=True, note="across blocks")
run("gru", 2, 33, 9, 17, note="across blocks")

save("recurrent")
