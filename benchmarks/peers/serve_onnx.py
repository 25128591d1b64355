"""ONNX Runtime behind FastAPI and uvicorn, as people serve with it: one process, a pool of threads, a request is a run.

    python serve_onnx.py PORT RESNET.onnx MINILM.onnx TOKENIZER.json

POST /resnet50 takes float32 numbers of 1 × 3 × 224 × 224 as they are and answers the scores so; /v1/embeddings is OpenAI's.
"""

import sys

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import Body, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from tokenizers import Tokenizer

port, resnet, minilm, tokens = int(sys.argv[1]), *sys.argv[2:5]
app = FastAPI()
look = ort.InferenceSession(resnet, providers=["CPUExecutionProvider"])
read = ort.InferenceSession(minilm, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(tokens)
tokenizer.no_padding()
tokenizer.enable_truncation(256)


@app.post("/resnet50")
async def resnet50(request: Request):
    x = np.frombuffer(await request.body(), dtype=np.float32).reshape(-1, 3, 224, 224)
    scores = await run_in_threadpool(look.run, None, {look.get_inputs()[0].name: x})
    return Response(scores[0].tobytes(), media_type="application/octet-stream")


def embed(text):
    e = tokenizer.encode(text)
    known = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
    states = read.run(None, {i.name: np.array([known[i.name]], dtype=np.int64) for i in read.get_inputs()})[0]
    v = states[0].mean(axis=0)
    return (v / np.linalg.norm(v)).tolist()


@app.post("/v1/embeddings")
def embeddings(body: dict = Body()):
    return {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": embed(body["input"])}], "model": "minilm"}


uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)
