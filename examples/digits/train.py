"""Trains the small CNN of this folder on the handwritten digits that ship inside scikit-learn, and writes it in the
four forms that PyTorch users have: a state dict, a whole module, a TorchScript archive and an exported program.

    python train.py

needs torch and scikit-learn. Beside the checkpoints it writes a handful of held-out pictures, and in digits.json their
labels, PyTorch's logits for them, and its accuracy over all held-out pictures.
"""

import json
import pathlib
from collections import OrderedDict

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = pathlib.Path(__file__).parent
SEED = 7
PICTURES = 8


def build() -> nn.Module:
    """A plain nn.Sequential, so that every form names PyTorch's own classes only."""

    def block(channels_in: int, channels_out: int) -> nn.Sequential:
        return nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
                norm=nn.BatchNorm2d(channels_out),
                relu=nn.ReLU(),
            )
        )

    return nn.Sequential(
        OrderedDict(
            stem=block(1, 16),
            middle=block(16, 32),
            pool=nn.MaxPool2d(2),
            top=block(32, 48),
            flatten=nn.Flatten(),
            hidden=nn.Linear(48 * 4 * 4, 48),
            act=nn.ReLU(),
            drop=nn.Dropout(0.2),
            classify=nn.Linear(48, 10),
        )
    )


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    digits = load_digits()
    x = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    train, held_out = train_test_split(np.arange(len(y)), test_size=0.25, random_state=SEED, stratify=digits.target)

    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = 30 * ((len(train) + 63) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for _ in range(30):
        for batch in torch.randperm(len(train)).split(64):
            rows = train[batch.numpy()]
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        logits = model(x[held_out])
    right = int((logits.argmax(1) == y[held_out]).sum())

    example = x[held_out][:2]
    batch = torch.export.Dim("batch", min=1, max=1024)
    torch.save(model.state_dict(), HERE / "digits.pth")
    torch.save(model, HERE / "digits_module.pt")
    torch.jit.trace(model, example).save(str(HERE / "digits_script.pt"))
    program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of the machine that trained
    torch.export.save(program, HERE / "digits.pt2")

    np.save(HERE / "held_out.npy", (digits.images[held_out]).astype(np.uint8))
    np.save(HERE / "pictures.npy", x[held_out][:PICTURES].numpy())
    (HERE / "digits.json").write_text(
        json.dumps(
            {
                "torch": torch.__version__.split("+")[0],
                "held_out": len(held_out),
                "right": right,
                "held_out_labels": y[held_out].tolist(),
                "labels": y[held_out][:PICTURES].tolist(),
                "logits": [[round(v, 6) for v in row] for row in logits[:PICTURES].tolist()],
            }
        )
        + "\n"
    )
    print(f"{right} of {len(held_out)} held-out digits right")


if __name__ == "__main__":
    main()
