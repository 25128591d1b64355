"""Writes ../grids.bin: the grids of IQ1 to IQ3 as Python's package gguf has them, one behind the other, packed.

    pip install gguf && python make_grids.py

ggml's grids are under the MIT licence (https://github.com/ggml-org/ggml).
"""

from gguf import quants

with open("../grids.bin", "wb") as f:
    for kind in (quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S):
        f.write(bytes.fromhex(kind.grid_hex.decode()))
