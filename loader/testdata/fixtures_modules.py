"""Fixtures of whole pickled modules and of training checkpoints."""

import argparse
import collections
import datetime
import functools
import pathlib

import numpy as np
import torch
from torch import nn

import fixtures_models as models
from fixtures_save import refused, save
from make_fixtures import group


@group("modules")
def modules():
    """torch.save(model): the object, not its state dict."""
    save("mod_mlp.pt", models.MLP())
    save("mod_cnn.pt", models.CNN().eval())
    refused("mod_own_state.refused.pt", "fixtures_models.Rearrange is pickled in a form of its own",
            lambda path: torch.save(nn.Sequential(nn.Linear(2, 3), models.Rearrange("b c -> b c")), path))
    save("mod_net.pt", models.Net())
    save("mod_containers.pt", models.Containers())
    save("mod_recurrent.pt", models.Recurrent())
    save("mod_attention.pt", models.Attention())
    save("mod_tied.pt", models.Tied())
    save("mod_buffers.pt", models.Buffers())
    save("mod_weight_norm.pt", nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(2, 3)), nn.ReLU()))
    save("mod_spectral_norm.pt", torch.nn.utils.spectral_norm(nn.Linear(2, 3)))
    save("mod_parametrized_state.pt", parametrized().state_dict())
    save("mod_resnet.pt", resnet())
    save("mod_dataparallel.pt", nn.DataParallel(models.MLP()))
    save("mod_list.pt", [models.MLP(), nn.ReLU()])
    save("mod_protocol4.pt", models.CNN(), pickle_protocol=4)
    save("mod_getattr.pt", {"inner": models.Outer.Inner(), "weight": torch.ones(2)})
    save("mod_partial.pt", {"weight": torch.ones(2), "norm": functools.partial(nn.LayerNorm, eps=1e-6)})
    save("mod_defaultdict.pt", {"weight": torch.ones(2), "counts": collections.defaultdict(list, {"a": [1]})})
    save("mod_enum.pt", {"weight": torch.ones(2), "level": models.Level.HIGH})


def parametrized():
    m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
    torch.nn.utils.parametrizations.weight_norm(m[0])
    torch.nn.utils.parametrizations.orthogonal(m[1])
    return m


def resnet():
    """A residual network out of torchvision's own blocks, four channels wide."""
    from torchvision.models.resnet import BasicBlock
    torch.manual_seed(1)
    down = nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6))
    return nn.Sequential(collections.OrderedDict([
        ("conv1", nn.Conv2d(3, 4, 7, 2, 3, bias=False)), ("bn1", nn.BatchNorm2d(4)), ("relu", nn.ReLU(inplace=True)),
        ("maxpool", nn.MaxPool2d(3, 2, 1)), ("layer1", nn.Sequential(BasicBlock(4, 4))),
        ("layer2", nn.Sequential(BasicBlock(4, 6, 2, down), BasicBlock(6, 6))),
        ("avgpool", nn.AdaptiveAvgPool2d((1, 1))), ("flatten", nn.Flatten()), ("fc", nn.Linear(6, 5)),
    ])).eval()


def adam(model):
    """Two steps of Adam, so that its state exists."""
    torch.manual_seed(2)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        opt.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        opt.step()
    return opt


def prefixed(prefix, state):
    return collections.OrderedDict((prefix + k, v) for k, v in state.items())


@group("train")
def training():
    """Checkpoints of training scripts: a state dict and what lies around it."""
    m = models.MLP()
    opt = adam(m)
    state = m.state_dict()
    args = argparse.Namespace(lr=0.1, arch="mlp", resume=None, sizes=[1, 2], nested=argparse.Namespace(a=1))
    save("train_args.pth.tar", {"epoch": 90, "arch": "mlp", "state_dict": state, "best_acc1": torch.tensor(76.5),
                                "optimizer": opt.state_dict(), "args": args})
    sgd = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    m(torch.ones(1, 4)).sum().backward()
    sgd.step()
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 3)
    save("train_model.pth", {"model": state, "optimizer": sgd.state_dict(), "lr_scheduler": schedule.state_dict(),
                             "epoch": 1,
                             "scaler": {"scale": 65536.0, "growth_tracker": 0}})
    save("train_model_state_dict.pt", {"model_state_dict": state, "optimizer_state_dict": opt.state_dict(), "loss": 0.5,
                                       "rng": torch.get_rng_state()[:16]})
    save("train_ema.pt", {"ema": prefixed("", state), "step": 1000})
    save("train_ema_nested.pt", {"ema": {"model": state, "decay": 0.999}, "model": None})
    save("train_lightning.ckpt", lightning(state, opt))
    save("train_module_prefix.pt", prefixed("module.", state))
    save("train_orig_mod_prefix.pt", {"state_dict": prefixed("_orig_mod.", state)})
    save("train_both_prefixes.pt", {"model": prefixed("module._orig_mod.", state), "epoch": 3})
    save("train_both_prefixes_reversed.pt", {"model": prefixed("_orig_mod.module.", state)})
    mixed = prefixed("module.", state)
    mixed["bare.weight"] = torch.ones(1)
    save("train_mixed_prefix.pt", mixed)
    save("train_deepspeed.pt", {"module": state, "optimizer": None, "global_steps": 10, "ds_version": "0.14.0"})
    save("train_whole_module.pt", {"epoch": 7, "model": models.CNN().half(), "ema": None, "updates": 12,
                                   "train_args": {"lr0": 0.01, "imgsz": 640, "names": {0: "cat", 1: "dog"}},
                                   "date": "2024-01-02"})
    save("train_config.pt", {"state_dict": state, "config": models.Config(), "slots": models.Slotted()},
         pickle_protocol=2)
    save("train_paths.pt", {"model": state, "path": pathlib.PurePosixPath("runs/exp1"),
                            "when": datetime.datetime(2024, 1, 2, 3, 4, 5)})
    save("train_numpy.pt", {"model": state, "best": np.float64(0.75), "history": np.arange(3, dtype=np.float32)})
    save("train_numpy_protocol5.pt", {"model": state, "history": np.arange(3, dtype=np.float32)}, pickle_protocol=5)


def lightning(state, opt):
    return {
        "epoch": 2, "global_step": 20, "pytorch-lightning_version": "2.2.0",
        "state_dict": prefixed("model.", state),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 2, "completed": 1}}}},
        "callbacks": {"ModelCheckpoint{'monitor': 'loss', 'mode': 'min'}": {"best_model_score": torch.tensor(0.25),
                                                                      "best_model_path": ""}},
        "optimizer_states": [opt.state_dict()],
        "lr_schedulers": [{"base_lrs": [0.001], "last_epoch": 2}],
        "hparams_name": "kwargs", "hyper_parameters": {"lr": 0.001, "layers": 2, "name": "mlp"},
    }
