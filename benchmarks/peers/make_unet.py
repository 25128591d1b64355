"""Write the denoiser of Stable Diffusion 1.5 with random weights: as a program, and its weights alone, for PyTorch.

    python make_unet.py FOLDER

It takes two latents of 64×64, which are pictures of 512×512 with and without their text, as in each step of a pipeline.
"""

import pathlib
import sys

import torch
from diffusers import UNet2DConditionModel
from safetensors.torch import save_file

from paging_peers import UNET, inputs


class Noise(torch.nn.Module):
    """Its output alone, without the class around it."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, t, e):
        return self.net(x, t, e, return_dict=False)[0]


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
net = UNet2DConditionModel(**UNET).eval()
save_file(net.state_dict(), folder / "unet.safetensors")
with torch.no_grad():
    torch.export.save(torch.export.export(Noise(net), inputs("unet", net, 2, 64)), folder / "unet.pt2")
