"""Files in the format of torch < 1.6: five pickles, then the storages."""

import struct

from corpus import AT, FLOATS, GOOD, PROTO2, add, glob, num, pieces, short, state_dict, storage, tensor, text, tup

MAGIC = PROTO2 + b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
VERSION = PROTO2 + b"M\xe9\x03."
SYSTEM = PROTO2 + b"}(" + text("protocol_version") + b"M\xe9\x03" + text("little_endian") + b"\x88u."
KEYS = PROTO2 + b"](" + text("0") + b"e."
COUNT = struct.pack("<q", 4)


def legacy(name, fragment, why, cls="format", record="", magic=MAGIC, version=VERSION, system=SYSTEM, obj=GOOD, keys=KEYS,
           count=COUNT, data=FLOATS):
    """A file of one tensor with a part replaced by pieces; the place of AT is that of the error, or the end of part at."""
    parts = []
    for part in (magic, version, system, obj, keys, count, data):
        parts += part if isinstance(part, tuple) else (part,)
    out, place = pieces(*parts)
    add(f"legacy_{name}.pt", out, cls, fragment, why, record, place)


def headers():
    legacy("magic", "a pickle that torch.save did not write", "any pickle at all", "unsupported",
           magic=PROTO2 + b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x18.")
    legacy("version", "legacy protocol version 1002", "a protocol that never was", "unsupported", version=PROTO2 + b"M\xea\x03.")
    legacy("magic_storage", "a storage where there can be none", "a persistent id before there are storages",
           magic=(PROTO2, storage(), AT, b"Q."))
    legacy("system_runs", "refused global platform.popen", "every pickle of the five runs, the system information too", "unsafe",
           "system information", system=(PROTO2, AT, glob("platform", "popen"), text("id") + b"\x85R."))
    legacy("object_runs", "refused global os.spawnl", "the classic, in the old format", "unsafe", "object",
           obj=(PROTO2, AT, glob("os", "spawnl"), text("id") + b"\x85R."))
    legacy("keys_run", "refused global sys.exit", "the list of keys is a pickle as well", "unsafe", "storage keys",
           keys=(PROTO2, AT, glob("sys", "exit"), b")R."))
    legacy("source_of_module", "refused global code.interact", "('module', class, file, source): PyTorch compares the source, the "
           "class is imported", "unsafe", "object",
           obj=(PROTO2, b"(", text("module"), AT, glob("code", "interact"), text("m.py"), text("import os"), b"tQ."))
    add("legacy_bare_system.pkl", b"\x80\x04" + short("os") + short("startfile") + b"\x93" + short("id") + b"\x85R.", "unsafe",
        "refused global os.startfile", "a pickle and nothing else: torch.load would run it", "", 17)
    add("legacy_text_protocol.pkl", b"cposixpath\nos.system\n(S'id'\ntR.", "unsafe", "refused global posixpath.os.system",
        "protocol 0 has no magic bytes: a text file that runs", "", 0)


def tables():
    legacy("keys_no_list", "not a list", "keys that are no list", record="storage keys", keys=(PROTO2 + b"}.", AT))
    legacy("key_unknown", 'storage "9" belongs to no tensor', "a storage that no tensor shows", record="storage keys",
           keys=(PROTO2 + b"](" + text("9") + b"e.", AT))
    legacy("key_twice", "storage comes twice", "which of the two a tensor sees is up to the reader", record="0",
           keys=PROTO2 + b"](" + text("0") + text("0") + b"e.", data=(FLOATS, AT, COUNT, FLOATS))
    legacy("key_missing", "storage has no data in the file", "a tensor over memory that was never filled", record="0",
           keys=PROTO2 + b"].", count=b"", data=b"")
    legacy("count_lies", "storage of 5 elements is declared as 16 bytes", "count and pickle disagree on the size", record="0",
           count=(AT, struct.pack("<q", 5)))
    legacy("count_negative", "storage of -4 elements", "a count that is negative", record="0", count=(AT, struct.pack("<q", -4)))
    legacy("ends_before_count", "the file ends before the storage", "a file cut short", record="0", count=(AT, b"\4\0"), data=b"")
    legacy("ends_in_storage", "the file ends 6 bytes before the storage does", "a file cut short", record="0",
           data=(AT, FLOATS[:10]))
    legacy("trailing", "5 bytes after the last storage", "a place to hide in", data=(FLOATS, AT, b"extra"))


def views():
    def viewed(name, fragment, first, count, why):
        obj = state_dict(w=tensor(persistent=storage(view=tup(text("v"), num(first), num(count)))))
        before, after = obj.split(b"Q", 1)
        legacy(name, fragment, why, record="object", obj=(before, AT, b"Q", after))

    viewed("view_beyond", 'storage "0": a view lies outside it', 2, 3, "a view that ends outside of its storage")
    obj = state_dict(w=tensor(persistent=storage(view=tup(text("v"), num(0)))))
    before, after = obj.split(b"Q", 1)
    legacy("view_malformed", 'storage "0": malformed view', "a view without a size", record="object", obj=(before, AT, b"Q", after))
    one = state_dict(a=tensor())[:-2]
    again = text("b") + tensor(persistent=storage(numel=8))
    before, after = again.split(b"Q", 1)
    legacy("two_sizes", "is declared as 16 and as 32 bytes", "one storage of two sizes", record="object",
           obj=(one, before, AT, b"Q", after, b"u."))


def header_of_tar(name):
    """A tar header as old as tar, without the word ustar."""
    h = bytearray(512)
    h[: len(name)] = name
    h[100:108], h[108:116], h[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    h[124:136], h[136:148], h[156:157] = b"00000000000\0", b"00000000000\0", b"0"
    return h


def checksum(h):
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def tars():
    add("legacy_tar.tar", checksum(header_of_tar(b"pickle")) + bytes(1024), "unsupported", "a legacy tar checkpoint",
        "CVE-2025-32434: torch.load(weights_only=True) ran code from tar files; this one does not even say ustar")
    # A legacy checkpoint whose system information holds a string over the places where a tar header has its fields.
    begin = MAGIC + VERSION + PROTO2 + b"}" + text("x") + b"X" + struct.pack("<I", 512)
    h = bytearray(header_of_tar(b""))
    h[: len(begin)] = begin
    h = checksum(h)
    rest = b"y" * (len(begin) + 512 - len(h)) + b"s." + GOOD + KEYS + COUNT + FLOATS
    add("legacy_tar_as_well.pt", h + rest, "unsafe", "the file is a tar archive as well",
        "CVE-2025-32434: torch.load tries tar before the legacy pickles, so a scanner of the pickles sees another file", "", 0)


headers()
tables()
views()
tars()
