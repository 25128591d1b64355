"""A handler of TorchServe's for each model of run_serve_peers.py. Which one it is its archive's name says."""

import json
import os

import torch
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    """Takes what serve_onnx.py takes; requests that came together are one batch."""

    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        self.device = torch.device("cpu")
        self.texts = context.manifest["model"]["modelName"] == "minilm"
        if self.texts:
            from transformers import AutoModel, AutoTokenizer
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
            self.model = AutoModel.from_pretrained(folder).eval()
        else:
            from torchvision.models import resnet50
            self.model = resnet50()
            self.model.load_state_dict(torch.load(os.path.join(folder, "resnet50.pt"), weights_only=True))
            self.model.eval()
        self.initialized = True

    @torch.inference_mode()
    def handle(self, data, context):
        bodies = [d.get("body") or d.get("data") for d in data]
        if not self.texts:
            x = torch.stack([torch.frombuffer(bytearray(b), dtype=torch.float32).reshape(3, 224, 224) for b in bodies])
            return [row.numpy().tobytes() for row in self.model(x)]
        bodies = [json.loads(b) if isinstance(b, (bytes, bytearray, str)) else b for b in bodies]
        x = self.tokenizer([b["input"] for b in bodies], padding=True, truncation=True, max_length=256, return_tensors="pt")
        states, mask = self.model(**x).last_hidden_state, x["attention_mask"].unsqueeze(-1)
        v = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
        return [{"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": row.tolist()}]} for row in v]
