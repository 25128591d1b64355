#!/usr/bin/env python3
"""Records what PyTorch says of ops without their numbers: the FLOPs that its counter gives, and the sizes of pools.

    python layers/testdata/record.py

writes costs.json beside itself. Sizes of pools are [n, kernel, stride, padding, dilation, ceil_mode, size], size 0 where
PyTorch refuses.
"""
import itertools
import json
import pathlib

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode


def flops(call):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


def x(*shape):
    return torch.randn(*shape)


def recurrent(cls, steps, rows, inputs, state, **more):
    module = cls(inputs, state, **more)
    # Products of matrices, as training computes them: inference goes by one op, which the counter does not know.
    with torch.backends.mkldnn.flags(enabled=False):
        return flops(lambda: module(x(steps, rows, inputs)))


def pool(n, kernel, stride, padding, dilation, ceil):
    try:
        return F.max_pool1d(x(1, 1, n), kernel, stride, padding, dilation, ceil).shape[2]
    except RuntimeError:
        return 0


heads = x(2, 3, 5, 8), x(2, 3, 7, 8), x(2, 3, 7, 6)
record = {
    "torch": torch.__version__,
    "flops": {
        "matmul [2 3 4] [2 4 5]": flops(lambda: torch.bmm(x(2, 3, 4), x(2, 4, 5))),
        "linear [6 8] [5 8]": flops(lambda: F.linear(x(6, 8), x(5, 8), x(5))),
        "attention": flops(lambda: torch.bmm(torch.softmax(torch.bmm(
            heads[0].view(6, 5, 8), heads[1].view(6, 7, 8).transpose(1, 2)), 2), heads[2].view(6, 7, 6))),
        "conv": flops(lambda: F.conv2d(x(2, 4, 7, 6), x(6, 2, 3, 3), None, 2, 1, 1, 2)),
        "conv transposed": flops(lambda: F.conv_transpose2d(x(2, 4, 7, 6), x(4, 3, 3, 3), None, 2, 1, 1, 2)),
        "lstm": recurrent(torch.nn.LSTM, 5, 3, 4, 6),
        "gru, two directions": recurrent(torch.nn.GRU, 5, 3, 4, 6, bidirectional=True),
        "lstm with a projection": recurrent(torch.nn.LSTM, 5, 3, 4, 6, proj_size=2),
    },
    "pools": [
        [*c, pool(*c)]
        for c in itertools.product(range(2, 8), (2, 3), (2, 3), (0, 1), (1, 2), (False, True))
    ],
}
text = json.dumps(record, separators=(",", ":"))
pathlib.Path(__file__).with_name("costs.json").write_text(text.replace('],[', '],\n[') + "\n")
