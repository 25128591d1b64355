package loader

import (
	"strings"

	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/tensor"
)

// torchPolicy says what each global of a torch.save pickle is: data that a tensor is rebuilt from, a class that is
// kept as a name, or a name that no checkpoint needs.
func torchPolicy(g pickle.Global) pickle.Class {
	if isTorchData(g) || numpyData[g.String()] || plainData[g.String()] || g == partial {
		return pickle.Data
	}
	if g.String() == "torch.testing._internal.two_tensor.TwoTensor" {
		return pickle.Inert // PyTorch's own example of a tensor subclass, in a folder that is refused otherwise
	}
	return pickle.PythonPolicy(g)
}

// partial is how some modules of torchvision keep what makes their norms. It composes calls, so that only classes of
// torch.nn may be in it: see checkPartial.
var partial = pickle.Global{Module: "functools", Name: "partial"}

// isTorchData reports whether g is one of the functions and values that PyTorch itself writes for tensors.
func isTorchData(g pickle.Global) bool {
	if _, ok := storageClass(g); ok {
		return true
	}
	switch g.Module {
	case "torch":
		return torchData[g.Name] || isTorchDType(g.Name)
	case "torch._utils", "torch._tensor", "torch.nn.parameter", "torch.serialization", "torch.jit._pickle":
		return torchData[strings.TrimPrefix(g.Module, "torch.")+"."+g.Name]
	}
	return false
}

// torchData lists names without the leading "torch.". Functions of this list are interpreted in rebuild.go.
var torchData = map[string]bool{
	"Size": true, "Tensor": true, "device": true,
	"strided": true, "sparse_coo": true, "sparse_csr": true, "sparse_csc": true, "sparse_bsr": true, "sparse_bsc": true,
	"_mkldnn": true, "jagged": true,
	"contiguous_format": true, "preserve_format": true, "channels_last": true, "channels_last_3d": true,
	"per_tensor_affine": true, "per_tensor_symmetric": true, "per_channel_affine": true,
	"per_channel_symmetric": true, "per_channel_affine_float_qparams": true,
	"FloatTensor": true, "DoubleTensor": true, "HalfTensor": true, "BFloat16Tensor": true, "LongTensor": true,
	"IntTensor": true, "ShortTensor": true, "CharTensor": true, "ByteTensor": true, "BoolTensor": true,

	"_utils._rebuild_tensor": true, "_utils._rebuild_tensor_v2": true, "_utils._rebuild_tensor_v3": true,
	"_utils._rebuild_parameter": true, "_utils._rebuild_parameter_with_state": true,
	"_utils._rebuild_qtensor": true, "_utils._rebuild_sparse_tensor": true, "_utils._rebuild_sparse_csr_tensor": true,
	"_utils._rebuild_nested_tensor": true, "_utils._rebuild_wrapper_subclass": true,
	"_utils._rebuild_meta_tensor_no_storage":        true,
	"_utils._rebuild_device_tensor_from_numpy":      true,
	"_utils._rebuild_device_tensor_from_cpu_tensor": true,
	"_utils._rebuild_xla_tensor":                    true,
	"_tensor._rebuild_from_type":                    true, "_tensor._rebuild_from_type_v2": true,
	"nn.parameter.Parameter": true, "nn.parameter.Buffer": true,
	"serialization._get_layout": true,
	"jit._pickle.build_intlist": true, "jit._pickle.build_tensorlist": true, "jit._pickle.build_doublelist": true,
	"jit._pickle.build_boollist": true, "jit._pickle.build_tensor_from_id": true, "jit._pickle.restore_type_tag": true,
}

// isTorchDType reports whether torch.<name> is a dtype object, including those that no storage of ours can have.
func isTorchDType(name string) bool {
	if _, ok := tensor.ParseDType(name); ok {
		return true
	}
	return unreadableDTypes[name]
}

var unreadableDTypes = map[string]bool{
	"quint4x2": true, "quint2x4": true, "float4_e2m1fn_x2": true,
	"bits1x8": true, "bits2x4": true, "bits4x2": true, "bits8": true, "bits16": true,
	"uint1": true, "uint2": true, "uint3": true, "uint4": true, "uint5": true, "uint6": true, "uint7": true,
	"int1": true, "int2": true, "int3": true, "int4": true, "int5": true, "int6": true, "int7": true,
	"half": true, "float": true, "double": true, "long": true, "int": true, "short": true,
	"cfloat": true, "cdouble": true, "chalf": true,
}

// storageClasses maps PyTorch's storage classes to the dtype of their elements; Invalid stands for raw bytes.
var storageClasses = map[string]tensor.DType{
	"FloatStorage": tensor.Float32, "DoubleStorage": tensor.Float64, "HalfStorage": tensor.Float16,
	"BFloat16Storage": tensor.BFloat16, "LongStorage": tensor.Int64, "IntStorage": tensor.Int32,
	"ShortStorage": tensor.Int16, "CharStorage": tensor.Int8, "ByteStorage": tensor.UInt8, "BoolStorage": tensor.Bool,
	"ComplexFloatStorage": tensor.Complex64, "ComplexDoubleStorage": tensor.Complex128,
	"QInt8Storage": tensor.QInt8, "QUInt8Storage": tensor.QUInt8, "QInt32Storage": tensor.QInt32,
	"UntypedStorage": tensor.Invalid, "_UntypedStorage": tensor.Invalid,
	// Sub-byte quantized storages count their elements in bytes.
	"QUInt4x2Storage": tensor.Invalid, "QUInt2x4Storage": tensor.Invalid,
}

// storageClass returns the element dtype of a storage class, and whether g is one.
func storageClass(g pickle.Global) (tensor.DType, bool) {
	switch g.Module {
	case "torch", "torch.storage", "torch.cuda":
		d, ok := storageClasses[g.Name]
		return d, ok
	}
	return tensor.Invalid, false
}

// numpyData are the functions with which NumPy pickles arrays, scalars and dtypes, under both of its names.
var numpyData = map[string]bool{
	"numpy.core.multiarray._reconstruct": true, "numpy._core.multiarray._reconstruct": true,
	"numpy.core.multiarray.scalar": true, "numpy._core.multiarray.scalar": true,
	"numpy.core.numeric._frombuffer": true, "numpy._core.numeric._frombuffer": true,
	"numpy.ndarray": true, "numpy.dtype": true,
}

// plainData are classes, of the standard library mostly, whose pickles call them with plain values; they stay inert.
var plainData = map[string]bool{
	"pathlib.Path": true, "pathlib.PosixPath": true, "pathlib.WindowsPath": true,
	"pathlib.PurePosixPath": true, "pathlib.PureWindowsPath": true, "pathlib._local.PosixPath": true,
	"datetime.datetime": true, "datetime.date": true, "datetime.time": true, "datetime.timedelta": true,
	"datetime.timezone": true, "decimal.Decimal": true, "fractions.Fraction": true, "uuid.UUID": true,
	"torch.nn.backends.thnn._get_thnn_function_backend": true, // an attribute of every module until PyTorch 1.2
}
