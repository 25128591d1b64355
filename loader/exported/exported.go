// Package exported reads the program of a torch.export archive: the graph, its signature, symbolic shapes and the
// modules that the nodes came from, as typed values. All schema versions that torch.export.save has written are read
// into the same types.
//
// It knows neither files nor archives, and no op: a node's target is a name. Programs are untrusted: what [Decode]
// returns is consistent (every value is defined once, before it is used; the signature names values of the graph;
// shapes are possible), and what is wrong is reported as an error of package fault with its place in the document.
//
//	p, err := exported.Decode(r, exported.Options{Meter: m})
//	if err != nil {
//		return err
//	}
//	for _, in := range p.Inputs() {
//		fmt.Println(in.Name, in.DType, in.Shape)
//	}
package exported

import (
	"github.com/optimem/optimem/tensor"
)

// The newest schema that this package knows. A newer minor only adds fields and is read; a newer major is refused.
const (
	SchemaMajor = 8
	SchemaMinor = 20
)

// A Program is one exported program.
type Program struct {
	// Name is the name of the model in its archive, mostly "model".
	Name string
	// Others are the other programs of the same archive, in its order.
	Others []*Program

	SchemaVersion Version
	// TorchVersion is the PyTorch that wrote the program; before 2.5 it was not recorded and is "".
	TorchVersion string
	// OpsetVersion maps op namespaces to versions.
	OpsetVersion map[string]int64
	// Ranges are the constraints on symbols, in the order of the file.
	Ranges []Range
	// Hints are the sizes that symbols had in the example that the program was exported with, where recorded.
	Hints map[string]int64
	// GuardsCode are Python expressions over the inputs that hold for valid ones.
	GuardsCode []string
	// Verifiers names the dialects of the graph: "TRAINING" as exported, "ATEN" after decompositions.
	Verifiers []string

	Graph     *Graph
	Signature Signature
	// ModuleCalls describe how modules are called; the first is the program's own.
	ModuleCalls []ModuleCall
}

// A Version is a schema version.
type Version struct {
	Major, Minor int64
}

// A Range bounds a symbol. An open end is the smallest or largest int64.
type Range struct {
	Symbol   string
	Min, Max int64
}

// A Graph is a list of nodes in the order of execution. A subgraph (of a higher-order op) has names of its own: it
// sees the values of the graph around it only through its inputs.
type Graph struct {
	Inputs, Outputs []Argument
	Nodes           []Node
	// TensorValues tells of every tensor what is known before running.
	TensorValues map[string]*TensorMeta
	// SymInts, SymFloats and SymBools tell of numbers that are computed while running what they stand for.
	SymInts   map[string]SymInt
	SymFloats map[string]SymFloat
	SymBools  map[string]SymBool
	// CustomObjs maps values that are no tensors or numbers to the name of their class.
	CustomObjs map[string]string
	// SingleTensorReturn says that a subgraph returns a tensor and not a list of one tensor.
	SingleTensorReturn bool
}

// A Node is one call of an op.
type Node struct {
	// Name is the node's name, "" in older files.
	Name string
	// Target is the op, such as "torch.ops.aten.linear.default" or "_operator.add".
	Target string
	// Inputs are the arguments that are not the op's defaults.
	Inputs []NamedArgument
	// Outputs defines values. One with an empty name is not used by any node.
	Outputs []Argument
	// Modules is the stack of modules that the call happened in, outermost first. Nodes share it.
	Modules []Frame
	// Source is the line of Python that made the node, nil where not recorded. Nodes share it.
	Source *Source
	// SourceFn is the function or module class that the call came from, "" where not recorded.
	SourceFn string
	// Returns says, for a higher-order op with one tensor as its output, whether it returns that or a tuple of it.
	Returns Returns
}

// Returns is the kind of result of a higher-order op that has a single output.
type Returns uint8

// The kinds of result.
const (
	ReturnsUnknown Returns = iota
	ReturnsTensor
	ReturnsTuple
)

// A Frame is one module of a node's module stack.
type Frame struct {
	// Key tells calls of the same module apart.
	Key string
	// Path is the module's path, "" for the root; a later call of the same module may have a suffix "@1".
	Path string
	// Class is the qualified name of the module's class.
	Class string
}

// A Source is a line of Python code.
type Source struct {
	File string
	Line int64
	Func string
	Code string
}

// A NamedArgument is one argument of a call.
type NamedArgument struct {
	// Name is the parameter's name in the op's schema, "" for positional arguments of higher-order ops.
	Name string
	Arg  Argument
	Kind ArgumentKind
}

// An ArgumentKind says how an argument is passed.
type ArgumentKind uint8

// The kinds of argument. Files before schema 8.3 do not record it.
const (
	KindUnknown ArgumentKind = iota
	Positional
	Keyword
)

// A TensorMeta is what is known of a tensor value.
type TensorMeta struct {
	// DType is Invalid for a payload whose dtype PyTorch has and package tensor has not; see ScalarType.
	DType tensor.DType
	// Layout is how the elements are stored.
	Layout       Layout
	RequiresGrad bool
	// ScalarType is the dtype's number in the file.
	ScalarType    int64
	Sizes         []SymInt
	Strides       []SymInt
	StorageOffset SymInt
	Device        Device
}

// A Device is where a tensor was when the program was exported.
type Device struct {
	Type string
	// Index is −1 where none is given.
	Index int64
}

// A Layout is PyTorch's number of a storage layout.
type Layout uint8

// The layouts.
const (
	LayoutUnknown Layout = iota
	SparseCOO
	SparseCSR
	SparseCSC
	SparseBSR
	SparseBSC
	MKLDNN
	Strided
	numLayouts
)

// String returns PyTorch's name of the layout.
func (l Layout) String() string {
	names := [numLayouts]string{
		"unknown", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided",
	}
	if l >= numLayouts {
		return "layout(?)"
	}
	return names[l]
}

// A MemoryFormat is PyTorch's number of an order of dimensions in memory.
type MemoryFormat uint8

// The memory formats.
const (
	FormatUnknown MemoryFormat = iota
	ContiguousFormat
	ChannelsLast
	ChannelsLast3d
	PreserveFormat
	numMemoryFormats
)

// A SymInt is an integer that may depend on symbols: Expr, or Int where Expr is nil.
type SymInt struct {
	Expr *Expr
	Int  int64
}

// String returns the number or the expression.
func (s SymInt) String() string {
	if s.Expr != nil {
		return s.Expr.String()
	}
	return formatInt(s.Int)
}

// A SymFloat is a float that may depend on symbols: Expr, or Float where Expr is nil.
type SymFloat struct {
	Expr  *Expr
	Float float64
}

// A SymBool is a truth value that may depend on symbols: Expr, or Bool where Expr is nil.
type SymBool struct {
	Expr *Expr
	Bool bool
}

// scalarTypes maps the numbers of the schema to dtypes. 14 and 15 were those of float8 before schema 8.2.
var scalarTypes = map[int64]tensor.DType{
	1: tensor.UInt8, 2: tensor.Int8, 3: tensor.Int16, 4: tensor.Int32, 5: tensor.Int64,
	6: tensor.Float16, 7: tensor.Float32, 8: tensor.Float64,
	9: tensor.Complex32, 10: tensor.Complex64, 11: tensor.Complex128,
	12: tensor.Bool, 13: tensor.BFloat16, 14: tensor.Float8E4M3FN, 15: tensor.Float8E5M2,
	28: tensor.UInt16, 29: tensor.Float8E4M3FN, 30: tensor.Float8E5M2, 31: tensor.Float8E4M3FNUZ,
	32: tensor.Float8E5M2FNUZ, 33: tensor.Float8E8M0FNU, 34: tensor.UInt32, 35: tensor.UInt64,
}
