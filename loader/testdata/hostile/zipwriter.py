"""A zip writer that can lie in every field of every header."""

import struct
import zlib


class Entry:
    """A record. local and central override fields of its headers; raw overrides the bytes in the file."""

    def __init__(self, name, data, method=0, flags=0, raw=None, after=b"", local=None, central=None, ghost=False):
        self.name = name.encode() if isinstance(name, str) else name
        self.data, self.method, self.flags, self.after = data, method, flags, after
        self.raw = raw if raw is not None else deflate(data) if method == 8 else data
        self.local, self.central = local or {}, central or {}
        self.ghost = ghost  # the directory alone has it
        self.header_at = self.data_at = self.central_at = 0

    def common(self):
        return {"version": 20, "flags": self.flags, "method": self.method, "crc": zlib.crc32(self.data),
                "stored": len(self.raw), "size": len(self.data), "name": self.name, "extra": b""}


def deflate(data, tail=b""):
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush() + tail


class Zip:
    """An archive. end overrides fields of the end record; middle stands between directory and end record."""

    def __init__(self, *entries, end=None, middle=None, comment=b"", prefix=b""):
        self.entries, self.end, self.middle, self.comment = list(entries), end or {}, middle, comment
        self.prefix = prefix
        self.directory_at = self.end_at = self.middle_at = 0

    def build(self):
        out = bytearray(self.prefix)
        for e in self.entries:
            if e.ghost:
                continue
            f = e.common() | e.local
            e.header_at = len(out)
            out += struct.pack("<IHHHHHIIIHH", f.get("signature", 0x04034B50), f["version"], f["flags"], f["method"],
                               0, 33, f["crc"], f["stored"], f["size"], f.get("name_bytes", len(f["name"])),
                               f.get("extra_bytes", len(f["extra"])))
            out += f["name"] + f["extra"]
            e.data_at = len(out)
            out += e.raw + e.after
        self.directory_at = len(out)
        for e in self.entries:
            f = e.common() | {"offset": e.header_at} | e.central
            if f["offset"] is None:  # the directory does not list it
                continue
            e.central_at = len(out)
            out += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, f.get("made", 20), f["version"], f["flags"],
                               f["method"], 0, 33, f["crc"], f["stored"], f["size"],
                               f.get("name_bytes", len(f["name"])), len(f["extra"]), len(f.get("comment", b"")),
                               f.get("disk", 0), 0, f.get("mode", 0) << 16, f["offset"])
            out += f["name"] + f["extra"] + f.get("comment", b"")
        self.middle_at = len(out)
        count = sum(1 for e in self.entries if e.central.get("offset", 0) is not None)
        f = {"disk": 0, "records": count, "directory_bytes": len(out) - self.directory_at,
             "directory_at": self.directory_at, "comment_bytes": len(self.comment)}
        if self.middle:
            out += self.middle(self, f)
        f |= self.end
        self.end_at = len(out)
        out += struct.pack("<IHHHHIIH", 0x06054B50, f["disk"], f["disk"], f.get("records_here", f["records"]),
                           f["records"], f["directory_bytes"], f["directory_at"], f["comment_bytes"])
        return bytes(out + self.comment)


def end64(z, f, locator_at=None, signature=0x06064B50, **lies):
    """The zip64 end record and its locator."""
    f = f | lies
    return (struct.pack("<IQHHIIQQQQ", signature, 44, 45, 45, 0, 0, f["records"], f["records"], f["directory_bytes"],
                        f["directory_at"])
            + struct.pack("<IIQI", 0x07064B50, 0, z.middle_at if locator_at is None else locator_at, 1))


def extra(tag, body):
    return struct.pack("<HH", tag, len(body)) + body
