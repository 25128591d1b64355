"""Asks a server that runs with the clients that people have, and prints what each of them could do.

    ./clients.sh PYTHON > clients.txt

PYTHON has tritonclient[all], numpy and requests; with openai beside them, its client is tried, too. No program of CI needs this.
"""

import asyncio
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

address, admin, pictures = sys.argv[1:4]
x = np.load(pictures).astype(np.float32).reshape(-1, 1, 8, 8)
want = None


def check(name, what):
    global want
    try:
        got = what()
    except Exception as e:  # noqa: BLE001
        print(f"{name}: FAILED {type(e).__name__}: {e}")
        return
    print(f"{name}: {got}")


def given(module, binary=True):
    i = module.InferInput("input", list(x.shape), "FP32")
    if module is http or module is http_aio:
        i.set_data_from_numpy(x, binary_data=binary)
    else:
        i.set_data_from_numpy(x)
    return i


def digits(result):
    global want
    scores = result.as_numpy("linear_1")
    if want is None:
        want = scores
    return "same bits" if np.array_equal(scores, want) else "OTHER BITS"


def refused(call, status):
    try:
        call()
    except InferenceServerException as e:
        return "refused" if status in str(e.status()) else f"FAILED {e.status()}"
    return "FAILED: taken"


for module, name in ((http, "tritonclient.http"), (grpc, "tritonclient.grpc")):
    c = module.InferenceServerClient(address)
    a = module.InferenceServerClient(admin)
    check(f"{name} health", lambda: [c.is_server_live(), c.is_server_ready(), c.is_model_ready("digits"), c.is_model_ready("none")])
    check(f"{name} metadata", lambda: type(c.get_model_metadata("digits")).__name__)
    check(f"{name} config", lambda: type(c.get_model_config("digits")).__name__)
    check(f"{name} infer", lambda: digits(c.infer("digits", [given(module)])))
    check(f"{name} infer, named outputs", lambda: digits(
        c.infer("digits", [given(module)], outputs=[module.InferRequestedOutput("linear_1")], request_id="1")))
    check(f"{name} infer, priority", lambda: digits(c.infer("digits", [given(module)], priority=1, timeout=60_000_000)))
    check(f"{name} schedule_policy", lambda: "schedule_policy" in (
        c.get_server_metadata()["extensions"] if module is http else c.get_server_metadata().extensions))
    if module is http:
        check(f"{name} infer, JSON", lambda: digits(
            c.infer("digits", [given(module, False)], outputs=[http.InferRequestedOutput("linear_1", binary_data=False)])))
        for how in ("gzip", "deflate"):
            check(f"{name} infer, {how}", lambda: digits(
                c.infer("digits", [given(module)], request_compression_algorithm=how, response_compression_algorithm=how)))
        pool = module.InferenceServerClient(address, concurrency=8)
        check(f"{name} async", lambda: [digits(r.get_result()) for r in [pool.async_infer("digits", [given(module)]) for _ in range(8)]][-1])
    else:
        def stream():
            got = []
            c.start_stream(callback=lambda result, error: got.append((result, error)))
            for _ in range(3):
                c.async_stream_infer("digits", [given(grpc)])
            c.stop_stream()
            return [digits(r) for r, e in got if e is None]
        check(f"{name} stream", stream)
    check(f"{name} statistics", lambda: type(c.get_inference_statistics("digits")).__name__)
    check(f"{name} index", lambda: type(c.get_model_repository_index()).__name__)
    check(f"{name} no model", lambda: refused(lambda: c.infer("none", [given(module)]), "404" if module is http else "NOT_FOUND"))
    check(f"{name} control by clients", lambda: refused(lambda: c.load_model("digits"), "403" if module is http else "PERMISSION_DENIED"))
    check(f"{name} control", lambda: [a.unload_model("digits"), a.is_model_ready("digits"), a.load_model("digits"), a.is_model_ready("digits")])
    check(f"{name} control with a file", lambda: refused(
        lambda: a.load_model("digits", config="{}", files={"file:1/model.pt2": b"x"}), "501" if module is http else "UNIMPLEMENTED"))


async def aio():
    for module, name in ((http_aio, "tritonclient.http.aio"), (grpc_aio, "tritonclient.grpc.aio")):
        async with module.InferenceServerClient(address) as c:
            results = await asyncio.gather(*[c.infer("digits", [given(module)]) for _ in range(8)])
            print(f"{name} infer: {set(map(digits, results))}")


asyncio.run(aio())

try:
    import openai
except ImportError:
    sys.exit()
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none")
check("openai models", lambda: [m.id for m in client.models.list()])
check("openai chat", lambda: client.chat.completions.create(
    model="chat", messages=[{"role": "user", "content": "hello"}], max_tokens=8).choices[0].finish_reason)
check("openai stream", lambda: len([c for c in client.chat.completions.create(
    model="chat", messages=[{"role": "user", "content": "hello"}], max_tokens=8, stream=True)]) > 1)
