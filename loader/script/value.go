package script

// A Value is an attribute or constant as the archive stores it, inert. It is one of
//
//	nil, bool, int64, float64, complex128, string,
//	Tensor, TracedTensor, Device, ListValue, TupleValue, DictValue, EnumValue, *Object
type Value any

// A Tensor is the name of a weight of the checkpoint, or of a tensor that the checkpoint lists as unreadable.
type Tensor string

// A TracedTensor says what a tensor was that a module was traced with. Its contents are not in the archive.
type TracedTensor struct {
	// DType is PyTorch's name, such as "float32"; "" for one that optimem cannot represent.
	DType string
	Shape []int
}

// A TracedCall holds the arguments that a method was traced with, without the module itself.
type TracedCall struct {
	Method string
	Args   []Value
}

// A Device is a device's name, such as "cpu" or "cuda:0".
type Device string

// A ListValue is a list.
type ListValue []Value

// A TupleValue is a tuple, or a NamedTuple's fields where the declared type says so.
type TupleValue []Value

// A DictValue is a dictionary in insertion order.
type DictValue []DictItem

// A DictItem is one pair of a [DictValue].
type DictItem struct{ Key, Value Value }

// An EnumValue is a member of an Enum.
type EnumValue struct {
	// Class is the qualified name of the Enum.
	Class string
	// Value is the member's value.
	Value Value
}

// An Object is an instance of a class. Two attributes that hold the same *Object hold the same instance.
type Object struct {
	// Class is the qualified name.
	Class string
	// Attributes are in the order of the archive. The state of a class that PyTorch itself defines is one attribute
	// without a name.
	Attributes []Field
}

// A Field is an attribute of an [Object].
type Field struct {
	Name  string
	Value Value
}

// Attribute returns the value of the named attribute.
func (o *Object) Attribute(name string) (Value, bool) {
	for i := range o.Attributes {
		if o.Attributes[i].Name == name {
			return o.Attributes[i].Value, true
		}
	}
	return nil, false
}
