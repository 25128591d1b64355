package script

// A Kind is the outermost constructor of a [Type].
type Kind uint8

// The kinds of type. The comment is what the code says where it is not the same word.
const (
	TensorType Kind = iota + 1
	IntType
	FloatType
	ComplexType
	BoolType
	NumberType // number: int, float or complex
	StringType // str
	NoneType
	AnyType
	DeviceType
	StreamType
	GeneratorType
	CapsuleType
	AnyListType  // list
	AnyTupleType // tuple
	OptionalType // Optional[T]
	ListType     // List[T]
	DictType     // Dict[K, V]
	TupleType    // Tuple[T...], Tuple[()]
	UnionType    // Union[T...]
	FutureType   // Future[T]
	AwaitType    // Await[T]
	RRefType     // RRef[T]
	ClassType    // a qualified name that begins with __torch__
)

// A Type is a type annotation.
type Type struct {
	at
	Kind Kind
	// Class is the qualified name of a ClassType. Classes below "__torch__.torch.classes" are not in the program: they
	// are defined by PyTorch itself.
	Class string
	// Args are the operands of Optional, List, Dict, Tuple, Union, Future, Await and RRef.
	Args []*Type
}

// typeNames spells the kinds; minArgs and maxArgs count the operands (maxArgs −1: any number).
var typeNames = [...]struct {
	name             string
	minArgs, maxArgs int
}{
	TensorType:    {name: "Tensor"},
	IntType:       {name: "int"},
	FloatType:     {name: "float"},
	ComplexType:   {name: "complex"},
	BoolType:      {name: "bool"},
	NumberType:    {name: "number"},
	StringType:    {name: "str"},
	NoneType:      {name: "NoneType"},
	AnyType:       {name: "Any"},
	DeviceType:    {name: "Device"},
	StreamType:    {name: "Stream"},
	GeneratorType: {name: "Generator"},
	CapsuleType:   {name: "Capsule"},
	AnyListType:   {name: "list"},
	AnyTupleType:  {name: "tuple"},
	OptionalType:  {"Optional", 1, 1},
	ListType:      {"List", 1, 1},
	DictType:      {"Dict", 2, 2},
	TupleType:     {"Tuple", 0, -1},
	UnionType:     {"Union", 1, -1},
	FutureType:    {"Future", 1, 1},
	AwaitType:     {"Await", 1, 1},
	RRefType:      {"RRef", 1, 1},
	ClassType:     {},
}

// kindOf returns the kind that a word of the code names, 0 for none.
func kindOf(word string) Kind {
	for k := TensorType; k < ClassType; k++ {
		if typeNames[k].name == word {
			return k
		}
	}
	return 0
}

// Equal reports whether both types are the same, wherever they stand.
func (t *Type) Equal(u *Type) bool {
	if t == nil || u == nil {
		return t == u
	}
	if t.Kind != u.Kind || t.Class != u.Class || len(t.Args) != len(u.Args) {
		return false
	}
	for i := range t.Args {
		if !t.Args[i].Equal(u.Args[i]) {
			return false
		}
	}
	return true
}
