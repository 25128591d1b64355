"""Writes the valid fixtures of the loader's tests and, beside each, the golden of what PyTorch sees in it.

    python make_fixtures.py                 every group that this torch can write
    python make_fixtures.py --only zip      some groups (repeatable)
    python make_fixtures.py --list

Groups of old file layouts need the torch that wrote them; see README.md for which group goes with which release. A
group whose torch is another one is skipped, never emulated.
"""

import _thread
import argparse
import json
import os
import sys
import traceback
import types

import fixtures_archive
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS = {}


def group(name, needs=None):
    """Registers a group; needs is the release ("1.6") whose layout it records, None for the current one."""

    def register(f):
        GROUPS[name] = (f, needs)
        return f

    return register


def load(name):
    """Imports a module under a relative file name: TorchScript, export and the legacy format store it."""
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.__file__ = name + ".py"
        sys.modules[name] = module
        with open(os.path.join(HERE, name + ".py"), encoding="utf-8") as f:
            exec(compile(f.read(), name + ".py", "exec"), module.__dict__)
    return sys.modules[name]


def valid(*parts):
    path = os.path.join(HERE, "valid", *parts)
    if not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path))
    return path


def record_scan(name, verdict):
    """Merges the expected verdict of one file into valid/expected_scan.json."""
    path = valid("expected_scan.json")
    scans = {}
    if os.path.exists(path):
        with open(path) as f:
            scans = json.load(f)
    scans[name] = verdict
    with open(path, "w") as f:
        body = ",\n".join(" %s: %s" % (json.dumps(k), json.dumps(scans[k])) for k in sorted(scans))
        f.write("{\n" + body + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()

    release = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    modules = ["fixtures_models", "fixtures_golden", "fixtures_save", "fixtures_modules", "fixtures_old",
               "fixtures_script"]
    if release >= (2, 6):
        modules += ["fixtures_export", "fixtures_folders"]
    for name in modules:
        load(name)

    if args.list:
        for name, (f, needs) in GROUPS.items():
            print("%-12s torch %-8s %s" % (name, needs or "current", (f.__doc__ or "").split("\n")[0]))
        return
    for name in args.only:
        if name not in GROUPS:
            parser.error("no group %r" % name)
    fixtures_archive.unpack()
    for name, (f, needs) in GROUPS.items():
        if args.only and name not in args.only:
            continue
        fits = release == tuple(int(n) for n in needs.split(".")) if needs else release >= (2, 8)
        if not fits:
            print("skip %s: it needs torch %s, this is %s" % (name, needs or "2.8 or later", torch.__version__))
            continue
        torch.manual_seed(0)
        print("group", name)
        f()
    fixtures_archive.pack()


def run():
    """Runs main in a thread of its own: tracing records the stack, which so begins below this file's full path."""
    os.chdir(HERE)
    status, done = [1], _thread.allocate_lock()
    done.acquire()

    def body():
        try:
            load("make_fixtures").main()
            status[0] = 0
        except SystemExit as e:
            status[0] = e.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            done.release()

    _thread.start_new_thread(relative(body), ())
    done.acquire()
    sys.exit(status[0])


def relative(function):
    """The function with its file's bare name in its code."""
    code = function.__code__
    code = code.replace(co_filename=os.path.basename(code.co_filename))
    return types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


if __name__ == "__main__":
    run()
