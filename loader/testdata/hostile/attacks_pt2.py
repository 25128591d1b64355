"""torch.export archives: programs that contradict themselves, and tables of weights that lie."""

from corpus import FLOATS, GOOD, PROTO2, add, glob, marked, state_dict, tensor, text
from zipwriter import Entry, Zip

META = ('{"dtype":7,"sizes":[{"as_int":4}],"requires_grad":false,"device":{"type":"cpu","index":null},'
        '"strides":[{"as_int":1}],"storage_offset":{"as_int":0},"layout":7}')
NODE = ('{"target":"torch.ops.aten.add.Tensor","inputs":[{"name":"self","arg":{"as_tensor":{"name":"x"}},"kind":1},'
        '{"name":"other","arg":{"as_tensor":{"name":"w"}},"kind":1}],"outputs":[{"as_tensor":{"name":"y"}}],"metadata":{}}')
PROGRAM = ('{"graph_module":{"graph":{"inputs":[{"as_tensor":{"name":"w"}},{"as_tensor":{"name":"x"}}],'
           '"outputs":[{"as_tensor":{"name":"y"}}],"nodes":[' + NODE + '],"tensor_values":{"w":' + META + ',"x":' + META + ',"y":'
           + META + '},"sym_int_values":{},"sym_bool_values":{}},"signature":{"input_specs":[{"parameter":{"arg":{"name":"w"},'
           '"parameter_name":"weight"}},{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],"output_specs":[{"user_output":{"arg":'
           '{"as_tensor":{"name":"y"}}}}]},"module_call_graph":[]},"opset_version":{"aten":10},"range_constraints":{},'
           '"schema_version":{"major":8,"minor":1}}')
CONFIG = '{"config":{"weight":{"path_name":"weight_0","is_param":true,"use_pickle":false,"tensor_meta":' + META + '}}}'
SYMBOLIC = '{"as_expr":{"expr_str":"%s"}}'


def archive(*more, program=PROGRAM, config=CONFIG, weight=FLOATS, fmt=b"pt2"):
    entries = [Entry("m/archive_format", fmt), Entry("m/models/model.json", program.encode())]
    if config is not None:
        entries.append(Entry("m/data/weights/model_weights_config.json", config.encode()))
    if weight is not None:
        entries.append(Entry("m/data/weights/weight_0", weight))
    entries.append(Entry("m/data/constants/model_constants_config.json", b'{"config":{}}'))
    return Zip(*entries, *more).build()


def replaced(whole, old, new):
    if old not in whole:
        raise SystemExit(f"no {old}")
    return marked(whole.replace(old, new, 1))


def program(name, fragment, why, old, new, cls="format", at=None):
    """A change to the program; ¦ in new stands where the reader notices, except that at overrides it."""
    data, place = replaced(PROGRAM, old, new)
    add(f"pt2_{name}.pt2", archive(program=data.decode()), cls, fragment, why, "m/models/model.json", place if at is None else at)


def graphs():
    used = '"arg":{"as_tensor":{"name":"x"}},"kind"'
    program("undefined", 'the value "z" is used before it is defined', "a value from nowhere", used, used.replace('"x"', '"z"'))
    program("cyclic", 'the value "y" is used before it is defined', "a node that waits for itself", used, used.replace('"x"', '"y"'))
    program("nameless", "without a name is used", "an empty name, which unused outputs share", used, '"arg":{"as_tensors":[{"name":""}]},"kind"')
    program("defined_twice", 'the value "x" is defined twice', "which of the two counts is up to the reader",
            '"outputs":[{"as_tensor":{"name":"y"}}],"metadata"', '"outputs":[{"as_tensor":{"name":"x"}}],"metadata"')
    program("unknown_output", 'the value "q"', "a result that nobody computes",
            '"outputs":[{"as_tensor":{"name":"y"}}],"nodes"', '"outputs":[{"as_tensor":{"name":"q"}}],"nodes"')
    program("no_meta", 'nothing is said of the value "y"', "a value without dtype and shape", ',"y":' + META, "")
    program("unknown_tag", '"as_hologram"', "a kind of value that is not in the schema", used,
            used.replace("as_tensor", "as_hologram"), "unsupported")
    program("two_tags", "more than one value", "a union that is two things: readers take the first or the last", used,
            used.replace('"as_tensor"', '"as_int":1,"as_tensor"'))
    program("no_tag", "a union without a value", "a union that is nothing", used, '"arg":{},"kind"')
    inner = '{"as_graph":{"name":"g","graph":{"inputs":[],"nodes":[' + NODE + '],"outputs":[],"tensor_values":{}}}}'
    program("subgraph_sees_outside", 'subgraph "g"', "a subgraph that reads what it was not given", used, '"arg":' + inner + ',"kind"')
    deep = '{"as_none":true}'
    for i in range(40):
        node = '{"target":"t","inputs":[{"name":"g","arg":' + deep + ',"kind":1}],"outputs":[],"metadata":{}}'
        deep = '{"as_graph":{"name":"g","graph":{"inputs":[],"nodes":[' + node + '],"outputs":[],"tensor_values":{}}}}'
    program("deep_subgraphs", "nested deeper than 200", "graphs within graphs: recursion as deep as the file is long", used,
            '"arg":' + deep + ',"kind"', "limit")
    program("newer_schema", "schema version 99.1 is newer than 8.20", "a schema of the future", '"major":8', '"major":99', "unsupported")
    program("negative_schema", "the negative schema version -1.1", "a version that is negative", '"major":8', '"major":-1')
    program("no_schema", "the program has no schema_version", "a program of any version", '"schema_version"', '"shema_version"')
    program("signature", "3 inputs for a graph of 2", "a signature of another graph", '{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}',
            '{"user_input":{"arg":{"as_tensor":{"name":"x"}}}},{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}')
    program("mutation_of_nothing", 'which is no such input', "a result that is written to a buffer that is not there",
            '{"user_output":{"arg":{"as_tensor":{"name":"y"}}}}', '{"buffer_mutation":{"arg":{"name":"y"},"buffer_name":"b"}}')


def numbers():
    size = '"y":{"dtype":7,"sizes":[{"as_int":4}]'
    for name, new, fragment, why, cls in [
        ("size_negative", '{"as_int":-4}', "the impossible shape [-4]", "a size that is negative", "format"),
        ("size_2e62", '{"as_int":4611686018427387904},{"as_int":4611686018427387904}', "sizes", "sizes whose product overflows", "format"),
        ("size_of_65", ",".join(['{"as_int":1}'] * 65), "a tensor of 65 dimensions", "dimensions that cost little here and much for each of many operands", "limit"),
        ("size_nan", '{"as_int":NaN}', "NaN is not an integer", "NaN, which Python's json reads", "format"),
        ("size_float", '{"as_int":4.5}', "4.5", "half an element", "format"),
        ("size_2e63", '{"as_int":9223372036854775808}', "9223372036854775808 is not an integer of 64 bits", "a size that is negative where integers are signed", "format"),
        ("symbol_unbound", SYMBOLIC % "Add(Symbol('s9'), Integer(1))", 'nothing binds the symbol "s9"', "a size that nobody can know", "format"),
        ("expression_open", SYMBOLIC % "Add(Symbol('s9'),", "ends early", "an expression that breaks off", "format"),
        ("expression_call", SYMBOLIC % "__import__('os').system('id')", "the expression",
         "PyTorch hands expressions to sympify, which is eval", "format"),
        ("expression_deep", SYMBOLIC % ("(" * 1000), "nested deeper", "recursion as deep as the text is long", "limit"),
    ]:
        program(name, fragment, why, size, size.replace('{"as_int":4}', new), cls)
    program("strides", "1 sizes and 2 strides", "strides of another length", '"y":' + META,
            '"y":' + META.replace('"strides":[', '"strides":[{"as_int":1},'))
    program("empty_range", "the empty range from 3 to 2", "a symbol that no size fits", '"range_constraints":{}',
            '"range_constraints":{"s0":{"min_val":3,"max_val":2}}')


def texts():
    program("duplicate_key", "occurs twice", "which of the two counts is up to the reader: scanners and loaders differ",
            '"opset_version":{"aten":10}', '"opset_version":{"aten":10,"aten":11}')
    program("duplicate_section", '"graph_module" occurs twice', "two programs in one document", '"opset_version":{"aten":10}',
            '"opset_version":{"aten":10},"graph_module":{}')
    program("deep_json", "nested deeper than 200 (", "recursion as deep as the file is long", '"opset_version":{"aten":10}',
            '"opset_version":{"aten":10},"x":' + "[" * 5000, "limit")
    program("trailing", "after the end of the document", "a second document", '"minor":1}}', '"minor":1}}¦{}')
    program("truncated", "the document ends early", "a document that breaks off", '"minor":1}}', "")
    program("lone_surrogate", "a lone surrogate", "a character that is none", '"aten":10', '"\\ud800":10')
    program("control", "the control character", "a line break in a string", '"aten":10', '"at\nen":10')


def payloads():
    def config(name, fragment, why, old, new, cls="format", record="m/data/weights/model_weights_config.json", **kw):
        data, place = replaced(CONFIG, old, new)
        add(f"pt2_{name}.pt2", archive(config=data.decode(), **kw), cls, fragment, why, record, place)

    config("path_climbs", 'has no record "../../models/model.json"', "a payload that is another record", '"weight_0"',
           '"../../models/model.json"')
    config("path_absolute", 'has no record "/etc/passwd"', "a payload that is a file of the machine", '"weight_0"', '"/etc/passwd"')
    config("path_empty", "an entry without a path_name", "a payload of no name", '"weight_0"', '""')
    add("pt2_payload_short.pt2", archive(weight=FLOATS[:8]), "format", "need 16 bytes of a storage of 8",
        "the weight is smaller than its meta: reads beyond it", "m/data/weights/weight_0")
    add("pt2_payload_odd.pt2", archive(weight=FLOATS + b"x"), "format", "17 bytes are no whole number of float32 elements",
        "a weight of four and a quarter elements", "m/data/weights/weight_0")
    add("pt2_payload_missing.pt2", archive(weight=None), "format", 'has no record "weight_0"', "a weight that is not there",
        "m/data/weights/model_weights_config.json")
    add("pt2_config_missing.pt2", archive(config=None), "format", "no record m/data/weights/model_weights_config.json",
        "no table of weights at all")
    config("weight_unknown", 'the program reads "weight", which the file does not hold', "a program without its weights",
           '"weight":', '"other":', record="")
    config("weight_dtype", 'the program reads "weight" as float32 [4]', "weights of another type than the program says",
           '"dtype":7', '"dtype":5', weight=FLOATS * 2, record="")
    evil = Zip(Entry("a/data.pkl", PROTO2 + glob("os", "system") + text("id") + b"\x85R.")).build()
    config("weight_pickled", "refused global os.system", "use_pickle: a pickle for one weight", '"use_pickle":false', '"use_pickle":true',
           "unsafe", record="m/data/weights/weight_0/a/data.pkl", weight=evil)
    hostile = Zip(Entry("a/data.pkl", GOOD), Entry("a/../../x", b"x")).build()
    add("pt2_sample_zip.pt2", archive(Entry("m/data/sample_inputs/model.pt", hostile)), "unsafe", "climbs out of its folder",
        "the archive within the archive is hostile", "m/data/sample_inputs/model.pt/a/../../x")
    bare = PROTO2 + glob("nt", "system") + b")R."
    add("pt2_sample_pickle.pt2", archive(Entry("m/data/sample_inputs/model.pt", bare)), "unsafe", "refused global nt.system",
        "a bare pickle for the sample inputs", "m/data/sample_inputs/model.pt", 2)
    add("pt2_format.pt2", archive(fmt=b"pt3"), "unsupported", '"pt3" where only "pt2" is known', "a format of the future",
        "m/archive_format", 0)
    add("pt2_no_program.pt2", Zip(Entry("m/archive_format", b"pt2"), Entry("m/data/aotinductor/x.so", b"\x7fELF")).build(),
        "unsupported", "without a program", "compiled code alone, which loaders open with dlopen")


def old_layout():
    """Before torch 2.8."""
    def old(name, cls, fragment, why, record, offset=-1, program=PROGRAM, state=None):
        state = state or Zip(Entry("a/data.pkl", GOOD), Entry("a/data/0", FLOATS)).build()
        z = Zip(Entry("serialized_exported_program.json", program.encode()), Entry("serialized_state_dict.pt", state),
                Entry("version", b"8.1"))
        add(f"pt2old_{name}.pt2", z.build(), cls, fragment, why, record, offset)

    inner = "serialized_state_dict.pt"
    evil = PROTO2 + glob("os", "system") + text("id") + b"\x85R."
    old("state_runs", "unsafe", "refused global os.system", "the state dict is a whole torch.save file", f"{inner}/a/data.pkl", 2,
        state=Zip(Entry("a/data.pkl", evil)).build())
    old("state_no_zip", "format", "too few for a zip archive", "a state dict that is no archive", inner, 0, state=b"\x80\x02N.")
    twice = Zip(Entry("a/data.pkl", GOOD), Entry("a/data.pkl", evil), Entry("a/data/0", FLOATS))
    data = twice.build()
    old("state_duplicate", "unsafe", "two records have this name", "two state dicts in one", f"{inner}/a/data.pkl",
        twice.entries[1].central_at, state=data)
    old("state_other", "format", 'the program reads "weight", which the file does not hold', "weights of another program", "",
        state=Zip(Entry("a/data.pkl", state_dict(bias=tensor())), Entry("a/data/0", FLOATS)).build())
    old("program_no_graph", "format", "the program has no graph_module", "a program of nothing",
        "serialized_exported_program.json", program=PROGRAM.replace("graph_module", "graph_modul"))


graphs()
numbers()
texts()
payloads()
old_layout()
