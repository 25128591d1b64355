"""Records the configurations of the zoo's transformers models: what lies as config.json beside their weights.

    python make_families_hf.py                   families/hf/NAME.json for every model of zoo/hf that is listed here
"""

import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "families", "hf")
sys.path.insert(0, HERE)

import zoo_hf  # noqa: E402, F401
from zoo_spec import MODELS  # noqa: E402

ZOO = ["bert_mask", "roberta", "distilbert", "gpt2", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
       "phi3", "t5", "bart", "whisper-tiny", "vit", "dinov2", "clip_vision", "clip_text"]


def config_text(model):
    """The text that save_pretrained writes; and the attention where it is not the usual one, which it leaves out."""
    config = model.config
    config.architectures = [type(model).__name__]
    text = config.to_json_string(use_diff=True)
    if config._attn_implementation == "eager" and model._supports_sdpa:
        text = text.replace("{", '{\n  "attn_implementation": "eager",', 1)
    return text


def main():
    warnings.simplefilter("ignore")
    os.makedirs(OUT, exist_ok=True)
    for name in ZOO:
        with open(os.path.join(OUT, name + ".json"), "w") as f:
            f.write(config_text(MODELS["hf", name]().model))


if __name__ == "__main__":
    main()
