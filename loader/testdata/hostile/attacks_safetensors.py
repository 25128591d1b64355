"""safetensors files whose header lies, and one that is a pickle as well."""

import struct

from corpus import add, marked


def file(header, data, length=None, begin=b""):
    h = header if isinstance(header, bytes) else header.encode()
    return begin + struct.pack("<Q", len(h) if length is None else length) + h + data


ONE = '{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
DATA = bytes(16)


def st(name, fragment, why, header=ONE, data=DATA, cls="format", record="", offset=-1, **kw):
    """A file; ¦ in the header stands at the fault, whose place counts from the header's start in record "header"."""
    text, at = marked(header)
    add(f"safetensors_{name}.safetensors", file(text, data, **kw), cls, fragment, why, record, at if at >= 0 else offset)


def header(name, fragment, why, text, data=DATA, cls="format"):
    st(name, fragment, why, text, data, cls, record="header")


def lengths():
    st("length_2e63", "the header has 9223372036854775808 bytes", "a length that is negative where integers are signed",
       length=1 << 63, offset=0)
    st("length_beyond", "the header has 1000 bytes", "a header that ends outside of the file", length=1000, offset=0)
    st("length_0", "the header does not begin with {", "a header of nothing", length=0, offset=8)
    add("safetensors_too_short.safetensors", b"\x02\0\0\0\0\0\0\0{", "format", "the header has 2 bytes", "a file of 9 bytes", "", 0)
    st("array", "where a key should begin", "an array in an object's clothes",
       '{¦[1,2]}', record="header")
    st("space_first", "not a checkpoint in any format", "a header that begins with a blank: the reference refuses it, other readers "
       "do not", " " + ONE, cls="unsupported")
    st("trailing", "5 bytes after the last tensor", "bytes that no tensor shows", data=DATA + b"extra", offset=8 + len(ONE) + 16)
    st("truncated", "not one of two offsets into 15 bytes", "a download that was cut short", ONE.replace("16]", "16]"), DATA[:15],
       record="header")
    st("hidden_after_header", "after the end of the header's object", "bytes in the header behind its object", ONE + "   ¦#!/bin/sh",
       record="header")


def keys():
    header("duplicate_tensor", '"w" occurs twice', "readers take the first or the last: a scanner sees another tensor than the loader",
           ONE[:-1] + ',"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}')
    header("duplicate_field", '"shape" occurs twice', "the same, within a tensor",
           ONE.replace('"shape":[4]', '"shape":[4],"shape":[1]'))
    header("escaped_duplicate", '"dtype" occurs twice', "the same, one of them written with an escape",
           ONE.replace('"shape"', '"\\u0064type":"I32","shape"'))
    header("no_dtype", "a tensor needs dtype, shape and two data_offsets", "a tensor of no type", ONE.replace('"dtype":"F32",', ""))
    header("metadata_number", "number", "metadata is text alone", ONE[:-1] + ',"__metadata__":{"a":¦1}}')
    header("metadata_deep", "nested deeper", "recursion as deep as the header is long",
           ONE[:-1] + ',"x":' + '{"a":' * 300 + "1" + "}" * 301, cls="limit")
    broken = ONE.encode().replace(b'"w"', b'"\xc3("')
    add("safetensors_not_utf8.safetensors", file(broken, DATA), "format", "a string that is not UTF-8",
        "a name that readers decode in their own ways", "header", 2)
    header("nan", "unexpected", "NaN, which Python's json reads", ONE.replace("[4]", "[¦NaN]"))


def places():
    two = '{"a":{"dtype":"U8","shape":[8],"data_offsets":[%s]},"b":{"dtype":"U8","shape":[8],"data_offsets":[%s]}}'
    text = two % ("0,8", "4,12")
    st("overlap", 'the tensor "b" overlaps', "two tensors share bytes: what one changes, the other sees", text, bytes(12), offset=8 + len(text) + 4)
    text = two % ("0,8", "12,20")
    st("hole", "a hole of 4 bytes", "bytes that no tensor shows", text, bytes(20), offset=8 + len(text) + 8)
    header("offset_beyond", "17 is not one of two offsets into 16 bytes", "a tensor that ends outside of the file", ONE.replace("16]", "17]"))
    header("offset_negative", "-16 is not one of two offsets", "a tensor before the file", ONE.replace("[0,", "[-16,"))
    header("offsets_backwards", "data_offsets [16 0] run backwards", "a length that is negative", ONE.replace("[0,16]", "[16,0]"))
    header("offsets_three", "8 is not one of two offsets", "which two of three count", ONE.replace("[0,16]", "[0,16,8]"))


def shapes():
    header("shape_short", "shape [3] of F32 does not take the 16 bytes", "shape and bytes disagree", ONE.replace("[4]", "[3]"))
    header("shape_overflow", "has more than 2^63 elements", "a product that overflows to 0",
           ONE.replace("[4]", "[4294967296,4294967296]").replace("0,16", "0,0"), b"")
    header("shape_width_overflow", "does not take the 0 bytes", "elements whose bytes overflow to 0",
           ONE.replace("[4]", "[4611686018427387904]").replace("0,16", "0,0"), b"")
    header("shape_negative", "a dimension of -4", "sizes whose product is positive", ONE.replace("[4]", "[-4,-1]"))
    header("shape_float", "4.0", "an element count with a point", ONE.replace("[4]", "[4.0]"))
    header("shape_2e64", "18446744073709551616", "a size beyond 64 bits", ONE.replace("[4]", "[18446744073709551616]"))


def polyglot():
    """A file that safetensors reads, and that pickle.load runs.

    Its first byte, of the header's length, is BINUNICODE; that opcode's length takes the next four bytes, so that its text
    reaches into the header's first string. There, more opcodes skip the rest of the header with short strings whose lengths
    are the first bytes of UTF-8 characters, down to the tensor's bytes, where any pickle may stand.
    """
    skip = 6
    size = skip << 8 | ord("X")  # 1624
    evil = b"cos\nsystem\n(S'echo pwned'\ntR."
    text = b'{"a'  # in the file from 8 to 11, where BINUNICODE ends: 5 bytes of opcode and 6 of text
    # Eight skips of SHORT_BINBYTES cross what is left of the header.
    for n in [0xC9] * 7 + [0xC6]:
        text += b"C" + bytes([n, 0x80]) + b"a" * (n - 1)
    tail = b'":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(evil), len(evil))
    text = text[: size - len(tail)] + tail
    assert len(text) == size
    data = struct.pack("<Q", size) + text + evil
    add("safetensors_pickle_as_well.safetensors", data, "unsafe", "the file is a pickle as well",
        "a valid safetensors file that pickle.load runs: its length is a pickle opcode, its names skip to the payload", "",
        data.index(b"cos"))
    add("safetensors_no_safetensors.safetensors", b"cos\nnic{\n0.", "unsafe", "refused global os.nic{",
        "a text pickle with a brace where safetensors has one", "", 0)


lengths()
keys()
places()
shapes()
polyglot()
