"""Shard indexes and folders that lead elsewhere, and files that are no checkpoint."""

import gzip

from attacks_safetensors import DATA, ONE, file
from attacks_zip import archive
from corpus import GOOD, PROTO2, add, add_folder, dumps, glob, marked, text
from zipwriter import Entry

SHARD = file(ONE, DATA)
INDEX = "model.safetensors.index.json"


def index(weight_map, **more):
    return dumps({"metadata": {"total_size": 16}, "weight_map": weight_map, **more})


def sharded(name, fragment, why, text, cls="format", record="", offset=-1, **files):
    data, at = marked(text)
    files = {INDEX: data, "a.safetensors": SHARD} | {k.replace("__", "."): v for k, v in files.items()}
    files = {k: v for k, v in files.items() if v is not None}
    add_folder(f"sharded_{name}", files, cls, fragment, why, INDEX, record, at if at >= 0 else offset)


def indexes():
    for name, shard, why in [
        ("climbs", "../legacy_magic.pt", "a shard of another folder"),
        ("absolute", "/etc/passwd", "a file of the machine"),
        ("windows", "C:\\windows\\win.ini", "the same on Windows"),
        ("device", "a.safetensors:stream", "an alternate stream"),
        ("itself_dot", ".", "the folder itself"),
    ]:
        sharded(name, f"the shard {dumps(shard)} does not lie beside the index", why, index({"w": shard}), "unsafe")
    sharded("shard_missing", "no such file or directory", "a shard that is not there", index({"w": "b.safetensors"}), "missing")
    sharded("recursion", "JSON text, not a shard of a checkpoint", "an index that is its own shard", index({"w": INDEX}))
    sharded("weight_missing", 'the shards lack 1 tensors: "v"', "a weight that is nowhere", index({"w": "a.safetensors", "v": "a.safetensors"}))
    sharded("weight_elsewhere", "the index says that a.safetensors holds it", "the index points at another shard",
            index({"w": "b.safetensors", "v": "a.safetensors"}), record="v", b__safetensors=file(ONE.replace('"w"', '"v"'), DATA))
    sharded("weight_twice", "the shard a.safetensors holds it too", "which of the two counts is up to the reader",
            index({"w": "a.safetensors", "v": "b.safetensors"}), record="w",
            b__safetensors=file('{"v":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},' + ONE[1:], DATA))
    sharded("duplicate_weight", '"w" occurs twice', "which of the two shards counts is up to the reader",
            index({"w": "a.safetensors"}).replace('"w":"a.safetensors"', '"w":"a.safetensors","w":"a.safetensors"'))
    sharded("duplicate_map", '"weight_map" occurs twice', "two maps", index({"w": "a.safetensors"})[:-1] + ',"weight_map":{}}')
    sharded("name_number", "a number", "a shard that is a number", index({"w": 7}))
    sharded("no_map", "a JSON file without a weight_map", "some other JSON", dumps({"metadata": {}}), "unsupported")
    sharded("truncated", "the document ends early", "an index cut short", index({"w": "a.safetensors"})[:-2])
    sharded("deep", "nested deeper than 200", "recursion as deep as the file is long", index({"w": "a.safetensors"})[:-1] + ',"x":' + "[" * 5000,
            "limit")
    evil = archive(pkl=Entry("archive/data.pkl", PROTO2 + glob("os", "system") + text("id") + b"\x85R.")).build()
    sharded("shard_runs", "refused global os.system", "one shard of many is hostile", index({"w": "a.safetensors", "v": "b.bin"}), "unsafe",
            "archive/data.pkl", 2, b__bin=evil)
    module = archive(pkl=Entry("archive/data.pkl", PROTO2 + glob("m", "Net") + b")\x81}(" + b"".join(
        text(k) + b"}" for k in ("_parameters", "_buffers", "_modules")) + b"ub."))
    del module.entries[2]
    sharded("shard_module", "a shard that is a whole model, not a state dict", "a pickled module for a shard",
            index({"w": "b.bin"}), "unsupported", b__bin=module.build())


def folders():
    add_folder("folder_nothing", {"readme.txt": b"see elsewhere"}, "unsupported", "no weights in this folder", "a folder of other files")
    add_folder("folder_two", {"a.bin": GOOD, "b.bin": GOOD}, "unsupported", "several files that may be the weights (a.bin, b.bin)",
               "which of the two is loaded is up to the reader")
    add_folder("folder_of_folder", {"model.safetensors/x": b""}, "unsupported", "no weights in this folder: it has none of model.safetensors, "
               "model.safetensors.index.json", "a folder where the weights should be")
    add_folder("folder_config_fine_weights_run", {"config.json": b"{}", "pytorch_model.bin": b"cos\nsystem\n(S'id'\ntR."}, "unsafe",
               "refused global os.system", "from_pretrained unpickles pytorch_model.bin")
    add_folder("folder_diffusers", {"model_index.json": b"{}", "unet/config.json": b"{}"}, "unsupported", "a diffusers pipeline",
               "a folder of folders")


def others():
    for name, data, fragment in [
        ("web_page.pt", b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "a web page"),
        ("lfs_pointer.pt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer"),
        ("gzip.pt", gzip.compress(GOOD, mtime=0), "gzip-compressed"),
        ("hdf5.h5", b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5"),
        ("numpy.npy", b"\x93NUMPY\x01\0v\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "a NumPy array"),
        ("onnx.onnx", b"\x08\x07\x12\x07pytorch\x1a\x012", "an ONNX model"),
        ("noise.pt", bytes(range(200, 256)), "not a checkpoint in any format"),
    ]:
        add(f"other_{name}", data, "unsupported", fragment, "people rename anything to .pt")
    add("other_empty.pt", b"", "format", "the file is empty", "a download that never began")
    add("other_pickle_without_magic.pt", b"K\x010cos\nputenv\n(S'a'\nS'b'\ntR.", "unsafe", "refused global os.putenv",
        "a pickle whose first byte looks like nothing: torch.load would run it", "", 3)


indexes()
folders()
others()
