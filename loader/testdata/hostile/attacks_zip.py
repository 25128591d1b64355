"""Zip archives whose names, places or contents are attacks."""

import struct
import zlib

from corpus import FLOATS, GOOD, add, state_dict, storage, tensor
from zipwriter import Entry, Zip, deflate

PKL = "archive/data.pkl"


def archive(*more, pkl=None, data=None, byteorder=b"little", **kw):
    """A checkpoint of one tensor, with one entry replaced or more records added."""
    return Zip(pkl or Entry(PKL, GOOD), Entry("archive/byteorder", byteorder), data or Entry("archive/data/0", FLOATS),
               Entry("archive/version", b"3\n"), *more, **kw)


def named(name, file, fragment, why, cls="unsafe", **kw):
    """A record with a name that none may have."""
    e = Entry(name, b"x", **kw)
    data = archive(e).build()
    record = e.name.decode("utf-8", "replace")
    add(f"zip_name_{file}.pt", data, cls, fragment, why, record, e.central_at + 46)


named("archive/../../.bashrc", "dotdot", "climbs out of its folder", "a record that unpacks outside of the archive's folder")
named("/etc/cron.d/job", "absolute", "an absolute path", "a record that unpacks to an absolute path")
named("C:/autoexec.bat", "drive", "begins with a drive letter", "a record that unpacks to another drive")
named("archive\\..\\..\\x", "backslash", "holds a backslash", "a path that only Windows reads as one")
named("archive/data.pkl\0.txt", "nul", "holds a control character", "readers in C end the name at the zero byte")
named("archive/./data.pkl", "dot", "has an empty part", "another spelling of data.pkl, for readers that clean names")
named(b"archive/\xff", "not_utf8", "the name is not UTF-8", "readers disagree on what the name is", cls="format")
named("", "empty", "the record has no name", "a record that no reader can ask for", cls="format")


def collide(name, file, fragment, why):
    evil = Entry(name, state_dict(weight=tensor(offset=0)).replace(b"weight", b"secret"))
    data = archive(evil).build()
    add(f"zip_{file}.pt", data, "unsafe", fragment, why, name, evil.central_at)


collide(PKL, "duplicate_data_pkl", "two records have this name",
        "Python's zipfile takes the last data.pkl, PyTorch's miniz the first: a scanner sees another pickle than the loader")
collide("archive/DATA.PKL", "case_collision", "only in case",
        "miniz looks names up without regard to case, zipfile with: a scanner sees another pickle than the loader")


def structure():
    """Records that overlap, hide, or leave gaps."""
    hidden = Entry("archive/data.pkl", b"hidden", central={"offset": None})
    z = archive(hidden)
    add("zip_hidden_record.pt", z.build(), "unsafe", "a record that the directory does not list",
        "streaming readers (unzip -p of a pipe, some scanners) find a record that others do not", "", hidden.header_at)

    long = Entry(PKL, GOOD)
    z = archive(pkl=long)
    z.build()
    size = z.entries[2].data_at - long.data_at  # it swallows the headers that follow
    long.local = long.central = {"stored": size, "size": size}
    add("zip_overlap.pt", z.build(), "unsafe", 'overlaps "archive/byteorder"',
        "two records share bytes: what one writes another reads as a header", PKL, 0)

    quoted_overlap()

    e = Entry("archive/data/0", FLOATS, after=b"\0" * 7)
    z = archive(data=e)
    add("zip_hole.pt", z.build(), "format", "7 bytes belong to no record", "bytes that no reader looks at hide anything", "",
        e.data_at + 16)

    z = archive(prefix=b"PK\x03\x04 prepended ")
    add("zip_prepended.pt", z.build(), "unsafe", "15 bytes precede the first record",
        "zipfile forgives data before the archive, others read it: a polyglot", "", 0)

    z = archive()
    data = z.build()
    add("zip_trailing.pt", data + b"#!/bin/sh\n", "unsafe", "10 bytes follow the end record",
        "data after the archive, which readers skip: a polyglot", "", z.end_at + 22)
    z = archive()
    data = z.build()
    add("zip_truncated.pt", data[:-10], "format", "there is no end record", "a download that was cut short", "",
        len(data) - 10)
    z = archive(comment=b"from a friend")
    add("zip_comment.pt", z.build(), "unsupported", "the archive has a comment", "PyTorch writes none; a place to hide in",
        "", z.end_at)
    inner = archive(pkl=Entry(PKL, b"\x80\x02cos\nsystem\n."))
    z = archive(comment=inner.build()[inner.directory_at:] + b"?")
    data = z.build()
    add("zip_comment_end_record.pt", data, "unsafe", "there are 2 end records",
        "the comment holds another directory and end record: readers that search forwards and backwards differ", "",
        len(data) - 23)
    z = archive(middle=lambda z, f: b"between")
    add("zip_directory_gap.pt", z.build(), "unsafe", "7 bytes lie between the directory and the end record",
        "readers that count back from the end record find another directory", "", z.middle_at)
    e = Entry("archive/link", b"/etc/passwd", central={"made": 3 << 8 | 20, "mode": 0o120777})
    z = archive(e)
    add("zip_link.pt", z.build(), "unsafe", "a link or a device", "unpacking makes a symbolic link, and the next record writes "
        "through it", "archive/link", e.central_at + 38)
    e = Entry("archive/data/", b"folder")
    z = archive(e)
    add("zip_folder_with_data.pt", z.build(), "format", "a folder with 6 bytes of data", "contents where no reader looks",
        "archive/data/", e.central_at + 20)


def quoted_overlap():
    """Fifield's bomb without recursion: each record inflates to the header of the next, quoted, and then its contents."""
    contents = b"\0" * 9000
    raw = deflate(contents)
    records = []
    for i in range(7, -1, -1):
        name = b"archive/data/q%d" % i
        records.insert(0, (name, raw, contents))
        header = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 33, zlib.crc32(contents), len(raw), len(contents),
                             len(name), 0) + name
        raw = b"\0" + struct.pack("<HH", len(header), len(header) ^ 0xFFFF) + header + raw
        contents = header + contents
    name, raw, contents = records[0]
    first = Entry(name, contents, method=8, raw=raw)
    z = archive(first)
    z.build()
    at = first.data_at
    for name, raw, contents in records[1:]:
        at += 5  # the header of the stored block that quotes
        z.entries.append(Entry(name, contents, method=8, raw=raw, central={"offset": at}, ghost=True))
        at += 30 + len(name)
    add("zip_quoted_overlap.pt", z.build(), "unsafe", 'overlaps "archive/data/q1"',
        "a zip bomb without recursion (Fifield 2019): records overlap, so that a small file inflates quadratically",
        "archive/data/q0", first.header_at)


def contents():
    """Records whose contents are not what they are declared to be."""
    e = Entry(PKL, GOOD, local={"crc": 0xDEADBEEF}, central={"crc": 0xDEADBEEF})
    z = archive(pkl=e)
    add("zip_bad_crc.pt", z.build(), "format", "CRC-32 of the contents",
        "CVE-2025-10156: picklescan stopped at a bad CRC of data.pkl, PyTorch loaded it", PKL, e.data_at)
    e = Entry(PKL, GOOD, method=8, central={"size": 60}, local={"size": 60})
    add("zip_inflates_beyond.pt", archive(pkl=e).build(), "unsafe", "inflates to more than the 60 bytes",
        "a deflated pickle larger than declared: readers that trust the size see another pickle", PKL, e.data_at)
    e = Entry(PKL, b"\x80\x02" + b"]0" * 4_000_000 + b"N.", method=8, local={"size": 4000}, central={"size": 4000})
    add("zip_bomb_lie.pt", archive(pkl=e).build(), "unsafe", "inflates to more than the 4000 bytes",
        "8 MB of pickle in 8 KB, declared as 4,000 bytes", PKL, e.data_at)
    e = Entry(PKL, GOOD, method=8, raw=b"\x07" + deflate(GOOD)[1:])
    add("zip_deflate_corrupt.pt", archive(pkl=e).build(), "format", "the compressed data is corrupt",
        "a deflate stream that breaks off", PKL, e.data_at)
    e = Entry(PKL, GOOD, method=8, local={"size": 400}, central={"size": 400})
    add("zip_inflates_short.pt", archive(pkl=e).build(), "format", f"holds {len(GOOD)} bytes, but declares 400",
        "a buffer of the declared size keeps old memory in its tail", PKL, e.data_at)
    e = Entry(PKL, GOOD, method=8, raw=deflate(GOOD, b"tail"))
    add("zip_deflate_trailing.pt", archive(pkl=e).build(), "unsafe", "4 bytes follow the end of the compressed data",
        "bytes that only some readers see", PKL, e.data_at)
    e = Entry(PKL, GOOD, method=8, local={"size": 1 << 30}, central={"size": 1 << 30})
    add("zip_impossible_ratio.pt", archive(pkl=e).build(), "unsafe", "compressed bytes cannot hold 1073741824",
        "a size that deflate cannot reach makes readers allocate 1 GiB for 140 bytes", PKL, e.central_at + 20)
    e = Entry("archive/data/0", FLOATS, method=8)
    z = archive(data=e)
    z.build()
    at = GOOD.index(b"Q")
    add("zip_compressed_storage.pt", z.build(), "unsupported", "the record is compressed",
        "a storage that cannot be read in place, and inflates as it likes", PKL, at)
    e = Entry(PKL, GOOD, method=12)
    add("zip_bzip2.pt", archive(pkl=e).build(), "unsupported", "compression method 12", "a method that no PyTorch reads", PKL,
        e.central_at + 10)


def checkpoint():
    """Archives in order whose records do not make a checkpoint."""
    pkl = state_dict(weight=tensor(persistent=storage(numel=4)))
    at = pkl.index(b"Q")
    add("zip_storage_short.pt", archive(data=Entry("archive/data/0", FLOATS[:8])).build(), "format",
        "declared as 16 bytes and its record has 8",
        "CVE-2026-24747: the storage is smaller than the tensor says, which reads beyond it", PKL, at)
    add("zip_storage_long.pt", archive(data=Entry("archive/data/0", FLOATS * 2)).build(), "format",
        "declared as 16 bytes and its record has 32", "bytes of a storage that no tensor shows hide anything", PKL, at)
    pkl = state_dict(weight=tensor(persistent=storage(key="1")))
    add("zip_storage_missing.pt", archive(pkl=Entry(PKL, pkl)).build(), "format", 'storage "1" has no record',
        "a storage that is not there", PKL, pkl.index(b"Q"))
    pkl = state_dict(weight=tensor(persistent=storage(key="../data.pkl")))
    add("zip_storage_path.pt", archive(pkl=Entry(PKL, pkl)).build(), "format", 'storage "../data.pkl" has no record',
        "a storage key that climbs to another record", PKL, pkl.index(b"Q"))
    view = storage(view=b"(" + b"X\x01\0\0\0v" + b"K\0K\x01t")
    pkl = state_dict(weight=tensor(persistent=view))
    add("zip_storage_view.pt", archive(pkl=Entry(PKL, pkl)).build(), "format", "storage views belong to the legacy format",
        "a form of persistent id that no zip reader expects", PKL, pkl.index(b"Q"))
    add("zip_byteorder.pt", archive(byteorder=b"middle").build(), "format", 'byte order "middle"',
        "a byte order that readers take for little or for big as they like", "archive/byteorder", 0)
    add("zip_extra_pickle.pt", archive(Entry("archive/evil.pkl", GOOD)).build(), "unsafe", "a pickle that no torch.save writes",
        "a second pickle, for loaders that take any .pkl", "archive/evil.pkl")
    tail = GOOD + b"\x80\x02cposix\nsystem\n(X\x02\0\0\0idtR."
    add("zip_second_pickle.pt", archive(pkl=Entry(PKL, tail)).build(), "unsafe", "bytes after the end of the pickle",
        "a second pickle behind STOP, for loaders that go on", PKL, len(GOOD))
    add("zip_no_data_pkl.pt", Zip(Entry("archive/version", b"3\n")).build(), "unsupported", "it has no data.pkl",
        "an archive that PyTorch did not write")
    add("zip_npz.npz", Zip(Entry("weight.npy", b"\x93NUMPY\x01\0")).build(), "unsupported", "a NumPy .npz archive",
        "arrays of objects in it would be unpickled")
    add("zip_torch_package.pt", Zip(Entry("p/.data/extern_modules", b"os\n"), Entry("p/model/m.py", b"import os")).build(),
        "unsupported", "a torch.package archive", "code that torch.package imports")
    add("zip_torchscript_13.pt", Zip(Entry("m/model.json", b"{}"), Entry("m/version", b"1\n")).build(), "unsupported",
        "a TorchScript archive of torch < 1.4", "an old form that no current PyTorch loads")
    add("zip_empty.pt", Zip().build(), "unsupported", "a zip archive that PyTorch did not write", "an archive of nothing")


structure()
contents()
checkpoint()
