"""Models for make_script.py that write where a mask is true what they compute of what it selects."""

import torch
from torch import nn, Tensor


class Selected(nn.Module):
    """Changes what a mask selects: in place, by functions, of all of a tensor, its rows and its columns."""

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor):
        y = x.clone()
        y[mask] += 2.5
        y[mask] = torch.sigmoid(y[mask] * 2).to(torch.float64).to(torch.float32) - bias[0]
        rows = mask[:, 0]
        y[rows] = y[rows].relu() * bias
        y[rows, 1:] = -y[rows, 1:]
        y[:, 2][rows] *= y[:, 1][rows]
        n = (y * 16).to(torch.int64)
        big = n > 3
        n[big] -= n[big] * 2
        return y, n
