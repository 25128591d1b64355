package pickle

import (
	"math"
	"math/big"

	"github.com/nlpodyssey/gopickle/types"
)

// gopickle's dict keeps duplicates and is searched from the front, its sets have no order and panic on bytes. So the
// verifier writes dicts and sets as calls of the containers in this file.

// An Entry is one item of a dict.
type Entry = types.DictEntry

// indexFrom is the number of keys from which a table is worth an index.
const indexFrom = 8

// A keyIndex finds keys in a table by value. It is needed only while the table grows.
type keyIndex map[any]int32

// place returns where key is among the n keys of a table, or where it will be.
func (x *keyIndex) place(key any, n int, at func(int) any) (int, bool) {
	key = keyOf(key)
	if n < indexFrom {
		for i := range n {
			if keyOf(at(i)) == key {
				return i, true
			}
		}
		return n, false
	}
	if *x == nil {
		*x = make(keyIndex, 2*indexFrom)
		for i := range n {
			(*x)[keyOf(at(i))] = int32(i)
		}
	}
	i, found := (*x)[key]
	if !found {
		(*x)[key] = int32(n)
		return n, false
	}
	return int(i), true
}

// keyOf returns a Go value that is equal for keys that Python takes as equal, except for bytes, tuples and objects,
// which are equal only where they are the same.
func keyOf(k any) any {
	switch k := k.(type) {
	case bool:
		if k {
			return 1
		}
		return 0
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int(k)
		}
	case []byte:
		if len(k) == 0 {
			return (*byte)(nil)
		}
		return &k[0]
	case *big.Int:
		return bigKey(k.String())
	}
	return k
}

type bigKey string

// A table is a dict's items, in the order of insertion.
type table struct {
	entries []Entry
	index   keyIndex
}

// Set is what SETITEM and SETITEMS do. A key that comes again keeps its place.
func (t *table) Set(key, value any) {
	i, found := t.index.place(key, len(t.entries), func(i int) any { return t.entries[i].Key })
	if found {
		t.entries[i].Value = value
		return
	}
	t.entries = append(t.entries, Entry{Key: key, Value: value})
}

// A set is a set's or frozenset's items, in the order of insertion.
type set struct {
	items  []any
	index  keyIndex
	frozen bool
}

// Add is what ADDITEMS does.
func (s *set) Add(v any) {
	if _, found := s.index.place(v, len(s.items), func(i int) any { return s.items[i] }); !found {
		s.items = append(s.items, v)
	}
}

var (
	_ types.DictSetter = (*table)(nil)
	_ types.SetAdder   = (*set)(nil)
)

// A containerClass makes the dicts and sets that opcodes make.
type containerClass struct {
	m    *machine
	name string
}

var _ types.Callable = (*containerClass)(nil)

// The names and places in the machine's memo of the container classes, and of a place that is used for passing
// arguments.
const (
	dictClass      = "dict"
	setClass       = "set"
	frozenSetClass = "frozenset"

	memoDict      = 0
	memoSet       = 1
	memoFrozenSet = 2
	memoScratch   = 3
	memoFree      = 4
)

// prelude is what the machine reads first.
func prelude() []byte {
	var p []byte
	for i, name := range []string{memoDict: dictClass, memoSet: setClass, memoFrozenSet: frozenSetClass} {
		p = append(p, opGlobal, '\n')
		p = append(p, name...)
		p = append(p, '\n', opBinPut, byte(i), opPop)
	}
	return p
}

// writeEmpty writes a call of a container class without arguments.
func (v *verifier) writeEmpty(class byte) { v.write(opBinGet, class, opEmptyTuple, opReduce) }

// writeFilled writes a call of a container class with the items since the MARK, which a tuple in the memo holds
// meanwhile.
func (v *verifier) writeFilled(class byte) {
	v.write(opTuple, opBinPut, memoScratch, opPop)
	v.write(opBinGet, class, opBinGet, memoScratch, opTuple1, opReduce)
	v.write(opNone, opBinPut, memoScratch, opPop)
}

// Call makes a container, empty or of the items in a tuple.
func (c *containerClass) Call(args ...any) (any, error) {
	var items []any
	if len(args) == 1 {
		items, _ = Tuple(args[0])
	}
	if c.name == dictClass {
		t := c.m.newTable()
		for i := 0; i+1 < len(items); i += 2 {
			t.Set(items[i], items[i+1])
		}
		return t, nil
	}
	return c.m.newSet(items, c.name == frozenSetClass), nil
}

func (m *machine) newTable() *table {
	t := &table{}
	m.indexes = append(m.indexes, &t.index)
	return t
}

func (m *machine) newSet(items []any, frozen bool) *set {
	s := &set{frozen: frozen}
	m.indexes = append(m.indexes, &s.index)
	for _, it := range items {
		s.Add(it)
	}
	return s
}
