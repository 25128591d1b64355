"""Writes the arrays of this folder with NumPy, and in arrays.json what NumPy sees in them: dtype, shape, and the
elements' bytes in C's order, little-endian. Needs numpy.

    python make_arrays.py
"""

import json
import pathlib
import warnings

import numpy as np

HERE = pathlib.Path(__file__).parent


def main() -> None:
    seen = {}
    rng = np.random.default_rng(4)

    def save(name, array):
        np.save(HERE / name, array)
        seen[name] = describe(array)

    def describe(array):
        plain = np.ascontiguousarray(array).reshape(array.shape)
        plain = plain.astype(plain.dtype.newbyteorder("<"))
        return {"dtype": plain.dtype.name, "shape": list(array.shape), "bytes": plain.tobytes().hex()}

    for kind in "f2 f4 f8 c8 c16 i1 i2 i4 i8 u1 u2 u4 u8 b1".split():
        bits = rng.integers(0, 256, size=6 * np.dtype(kind).itemsize, dtype=np.uint8)
        array = (bits[:6] % 2).astype(bool) if kind == "b1" else bits.view("<" + kind)
        save(f"{kind}.npy", array.reshape(2, 3))
        if np.dtype(kind).itemsize > 1:
            save(f"big_{kind}.npy", array.astype(array.dtype.newbyteorder(">")).reshape(2, 3))
    save("fortran.npy", np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)))
    save("vector.npy", np.arange(5, dtype=np.int64))
    save("scalar.npy", np.float32(2.5))
    save("empty.npy", np.zeros((3, 0, 2), dtype=np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # versions 2 and 3 are for headers that version 1 cannot hold
        for version in (2, 3):
            name = f"version{version}.npy"
            with open(HERE / name, "wb") as f:
                np.lib.format.write_array(f, np.arange(4, dtype=np.float32), version=(version, 0))
            seen[name] = describe(np.arange(4, dtype=np.float32))
    for name, write in (("plain.npz", np.savez), ("compressed.npz", np.savez_compressed)):
        arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "mask": np.array([True, False])}
        write(HERE / name, **arrays)
        for key, array in arrays.items():
            seen[f"{name}:{key}"] = describe(array)
    (HERE / "arrays.json").write_text(json.dumps(seen, indent=0) + "\n")


if __name__ == "__main__":
    main()
