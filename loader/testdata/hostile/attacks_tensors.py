"""Pickles whose tensors cannot be what they say. Each is the data.pkl of a zip checkpoint with 16 bytes of storage."""

from attacks_pickle import pickled
from corpus import AT, ORDERED, PROTO2, glob, num, state_dict, storage, tensor, text, tup


def rebuilt(name, fragment, why, call, cls="format"):
    """A call of a rebuild function that must fail; call ends before its REDUCE."""
    pickled(name, fragment, why, PROTO2, call, AT, b"R", b".", cls=cls)


def v2(*args):
    return glob("torch._utils", "_rebuild_tensor_v2") + tup(*args)


S = storage() + b"Q"


def arguments():
    rebuilt("tensor_args", "torch._utils._rebuild_tensor_v2: 5 arguments", "a read past the arguments",
            v2(S, num(0), tup(num(4)), tup(num(1)), b"\x89"))
    rebuilt("tensor_no_storage", "argument 0 is not a storage", "an integer for a pointer",
            v2(num(0x7FFFFFFF), num(0), tup(num(4)), tup(num(1)), b"\x89", ORDERED))
    rebuilt("tensor_offset_negative", "argument 1 is not an offset", "reads before the storage",
            v2(S, num(-4), tup(num(4)), tup(num(1)), b"\x89", ORDERED))
    rebuilt("tensor_size_negative", "argument 2 is not a size", "sizes whose product is positive",
            v2(S, num(0), tup(num(-2), num(-2)), tup(num(1), num(1)), b"\x89", ORDERED))
    rebuilt("tensor_strides_missing", "argument 3 is not a stride for size [4]", "strides of another length than the size",
            v2(S, num(0), tup(num(4)), b")", b"\x89", ORDERED))
    rebuilt("tensor_metadata", "metadata is not a dictionary", "an argument that newer files have, of a wrong type",
            v2(S, num(0), tup(num(4)), tup(num(1)), b"\x89", ORDERED, num(1)))
    rebuilt("tensor_v3_dtype", "argument 6 is not a dtype", "a dtype that is a number",
            glob("torch._utils", "_rebuild_tensor_v3") + tup(S, num(0), tup(num(4)), tup(num(1)), b"\x89", ORDERED, num(7)))
    rebuilt("parameter_of_nothing", "torch._utils._rebuild_parameter: argument 0 is not a tensor", "a parameter around None",
            glob("torch._utils", "_rebuild_parameter") + tup(b"N", b"\x89", ORDERED))
    rebuilt("size_of_nothing", "torch.Size: want one tuple", "a size without a size", glob("torch", "Size") + b")")
    rebuilt("quantizer_axis", "axis out of range", "an axis beyond the dimensions",
            glob("torch._utils", "_rebuild_qtensor") + tup(storage(cls="QInt8Storage", numel=16) + b"Q", num(0), tup(num(4)), tup(num(1)),
            tup(glob("torch", "per_channel_affine"), tensor(), tensor(), num(9)), b"\x89", ORDERED))
    rebuilt("quantizer_scales", "scales and zero points are not one per index", "fewer scales than channels are read past their end",
            glob("torch._utils", "_rebuild_qtensor") + tup(storage(cls="QInt8Storage", numel=16) + b"Q", num(0), tup(num(4)), tup(num(1)),
            tup(glob("torch", "per_channel_affine"), tensor(size=(2,)), tensor(size=(2,)), num(0)), b"\x89", ORDERED))
    rebuilt("layout_name", "torch.serialization._get_layout: want one string", "a layout that is a number",
            glob("torch.serialization", "_get_layout") + tup(num(1)))
    array = glob("numpy.core.multiarray", "_reconstruct") + tup(glob("numpy", "ndarray"), tup(num(0)), text("b")) + b"R"
    dtype = glob("numpy", "dtype") + tup(text("f4"), b"\x89", b"\x88") + b"R"
    rebuilt("numpy_short", "0 bytes for shape [1000 1000]", "an array whose bytes are not there",
            glob("torch._utils", "_rebuild_device_tensor_from_numpy")
            + tup(array + tup(num(1), tup(num(1000), num(1000)), dtype, b"\x89", glob("_codecs", "encode")
                              + tup(text(""), text("latin1")) + b"R") + b"b", glob("torch", "float32"), text("cpu"), b"\x89"))
    rebuilt("numpy_class", "is a class, not a function that rebuilds data", "ndarray's constructor takes any buffer and offset",
            glob("numpy", "ndarray") + tup(tup(num(4))))


def storages():
    for name, numel, fragment, why in [
        ("numel_negative", -4, 'storage "0": element count is not a size', "a count that is negative"),
        ("numel_2e62", 1 << 62, 'storage "0": 4611686018427387904 elements overflow', "a count whose bytes overflow to 0"),
    ]:
        pickled(name, fragment, why, PROTO2, storage(numel=numel), AT, b"Q", b".")


def layouts():
    """Sizes and strides that pass one by one and reach outside together."""
    for name, fragment, why, size, stride, offset in [
        ("size_beyond", "need 32 bytes of a storage of 16", "CVE-2026-24747: the tensor is larger than its storage", (8,), (1,), 0),
        ("offset_beyond", "offset 100 of float32 need 416 bytes", "a view that begins outside", (4,), (1,), 100),
        ("stride_beyond", "strides [1000000]", "a view that strides outside", (2,), (1_000_000,), 0),
        ("size_2e62", "shape [4611686018427387904 4] has more than 2^63 elements", "sizes whose product overflows to 0",
         (1 << 62, 4), (4, 1), 0),
        ("strides_2e62", "strides [4611686018427387904 1] overflow", "strides whose product overflows into the storage",
         (4, 1), (1 << 62, 1), 0),
        ("size_2e62_stride_0", "takes more than 2^63 bytes", "2^64 bytes of tensor in 4 bytes of storage, by stride 0: contiguous() "
         "allocates them", (1 << 62,), (0,), 0),
    ]:
        pickled(name, fragment, why, state_dict(weight=tensor(size=size, stride=stride, offset=offset)), record="weight")


arguments()
storages()
layouts()
