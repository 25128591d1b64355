"""What the zoo knows of a model: how to build it, its inputs, what is dynamic."""

from dataclasses import dataclass, field

import torch

import zoo_hash

MODELS = {}


@dataclass
class In:
    """A tensor among the arguments, described so that Go can make it: hash, ints or literal."""

    shape: tuple = ()
    dtype: torch.dtype = torch.float32
    offset: float = 0.0
    scale: float = 1.0
    low: int | None = None
    high: int | None = None
    literal: torch.Tensor | None = None

    def tensor(self, name):
        if self.literal is not None:
            return self.literal.clone()
        if self.low is not None:
            return zoo_hash.integers("input:" + name, self.shape, self.dtype, self.low, self.high)
        return zoo_hash.floats("input:" + name, self.shape, self.dtype, self.offset, self.scale)


def ids(*shape, high=200, low=0, dtype=torch.int64):
    return In(shape, dtype, low=low, high=high)


def image(*shape):
    return In(shape, scale=1.7)


def literal(values, dtype=None):
    t = torch.as_tensor(values, dtype=dtype)
    return In(tuple(t.shape), t.dtype, literal=t)


@dataclass
class Case:
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    # The state that the case before left is kept.
    continues: bool = False


@dataclass
class Spec:
    model: torch.nn.Module
    cases: list
    # How the model was built, for a reader.
    config: str = ""
    # torch.export's dynamic_shapes.
    dynamic: object = None
    # Regular expression of a weight's name -> (offset, scale), before calibration.
    weights: dict = field(default_factory=dict)
    calibrate: bool = True
    # Whether the model is run in float64 too.
    double: bool = True
    # Why the program must be refused: "data-dependent" or "ops".
    unsupported: str = ""
    # The largest difference between the exported program and the model, as a part of the largest output.
    agree: float = 2e-5


def model(family, name):
    def register(f):
        assert (family, name) not in MODELS, name
        MODELS[family, name] = f
        return f

    return register
