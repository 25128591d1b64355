"""Zip archives whose headers, directory and end records contradict each other or the file."""

import struct
import zlib

from attacks_zip import PKL, archive
from corpus import FLOATS, GOOD, add
from zipwriter import Entry, Zip, end64, extra

BIG = 0xFFFFFFFF


def flags():
    for bits, name, fragment, why in [
        (0x0001, "encrypted", "marked as encrypted", "scanners skip what they cannot decrypt; some loaders ignore the flag"),
        (0x0020, "unknown_flag", "unknown flags 0x0020",
         "CVE-2025-1945: flag bits make zipfile fail, and with it picklescan, where PyTorch reads on"),
    ]:
        e = Entry(PKL, GOOD, flags=bits)
        add(f"zip_{name}.pt", archive(pkl=e).build(), "unsafe", fragment, why, PKL, e.central_at + 8)


def local_headers():
    """The header before the record against the directory."""
    for field, value, at, fragment, why in [
        ("flags", 1, 6, "flags 0x0001 in the local header",
         "CVE-2025-1945: a flag in the local header alone; zipfile looks there, miniz in the directory"),
        ("method", 8, 8, "method 8 in the local header", "streaming readers inflate what others take as it is"),
        ("size", 9, 18, "size 9 in the local header", "streaming readers take another length than the directory's"),
        ("stored", 9, 18, "stored size 9 in the local header", "streaming readers find the next header elsewhere"),
        ("crc", 7, 14, "CRC-32 00000007 in the local header", "which of the two checksums counts is up to the reader"),
        ("name", b"archive/date.pkl", 26, "another name than the directory",
         "streaming readers see another record than those that use the directory"),
        ("signature", 0x04034B51, 0, "there is no local header", "the directory points at something that is no record"),
    ]:
        e = Entry(PKL, GOOD, local={field: value})
        # The archive must still begin like one.
        z = Zip(Entry("archive/version", b"3\n"), e, Entry("archive/data/0", FLOATS))
        cls = "format" if field == "signature" else "unsafe"
        add(f"zip_local_{field}.pt", z.build(), cls, fragment, why, PKL, e.header_at + at)


def places():
    e = Entry(PKL, GOOD, central={"offset": 1 << 20})
    add("zip_offset_beyond.pt", archive(pkl=e).build(), "format", "do not fit before the directory",
        "a record beyond the end of the file", PKL, e.central_at)
    e = Entry(PKL, GOOD, central={"size": 4}, local={"size": 4})
    add("zip_two_sizes.pt", archive(pkl=e).build(), "unsafe", f"declares two sizes: {len(GOOD)} and 4 bytes",
        "a stored record with two sizes: readers take the one or the other", PKL, e.central_at + 20)
    e = Entry(PKL, GOOD, local={"extra": extra(0xCAFE, b"\0" * 4), "extra_bytes": 60000})
    add("zip_extra_beyond.pt", archive(pkl=e).build(), "unsafe", 'ends at byte 60188 and overlaps "archive/byteorder"',
        "extra fields longer than the file put the data outside of it", PKL, 0)
    e = Entry(PKL, GOOD, central={"extra": struct.pack("<HH", 0xCAFE, 900) + b"\0" * 4})
    add("zip_extra_overrun.pt", archive(pkl=e).build(), "format", "an extra field of 900 bytes exceeds",
        "a reader that trusts the length reads into the next record", PKL, e.central_at + 46 + len(PKL))
    name = b"archive/DATA2.pkl"
    e = Entry(PKL, GOOD, central={"extra": extra(0x7075, b"\1" + struct.pack("<I", zlib.crc32(PKL.encode())) + name)})
    add("zip_second_name.pt", archive(pkl=e).build(), "unsafe", "gives the record a second name",
        "Info-ZIP's Unicode path: some readers use it instead of the name", PKL, e.central_at + 46 + len(PKL))
    e = Entry(PKL, GOOD, central={"name_bytes": 5000})
    add("zip_name_length.pt", archive(pkl=e).build(), "format", "a record with a name of 5000",
        "a name that goes on past the directory", "", e.central_at)
    e = Entry(PKL, GOOD, central={"comment": b"note"})
    add("zip_record_comment.pt", archive(pkl=e).build(), "unsupported", "the record has a comment", "PyTorch writes none", PKL,
        e.central_at + 32)
    e = Entry(PKL, GOOD, central={"version": 63})
    add("zip_version.pt", archive(pkl=e).build(), "unsupported", "needs version 6.3 of the zip format",
        "features that no PyTorch writes", PKL, e.central_at + 6)
    e = Entry(PKL, GOOD, central={"disk": 1})
    add("zip_other_disk.pt", archive(pkl=e).build(), "unsupported", "lies in another part of the archive",
        "readers that ignore the disk number find other bytes", PKL, e.central_at + 34)


def descriptors():
    def entry(after):
        return Entry(PKL, GOOD, flags=8, after=after, local={"crc": 0, "stored": 0, "size": 0})

    e = entry(struct.pack("<IIII", 0x08074B50, 1, len(GOOD), len(GOOD)))
    add("zip_descriptor_lies.pt", archive(pkl=e).build(), "unsafe", "the data descriptor disagrees",
        "streaming readers take checksum and sizes from behind the data", PKL, e.data_at + len(GOOD))
    e = entry(b"")
    add("zip_descriptor_missing.pt", archive(pkl=e).build(), "format", "the data descriptor is missing",
        "streaming readers take the next header for it", PKL, e.data_at + len(GOOD))


def zip64():
    e = Entry(PKL, GOOD, central={"size": BIG, "stored": BIG})
    add("zip64_field_missing.pt", archive(pkl=e).build(), "format", "4294967295 bytes after a header at 0 do not fit",
        "4 GiB - 1, or a size that is elsewhere and is not", PKL, e.central_at)
    size = struct.pack("<Q", len(GOOD))
    e = Entry(PKL, GOOD, central={"extra": extra(1, size) + extra(1, struct.pack("<Q", 7))})
    add("zip64_field_twice.pt", archive(pkl=e).build(), "unsafe", "two zip64 fields",
        "readers take the first size or the last", PKL, e.central_at + 46 + len(PKL))
    e = Entry(PKL, GOOD, central={"extra": extra(1, struct.pack("<Q", 7))})
    add("zip64_field_unasked.pt", archive(pkl=e).build(), "unsafe", "holds 8 bytes that the header does not refer to",
        "some readers use the wide size even where the header has one", PKL, e.central_at + 46 + len(PKL))
    e = Entry(PKL, GOOD, central={"size": BIG, "extra": extra(1, struct.pack("<Q", 1 << 63))})
    add("zip64_size_negative.pt", archive(pkl=e).build(), "unsafe", "9223372036854775807 in the directory",
        "a size that is negative where integers are signed", PKL, e.header_at + 18)
    e = Entry(PKL, GOOD, local={"extra": extra(1, struct.pack("<Q", 77))})
    add("zip64_local_lies.pt", archive(pkl=e).build(), "unsafe", "a zip64 value of 77 in the local header",
        "a wide value that the directory does not have", PKL, e.header_at + 30 + len(PKL))

    z = archive(middle=lambda z, f: end64(z, f, directory_at=f["directory_at"] + 10))
    add("zip64_end_disagrees.pt", z.build(), "unsafe", "the two end records disagree on the place of the directory",
        "two directories, one for each end record", "", z.middle_at)
    z = archive(middle=lambda z, f: end64(z, f, locator_at=4))
    add("zip64_locator_elsewhere.pt", z.build(), "unsafe", "does not lie right before its locator",
        "readers that follow the locator find another end record than those that look before it", "", z.end_at - 20)
    z = archive(end={"records": 0xFFFF, "directory_bytes": BIG, "directory_at": BIG})
    add("zip64_end_missing.pt", z.build(), "format", "refers to a zip64 record that is missing",
        "65,535 records and a directory at 4 GiB, in a file of 600 bytes", "", z.end_at)
    z = archive(middle=lambda z, f: end64(z, f, signature=0x06064B51))
    add("zip64_end_broken.pt", z.build(), "format", "there is no zip64 end record of 56 bytes",
        "a locator that points at something else", "", z.middle_at)
    z = archive(middle=lambda z, f: end64(z, f, records=1 << 63), end={"records": 0xFFFF})
    add("zip64_count_negative.pt", z.build(), "format", "number of records: 9223372036854775808 is not possible",
        "a count that is negative where integers are signed", "", z.middle_at)


def end_record():
    def with_end(name, fragment, why, cls="format", where="end", at=0, **end):
        z = archive(end=end)
        data = z.build()
        add(f"zip_{name}.pt", data, cls, fragment, why, "", getattr(z, where + "_at") + at)

    with_end("count_more", "the directory ends within a record", "the count of the end record leads past the directory",
             where="middle", records=5)
    z = archive(middle=lambda z, f: b"?" * 50)
    z.build()
    z.end = {"records": 5, "directory_bytes": z.end_at - z.directory_at}
    add("zip_count_beyond.pt", z.build(), "format", "lists 5 records, but only 4 are there",
        "the count of the end record leads into other bytes", "", z.middle_at)
    twice = Entry("archive/version", b"3\n", ghost=True)
    z = archive(twice)
    z.build()
    twice.central = {"offset": z.entries[3].header_at}
    z.end = {"records": 4}
    add("zip_count_fewer.pt", z.build(), "unsafe", "the directory goes on",
        "records that only readers who ignore the count see", "", twice.central_at)
    with_end("count_impossible", "cannot list 60000 records", "readers that allocate by the count take megabytes", records=60000)
    with_end("directory_beyond", "does not fit before byte", "a directory that lies outside of the file",
             directory_bytes=1 << 30)
    with_end("several_disks", "the archive is one part of several", "readers that ignore it find other records",
             cls="unsupported", at=4, records_here=1)
    with_end("comment_beyond", "announces a comment of 9 bytes past the end", "readers that trust it read beyond the file",
             at=20, comment_bytes=9)
    z = archive()
    z.build()
    cut = z.entries[-1].central_at + 50 - z.directory_at
    z.end = {"directory_bytes": cut}
    z.middle = lambda z, f: b""
    add("zip_directory_short.pt", z.build(), "unsafe", "11 bytes lie between the directory and the end record",
        "a directory whose size ends inside of a record", "", z.directory_at + cut)


flags()
local_headers()
places()
descriptors()
zip64()
end_record()
