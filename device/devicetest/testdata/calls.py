"""Files of recorded calls: FAMILY.zst, compressed by Zstandard. First a JSON list, one call a line, then the bytes of
tensors: those of elements of one byte, of two, of four and of eight or more, each in the order of the calls, and in a call inputs
before outputs. Where the list has a tensor's data it says how many bytes they are. Text and each size of elements are a
frame of their own, since they have other statistics. Go reads it in device/devicetest.
"""

import io
import json

import zstandard

END = b"\n]\n"
SIZES = {"float32": 4, "int32": 4, "uint32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "bool": 1, "int8": 1,
         "uint8": 1}  # all others are of eight or more


def groups(calls):
    """The tensors that have data: inputs and outputs, by the size of their elements."""
    found = {1: [], 2: [], 4: [], 8: []}
    for call in calls:
        for t in call["inputs"] + call["outputs"]:
            found[SIZES.get(t["dtype"], 8)].append(t)
    return found.values()


def read(path):
    """The calls of a file, with bytes as the data of tensors."""
    with open(path, "rb") as f:
        packed = zstandard.ZstdDecompressor().stream_reader(f, read_across_frames=True).read()
    text, _, data = packed.partition(END)
    calls = json.loads(text + END)
    begin = 0
    for group in groups(calls):
        for t in group:
            end = begin + t["data"]
            t["data"], begin = data[begin:end], end
    return calls


def write(path, calls):
    """Writes calls whose tensors have bytes as data. The file's bytes follow from the calls alone."""
    lines = []
    for call in calls:
        sizes = {side: [t | {"data": len(t["data"])} for t in call[side]] for side in ("inputs", "outputs")}
        lines.append(json.dumps(call | sizes, separators=(",", ":")))
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    settings = zstandard.ZstdCompressionParameters.from_level(22, window_log=22)
    out = io.BytesIO()
    for block in [text.encode(), *(b"".join(t["data"] for t in group) for group in groups(calls))]:
        if block:
            out.write(zstandard.ZstdCompressor(compression_params=settings).compress(block))
    with open(path, "wb") as f:
        f.write(out.getvalue())
    return len(out.getvalue())
