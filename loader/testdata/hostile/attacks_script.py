"""TorchScript archives: code that is a bomb or no code, and pickles that are not its objects."""

from corpus import AT, FLOATS, PROTO2, add, glob, marked, num, pieces, storage, tensor, text, tup
from zipwriter import Entry, Zip

METHOD = "  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n"
CLASS = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
CODE = CLASS + METHOD + "    return x\n"
ROOT = PROTO2 + glob("__torch__", "M") + b")\x81}(" + text("training") + b"\x88ub."
EMPTY = PROTO2 + b")."


def archive(*more, code=CODE.encode(), root=ROOT, constants=EMPTY, version=b"3\n"):
    return Zip(Entry("m/data.pkl", root), Entry("m/code/__torch__.py", code), Entry("m/constants.pkl", constants),
               Entry("m/version", version), *more).build()


def code(name, fragment, why, source, cls="format"):
    """Code with ¦ at the fault."""
    data, at = marked(source)
    add(f"script_{name}.pt", archive(code=data), cls, fragment, why, "m/code/__torch__.py", at)


def expr(name, fragment, why, e, cls="format"):
    code(name, fragment, why, CLASS + METHOD + f"    _0 = {e}\n    return _0\n", cls)


def syntax():
    expr("deep_parentheses", "code is nested more than 200 deep", "a recursive parser runs out of stack",
         "(" * 198 + "¦" + "(" * 3001 + "x" + ")" * 3199, "limit")
    expr("huge_integer", "integer does not fit 64 bits", "an integer of 3,000 digits", "¦" + "9" * 3000)
    expr("huge_float", "malformed number, or one that no double can hold", "a float beyond doubles", "¦1e999999")
    expr("octal", "integer with a leading zero", "8 or 10, by the reader", "¦010")
    expr("string_open", "byte 0x0a inside a string", "a string that goes on over the end of its line", "'abc¦")
    expr("triple_quotes", "triple-quoted string", "a form that TorchScript never writes", "¦'''a'''", "unsupported")
    expr("lambda", "where", "a lambda, which is not in the language", "¦lambda y: y", "unsupported")
    code("brackets_open", "file ends inside brackets", "a bracket that nothing closes", CLASS + METHOD + "    _0 = foo(x, \n¦")
    code("string_to_end", "string is not closed", "a string to the end of the file", CLASS + METHOD + "    _0 = ¦'abc")
    expr("bracket_closes_nothing", "')' closes nothing", "a bracket that nothing opened", "x¦)")
    expr("constant_name", "constants are named c0, c1", "CONSTANTS of another name", "¦CONSTANTS.evil")
    expr("arguments_twice", 'argument "a" is given twice', "a keyword argument twice", "torch.add(x, a=1, ¦a=2)")
    expr("control_byte", "unexpected byte 0x07", "a control character in the code", "¦\a")
    code("statement", "top-level statement", "code that would run when it is imported", "¦x = system(1)\n" + CODE, "unsupported")
    code("class_twice", "is defined twice", "the second definition changes what objects are", CODE + "¦" + CODE)
    code("attribute_twice", "is declared twice in a class", "an attribute of two types",
         CLASS.replace("  training : bool\n", "  training : bool\n  ¦training : int\n") + METHOD + "    return x\n")
    code("indentation", "matches no open block", "blocks that readers see differently", CLASS + METHOD + "    if x:\n      y = x\n   ¦ return x\n"
         .replace("   ¦ return", "     ¦return"))
    code("tab", "tab", "tabs count as one column or as eight", CLASS + METHOD + "¦\treturn x\n")
    add("script_not_utf8.pt", archive(code=CODE.encode() + b"\xff\n"), "format", "unexpected byte 0xff", "code in another encoding",
        "m/code/__torch__.py", len(CODE))
    code("two_arguments", 'two arguments are named "x"', "an argument that hides another",
         CLASS + METHOD.replace("x: Tensor", "x: Tensor,\n    ¦x: Tensor") + "    return x\n")
    blocks = "".join(" " * (i + 4) + "if x:\n" for i in range(300)) + " " * 304 + "y = x\n"
    deep = Entry("m/code/__torch__/deep.py", (CLASS + METHOD + blocks).encode(), method=8)
    add("script_deep_blocks.pt", archive(deep), "limit", "deep.py:205:206: code is nested more than 200 deep", "a recursive parser runs out of stack",
        "m/code/__torch__/deep.py", -1)


def objects():
    def root(name, fragment, why, *parts, cls="format"):
        data, at = pieces(*parts)
        add(f"script_{name}.pt", archive(root=data), cls, fragment, why, "m/data.pkl", at)

    root("global", "refused global mylib.Model", "a class that is not in the archive's code: PyTorch would look for it elsewhere",
         PROTO2, AT, glob("mylib", "Model"), b")\x81.", cls="unsafe")
    root("system", "refused global os.system", "the classic, for loaders that unpickle data.pkl of any archive",
         PROTO2, AT, glob("os", "system"), text("id"), b"\x85R.", cls="unsafe")
    root("class_unknown", 'class "__torch__.Other" at "" is not in the code', "an object without methods",
         PROTO2, glob("__torch__", "Other"), b")\x81}b.")
    root("root_number", "the root is not a module", "a module that is a number", PROTO2, b"K\x01.")
    root("two_states", "__torch__.M: a second state", "__setstate__ runs twice",
         PROTO2, glob("__torch__", "M"), b")\x81}b}", AT, b"b.")
    root("in_itself", "contains itself", "an object tree that never ends",
         PROTO2, glob("__torch__", "M"), b")\x81q\0}(", text("training"), b"\x88", text("me"), b"h\0ub.")
    root("no_name", "has no name", "an attribute whose name is a number", PROTO2, glob("__torch__", "M"), b")\x81}(K\1K\2ub.")
    root("wrong_type", "that TorchScript has no type for", "a set", PROTO4_SET, cls="unsupported")
    root("trailing", "1 bytes after the end of the pickle", "more behind STOP", ROOT, AT, b"N", cls="unsafe")


PROTO4_SET = b"\x80\x04" + glob("__torch__", "M") + b")\x81}(" + text("training") + b"\x8fub."


def records():
    source = CLASS + METHOD + "    _0 = torch.add(x, CONSTANTS.c99, alpha=1)\n    return _0\n"
    add("script_constant_beyond.pt", archive(code=source.encode()), "format", "__torch__.py:7:23 uses constant c99 of a table of 0",
        "an index beyond the table", "m/constants.pkl")
    add("script_constants_no_tuple.pt", archive(constants=PROTO2 + b"]."), "format", "the table of constants is not a tuple",
        "a table that can change", "m/constants.pkl")
    bad = PROTO2 + b"(" + tensor(persistent=storage(key="7")) + b"t."
    add("script_constant_missing.pt", archive(constants=bad), "format", 'storage "7" has no record',
        "a constant whose bytes are not there", "m/constants.pkl", bad.index(b"Q"))
    add("script_version.pt", archive(version=b"three\n"), "format", 'version "three\\n" is not a number', "a version that is a word",
        "m/version", 0)
    add("script_version_long.pt", archive(version=b"3" * 400), "format", "version of 400 bytes", "a version of 400 digits",
        "m/version", 0)
    add("script_code_other.pt", archive(Entry("m/code/__torch__.so", b"\x7fELF")), "format", "neither code nor debug information",
        "a library among the code", "m/code/__torch__.so")
    evil = PROTO2 + glob("posix", "system") + b")R."
    add("script_extra_pickle.pt", archive(Entry("m/hooks.pkl", evil)), "unsafe", "refused global posix.system",
        "a pickle that nobody needs, for loaders that take any .pkl", "m/hooks.pkl", 2)
    traced = PROTO2 + b"}" + text("forward") + b"K\1s."
    add("script_traced_inputs.pt", archive(Entry("m/traced_inputs.pkl", traced)), "format", "traced inputs are not lists by method",
        "a number for arguments", "m/traced_inputs.pkl")
    add("script_code_zeros.pt", archive(code=CODE.encode() + bytes(100)), "format", "unexpected byte 0x00", "C readers end the code there",
        "m/code/__torch__.py", len(CODE))
    add("script_code_deflated_lie.pt", deflated_code(), "unsafe", "inflates to more than", "code that is a deflate bomb",
        "m/code/__torch__/bomb.py", deflated_at())


def _bomb():
    e = Entry("m/code/__torch__/bomb.py", b"# \n" * 2_000_000, method=8, local={"size": 99}, central={"size": 99})
    return archive(e), e


def deflated_code():
    return _bomb()[0]


def deflated_at():
    return _bomb()[1].data_at


syntax()
objects()
records()
