"""Makes the zoo: exported programs of public architectures and what PyTorch computes with them.

    python make_zoo.py                     everything
    python make_zoo.py --only hf/llama     some models or families (repeatable)
    python make_zoo.py --missing           only those that are not there yet
    python make_zoo.py --index             only index.json and ops.json, from the files
    python make_zoo.py --list
"""

import argparse
import importlib
import json
import os
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(HERE, "zoo")
FAMILIES = ("extra", "nn", "tv", "hf", "timm", "diff")
sys.path.insert(0, HERE)

import torch  # noqa: E402

import zoo_archive  # noqa: E402
import zoo_build  # noqa: E402
import zoo_program  # noqa: E402
from zoo_spec import MODELS  # noqa: E402


def archive(family):
    return os.path.join(ZOO, family + ".zip")


def load(family, name):
    return json.loads(zoo_archive.read(archive(family))[name + ".json"])


def dump(path, o):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(o, f, indent=1)
        f.write("\n")


def make(family, name):
    """Builds one model in a process of its own, so that its memory goes back. Returns whether it worked."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    try:
        started = time.monotonic()
        torch.manual_seed(0)
        files, report = zoo_build.build(family, name, MODELS[family, name]())
        zoo_archive.update(archive(family), {f"{name}.{suffix}.json": data for suffix, data in files.items()})
        print(f"{family}/{name}: {report} {time.monotonic() - started:.0f}s", flush=True)
        code = 0
    except BaseException:
        lines = traceback.format_exc().splitlines()
        print(f"{family}/{name}: FAILED\n" + "\n".join(lines[-int(os.environ.get('ZOO_LINES', '8')):]), flush=True)
    sys.stdout.flush()
    os._exit(code)


def index():
    """index.json: a line of facts per model; ops.json: how many models and nodes use each target."""
    entries, ops = [], {"aten": {}, "core": {}}
    for family in sorted(f.removesuffix(".zip") for f in os.listdir(ZOO) if f.endswith(".zip")):
        files = zoo_archive.read(archive(family))
        for file in files:
            if not file.endswith(".ref.json"):
                continue
            name = file.removesuffix(".ref.json")
            ref = json.loads(files[file])
            forms, sizes, count = [], {"ref": len(files[file])}, {}
            for form in ("aten", "core"):
                if f"{name}.{form}.json" not in files:
                    continue
                forms.append(form)
                sizes[form] = len(files[f"{name}.{form}.json"])
                targets = [n["target"] for n in zoo_program.nodes(json.loads(files[f"{name}.{form}.json"]))]
                count[form] = len(targets)
                for t in targets:
                    ops[form].setdefault(t, {"models": set(), "nodes": 0})
                    ops[form][t]["models"].add((family, name))
                    ops[form][t]["nodes"] += 1
            entries.append({
                "family": family, "name": name, "forms": forms, "nodes": count, "flops": ref["stats"]["flops"],
                "weight_bytes": ref["stats"]["weight_bytes"], "dynamic": ref["stats"]["dynamic"],
                "cases": len(ref["cases"]), "sensitivity": ref["stats"]["sensitivity"],
                "err64": max((c["err64"] for c in ref["cases"] if c.get("err64") is not None), default=None),
                "bytes": sizes} | ({"unsupported": ref["unsupported"]} if ref.get("unsupported") else {}))
    for form, table in ops.items():
        ops[form] = {t: {"models": len(v["models"]), "nodes": v["nodes"]}
                     for t, v in sorted(table.items(), key=lambda kv: (-len(kv[1]["models"]), kv[0]))}
    total = {"models": len(entries), "flops": sum(sum(e["flops"]) for e in entries),
             "bytes": sum(sum(e["bytes"].values()) for e in entries)}
    with open(os.path.join(ZOO, "index.json"), "w", encoding="utf-8") as f:
        f.write('{"total": ' + json.dumps(total) + ',\n "models": [\n')
        f.write(",\n".join("  " + json.dumps(e) for e in entries) + "\n]}\n")
    dump(os.path.join(HERE, "ops.json"), ops)
    print(total)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--only", action="append", default=[])
    p.add_argument("--missing", action="store_true")
    p.add_argument("--index", action="store_true")
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    if args.index:
        return index()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    wanted = {o.split("/")[0] for o in args.only}
    for f in FAMILIES:
        if not wanted or any(w.split(".")[0] == f for w in wanted):
            importlib.import_module("zoo_" + f)
    failed = []
    for family, name in MODELS:
        if args.only and not {family, f"{family}/{name}"} & set(args.only):
            continue
        if args.missing and f"{name}.ref.json" in zoo_archive.read(archive(family)):
            continue
        if args.list:
            print(f"{family}/{name}")
        elif not make(family, name):
            failed.append(f"{family}/{name}")
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
