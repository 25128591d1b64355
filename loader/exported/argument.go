package exported

import "github.com/optimem/optimem/tensor"

// A Tag says what an [Argument] is.
type Tag uint8

// The tags, and which fields of the argument hold the value.
const (
	None            Tag = iota // nothing
	Tensor                     // Name: the value
	Tensors                    // Data: []string, the values
	OptionalTensor             // Name: the value, "" for None
	OptionalTensors            // Data: []string, the values, "" for None
	NestedTensors              // Data: [][]string, the values
	Int                        // Int
	Ints                       // Data: []int64
	IntLists                   // Data: [][]int64
	Float                      // Float
	Floats                     // Data: []float64
	FloatLists                 // Data: [][]float64
	Bool                       // Int: 0 or 1
	Bools                      // Data: []bool
	String                     // Name: the text
	Strings                    // Data: []string
	Complex                    // Data: complex128
	SymbolicInt                // Name: the value, or Int where it is ""
	SymbolicInts               // Data: []Sym
	SymbolicFloat              // Name: the value, or Float where it is ""
	SymbolicFloats             // Data: []Sym
	SymbolicBool               // Name: the value, or Int where it is ""
	SymbolicBools              // Data: []Sym
	ScalarType                 // Int: a tensor.DType
	Memory                     // Int: a MemoryFormat
	StorageLayout              // Int: a Layout
	OnDevice                   // Data: Device
	Subgraph                   // Name: the graph's name; Data: *Graph
	CustomObj                  // Name: the value or constant; Data: string, the class
	Operator                   // Name: the op
	Dict                       // Data: []NamedArgument, without kinds
	numTags
)

// tagNames are the keys of the tags in the file.
var tagNames = [numTags]string{
	None: "as_none", Tensor: "as_tensor", Tensors: "as_tensors", OptionalTensor: "as_optional_tensor",
	OptionalTensors: "as_optional_tensors", NestedTensors: "as_nested_tensors", Int: "as_int", Ints: "as_ints",
	IntLists: "as_int_lists", Float: "as_float", Floats: "as_floats", FloatLists: "as_float_lists", Bool: "as_bool",
	Bools: "as_bools", String: "as_string", Strings: "as_strings", Complex: "as_complex", SymbolicInt: "as_sym_int",
	SymbolicInts: "as_sym_ints", SymbolicFloat: "as_sym_float", SymbolicFloats: "as_sym_floats",
	SymbolicBool: "as_sym_bool", SymbolicBools: "as_sym_bools", ScalarType: "as_scalar_type",
	Memory: "as_memory_format", StorageLayout: "as_layout", OnDevice: "as_device", Subgraph: "as_graph",
	CustomObj: "as_custom_obj", Operator: "as_operator", Dict: "as_string_to_argument",
}

var tagsByName = func() map[string]Tag {
	m := make(map[string]Tag, numTags)
	for t, name := range tagNames {
		m[name] = Tag(t)
	}
	return m
}()

// String returns the tag as the schema spells it, such as "as_tensor".
func (t Tag) String() string {
	if t >= numTags {
		return "as_?"
	}
	return tagNames[t]
}

// An Argument is an input or output of a node or graph. Tag says what it is and which of the other fields hold it.
type Argument struct {
	Tag   Tag
	Name  string
	Int   int64
	Float float64
	Data  any
}

// A Sym is one element of a list of symbolic numbers: the value Name or, where it is "", the constant, which is 0 or 1
// in Int for a truth value.
type Sym struct {
	Name  string
	Int   int64
	Float float64
}

// DType returns the dtype of a [ScalarType] argument, Invalid for any other.
func (a Argument) DType() tensor.DType {
	if a.Tag != ScalarType {
		return tensor.Invalid
	}
	return tensor.DType(a.Int)
}

// Values calls yield with the name of each value that the argument reads or defines, in order, until it returns
// false. Empty names, which stand for no value, are left out, and so are subgraphs and custom objects.
func (a Argument) Values(yield func(name string) bool) {
	switch a.Tag {
	case Tensor, OptionalTensor, SymbolicInt, SymbolicFloat, SymbolicBool:
		if a.Name != "" {
			yield(a.Name)
		}
	case Tensors, OptionalTensors:
		yieldNames(a.Data.([]string), yield)
	case NestedTensors:
		for _, names := range a.Data.([][]string) {
			if !yieldNames(names, yield) {
				return
			}
		}
	case SymbolicInts, SymbolicFloats, SymbolicBools:
		for _, s := range a.Data.([]Sym) {
			if s.Name != "" && !yield(s.Name) {
				return
			}
		}
	case Dict:
		more := true
		for _, e := range a.Data.([]NamedArgument) {
			e.Arg.Values(func(name string) bool {
				more = yield(name)
				return more
			})
			if !more {
				return
			}
		}
	}
}

func yieldNames(names []string, yield func(string) bool) bool {
	for _, name := range names {
		if name != "" && !yield(name) {
			return false
		}
	}
	return true
}
