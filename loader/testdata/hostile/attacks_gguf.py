"""GGUF files whose lengths, types, offsets or counts lie."""

import struct

from corpus import AT, add, pieces




def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return u64(len(b)) + b


def pair(key, kind, value):
    return string(key) + u32(kind) + value


def tensor(name, dims, kind, offset):
    return string(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


ARCH = pair("general.architecture", 8, string("llama"))
ONE = tensor("w", [8], 0, 0)
DATA = bytes(32)


def head(tensors, keys, version=3):
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def gguf(name, fragment, why, *parts, cls="format", data=DATA, pad=True, record=""):
    """A file; AT among the parts is the place of the fault."""
    body, at = pieces(*parts)
    if pad:
        body += bytes(-len(body) % 32) + data
    add(f"gguf_{name}.gguf", body, cls, fragment, why, record, at)


def make():
    gguf("version_1", "GGUF version 1", "lengths of 32 bits, read as 64", b"GGUF", AT, u32(1), u32(0), u32(0), cls="unsupported")
    gguf("big_endian", "a big-endian GGUF file", "every length turned round", b"GGUF", AT, struct.pack(">I", 3), bytes(16), cls="unsupported")
    gguf("counts", "keys and 4 tensors in the 0 bytes", "memory for 2^62 keys", head(4, 1 << 62), AT, pad=False, data=b"")
    gguf("key_length", "a text of 18446744073709551615 bytes", "a length that is negative where integers are signed",
         head(0, 1), u64((1 << 64) - 1), AT, bytes(40), pad=False)
    gguf("key_twice", "is there twice", "readers take the first or the last", head(0, 2), ARCH, string("general.architecture"), AT,
         u32(8), string("gpt2"))
    gguf("key_empty", 'the name ""', "a key of nothing", head(0, 1), string(""), AT, u32(4), u32(1))
    gguf("value_type", "a value of the type 13", "a type that there is not", head(0, 1), string("k"), u32(13), AT, bytes(8))
    gguf("array_count", "an array of 1152921504606846976", "memory for 2^60 numbers", head(0, 1), string("k"), u32(9), u32(5),
         u64(1 << 60), AT, bytes(36), pad=False)
    gguf("array_type", "an array of the type 99", "an array of what there is not", head(0, 1), string("k"), u32(9), u32(99), u64(1), AT, bytes(20))
    gguf("bool_2", "a truth value of 2", "a flag that readers take for true or false", head(0, 1), string("k"), u32(7), b"\2", AT, bytes(8))
    gguf("array_deep", "arrays are nested more than", "recursion as deep as the file is long", head(0, 1), string("k"), u32(9),
         (u32(9) + u64(1)) * 200, AT, u32(9) + u64(0), cls="limit")
    gguf("alignment_0", "general.alignment is 0", "a division by zero", head(0, 1), pair("general.alignment", 4, u32(0)))
    gguf("alignment_huge", "general.alignment is 2147483648", "an offset that overflows", head(0, 1), pair("general.alignment", 4, u32(1 << 31)))
    gguf("tensor_twice", "two tensors are named", "a scanner sees another tensor than the loader", head(2, 0), ONE, ONE, AT, data=DATA * 2)
    gguf("tensor_type", "has the type 5", "a type that was taken back", head(1, 0), tensor("w", [32], 5, 0), AT, cls="unsupported")
    gguf("dimensions", "has 4294967295 dimensions", "memory for 2^32 sizes", head(1, 0), string("w"), u32((1 << 32) - 1), AT, bytes(40))
    gguf("dimension_2e63", "has a dimension of 9223372036854775808", "a size that is negative where integers are signed", head(1, 0),
         string("w"), u32(1), u64(1 << 63), AT, u32(0), u64(0))
    gguf("overflow", "shape [4294967296 4294967296]", "a product that overflows to nothing", head(1, 0),
         tensor("w", [1 << 32, 1 << 32], 0, 0), AT)
    gguf("part_of_block", "not whole blocks of 32", "a row that ends within a block", head(1, 0), tensor("w", [33], 2, 0), AT)
    gguf("overlap", "lies at 0 of the data", "two tensors of the same bytes", head(2, 0), ONE, tensor("v", [8], 0, 0), data=DATA * 2)
    gguf("hole", "lies at 64 of the data", "bytes that no tensor shows", head(2, 0), ONE, tensor("v", [8], 0, 64), data=DATA * 3)
    gguf("beyond", "takes 36 bytes at 0 of the data", "a tensor that ends outside of the file", head(1, 0), tensor("w", [9], 0, 0))
    body, _ = pieces(head(1, 0), ONE)
    body += bytes(-len(body) % 32) + DATA
    add("gguf_trailing.gguf", body + b"PK\3\4extra", "format", "9 bytes behind the last tensor",
        "another file behind the last tensor: torch.load looks for the directory of a zip at the end", "", len(body))
    gguf("split_second", "number 2 of the 3 files", "a part of a model that passes for the whole", head(1, 3), ARCH,
         pair("split.no", 2, struct.pack("<H", 1)), pair("split.count", 2, struct.pack("<H", 3)), ONE, cls="unsupported")
    gguf("split_name", "whose name must end in", "files that would be looked for under names from the file", head(1, 2),
         pair("split.no", 2, struct.pack("<H", 0)), pair("split.count", 2, struct.pack("<H", 3)), ONE, cls="unsupported")
    gguf("split_count", "number 7 of a model in 3 files", "a part beyond the last", head(1, 2),
         pair("split.no", 2, struct.pack("<H", 7)), pair("split.count", 2, struct.pack("<H", 3)), ONE)


make()
