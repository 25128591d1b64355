"""Run a network in PyTorch on the GPU in one of the ways that there are for models larger than its memory.

    python peers.py run HOW NETWORK PATH [--rows 1,16,64] [options]
    python peers.py copies

NETWORK is a name of torchvision's or gpt2 or bert-base, with PATH a state dict in safetensors, or "llama", with PATH a Hugging
Face folder.
HOW is one of:

    resident     all weights are on the GPU
    cpu_offload  accelerate's
    page         pytorch-optimem's page mode: each module without children, or each of fewer parameters than
                 --max-layer-size, is copied to the GPU just before it runs and back to the host after
    group        the blocks' weights are page-locked, and a stream of its own brings the next block while one computes,
                 through two sets of buffers: written by hand, as offloading by groups with a stream does it

Prints a JSON object for each number of rows as soon as it is measured. Inputs are those of benchmarks/paging. Times are
of whole passes, the input on the host at the start and the output there at the end. Products are in full float32.

With --cold the page cache is emptied of the files first (posix_fadvise, no rights needed), and what counts is one pass
from opening the files on. copies measures what page-locked, registered and pageable memory of the host gives.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import torch


def emit(**what):
    print(json.dumps(what), flush=True)


def files(path):
    return sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]


def forget(path):
    """Let the page cache forget files."""
    for f in files(path):
        fd = os.open(f, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


LANGUAGE = ("llama", "gpt2", "bert-base")


def build(network, path):
    """The network with its weights in host memory, as float32."""
    if network == "llama":
        import transformers

        return transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    from safetensors.torch import load_file

    if network in ("bert-base", "gpt2"):
        import transformers

        model = (transformers.BertModel(transformers.BertConfig()) if network == "bert-base" else
                 transformers.GPT2Model(transformers.GPT2Config()))
        weights = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
        lacks = model.load_state_dict(weights, strict=False).missing_keys
        if any("pooler" not in name and not name.endswith(("attn.bias", "position_ids")) for name in lacks):
            raise ValueError(f"the file lacks {lacks}")
        return model.eval()
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.get_model(network)
    model.load_state_dict(load_file(path), assign=True)
    return model.eval()


def inputs(network, rows, size):
    if network in LANGUAGE:
        return ((torch.arange(rows * size) * 7919) % 1009).reshape(rows, size)
    n = rows * 3 * size * size
    return ((torch.arange(n) * 7919 % 1009).float() / 1009 - 0.5).reshape(rows, 3, size, size)


def parts(model, limit):
    """The modules that are moved as one."""
    for child in model.children():
        if sum(p.numel() for p in child.parameters()) < limit or not list(child.children()):
            yield child
        else:
            yield from parts(child, limit)


def rest_to(model, moved, device):
    """Bring to the device what belongs to no module that is moved."""
    within = {id(t) for m in moved for t in (*m.parameters(), *m.buffers())}
    for t in (*model.parameters(), *model.buffers()):
        if id(t) not in within:
            t.data = t.data.to(device)


def page(model, limit, device):
    moved = list(parts(model, limit))
    rest_to(model, moved, device)
    for module in moved:
        module.register_forward_pre_hook(lambda m, *_: m.to(device) and None)
        module.register_forward_hook(lambda m, *_: m.to("cpu") and None)


class Group:
    """A block whose weights are brought through one of two sets of buffers."""

    def __init__(self, module, device, stream):
        self.module, self.device, self.stream = module, device, stream
        self.tensors = list({id(t): t for t in (*module.parameters(), *module.buffers())}.values())
        self.host = [t.data.contiguous() for t in self.tensors]
        if device.type == "cuda":
            self.host = [t.pin_memory() for t in self.host]
        for t, h in zip(self.tensors, self.host):
            t.data = h
        self.arrived = None

    def bring(self):
        if self.arrived is not None:
            return
        if self.stream is None:
            self.bytes = [h.clone() for h in self.host]
            self.arrived = True
            return
        # The copies begin when what is computed now is under way: the allocator gives a block's memory out again once
        # the compute stream is done with it.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.bytes = [h.to(self.device, non_blocking=True) for h in self.host]
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def enter(self):
        self.bring()
        if self.stream is not None:
            torch.cuda.current_stream().wait_event(self.arrived)
        for t, b in zip(self.tensors, self.bytes):
            if self.stream is not None:
                b.record_stream(torch.cuda.current_stream())
            t.data = b

    def leave(self):
        for t, h in zip(self.tensors, self.host):
            t.data = h
        self.bytes, self.arrived = None, None


def blocks(network, model):
    """The blocks in the order in which they run."""
    if network == "llama":
        return [model.embed_tokens, *model.layers, model.norm]
    out = []
    for child in model.children():
        out += list(child.children()) if isinstance(child, torch.nn.Sequential) else [child]
    return [b for b in out if next(b.parameters(), None) is not None]


def group(network, model, device):
    stream = torch.cuda.Stream() if device.type == "cuda" else None
    order = [Group(b, device, stream) for b in blocks(network, model)]
    rest_to(model, [g.module for g in order], device)
    for i, g in enumerate(order):
        following = order[(i + 1) % len(order)]

        def before(*_, g=g, following=following):
            g.enter()
            following.bring()

        g.module.register_forward_pre_hook(before)
        g.module.register_forward_hook(lambda *_, g=g: g.leave())


def arrange(args, device):
    model = build(args.network, args.path)
    if args.how == "resident":
        model.to(device)
    elif args.how == "cpu_offload":
        from accelerate import cpu_offload

        model = cpu_offload(model, execution_device=device)
    elif args.how == "page":
        page(model, args.max_layer_size, device)
    else:
        group(args.network, model, device)
    return model


def once(args, model, x, device):
    """A pass, its output on the host."""
    x = x.to(device)
    # transformers' models keep a cache for generating where they are not told not to.
    options = {} if args.network == "bert-base" else {"use_cache": False}
    with torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "bf16"):
        y = model(x, **options)[0] if args.network in LANGUAGE else model(x)
    return y.to("cpu")


def run(args):
    device = torch.device(args.device)
    if args.cold:
        forget(args.path)
    begin = time.perf_counter()
    model = arrange(args, device)
    load = time.perf_counter() - begin
    with torch.inference_mode():
        for rows in (int(r) for r in args.rows.split(",")):
            x = inputs(args.network, rows, args.size)
            seconds = []
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            for n in range(args.runs + 1):
                begin = time.perf_counter()
                y = once(args, model, x, device)
                took = time.perf_counter() - begin
                if n:
                    seconds.append(took)
                else:
                    first = took
                if sum(seconds) > args.most and n >= 3:
                    break
            emit(how=args.how, network=args.network, rows=rows, load_seconds=load, first_seconds=first, seconds=seconds,
                 median=statistics.median(seconds or [load + first]), output=y.double().abs().mean().item(),
                 peak_device_bytes=torch.cuda.max_memory_allocated() if device.type == "cuda" else None)
            del x, y


def copies(args):
    device = torch.device(args.device)
    for mib in (int(m) for m in args.mib.split(",")):
        n = mib << 20
        on_device = torch.empty(n, dtype=torch.uint8, device=device)
        for kind in ("pinned", "registered", "pageable"):
            host = torch.ones(n, dtype=torch.uint8)
            registered = False
            try:
                if kind == "pinned" and device.type == "cuda":
                    host = host.pin_memory()
                elif kind == "registered" and device.type == "cuda":
                    code = torch.cuda.cudart().cudaHostRegister(host.data_ptr(), n, 0)
                    if int(code) != 0:
                        raise RuntimeError(f"cudaHostRegister: {code}")
                    registered = True
            except RuntimeError as e:
                emit(copy=kind, mib=mib, failed=str(e).split("\n")[0])
                continue
            for way, to, source in (("in", on_device, host), ("out", host, on_device)):
                seconds = []
                for _ in range(6):
                    synchronise(device)
                    begin = time.perf_counter()
                    to.copy_(source, non_blocking=True)
                    synchronise(device)
                    seconds.append(time.perf_counter() - begin)
                best = statistics.median(seconds[1:])
                emit(copy=kind, way=way, mib=mib, bytes_per_second=n / best)
            if registered:
                torch.cuda.cudart().cudaHostUnregister(host.data_ptr())


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("run")
    p.add_argument("how", choices=("resident", "cpu_offload", "page", "group"))
    p.add_argument("network")
    p.add_argument("path", type=pathlib.Path)
    p.add_argument("--rows", default="1")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--most", type=float, default=float("inf"), help="seconds after which no more passes but three are timed")
    p.add_argument("--max-layer-size", type=int, default=-1)
    p.add_argument("--cold", action="store_true")
    p.add_argument("--precision", choices=("fp32", "bf16", "tf32"), default="fp32", help="bf16: torch.autocast")
    c = commands.add_parser("copies")
    c.add_argument("--mib", default="1,16,256")
    for command in (p, c):
        command.add_argument("--device", default="cuda")
    args = parser.parse_args()
    tf32 = getattr(args, "precision", "") == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    {"run": run, "copies": copies}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
