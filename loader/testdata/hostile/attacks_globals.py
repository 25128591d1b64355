"""Pickles that want to run something: each by another opcode, or another way to a function."""

from attacks_pickle import pickled
from corpus import AT, ORDERED, PROTO2, PROTO4, glob, num, short, tensor, text, tup

RUN = text("id") + b"\x85"


def unsafe(name, fragment, why, *parts, **kw):
    pickled(name, fragment, why, *parts, cls="unsafe", **kw)


def opcodes():
    unsafe("global_reduce", "refused global os.system", "the classic", PROTO2, AT, glob("os", "system"), RUN, b"R.")
    unsafe("stack_global", "refused global posix.system", "the name comes from the stack",
           PROTO4, short("posix"), short("system"), AT, b"\x93", RUN, b"R.")
    unsafe("inst", "refused global subprocess.Popen", "INST names and calls in one opcode",
           b"(", b"S'id'\n", AT, b"isubprocess\nPopen\n", b".")
    unsafe("obj", "refused global builtins.eval", "OBJ calls what lies above the mark",
           PROTO2, b"(", AT, glob("builtins", "eval"), text("1"), b"o.")
    unsafe("newobj", "refused global subprocess.check_output", "NEWOBJ makes an instance, and __new__ runs",
           PROTO2, AT, glob("subprocess", "check_output"), RUN, b"\x81.")
    unsafe("newobj_ex", "refused global os.popen", "NEWOBJ_EX, with keywords",
           PROTO4, AT, glob("os", "popen"), RUN, b"}\x92.")
    unsafe("extension", "an extension code stands for a global", "the copyreg table of the victim decides what is called",
           PROTO2, AT, b"\x82\x01", b")R.")
    unsafe("names_by_memo", "refused global nt.system", "module and name are fetched from the memo, swapped",
           PROTO4, short("system"), b"\x94", b"0", short("nt"), b"\x94", b"0h\1h\0", AT, b"\x93", RUN, b"R.")
    unsafe("name_built", "STACK_GLOBAL with names that are not plain strings", "the name is made by a call, so that no scanner reads it",
           PROTO4, short("os"), glob("_codecs", "encode"), tup(short("system"), short("latin1")), b"R", AT, b"\x93", RUN, b"R.")
    unsafe("name_dotted", "refused global torch.serialization.os.system", "protocol 4 walks attributes: torch imports os",
           PROTO4, short("torch"), short("serialization.os.system"), AT, b"\x93", RUN, b"R.")
    unsafe("class_state", "BUILD changes collections.OrderedDict", "BUILD on a class sets its attributes for all of the process",
           PROTO2, glob("collections", "OrderedDict"), b"}", text("__setstate__"), b"Ns", AT, b"b", b".")
    unsafe("object_called", "an object is called", "REDUCE of an instance runs its __call__",
           PROTO2, glob("mylib", "Hook"), b")\x81)", AT, b"R", b".")
    unsafe("class_called", "mylib.Thing is called; only rebuild functions of data may be",
           "REDUCE runs any constructor; NEWOBJ of the same class would be listed", PROTO2, glob("mylib", "Thing"), b")", AT, b"R", b".")
    unsafe("type_called", "builtins.dict is called; only naming it is allowed", "a type that data only mentions",
           PROTO2, glob("builtins", "dict"), b")", AT, b"R", b".")
    unsafe("result_called", "a rebuilt value is called", "the result of one call is called again",
           PROTO2, tensor(), b")", AT, b"R", b".")
    unsafe("unreached", "refused global commands.getoutput", "the call is thrown away: POP hides it from the result",
           PROTO2, AT, glob("commands", "getoutput"), RUN, b"R0N.")


def smuggled():
    """The function is data for an allowed one."""
    unsafe("from_type_func", "argument 0 is not a function that rebuilds data",
           "torch._tensor._rebuild_from_type_v2 calls the function in its first argument",
           PROTO2, glob("torch._tensor", "_rebuild_from_type_v2"),
           tup(glob("mylib", "run"), glob("torch", "Tensor"), tup(text("id")), b"N"), AT, b"R", b".")
    unsafe("from_type_system", "refused global os.execvp", "the same with a function of os",
           PROTO2, glob("torch._tensor", "_rebuild_from_type_v2"), b"(", AT, glob("os", "execvp"), glob("torch", "Tensor"),
           tup(text("id")), b"Nt", b"R.")
    pickled("from_type_itself", "calls itself", "a call that never ends",
            PROTO2, glob("torch._tensor", "_rebuild_from_type_v2"),
            tup(glob("torch._tensor", "_rebuild_from_type_v2"), glob("torch", "Tensor"), b")", b"N"), AT, b"R", b".")
    unsafe("default_factory", "refused global os.getcwd", "defaultdict calls its factory at the first missing key",
           PROTO2, glob("collections", "defaultdict"), b"(", AT, glob("os", "getcwd"), b"t", b"R.")
    unsafe("hooks_dict", "refused global os.abort", "a backward hook of a tensor: called in training, long after loading",
           PROTO2, glob("torch._utils", "_rebuild_tensor_v2"), b"(", tup(text("storage"), glob("torch", "FloatStorage"), text("0"),
           text("cpu"), num(4)), b"Q", num(0), tup(num(4)), tup(num(1)), b"\x88", ORDERED, b"(", num(1), AT,
           glob("os", "abort"), b"u", b"tR.")
    unsafe("codecs_exploit", "refused global codecs.open", "encode is data, the rest of codecs opens files",
           PROTO2, AT, glob("codecs", "open"), tup(text("/etc/passwd")), b"R.")
    unsafe("storage_from_bytes", "refused global torch.storage._load_from_bytes",
           "a pickle within the pickle: torch.load(weights_only=False) of the bytes",
           PROTO2, AT, glob("torch.storage", "_load_from_bytes"), tup(text("x")), b"R.")


def gadgets():
    """Published ways around deny-lists: a function of a harmless looking module that runs what it is given."""
    for name, module, function, why in [
        ("eval_py2", "__builtin__", "execfile", "Python 2's name of builtins"),
        ("getattr", "builtins", "getattr", "reaches every attribute of everything"),
        ("import", "builtins", "__import__", "imports, and importing runs"),
        ("importlib", "importlib", "import_module", "imports, and importing runs"),
        ("runpy", "runpy", "run_path", "runs a script"),
        ("ctypes", "ctypes", "CDLL", "loads a shared library"),
        ("methodcaller", "operator", "methodcaller", "calls a method by name: with import_module it reaches os (public PoC cards)"),
        ("torch_load", "torch", "load", "unpickles another file, without the checks of this one"),
        ("torch_hub", "torch.hub", "load", "downloads a repository and runs its hubconf.py"),
        ("numpy_load", "numpy", "load", "unpickles arrays of objects"),
        ("numpy_runstring", "numpy.testing._private.utils", "runstring", "exec under another name (public PoC)"),
        ("f2py", "numpy.f2py.crackfortran", "getlincoef", "evals an expression (public PoC)"),
        ("pip", "pip", "main", "installs a package, whose setup.py runs"),
        ("pty", "pty", "spawn", "starts a shell"),
        ("timeit", "timeit", "timeit", "runs a string"),
        ("bdb", "bdb", "Bdb", "a debugger runs what it debugs"),
        ("pydoc", "pydoc", "pipepager", "opens a pipe to a command"),
        ("cprofile", "cProfile", "run", "runs a string"),
        ("marshal", "marshal", "loads", "makes code objects"),
        ("codetype", "types", "CodeType", "makes code objects"),
        ("asyncio", "asyncio.unix_events", "_UnixSubprocessTransport._start",
         "CVE-2025-10157: picklescan looked at the exact module name, not at submodules of a dangerous one"),
        ("logging_listen", "logging.config", "listen", "opens a port that executes what it receives"),
        ("webbrowser", "webbrowser", "open", "starts a program with an argument"),
        ("socket", "socket", "create_connection", "calls home"),
        ("shutil", "shutil", "rmtree", "deletes a folder"),
        ("dill", "dill", "loads", "unpickles functions with their code"),
        ("torch_bottleneck", "torch.utils.bottleneck.__main__", "run_cprofile", "runs code (public PoC against picklescan)"),
        ("torch_exec", "torch.jit.unsupported_tensor_ops", "execWrapper", "exec under another name (public PoC)"),
        ("torch_guards", "torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression", "evals (public PoC)"),
        ("torch_collect_env", "torch.utils.collect_env", "run", "runs a shell command (public PoC)"),
        ("cpp_extension", "torch.utils.cpp_extension", "load_inline", "compiles and loads C++"),
        ("graph_module", "torch.fx.graph_module", "reduce_graph_module", "execs the source text of a traced module"),
    ]:
        unsafe(f"gadget_{name}", f"refused global {module}.{function}", why, PROTO2, AT, glob(module, function), RUN, b"R.")


def partials():
    """functools.partial of a class of torch.nn is data, as modules of torchvision have it; nothing else is."""
    partial, norm = glob("functools", "partial"), glob("torch.nn.modules.normalization", "LayerNorm")
    shiny = lambda name: glob("shiny", name)  # noqa: E731
    unsafe("gadget_partial", "functools.partial of something, which is no class of torch.nn",
           "holds a call until somebody calls it", PROTO2, partial, RUN, AT, b"R.")
    unsafe("gadget_partial_class", "functools.partial of shiny.Thing, which is no class of torch.nn",
           "a class whose constructor may run code", PROTO2, partial, tup(shiny("Thing")), AT, b"R.")
    unsafe("gadget_partial_state", "functools.partial of shiny.run, which is no class of torch.nn",
           "the state says another function",
           PROTO2, partial, tup(norm), b"R", tup(shiny("run"), tup(), b"}", b"N"), AT, b"b.")


opcodes()
smuggled()
gadgets()
partials()
