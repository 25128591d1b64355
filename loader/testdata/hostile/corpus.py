"""The list of attacks, and the small builders that several formats share."""

import io
import json
import os
import struct
import tarfile

from places import PLACES

AT = object()  # in a list of pieces: the place where the problem is to be found


class Case:
    """One hostile file, or folder, and the answer that it must get."""

    def __init__(self, name, files, open_at, cls, fragment, why, record, offset):
        self.name, self.files, self.open_at = name, files, open_at
        if offset < 0:
            offset = PLACES.get(open_at, -1)
        self.row = {"class": cls, "record": record, "offset": offset, "fragment": fragment, "why": why}


CASES = []


def add(name, data, cls, fragment, why, record="", offset=-1):
    """Adds a file. Offset counts from the start of the record."""
    CASES.append(Case(name, {name: data}, name, cls, fragment, why, record, offset))


def add_folder(name, files, cls, fragment, why, open_at="", record="", offset=-1):
    """Adds a folder of files; open_at is the one to open, the folder itself by default."""
    paths = {f"{name}/{path}": data for path, data in files.items()}
    CASES.append(Case(name, paths, f"{name}/{open_at}".rstrip("/"), cls, fragment, why, record, offset))


def pieces(*parts):
    """Joins pieces of bytes. Returns them and the place of AT, -1 without one."""
    out, at = b"", -1
    for part in parts:
        if part is AT:
            at = len(out)
        else:
            out += part
    return out, at


def marked(text):
    """Cuts the mark that shows where the problem is out of a text. Returns bytes and the place, -1 without one."""
    before, mark, after = text.partition("¦")
    return (before + after).encode(), len(before.encode()) if mark else -1


# Pickle opcodes.


def glob(module, name):
    return f"c{module}\n{name}\n".encode()


def short(text):
    """SHORT_BINUNICODE."""
    b = text.encode()
    return b"\x8c" + bytes([len(b)]) + b


def text(s):
    """BINUNICODE."""
    b = s.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def num(n):
    """The shortest integer opcode."""
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    size = n.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + n.to_bytes(size, "little", signed=True)


def tup(*items):
    return b"(" + b"".join(items) + b"t"


ORDERED = glob("collections", "OrderedDict") + b")R"
PROTO2, PROTO4 = b"\x80\x02", b"\x80\x04"


def storage(key="0", numel=4, cls="FloatStorage", view=b""):
    """The persistent id of a storage, without BINPERSID."""
    return tup(text("storage"), glob("torch", cls), text(key), text("cpu"), num(numel), view)


def tensor(size=(4,), stride=(1,), offset=0, persistent=None):
    """A tensor, as torch.save writes one."""
    return (glob("torch._utils", "_rebuild_tensor_v2") + b"(" + (persistent or storage()) + b"Q" + num(offset)
            + tup(*map(num, size)) + tup(*map(num, stride)) + b"\x89" + ORDERED + b"tR")


def state_dict(**tensors):
    """A whole pickle of a state dict."""
    items = b"".join(text(name) + value for name, value in tensors.items())
    return PROTO2 + b"}(" + items + b"u."


GOOD = state_dict(weight=tensor())
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def dumps(value):
    return json.dumps(value, separators=(",", ":"))


ARCHIVE = "files.tar.bz2"


def write(root):
    """Writes the archive of all files and of expected.json, and returns the rows of the latter."""
    files, rows, checks = {}, {}, {}
    for case in CASES:
        if case.open_at in rows:
            raise SystemExit(f"{case.open_at}: two cases")
        rows[case.open_at] = case.row
        check = (case.name.split("_")[0], case.row["class"], case.row["fragment"])
        if check in checks:
            raise SystemExit(f"{case.name}: the same check as {checks[check]}")
        checks[check] = case.name
        for path, data in case.files.items():
            if len(data) > 16 << 10:
                raise SystemExit(f"{path}: {len(data)} bytes")
            files[path] = data
    text = json.dumps(dict(sorted(rows.items())), indent=1, ensure_ascii=False) + "\n"
    files["expected.json"] = text.encode()
    with tarfile.open(os.path.join(root, ARCHIVE), "w:bz2", format=tarfile.PAX_FORMAT, compresslevel=9) as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return rows
