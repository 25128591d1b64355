"""valid.tar.bz2, which holds the folder valid: the scripts that write fixtures unpack it first and pack it last.

    python fixtures_archive.py unpack       the folder as the archive has it, and nothing else
    python fixtures_archive.py pack         the archive of what is in the folder
"""

import os
import shutil
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "valid")
ARCHIVE = FOLDER + ".tar.bz2"


def unpack():
    """Makes the folder anew: one left from another revision would otherwise be packed over this one's archive."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(FOLDER)


def pack():
    """Writes the archive. The same files give the same bytes: names are sorted, times and owners left out."""
    names = []
    for folder, _, files in os.walk(FOLDER):
        names += [os.path.relpath(os.path.join(folder, name), FOLDER).replace(os.sep, "/") for name in files]
    with tarfile.open(ARCHIVE + ".new", "w:bz2", format=tarfile.USTAR_FORMAT, compresslevel=9) as archive:
        for name in sorted(names):
            path = os.path.join(FOLDER, name)
            entry = tarfile.TarInfo(name)
            entry.size = os.path.getsize(path)
            with open(path, "rb") as f:
                archive.addfile(entry, f)
    os.replace(ARCHIVE + ".new", ARCHIVE)


if __name__ == "__main__":
    {"unpack": unpack, "pack": pack}[sys.argv[1]]()
