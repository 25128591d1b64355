"""One engine with one model, ready to run: reads commands from standard input, one a line, answers with JSON.

    python speed_worker.py ENGINE NAME FOLDER THREADS

Engines: eager, channels_last, compile, onnxruntime, openvino, openvino_bf16, eager_bf16. Commands: "run N" gives the milliseconds of
N runs, "output" some numbers of the first output, "memory" the bytes held at most and those held before the model.
"""

import json
import os
import re
import sys
import time


def peak():
    with open("/proc/self/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) * 1024


def torch_engine(engine, name, path, threads):
    import torch

    torch.set_num_threads(threads)
    import speed_models

    base = peak()
    model, inputs = speed_models.make(name)
    if engine == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) if x.ndim == 4 and x.shape[1] == 3 else x for x in inputs]
    if engine == "compile":
        import torch._inductor.config

        torch._inductor.config.freezing = True
        model = torch.compile(model)

    def run():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=engine == "eager_bf16"):
            out = model(*inputs)
        return out[0] if isinstance(out, tuple) else out

    return base, run, lambda out: out.float().numpy()


def numpy_inputs(path):
    import ml_dtypes  # noqa: F401  bfloat16 for numpy
    from safetensors.numpy import load_file

    inputs = load_file(path + ".inputs.safetensors")
    return [inputs[k] for k in sorted(inputs)]


def onnxruntime_engine(engine, name, path, threads):
    import onnxruntime as ort

    base = peak()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path + ".onnx", options, providers=["CPUExecutionProvider"])
    feed = dict(zip([i.name for i in session.get_inputs()], numpy_inputs(path)))
    return base, lambda: session.run(None, feed)[0], lambda out: out


def openvino_engine(engine, name, path, threads):
    import openvino as ov

    base = peak()
    core = ov.Core()
    config = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if engine.endswith("bf16") else "f32",
    }
    compiled = core.compile_model(core.read_model(path + ".onnx"), "CPU", config)
    request = compiled.create_infer_request()
    feed = {i: ov.Tensor(x) for i, x in enumerate(numpy_inputs(path))}

    def run():
        request.infer(feed)
        return request.get_output_tensor(0).data

    return base, run, lambda out: out


def main():
    engine, name, folder, threads = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    sys.path.insert(0, os.path.dirname(__file__))
    start = {"onnxruntime": onnxruntime_engine, "openvino": openvino_engine, "openvino_bf16": openvino_engine}
    base, run, numbers = start.get(engine, torch_engine)(engine, name, os.path.join(folder, name), threads)
    out = run()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "run":
            times = []
            for _ in range(int(rest[0])):
                begin = time.perf_counter()
                out = run()
                times.append(1000 * (time.perf_counter() - begin))
            answer = times
        elif command == "output":
            flat = numbers(out).reshape(-1).astype("float64")
            step = max(1, len(flat) // 1000)
            answer = flat[::step][:1000].tolist()
        elif command == "memory":
            answer = {"peak": peak(), "base": base}
        print(json.dumps(answer), flush=True)


main()
