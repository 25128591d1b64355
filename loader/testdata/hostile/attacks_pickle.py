"""Pickles that are broken, lie about lengths, or cost more than they weigh. Each is the data.pkl of a zip checkpoint."""

import struct

from attacks_zip import PKL, archive
from corpus import AT, ORDERED, PROTO2, PROTO4, add, glob, num, pieces, state_dict, tensor, text, tup
from zipwriter import Entry


def pickled(name, fragment, why, *parts, cls="format", record=PKL):
    """A checkpoint whose pickle is the pieces; AT stands before the opcode at fault."""
    data, at = pieces(*parts)
    add(f"pickle_{name}.pt", archive(pkl=Entry(PKL, data)).build(), cls, fragment, why, record, at)


def lengths():
    pickled("string_2gib", "a value claims 2147483648 bytes, 0 remain", "14 bytes that make gopickle and others take 2 GiB",
            PROTO4, AT, b"\x8d", struct.pack("<Q", 1 << 31))
    pickled("string_2e62", "a value claims 4611686018427387904 bytes", "a length that no machine has: makeslice panics",
            PROTO4, AT, b"\x8d", struct.pack("<Q", 1 << 62), b"x.")
    pickled("bytes_negative", "a value claims 18446744073709551615 bytes", "a length of -1 where integers are signed",
            PROTO4, AT, b"\x8e", struct.pack("<Q", (1 << 64) - 1), b"x.")
    pickled("bytearray_226gb", "a value claims 242665652224 bytes",
            "pytorch#185443: a pickle of 1.6 KB asks PyTorch's own unpickler for 226 GB",
            b"\x80\x05", b"N0" * 700, AT, b"\x96", struct.pack("<Q", 226 << 30), b"x" * 100, b".")
    pickled("binstring_negative", "a value claims 4294967295 bytes", "BINSTRING's length is signed in Python",
            PROTO2, AT, b"T\xff\xff\xff\xff", b"x.")
    pickled("frame_beyond", "a frame claims 1000 bytes, 2 remain", "a frame that ends outside of the file",
            PROTO4, AT, b"\x95", struct.pack("<Q", 1000), b"N.")
    pickled("frame_crossed", "crosses the end of its frame", "C and Python unpicklers read different bytes across a frame's end",
            PROTO4, b"\x95", struct.pack("<Q", 3), AT, b"\x8c\x04abcd", b".")
    pickled("frame_not_ended", "STOP comes 3 bytes before the end of its frame", "bytes in a frame that nobody reads",
            PROTO4, b"\x95", struct.pack("<Q", 5), b"N", AT, b".", b"abc")
    pickled("frame_in_frame", "a frame begins inside a frame", "unpicklers differ on which frame counts",
            PROTO4, b"\x95", struct.pack("<Q", 11), AT, b"\x95", struct.pack("<Q", 1), b"N", b".")
    pickled("long4_negative", "an integer claims 4294967295 bytes", "LONG4's length is signed in Python",
            PROTO2, AT, b"\x8b\xff\xff\xff\xff", b"x.")
    pickled("long1_255", "an integer of 255 bytes", "decoding long integers takes quadratic time",
            PROTO2, AT, b"\x8a\xff", b"\x7f" * 255, b".", cls="limit")
    pickled("long_digits", "an integer of 5000 digits", "CVE-2020-10735: decimal digits take quadratic time",
            PROTO2, AT, b"L", b"7" * 5000, b"L\n.", cls="limit")
    pickled("long1_empty", "declared as 0 bytes and its record has 16",
            "LONG1 of no bytes is 0 in Python; gopickle panics with an index of -1",
            state_dict(weight=tensor()).split(num(4) + b"tQ")[0], b"\x8a\0", b"t", AT, b"Q",
            state_dict(weight=tensor()).split(num(4) + b"tQ")[1])


def syntax():
    pickled("unknown_opcode", "unknown opcode 0xff", "gopickle's table has 255 entries: index out of range",
            PROTO2, AT, b"\xff", b".")
    pickled("hex_integer", '"0x10" is not an integer', "INT in hexadecimal: Python reads 16, scanners stop (public PoC cards)",
            PROTO2, AT, b"I0x10\n.")
    pickled("float_words", '"1_0.5" is not a number', "Python takes underscores, other readers do not",
            PROTO2, AT, b"F1_0.5\n.")
    pickled("string_unquoted", '"system" is not a quoted string', "a form that Python refuses and scanners accept",
            b"", AT, b"Ssystem\n.")
    pickled("bad_escape", "has an escape that is no character", "a code point beyond Unicode",
            b"", AT, b"V\\U00110000\n.")
    pickled("not_utf8", "a string is not UTF-8", "a name that readers decode in their own ways",
            PROTO2, AT, b"X\x02\0\0\0\xc3\x28.")
    pickled("no_stop", "the pickle ends before its STOP", "what comes behind it would be read as pickle",
            PROTO2, b"N", AT, b"")
    pickled("stop_early", "STOP with 2 values and 0 marks", "values left over: unpicklers differ on which one is the result",
            PROTO2, b"NN", AT, b".")
    pickled("protocol_6", "pickle protocol 6", "a protocol that does not exist yet", AT, b"\x80\x06", b"N.", cls="unsupported")
    pickled("proto_twice", "PROTO in the middle", "the protocol changes on the way", PROTO2, b"N0", AT, PROTO4, b"N.")
    pickled("opcode_of_later_protocol", "opcode 0x8f belongs to protocol 4 or 5, the file declares 2",
            "scanners that dispatch by protocol skip it, unpicklers do not", PROTO2, AT, b"\x8f", b".")
    pickled("no_mark", "no MARK on the stack", "an unpickler without checks reads before its stack", PROTO2, b"NN", AT, b"t", b".")
    pickled("underflow", "stack underflow: '\\u0087' needs 3 values, 1 are there", "the same, by a count",
            PROTO2, b"N", AT, b"\x87", b".")
    pickled("below_the_mark", "nothing below the MARK", "APPENDS to what lies before the stack", PROTO2, b"(N", AT, b"e", b".")
    pickled("memo_missing", "memo index 7 was never put", "a read of memory that was never written", PROTO2, AT, b"h\x07", b".")
    pickled("memo_far", "memo index 4294967295 after 2 opcodes", "a memo in an array takes 32 GiB",
            PROTO2, b"N", AT, b"r\xff\xff\xff\xff", b".")
    pickled("memo_text", '"-1" is not a memo index', "a memo index of -1", PROTO2, b"N", AT, b"p-1\n", b".")
    pickled("out_of_band", "an out-of-band buffer", "a buffer that the file does not hold", b"\x80\x05", AT, b"\x97", b".",
            cls="unsupported")
    pickled("name_with_blank", "is not the name of a global", "a name that prints as another", PROTO2, AT,
            b"cos \nsystem\n", b".")
    pickled("globals_1001", "more than 1000 globals", "each name costs the reader more than its bytes",
            PROTO2, b"".join(b"ca\nb%d\n0" % i for i in range(1000)), AT, b"ca\nx\n", b".", cls="limit")


def types():
    """CVE-2026-24747 in its variants: containers that are none."""
    why = "CVE-2026-24747: SETITEM on a value that is no dict corrupts memory in PyTorch's weights_only unpickler"
    pickled("setitem_on_list", "items are added to a list", why, PROTO2, b"]NN", AT, b"s", b".")
    pickled("setitems_on_tensor", "items are added to a rebuilt value", why, PROTO2, tensor(), b"(NN", AT, b"u", b".",
            cls="unsafe")
    pickled("setitem_on_class", "items are added to a global", "changes a class for every later user", PROTO2,
            glob("collections", "OrderedDict"), b"NN", AT, b"s", b".", cls="unsafe")
    pickled("append_to_tuple", "items are added to a tuple", "changes a value that others hold for constant",
            PROTO2, b")N", AT, b"a", b".")
    pickled("additems_to_dict", "items are added to a dict", "ADDITEMS calls what it is given", PROTO4, b"}(N", AT, b"\x90", b".")
    pickled("key_is_list", "a list is a dict's key", "a key that can change", PROTO2, b"}]N", AT, b"s", b".")
    pickled("set_of_dicts", "a dict is in a set", "an element that can change", PROTO4, b"\x8f(}", AT, b"\x90", b".")
    pickled("key_alone", "a key without a value", "a read past the items", PROTO2, b"}(NNN", AT, b"u", b".")
    pickled("args_list", "a list for the arguments of a call", "a call whose arguments can still change",
            PROTO2, glob("collections", "OrderedDict"), b"]", AT, b"R", b".")
    pickled("keywords", "NEWOBJ_EX with a list for keywords", "keywords that are no dict",
            PROTO4, glob("collections", "OrderedDict"), b")]", AT, b"\x92", b".")
    pickled("call_of_int", "an int is called", "a call of what is no function", PROTO2, b"K\x01)", AT, b"R", b".")
    pickled("build_on_int", "BUILD changes an int", "a state for a value that has none", PROTO2, b"K\x01}", AT, b"b", b".")


def depth():
    pickled("deep_marks", "nested deeper than 200 (at byte 202)", "recursion as deep as the file is long",
            PROTO2, b"(" * 200, AT, b"(", b"(" * 2000, b"t" * 2201, b".", cls="limit")
    pickled("deep_tuples", "nested deeper than 200 (at byte 203)", "the same without marks",
            PROTO2, b"N", b"\x85" * 200, AT, b"\x85", b"\x85" * 2000, b".", cls="limit")
    # Each list is empty when it is put into the one around it, so that no opcode nests deeply.
    deep = b"".join(b"]" + b"r" + struct.pack("<I", i + 1) + b"a" + b"j" + struct.pack("<I", i + 1) for i in range(400))
    pickled("deep_by_memo", "objects nested more than 200 deep at", "depth that only whoever walks the value meets",
            PROTO2, b"]r\0\0\0\0", deep, b"0" * 400, b".", cls="limit", record="")
    # 60 tuples, each of the one before it twice.
    pickled("shared_2e60", "more than the 33554432 bytes of memory allowed", "2^60 leaves by sharing: walks, prints and copies never end",
            PROTO2, b"]", b"".join(b"q%c" % i + b"h%c\x86" % i for i in range(60)), b".", cls="limit", record="")
    pickled("pairs_of_itself", "cannot be made of these", "an OrderedDict of a list that contains itself", PROTO2,
            glob("collections", "OrderedDict"), b"]q\0h\0a", b"\x85", AT, b"R", b".")


def modules():
    def module(children):
        return (glob("torch.nn.modules.container", "Sequential") + b")\x81q\0" + b"}(" + text("_parameters") + ORDERED
                + text("_buffers") + ORDERED + text("_modules") + children + b"ub")

    pickled("module_in_itself", "module contains itself", "a tree that never ends",
            PROTO2, module(b"}" + text("0") + b"h\0s"), b".", record="0.0")
    pickled("module_child", "child is not a module", "an attribute lookup by another name", PROTO2,
            module(b"}" + text("0") + b"K\x01s"), b".", record="0")


def persistent():
    pickled("persistent_kind", 'persistent id of kind "module"', "only storages have ids in a zip checkpoint",
            PROTO2, tup(text("module"), b"NNNN"), AT, b"Q", b".")
    pickled("persistent_text", "persistent id is not a storage", "a protocol 0 id, which PyTorch never writes",
            PROTO2, AT, b"Pstorage\n", b".")
    pickled("persistent_no_class", "persistent id without a storage class", "a class that is a string",
            PROTO2, tup(text("storage"), text("FloatStorage"), text("0"), text("cpu"), num(4)), AT, b"Q", b".")
    pickled("persistent_class", "unknown storage class torch.Tensor", "a class that is no storage",
            PROTO2, tup(text("storage"), glob("torch", "Tensor"), text("0"), text("cpu"), num(4)), AT, b"Q", b".")
    pickled("persistent_key", "storage key is not a string", "a key that names a record by its print",
            PROTO2, tup(text("storage"), glob("torch", "FloatStorage"), num(0), text("cpu"), num(4)), AT, b"Q", b".")


lengths()
syntax()
types()
depth()
modules()
persistent()
