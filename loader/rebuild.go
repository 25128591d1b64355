package loader

import (
	"fmt"
	"math"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A storage is a run of elements that tensors are views of. The zip reader knows its extent when the pickle names it;
// the legacy reader fills the extent in when it has passed the pickle.
type torchStorage struct {
	key string
	// dtype is Invalid for untyped (byte) storages and for those of dtypes that we cannot represent.
	dtype  tensor.DType
	extent storage.Extent
	// bytes is the size that the pickle declares.
	bytes int64
	// shift is where a legacy storage view begins in its root.
	shift     int64
	bigEndian bool
}

// A tensorValue is what a rebuild function made: a tensor without a name.
type tensorValue struct {
	storage   *torchStorage
	dtype     tensor.DType
	layout    tensor.Layout
	conj, neg bool
	quant     *quantValue
	// attrs are the attributes of a subclass or of a parameter with state; they may hold more tensors.
	attrs any
	// unreadable says why optimem cannot represent the tensor; nothing but attrs is valid then.
	unreadable error
}

// A quantValue holds the arguments of a quantizer.
type quantValue struct {
	scheme             string
	scale              float64
	zeroPoint          int64
	scales, zeroPoints any
	axis               int
}

// A layoutValue is a torch.layout such as torch.sparse_coo.
type layoutValue string

// A plainCall is the inert result of calling a plain-data class: pathlib.PosixPath("a"), torch.device("cpu").
type plainCall struct {
	callee pickle.Global
	args   []any
}

func badArgs(g pickle.Global, format string, args ...any) error {
	return fault.New(fault.ErrFormat, -1, "%v: %s", g, fmt.Sprintf(format, args...))
}

func unsupportedTensor(format string, args ...any) *tensorValue {
	return &tensorValue{unreadable: fault.New(fault.ErrUnsupported, -1, format, args...)}
}

// Rebuild functions take up to usualArgs arguments, a pathlib.Path takes the parts of a path. Many calls may share one
// tuple of arguments, so it cannot be of any length.
const (
	usualArgs = 8
	maxArgs   = 100
)

// reduceTorch interprets a call of one of the functions that torchPolicy allows. It builds values and reads nothing.
func reduceTorch(g pickle.Global, wrapped []any) (any, error) {
	if len(wrapped) > maxArgs {
		return nil, badArgs(g, "%d arguments", len(wrapped))
	}
	args := make([]any, len(wrapped))
	for i, a := range wrapped {
		args[i] = unwrap(a)
	}
	full := g.String()
	if numpyData[full] {
		return reduceNumPy(g, args)
	}
	name := strings.TrimPrefix(full, "torch.")
	switch name {
	case "_utils._rebuild_tensor", "_utils._rebuild_tensor_v2", "_utils._rebuild_tensor_v3":
		return rebuildTensor(g, name, args)
	case "_utils._rebuild_qtensor":
		return rebuildQuantized(g, args)
	case "_utils._rebuild_parameter", "_utils._rebuild_parameter_with_state", "nn.parameter.Parameter",
		"nn.parameter.Buffer":
		return rebuildParameter(g, args)
	case "_tensor._rebuild_from_type", "_tensor._rebuild_from_type_v2":
		return rebuildFromType(g, args)
	case "_utils._rebuild_device_tensor_from_numpy":
		return rebuildFromNumPy(g, args)
	case "_utils._rebuild_device_tensor_from_cpu_tensor":
		return rebuildFromCPU(g, args)
	case "_utils._rebuild_sparse_tensor", "_utils._rebuild_sparse_csr_tensor":
		kind := "sparse"
		if len(args) > 0 {
			if l, ok := args[0].(layoutValue); ok {
				kind = strings.TrimPrefix(string(l), "torch.")
			}
		}
		return unsupportedTensor("tensor of layout %s", kind), nil
	case "_utils._rebuild_nested_tensor":
		return unsupportedTensor("nested tensor"), nil
	case "_utils._rebuild_meta_tensor_no_storage":
		return unsupportedTensor("meta tensor: the file has its shape and no data"), nil
	case "_utils._rebuild_wrapper_subclass":
		return unsupportedTensor("wrapper subclass of a tensor"), nil
	case "_utils._rebuild_xla_tensor":
		return unsupportedTensor("XLA tensor"), nil
	case "serialization._get_layout":
		if len(args) == 1 {
			if s, ok := pickle.String(args[0]); ok {
				return layoutValue(s), nil
			}
		}
		return nil, badArgs(g, "want one string")
	case "Size":
		if len(args) == 1 {
			return args[0], nil
		}
		return nil, badArgs(g, "want one tuple")
	case "jit._pickle.restore_type_tag", "jit._pickle.build_intlist", "jit._pickle.build_tensorlist",
		"jit._pickle.build_doublelist", "jit._pickle.build_boollist":
		if len(args) == 0 {
			return nil, badArgs(g, "no arguments")
		}
		return args[0], nil
	}
	if g == partial {
		if err := checkPartial(args); err != nil {
			return nil, err
		}
	}
	if name == "device" || plainData[full] || g == partial {
		return &plainCall{callee: g, args: args}, nil
	}
	return nil, fault.New(fault.ErrUnsafe, -1, "%v is not a function that rebuilds data", g)
}

// checkPartial looks at what functools.partial is called with, or at the state that says the same once more.
func checkPartial(args []any) error {
	what := "something"
	if len(args) > 0 {
		if g, ok := pickle.AsGlobal(unwrap(args[0])); ok {
			if strings.HasPrefix(g.Module, "torch.nn.modules.") {
				return nil
			}
			what = g.String()
		}
	}
	return fault.New(fault.ErrUnsafe, -1, "%v of %.100s, which is no class of torch.nn", partial, what)
}

// rebuildTensor interprets torch._utils._rebuild_tensor (storage, storage_offset, size, stride), _v2 (the same, then
// requires_grad, backward_hooks, metadata) and _v3 (the same, dtype before metadata).
func rebuildTensor(g pickle.Global, name string, args []any) (any, error) {
	least, most := 4, 4
	switch name {
	case "_utils._rebuild_tensor_v2":
		least, most = 6, 7
	case "_utils._rebuild_tensor_v3":
		least, most = 7, 8
	}
	if len(args) < least || len(args) > most {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	t, err := viewOf(g, args)
	if err != nil {
		return nil, err
	}
	if name == "_utils._rebuild_tensor_v3" {
		d, ok := pickle.AsGlobal(args[6])
		if !ok || d.Module != "torch" {
			return nil, badArgs(g, "argument 6 is not a dtype")
		}
		if t.dtype, ok = parseTorchDType(d.Name); !ok {
			return unsupportedTensor("dtype %s", d), nil
		}
	}
	if t.dtype == tensor.Invalid {
		return unsupportedTensor("untyped or unknown storage %q seen as a tensor", t.storage.key), nil
	}
	if len(args) == most && most > 4 {
		if err := t.readMetadata(g, args[most-1]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// viewOf reads the first four arguments of every rebuild function: storage, offset, size, stride.
func viewOf(g pickle.Global, args []any) (*tensorValue, error) {
	s, ok := args[0].(*torchStorage)
	if !ok {
		return nil, badArgs(g, "argument 0 is not a storage")
	}
	offset, ok := pickle.Int(args[1])
	if !ok || offset < 0 {
		return nil, badArgs(g, "argument 1 is not an offset")
	}
	size, ok := intTuple(args[2])
	if !ok {
		return nil, badArgs(g, "argument 2 is not a size")
	}
	stride, ok := intTuple(args[3])
	if !ok || len(stride) != len(size) {
		return nil, badArgs(g, "argument 3 is not a stride for size %v", size)
	}
	return &tensorValue{
		storage: s,
		dtype:   s.dtype,
		layout:  tensor.Layout{Shape: size, Strides: stride, Offset: int(offset)},
	}, nil
}

// readMetadata interprets the optional dictionary of _rebuild_tensor_v2: {"conj": True, "neg": True}.
func (t *tensorValue) readMetadata(g pickle.Global, v any) error {
	if pickle.IsNone(v) {
		return nil
	}
	entries, ok := pickle.Dict(v)
	if !ok {
		return badArgs(g, "metadata is not a dictionary")
	}
	for _, e := range entries {
		set, _ := pickle.Bool(e.Value)
		switch key, _ := pickle.String(e.Key); key {
		case "conj":
			t.conj = set
		case "neg":
			t.neg = set
		}
	}
	return nil
}

// rebuildQuantized interprets torch._utils._rebuild_qtensor (storage, storage_offset, size, stride, quantizer_params,
// requires_grad, backward_hooks).
func rebuildQuantized(g pickle.Global, args []any) (any, error) {
	if len(args) != 7 {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	t, err := viewOf(g, args)
	if err != nil {
		return nil, err
	}
	params, ok := pickle.Tuple(args[4])
	if !ok || len(params) < 3 {
		return nil, badArgs(g, "argument 4 is not a quantizer")
	}
	scheme, ok := pickle.AsGlobal(params[0])
	if !ok || scheme.Module != "torch" {
		return nil, badArgs(g, "argument 4 does not begin with a scheme")
	}
	q := &quantValue{scheme: scheme.Name}
	switch scheme.Name {
	case "per_tensor_affine", "per_tensor_symmetric":
		if q.scale, ok = pickle.Float(params[1]); !ok || math.IsNaN(q.scale) {
			return nil, badArgs(g, "the scale is not a number")
		}
		if q.zeroPoint, ok = pickle.Int(params[2]); !ok {
			return nil, badArgs(g, "the zero point is not an integer")
		}
	case "per_channel_affine", "per_channel_symmetric", "per_channel_affine_float_qparams":
		if len(params) != 4 {
			return nil, badArgs(g, "%s wants scales, zero points and an axis", scheme.Name)
		}
		axis, ok := pickle.Int(params[3])
		if !ok || axis < 0 || axis >= int64(len(t.layout.Shape)) {
			return nil, badArgs(g, "axis out of range for size %v", t.layout.Shape)
		}
		q.scales, q.zeroPoints, q.axis = unwrap(params[1]), unwrap(params[2]), int(axis)
		if z, ok := q.zeroPoints.(*tensorValue); ok && z.dtype == tensor.Float32 {
			q.scheme = "per_channel_affine_float_qparams" // PyTorch writes the plain scheme's name for it
		}
		for _, v := range params[1:3] {
			if n, ok := lengthOf(unwrap(v)); !ok || n != int64(t.layout.Shape[axis]) {
				return nil, badArgs(g, "scales and zero points are not one per index of axis %d", axis)
			}
		}
	default:
		return unsupportedTensor("quantization scheme %s", scheme.Name), nil
	}
	if !t.dtype.Quantized() {
		return unsupportedTensor("quantized tensor over storage %q of another dtype", t.storage.key), nil
	}
	t.quant = q
	return t, nil
}

// lengthOf returns the number of values in a list or one-dimensional tensor.
func lengthOf(v any) (int64, bool) {
	if l, ok := pickle.List(v); ok {
		return int64(len(l)), true
	}
	if t, ok := v.(*tensorValue); ok && t.unreadable == nil && len(t.layout.Shape) == 1 {
		return int64(t.layout.Shape[0]), true
	}
	return 0, false
}

// rebuildParameter interprets torch._utils._rebuild_parameter (data, requires_grad, backward_hooks), its _with_state
// form (state last) and torch.nn.parameter.Parameter (data, requires_grad). A parameter is its data here.
func rebuildParameter(g pickle.Global, args []any) (any, error) {
	if len(args) == 0 {
		return nil, badArgs(g, "no arguments")
	}
	data, ok := args[0].(*tensorValue)
	if !ok {
		return nil, badArgs(g, "argument 0 is not a tensor")
	}
	if len(args) == 4 && !pickle.IsNone(args[3]) {
		with := *data
		with.attrs = args[3]
		return &with, nil
	}
	return data, nil
}

// rebuildFromType interprets torch._tensor._rebuild_from_type_v2 (func, new_type, args, state): the call of another
// rebuild function, its result seen as a subclass.
func rebuildFromType(g pickle.Global, args []any) (any, error) {
	if len(args) != 4 {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	fn, ok := pickle.AsGlobal(args[0])
	if !ok || torchPolicy(fn) != pickle.Data {
		return nil, fault.New(fault.ErrUnsafe, -1, "%v: argument 0 is not a function that rebuilds data", g)
	}
	if fn == g {
		return nil, badArgs(g, "calls itself")
	}
	inner, ok := pickle.Tuple(args[2])
	if !ok {
		return nil, badArgs(g, "argument 2 is not a tuple")
	}
	v, err := reduceTorch(fn, inner)
	if err != nil {
		return nil, err
	}
	data, ok := v.(*tensorValue)
	if !ok {
		return nil, badArgs(g, "%v did not give a tensor", fn)
	}
	if pickle.IsNone(args[3]) {
		return data, nil
	}
	with := *data
	with.attrs = args[3]
	return &with, nil
}

// rebuildFromCPU interprets torch._utils._rebuild_device_tensor_from_cpu_tensor (data, dtype, device, requires_grad).
func rebuildFromCPU(g pickle.Global, args []any) (any, error) {
	if len(args) != 4 {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	data, ok := args[0].(*tensorValue)
	if !ok {
		return nil, badArgs(g, "argument 0 is not a tensor")
	}
	return castTo(g, data, args[1])
}

// castTo returns data where it has the dtype already: PyTorch would convert it otherwise, and the loader reads
// nothing.
func castTo(g pickle.Global, data *tensorValue, dtype any) (any, error) {
	d, ok := pickle.AsGlobal(dtype)
	if !ok || d.Module != "torch" || !isTorchDType(d.Name) {
		return nil, badArgs(g, "argument 1 is not a dtype")
	}
	if want, ok := parseTorchDType(d.Name); data.unreadable == nil && (!ok || want != data.dtype) {
		return unsupportedTensor("tensor saved as %v to be converted to %v", data.dtype, d), nil
	}
	return data, nil
}

// parseTorchDType returns the dtype that torch.<name> is, aliases such as torch.half included.
func parseTorchDType(name string) (tensor.DType, bool) {
	switch name {
	case "half":
		return tensor.Float16, true
	case "float":
		return tensor.Float32, true
	case "double":
		return tensor.Float64, true
	case "long":
		return tensor.Int64, true
	case "int":
		return tensor.Int32, true
	case "short":
		return tensor.Int16, true
	case "chalf":
		return tensor.Complex32, true
	case "cfloat":
		return tensor.Complex64, true
	case "cdouble":
		return tensor.Complex128, true
	}
	return tensor.ParseDType(name)
}

// maxDims bounds the dimensions of a tensor. PyTorch's own limit is 64 for most operations.
const maxDims = 64

// intTuple reads a tuple of sizes or strides.
func intTuple(v any) ([]int, bool) {
	t, ok := pickle.Tuple(v)
	if !ok {
		if t, ok = pickle.List(v); !ok {
			return nil, false
		}
	}
	if len(t) > maxDims {
		return nil, false
	}
	out := make([]int, len(t))
	for i, e := range t {
		n, ok := pickle.Int(unwrap(e))
		if !ok || n < 0 {
			return nil, false
		}
		out[i] = int(n)
	}
	return out, true
}

// parseStorageID reads a persistent id ('storage', class, key, location, numel[, view]) and returns the storage it
// declares, and the view's arguments where there are any.
func parseStorageID(id any) (s *torchStorage, view []any, err error) {
	parts, ok := pickle.Tuple(id)
	if !ok || len(parts) < 5 || len(parts) > 6 {
		return nil, nil, fault.New(fault.ErrFormat, -1, "persistent id is not a storage")
	}
	if kind, _ := pickle.String(parts[0]); kind != "storage" {
		return nil, nil, fault.New(fault.ErrFormat, -1, "persistent id of kind %.40q", kind)
	}
	class, ok := pickle.AsGlobal(parts[1])
	if !ok {
		return nil, nil, fault.New(fault.ErrFormat, -1, "persistent id without a storage class")
	}
	dtype, ok := storageClass(class)
	if !ok {
		return nil, nil, fault.New(fault.ErrFormat, -1, "unknown storage class %v", class)
	}
	key, ok := pickle.String(parts[2])
	if !ok {
		return nil, nil, fault.New(fault.ErrFormat, -1, "storage key is not a string")
	}
	numel, ok := pickle.Int(parts[4])
	if !ok || numel < 0 {
		return nil, nil, fault.New(fault.ErrFormat, -1, "storage %.40q: element count is not a size", key)
	}
	s = &torchStorage{key: key, dtype: dtype}
	if s.bytes, ok = tensor.MulBytes(numel, int64(max(dtype.Size(), 1))); !ok {
		return nil, nil, fault.New(fault.ErrFormat, -1, "storage %.40q: %d elements overflow", key, numel)
	}
	if len(parts) == 6 && !pickle.IsNone(parts[5]) {
		if view, ok = pickle.Tuple(parts[5]); !ok || len(view) != 3 {
			return nil, nil, fault.New(fault.ErrFormat, -1, "storage %.40q: malformed view", key)
		}
	}
	return s, view, nil
}
