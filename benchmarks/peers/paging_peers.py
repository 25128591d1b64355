"""Run a network in PyTorch in one of the ways that there are for models larger than memory, and say what each pass took.

    python paging_peers.py HOW NETWORK PATH [options]

NETWORK is "mlp" (linear layers with ReLU between them), "llama" (a Hugging Face folder), "unet" (of make_unet.py) or a
name of torchvision's.
PATH is a checkpoint that torch.load or safetensors reads, or the folder. HOW is one of:

    plain         the weights are read into memory once
    mmap          the weights are mapped: torch.load(mmap=True), safetensors, or what transformers does
    cpu_offload   accelerate's, over mapped weights
    disk_offload  accelerate's, out of the safetensors file
    page          pytorch-optimem's page mode: each module without children, or each module of fewer parameters than
                  --max-layer-size, is copied to the device just before it runs and dropped after. The device is
                  memory here and the host a mapped file. (The Python original copies the weights back as well.)
    chunk         pytorch-optimem's chunk mode: modules are copied to the device for good while the sum of all
                  parameters seen is within --capacity; the rest is computed where it lies

Prints a JSON object. Inputs are those of benchmarks/paging.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

import torch


UNET = {"sample_size": 64, "cross_attention_dim": 768}  # of Stable Diffusion 1.5; the rest is what diffusers takes by default


def checkpoint(path, mapped):
    """The state dict of a file."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load, load_file

        return load_file(path) if mapped else load(path.read_bytes())
    return torch.load(path, mmap=mapped, weights_only=True)


def build(network, path, mapped):
    """The network with the weights of the checkpoint, as float32 on the CPU."""
    if network == "llama":
        import transformers

        return transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    state = checkpoint(path, mapped)
    with torch.device("meta"):
        if network == "mlp":
            weights = [v for k, v in state.items() if k.endswith(".weight")]
            parts = [m for w in weights for m in (torch.nn.Linear(w.shape[1], w.shape[0]), torch.nn.ReLU())]
            model = torch.nn.Sequential(*parts[:-1])
        elif network == "unet":
            from diffusers import UNet2DConditionModel

            model = UNet2DConditionModel(**UNET)
        else:
            import torchvision

            model = torchvision.models.get_model(network)
    model.load_state_dict(state, assign=True)
    return model.eval()


def inputs(network, model, rows, size):
    def whole(*shape):
        return ((torch.arange(torch.Size(shape).numel()) * 7919) % 1009).reshape(shape)

    def real(*shape):
        return whole(*shape).float() / 1009 - 0.5

    if network == "llama":
        return (whole(rows, size),)
    if network == "unet":
        return real(rows, 4, size, size), whole(), real(rows, 77, UNET["cross_attention_dim"])
    return (real(rows, model[0].in_features) if network == "mlp" else real(rows, 3, size, size),)


def parts(model, limit):
    """The modules that are moved as one."""
    for child in model.children():
        params = sum(p.numel() for p in child.parameters())
        if params < limit or not list(child.children()):
            yield child, params
        else:
            yield from parts(child, limit)


def page(model, limit):
    def load(module, *_):
        module.host = [(t, t.data) for t in (*module.parameters(), *module.buffers())]
        for t, data in module.host:
            t.data = data.clone()

    def drop(module, *_):
        for t, data in module.host:
            t.data = data

    for module, _ in parts(model, limit):
        module.register_forward_pre_hook(load)
        module.register_forward_hook(drop)


def chunk(model, capacity):
    seen = 0
    for module, params in parts(model, -1):
        seen += params
        if seen <= capacity:
            for t in (*module.parameters(), *module.buffers()):
                t.data = t.data.clone()


def disk_offload(model, path):
    from accelerate import disk_offload

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if any(f.suffix != ".safetensors" for f in files) or not files:
        raise SystemExit("disk_offload is for safetensors")
    from safetensors import safe_open

    prefix = getattr(model, "base_model_prefix", "")
    index = {}
    names = set(model.state_dict())
    for f in files:
        with safe_open(f, framework="pt") as tensors:
            for name in tensors.keys():
                own = name if name in names else name.removeprefix(prefix + ".")
                index[own] = {"safetensors_file": str(f), "weight_name": name, "dtype": "float32"}
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "index.json").write_text(json.dumps(index))
    return disk_offload(model, folder, execution_device=torch.device("cpu"))


def read_bytes():
    """What this process has made the disk read."""
    try:
        lines = pathlib.Path("/proc/self/io").read_text().split("\n")
    except OSError:
        return 0
    return next(int(x.split()[1]) for x in lines if x.startswith("read_bytes"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how")
    parser.add_argument("network")
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-layer-size", type=int, default=-1)
    parser.add_argument("--capacity", type=int, default=0)
    parser.add_argument("--wait", action="store_true",
                        help="before the passes, print a line to standard error and wait for one on standard input")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = build(args.network, args.path, mapped=args.how != "plain")
    x = inputs(args.network, model, args.rows, args.size)
    if args.how == "plain":
        for t in model.parameters():
            t.data = t.data.clone()
    elif args.how == "cpu_offload":
        from accelerate import cpu_offload

        model = cpu_offload(model, execution_device=torch.device("cpu"))
    elif args.how == "disk_offload":
        model = disk_offload(model, args.path)
    elif args.how == "page":
        page(model, args.max_layer_size)
    elif args.how == "chunk":
        chunk(model, args.capacity)
    elif args.how != "mmap":
        raise SystemExit(f"no way called {args.how}")
    # transformers' models keep a cache for generating where they are not told not to.
    options = {"llama": {"use_cache": False}, "unet": {"return_dict": False}}.get(args.network, {})
    out = {"first_seconds": None, "seconds": [], "torch": torch.__version__}
    if args.wait:
        print("ready", file=sys.stderr, flush=True)
        sys.stdin.readline()
    with torch.inference_mode():
        for run in range(args.runs + 1):
            before = read_bytes()
            begin = time.perf_counter()
            y = model(*x, **options)
            y = y if torch.is_tensor(y) else y[0]
            seconds = time.perf_counter() - begin
            out["read_bytes_per_run"] = read_bytes() - before
            if run:
                out["seconds"].append(seconds)
            else:
                out["first_seconds"] = seconds
                out["output"] = y.double().abs().mean().item()
            del y
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
