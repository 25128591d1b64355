"""The classes that the fixtures name. They are in a module of their own so that a pickle says `fixtures_models.Net`."""

import enum
from collections import OrderedDict, namedtuple

import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self):
        super(MLP, self).__init__()
        self.fc1 = nn.Linear(4, 6)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Rearrange(nn.Module):
    """A layer that pickles its attributes alone, as those of einops do, and is made anew from them."""

    def __init__(self, pattern):
        super(Rearrange, self).__init__()
        self.pattern = pattern

    def forward(self, x):
        return x.flatten(1)

    def __getstate__(self):
        return {"pattern": self.pattern}

    def __setstate__(self, state):
        super(Rearrange, self).__init__()
        self.__dict__.update(state)


class CNN(nn.Module):
    def __init__(self):
        super(CNN, self).__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        return self.fc(torch.flatten(x, 1))


class Net(nn.Module):
    """Everything that a module can hold: None parameters, hooks, buffers, plain attributes of all types."""

    def __init__(self):
        super(Net, self).__init__()
        self.width = 5
        self.rate = 0.25
        self.label = "gr\u00fcn"
        self.flag = True
        self.nothing = None
        self.sizes = (1, [2, 3.5, "x"])
        self.table = {"a": 1, "b": [True, None]}
        self.big = 1 << 40
        self.huge = 1 << 70
        self.scale = nn.Parameter(torch.arange(3.0))
        self.register_parameter("absent", None)
        self.register_buffer("steps", torch.tensor([7, 8, 9]))
        self.register_buffer("gone", None)
        self.loose = torch.full((2, 2), 1.5)
        self.inner = MLP()
        self.again = self.inner
        self.add_module("empty", None)
        self.inner.fc1.register_forward_hook(hook)
        self.register_forward_pre_hook(pre_hook)
        self.activation = nn.functional.relu
        self.dtype = torch.float16
        self.device = torch.device("cpu")
        self.shape = torch.Size([2, 3])

    def forward(self, x):
        return self.activation(self.inner(x)) * self.scale


def hook(module, args, output):
    return None


def pre_hook(module, args):
    return None


class Containers(nn.Module):
    def __init__(self):
        super(Containers, self).__init__()
        mid = nn.Sequential(nn.Tanh(), nn.Linear(3, 3))
        self.seq = nn.Sequential(OrderedDict([("in", nn.Linear(2, 3)), ("mid", mid)]))
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.ModuleList([nn.Identity(), nn.Linear(2, 1)])])
        self.heads = nn.ModuleDict(OrderedDict([("left", nn.Linear(2, 2)), ("right", nn.Embedding(5, 2))]))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(1))])
        self.table = nn.ParameterDict({"p": nn.Parameter(torch.tensor(2.0))})

    def forward(self, x):
        return self.seq(x)


class Tied(nn.Module):
    def __init__(self):
        super(Tied, self).__init__()
        self.embed = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(self.embed(ids))


class Recurrent(nn.Module):
    def __init__(self):
        super(Recurrent, self).__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(3, 2)

    def forward(self, x):
        return self.lstm(x)[0]


class Attention(nn.Module):
    def __init__(self):
        super(Attention, self).__init__()
        self.mha = nn.MultiheadAttention(8, 2)
        self.cross = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, add_bias_kv=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, norm=nn.LayerNorm(8))

    def forward(self, x):
        return self.encoder(self.mha(x, x, x)[0])


class Buffers(nn.Module):
    """Buffers in and out of the state dict, the same tensor twice, a parameter that is a view."""

    def __init__(self):
        super(Buffers, self).__init__()
        base = torch.arange(12.0)
        self.register_buffer("kept", base.reshape(3, 4).t())
        self.register_buffer("alias", self.kept)
        self.register_buffer("part", base[3:6], persistent=False)
        self.weight = nn.Parameter(base[6:], requires_grad=False)

    def forward(self, x):
        return x


class Outer:
    """Protocol 2 spells the nested class `getattr(Outer, "Inner")`: a legitimate file with a getattr in it."""

    class Inner:
        def __init__(self):
            self.value = 3


class Config:
    """A plain object that a training script put into its checkpoint."""

    def __init__(self):
        self.name = "tiny"
        self.depth = 2
        self.table = torch.arange(4, dtype=torch.int16)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left = 1
        self.right = "r"


class Level(enum.Enum):
    """Pickled as a call of the class."""

    LOW = 1
    HIGH = 2


Pair = namedtuple("Pair", ["first", "second"])


class TaggedTensor(torch.Tensor):
    pass


class TaggedParameter(nn.Parameter):
    pass
