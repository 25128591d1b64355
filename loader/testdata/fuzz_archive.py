"""Moves what fuzzing found, testdata/fuzz/TARGET/NAME of packages, into their testdata/fuzz.tar.bz2, from which the targets
take it as seeds (internal/fixtures). A find that is committed alone may stay a file; hundreds are packed.

    python fuzz_archive.py ../../loader ../internal/ziparchive
    python fuzz_archive.py --unpack ../../loader
"""

import io
import os
import shutil
import sys
import tarfile


def read(path):
    """The files of an archive by name; none where there is no archive."""
    if not os.path.exists(path):
        return {}
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}


def write(path, files):
    """Writes an archive whose bytes follow from its files alone."""
    with tarfile.open(path + ".new", "w:bz2", format=tarfile.USTAR_FORMAT, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    os.replace(path + ".new", path)


def main(arguments):
    unpack = "--unpack" in arguments
    for package in (a for a in arguments if a != "--unpack"):
        folder = os.path.join(package, "testdata", "fuzz")
        files = read(folder + ".tar.bz2")
        if unpack:
            with tarfile.open(folder + ".tar.bz2") as archive:
                archive.extractall(folder)
            continue
        for target in sorted(os.listdir(folder)):
            for name in os.listdir(os.path.join(folder, target)):
                with open(os.path.join(folder, target, name), "rb") as f:
                    files[f"{target}/{name}"] = f.read()
        write(folder + ".tar.bz2", files)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
