package pickle

import (
	"fmt"
	"slices"

	"github.com/nlpodyssey/gopickle/types"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A builtin is one of Python's own globals that are data.
type builtin struct {
	// kind is what a call gives; call makes it. Without call the global may only be named.
	kind kind
	call func(c *class, args []any) (any, error)
}

// pythonData lists Python's own globals that are data, under the names of Python 2 and 3.
var pythonData = makePythonData()

// IsPythonData tells whether the package itself knows a global as data.
func IsPythonData(g Global) bool {
	_, ok := pythonData[g]
	return ok
}

func makePythonData() map[Global]builtin {
	data := map[Global]builtin{
		{"collections", "OrderedDict"}: {kindMapping, callMapping},
		{"collections", "Counter"}:     {kindMapping, callMapping},
		{"collections", "defaultdict"}: {kindMapping, callDefaultDict},
		{"collections", "deque"}:       {kindObject, callDeque},
		{"_codecs", "encode"}:          {kindBytes, callEncode},
		{"types", "NoneType"}:          {},
		{"types", "SimpleNamespace"}:   {kindObject, callInert},
	}
	for _, module := range []string{"builtins", "__builtin__"} {
		for name, b := range map[string]builtin{
			"set":       {kindSet, callSet},
			"frozenset": {kindFrozenSet, callFrozenSet},
			"bytes":     {kindBytes, callBytes},
			"bytearray": {kindByteArray, callByteArray},
			"complex":   {kindComplex, callComplex},
			"slice":     {kindObject, callRange},
			"range":     {kindObject, callRange},
			"xrange":    {kindObject, callRange},
		} {
			data[Global{module, name}] = b
		}
		for _, name := range []string{"object", "bool", "int", "long", "float", "str", "unicode", "basestring", "list",
			"dict", "tuple", "Ellipsis", "NotImplemented"} {
			data[Global{module, name}] = builtin{}
		}
	}
	for _, module := range []string{"copyreg", "copy_reg"} {
		data[Global{module, "_reconstructor"}] = builtin{kindObject, callReconstructor}
		data[Global{module, "__newobj__"}] = builtin{kindObject, callNewObj}
	}
	// Values that only a constructor's arguments describe.
	for module, names := range map[string][]string{
		"datetime":       {"datetime", "date", "time", "timedelta", "timezone"},
		"decimal":        {"Decimal"},
		"fractions":      {"Fraction"},
		"uuid":           {"UUID"},
		"pathlib":        pathNames,
		"pathlib._local": pathNames,
	} {
		for _, name := range names {
			data[Global{module, name}] = builtin{kindObject, callInert}
		}
	}
	return data
}

var pathNames = []string{"PurePath", "PurePosixPath", "PureWindowsPath", "Path", "PosixPath", "WindowsPath"}

func badArgs(args []any) error {
	return fault.New(fault.ErrFormat, -1, "cannot be made of these %d arguments", len(args))
}

// callInert makes an object that is told by its arguments.
func callInert(c *class, args []any) (any, error) { return newInert(c, args), nil }

func callRange(c *class, args []any) (any, error) {
	if len(args) < 1 || len(args) > 3 {
		return nil, badArgs(args)
	}
	for _, a := range args {
		if _, ok := bigInt(a); !ok && a != nil {
			return nil, badArgs(args)
		}
	}
	return newInert(c, args), nil
}

// callMapping makes an OrderedDict or a Counter, empty or of pairs, which Python 2 wrote.
func callMapping(c *class, args []any) (any, error) {
	o := newInert(c, nil)
	switch len(args) {
	case 0:
		return o, nil
	case 1:
		return o, c.m.update(o, args[0])
	}
	return nil, badArgs(args)
}

// callDefaultDict keeps the factory as the object's argument.
func callDefaultDict(c *class, args []any) (any, error) {
	if len(args) == 0 {
		return newInert(c, nil), nil
	}
	if _, ok := AsGlobal(args[0]); !ok && args[0] != nil || len(args) > 2 {
		return nil, badArgs(args)
	}
	o := newInert(c, args[:1])
	if len(args) == 2 {
		return o, c.m.update(o, args[1])
	}
	return o, nil
}

func callDeque(c *class, args []any) (any, error) {
	if len(args) > 2 {
		return nil, badArgs(args)
	}
	o := newInert(c, args)
	if len(args) == 0 {
		return o, nil
	}
	items, ok := sequence(args[0])
	if !ok {
		return nil, badArgs(args)
	}
	return o, c.m.extend(o, items)
}

// update adds the items of a dict, or pairs, to o.
func (m *machine) update(o *inert, from any) error {
	if err := m.v.charge(objectRest); err != nil {
		return err
	}
	if entries, ok := Dict(from); ok {
		if err := m.v.chargeKeys(len(entries), dictItemCost); err != nil {
			return err
		}
		for _, e := range entries {
			o.Set(e.Key, e.Value)
		}
		return nil
	}
	pairs, ok := sequence(from)
	if !ok {
		return badArgs([]any{from})
	}
	if err := m.v.chargeKeys(len(pairs), dictItemCost); err != nil {
		return err
	}
	for _, p := range pairs {
		kv, ok := sequence(p)
		if !ok || len(kv) != 2 || !hashable(kv[0]) {
			return badArgs([]any{from})
		}
		o.Set(kv[0], kv[1])
	}
	return nil
}

// extend adds items to o.
func (m *machine) extend(o *inert, items []any) error {
	if len(items) == 0 {
		return nil
	}
	if err := m.v.charge(objectRest + int64(len(items))*listItemCost); err != nil {
		return err
	}
	o.rest().items = slices.Clone(items)
	return nil
}

// sequence returns the items of a list or tuple.
func sequence(v any) ([]any, bool) {
	if items, ok := List(v); ok {
		return items, true
	}
	return Tuple(v)
}

// hashable tells whether Python would take v as a key.
func hashable(v any) bool {
	switch v := v.(type) {
	case *types.List, *table, *types.ByteArray:
		return false
	case *set:
		return v.frozen
	case *inert:
		return v.class.builtin == nil || v.class.builtin.kind != kindMapping
	}
	return true
}

// elements returns the one argument of a set's constructor, charged for.
func elements(c *class, args []any) ([]any, error) {
	var items []any
	switch len(args) {
	case 0:
	case 1:
		var ok bool
		if items, ok = sequence(args[0]); !ok {
			if items, ok = Set(args[0]); !ok {
				return nil, badArgs(args)
			}
		}
	default:
		return nil, badArgs(args)
	}
	for _, it := range items {
		if !hashable(it) {
			return nil, badArgs(args)
		}
	}
	if err := c.m.v.charge(setCost); err != nil {
		return nil, err
	}
	return items, c.m.v.chargeKeys(len(items), setItemCost)
}

func callSet(c *class, args []any) (any, error) {
	items, err := elements(c, args)
	if err != nil {
		return nil, err
	}
	return c.m.newSet(items, false), nil
}

func callFrozenSet(c *class, args []any) (any, error) {
	items, err := elements(c, args)
	if err != nil {
		return nil, err
	}
	return c.m.newSet(items, true), nil
}

// callBytes: protocols 0 to 2 write b"" as a call without arguments.
func callBytes(c *class, args []any) (any, error) {
	switch len(args) {
	case 0:
		return []byte{}, nil
	case 1:
		if b, ok := Bytes(args[0]); ok {
			if err := c.m.v.charge(stringCost(int64(len(b)))); err != nil {
				return nil, err
			}
			return slices.Clone(b), nil
		}
	}
	return nil, badArgs(args)
}

// callByteArray: Python 3 writes the bytes, Python 2 text in Latin-1.
func callByteArray(c *class, args []any) (any, error) {
	make1 := callBytes
	if len(args) == 2 {
		make1 = callEncode
	}
	b, err := make1(c, args)
	if err != nil {
		return nil, err
	}
	return types.NewByteArrayFromSlice(b.([]byte)), nil
}

// callEncode: protocols 0 to 2 write bytes as text to be encoded as Latin-1.
func callEncode(c *class, args []any) (any, error) {
	if len(args) != 2 {
		return nil, badArgs(args)
	}
	text, ok := String(args[0])
	encoding, ok2 := String(args[1])
	if !ok || !ok2 || encoding != "latin1" && encoding != "latin-1" {
		return nil, badArgs(args)
	}
	if err := c.m.v.charge(stringCost(int64(len(text)))); err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return nil, fault.New(fault.ErrFormat, -1, "%q is not Latin-1", r)
		}
		b = append(b, byte(r))
	}
	return b, nil
}

func callComplex(_ *class, args []any) (any, error) {
	var parts [2]float64
	if len(args) == 0 || len(args) > 2 {
		return nil, badArgs(args)
	}
	for i, a := range args {
		if n, ok := Int(a); ok {
			parts[i] = float64(n)
		} else if parts[i], ok = Float(a); !ok {
			return nil, badArgs(args)
		}
	}
	return complex(parts[0], parts[1]), nil
}

// callReconstructor is how protocols 0 and 1 make an object: of a class, its base type, and the base's value.
func callReconstructor(c *class, args []any) (any, error) {
	if len(args) != 3 {
		return nil, badArgs(args)
	}
	of, ok := args[0].(*class)
	base, ok2 := AsGlobal(args[1])
	if !ok || !ok2 {
		return nil, badArgs(args)
	}
	o := newInert(of, nil)
	value := args[2]
	switch {
	case base.Name == "object" && value == nil:
		return o, nil
	case base.Name == "dict":
		return o, c.m.update(o, value)
	case base.Name == "list":
		items, ok := List(value)
		if !ok {
			return nil, badArgs(args)
		}
		return o, c.m.extend(o, items)
	}
	o.args = []any{value}
	return o, nil
}

// callNewObj is NEWOBJ as a function: of a class and its arguments.
func callNewObj(_ *class, args []any) (any, error) {
	if len(args) == 0 {
		return nil, badArgs(args)
	}
	of, ok := args[0].(*class)
	if !ok {
		return nil, fmt.Errorf("%w: not a class", badArgs(args))
	}
	return newInert(of, args[1:]), nil
}
