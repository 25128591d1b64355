"""Writes same.pt, a model that gives back what is not below zero: what a request for it takes is the server's.

    python serve/testdata/make_same.py serve/testdata/same.pt
"""

import sys

import torch

torch.jit.script(torch.nn.ReLU()).save(sys.argv[1])
