"""Lists the model types that transformers has a class for that predicts tokens: families/hf/causal.json.

    python list_causal.py

A type with its class. TestCausalTypes compares it with the types that run from folders, and docs/families.md has those that do not.
"""

import json
import os

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

from make_families_hf import OUT

with open(os.path.join(OUT, "causal.json"), "w") as f:
    types = {kind: cls if isinstance(cls, str) else cls[0] for kind, cls in sorted(NAMES.items())}
    f.write(json.dumps({"transformers": transformers.__version__, "types": types}, separators=(",", ":")) + "\n")
