"""Archives of recorded programs: a zip per family with NAME.aten.json, NAME.core.json and NAME.ref.json in it, compressed
with bzip2, which is a third smaller than gzip for such files and which Go's library reads."""
import os
import zipfile


def read(path):
    """The files of an archive by name; none where there is no archive."""
    if not os.path.exists(path):
        return {}
    with zipfile.ZipFile(path) as z:
        return {name: z.read(name) for name in z.namelist()}


def write(path, files):
    """Writes an archive whose bytes follow from its contents alone."""
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_BZIP2, compresslevel=9) as z:
        for name in sorted(files):
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_BZIP2, 9)
    os.replace(path + ".new", path)


def update(path, files):
    """Adds files to an archive, or replaces them."""
    write(path, read(path) | files)


def sizes(path):
    """How many bytes each file takes in an archive."""
    with zipfile.ZipFile(path) as z:
        return {i.filename: i.compress_size for i in z.infolist()}
