"""Writes state_dicts.json: for every classification, segmentation and video model of torchvision, how many entries its
state dict has, and a hash of their names, dtypes and shapes in order.

    python make_state_dicts.py

needs torch and torchvision. Most models are made on the meta device, so nothing is computed.
"""

import hashlib
import json
import pathlib
import warnings

import torch
import torchvision


def make(name):
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name.startswith(("fcn_", "deeplabv3_", "lraspp_")):
        options["weights_backbone"] = None
    try:
        with torch.device("meta"):
            return torchvision.models.get_model(name, weights=None, **options)
    except NotImplementedError:  # RegNet computes its widths with tensors
        return torchvision.models.get_model(name, weights=None, **options)


def main():
    warnings.simplefilter("ignore")
    modules = [torchvision.models, torchvision.models.segmentation, torchvision.models.video]
    out = {"torchvision": torchvision.__version__.split("+")[0]}
    for name in sorted({n for m in modules for n in torchvision.models.list_models(module=m)}):
        entries = make(name).state_dict()
        text = "".join(
            f"{k} {str(v.dtype).removeprefix('torch.')} {list(v.shape)}\n".replace(",", "") for k, v in entries.items())
        out[name] = {"entries": len(entries), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    path = pathlib.Path(__file__).parent / "state_dicts.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
