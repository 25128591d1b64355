"""Archives of recorded programs: a zip per family. Models whose names begin alike are alike, so their files,
NAME.aten.json, NAME.core.json and NAME.ref.json, are compressed together with Zstandard: a record PREFIX.zst holds them one
after the other, and contents.json says which, with their sizes. That is half of what each takes by itself. Go reads it in
models/internal/zoo."""
import io
import json
import os
import re
import zipfile

import zstandard

CONTENTS = "contents.json"


def groups(path, name=None):
    """The groups of an archive, or that with a file: pairs of a record's name and the files in it."""
    with zipfile.ZipFile(path) as z:
        for record, members in json.loads(z.read(CONTENTS)).items():
            if name and name not in dict(members):
                continue
            data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(z.read(record))).read()
            files, at = {}, 0
            for name, size in members:
                files[name] = data[at:at + size]
                at += size
            yield record, files


def read(path):
    """The files of an archive by name; none where there is no archive."""
    files = {}
    if os.path.exists(path):
        for _, members in groups(path):
            files |= members
    return files


def one(path, name):
    """One file of an archive."""
    for _, files in groups(path, name):
        return files[name]
    raise KeyError(name)


def write(path, files):
    """Writes an archive whose bytes follow from its contents alone."""
    grouped = {}
    for name in sorted(files):
        prefix = re.match(r"[A-Za-z]+|", name).group() or "other"
        grouped.setdefault(prefix + ".zst", []).append(name)
    contents = {record: [[name, len(files[name])] for name in names] for record, names in grouped.items()}
    # A window of 4 MiB finds nearly all that is alike, and the reader needs no more memory than that.
    settings = zstandard.ZstdCompressionParameters.from_level(22, window_log=22)
    with zipfile.ZipFile(path + ".new", "w") as z:
        def add(name, data, method):
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, method, 9)
        add(CONTENTS, json.dumps(contents, separators=(",", ":")), zipfile.ZIP_DEFLATED)
        for record, names in grouped.items():
            packer = zstandard.ZstdCompressor(compression_params=settings)
            add(record, packer.compress(b"".join(files[name] for name in names)), zipfile.ZIP_STORED)
    os.replace(path + ".new", path)


def update(path, files):
    """Adds files to an archive, or replaces them."""
    write(path, read(path) | files)
