"""Lists the model types that transformers has a class for that predicts tokens: families/hf/causal.json.

    python list_causal.py                   records them
    python list_causal.py --only-compare    prints which are new and which are gone

A type with its class. TestCausalTypes compares it with the types that run from folders, and docs/families.md has those that do not.
"""

import json
import os
import sys

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

from make_families_hf import OUT

types = {kind: cls if isinstance(cls, str) else cls[0] for kind, cls in sorted(NAMES.items())}
if "--only-compare" in sys.argv:
    with open(os.path.join(OUT, "causal.json")) as f:
        have = json.load(f)
    print("transformers", transformers.__version__, "beside", have["transformers"])
    print("new:", sorted(set(types) - set(have["types"])), "gone:", sorted(set(have["types"]) - set(types)))
else:
    with open(os.path.join(OUT, "causal.json"), "w") as f:
        f.write(json.dumps({"transformers": transformers.__version__, "types": types}, separators=(",", ":")) + "\n")
