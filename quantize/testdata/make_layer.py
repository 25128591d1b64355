"""Records a part of a real layer and what it is given: layer.json.gz.

    python quantize/testdata/make_layer.py SmolLM2-135M-Instruct TEXT

24 rows of the queries of layer 5 with their first 128 columns, as bfloat16, and what these columns are given for 48 tokens of a
text, as int8 with a scale each. The model is SmolLM2-135M-Instruct (Apache 2.0), the text Newton's Opticks, as Go's
sources have it, from the byte 40,000 on. Python's packages: torch, transformers.
"""

import base64, gzip, json, sys
from pathlib import Path

import torch
import transformers

LAYER, ROWS, COLUMNS, TOKENS = 5, 24, 128, 48


def main(path, text):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    given = []
    layer = model.model.layers[LAYER].self_attn.q_proj
    layer.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    ids = tokenizer(Path(text).read_text()[40_000:42_000], return_tensors="pt").input_ids[:, :TOKENS]
    with torch.no_grad():
        model(ids)
    x = given[0][0, :, :COLUMNS]
    scales = x.abs().amax(0) / 127
    codes = torch.round(x / scales).to(torch.int8)
    weight = layer.weight[:ROWS, :COLUMNS].to(torch.bfloat16).contiguous()
    b64 = lambda t: base64.b64encode(t.numpy().tobytes()).decode()
    golden = {"rows": ROWS, "columns": COLUMNS, "tokens": TOKENS, "weight": b64(weight.view(torch.int16)), "given": b64(codes),
              "scales": scales.tolist()}
    to = Path(__file__).with_name("layer.json.gz")
    to.write_bytes(gzip.compress(json.dumps(golden).encode(), 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
