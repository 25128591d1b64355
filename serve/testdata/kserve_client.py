"""Asks a server that runs with KServe's own client, by REST and gRPC, with JSON and with binary tensors.

    ./clients.sh PYTHON KSERVE_PYTHON > clients.txt

KSERVE_PYTHON has kserve. No program of CI needs this.
"""

import asyncio
import importlib.metadata
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

address, pictures = sys.argv[1:3]
x = np.load(pictures).astype(np.float32).reshape(-1, 1, 8, 8)
want = None


def request(binary):
    i = InferInput("input", list(x.shape), "FP32")
    i.set_data_from_numpy(x, binary_data=binary)
    return InferRequest(model_name="digits", infer_inputs=[i], request_id="7")


def digits(response):
    global want
    scores = response.outputs[0].as_numpy().reshape(len(x), -1)
    if want is None:
        want = scores
    return response.id == "7" and ("same bits" if np.array_equal(scores, want) else "OTHER BITS")


async def main():
    print("kserve", importlib.metadata.version("kserve"))
    url = f"http://{address}"
    rest = InferenceRESTClient(config=RESTConfig(protocol="v2"))
    print("kserve REST health:", [await rest.is_server_live(url), await rest.is_server_ready(url), await rest.is_model_ready(url, "digits")])
    for binary, name in ((True, "binary"), (False, "JSON")):
        print(f"kserve REST infer, {name}:", digits(await rest.infer(url, request(binary), model_name="digits")))
    await rest.close()
    grpc = InferenceGRPCClient(address)
    print("kserve gRPC health:", [await grpc.is_server_live(), await grpc.is_server_ready(), await grpc.is_model_ready("digits")])
    for binary, name in ((True, "raw"), (False, "contents")):
        print(f"kserve gRPC infer, {name}:", digits(await grpc.infer(request(binary))))
    await grpc.close()


asyncio.run(main())
