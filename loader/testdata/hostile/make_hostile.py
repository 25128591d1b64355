"""Writes files.tar.bz2 beside this script: the hostile files, and expected.json, which says what must be answered to each.

Python's standard library is all it needs; the same files come out every time.

    python make_hostile.py
"""

import os
import sys

sys.dont_write_bytecode = True

import attacks_folders  # noqa: E402, F401 (each adds its cases)
import attacks_gguf  # noqa: E402, F401
import attacks_globals  # noqa: E402, F401
import attacks_legacy  # noqa: E402, F401
import attacks_pickle  # noqa: E402, F401
import attacks_pt2  # noqa: E402, F401
import attacks_safetensors  # noqa: E402, F401
import attacks_script  # noqa: E402, F401
import attacks_tensors  # noqa: E402, F401
import attacks_zip  # noqa: E402, F401
import attacks_zip_lies  # noqa: E402, F401
import corpus  # noqa: E402

if __name__ == "__main__":
    rows = corpus.write(os.path.dirname(os.path.abspath(__file__)))
    print(f"{len(rows)} files")
