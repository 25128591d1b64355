package memory

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// A pickler writes a value of Python by its protocol 2, without memory of what it wrote. The writer keeps the first error.
type pickler struct{ w *bufio.Writer }

// The opcodes that are written, by their names in Python's pickle.py.
const (
	opProto      = '\x80'
	opStop       = '.'
	opMark       = '('
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opEmptyList  = ']'
	opAppends    = 'e'
	opBinInt     = 'J'
	opLong1      = '\x8a'
	opBinUnicode = 'X'
	opNewTrue    = '\x88'
	opNewFalse   = '\x89'
	opTuple2     = '\x86'
)

// A dict is one of Python in order, a list one of Python, a pair a tuple of two.
type (
	dict []item
	item struct {
		key   string
		value any
	}
	list []any
	pair [2]any
)

// pickled writes a value.
func pickled(w io.Writer, value any) error {
	p := pickler{bufio.NewWriterSize(w, 1<<16)}
	p.bytes(opProto, 2)
	p.value(value)
	p.bytes(opStop)
	return p.w.Flush()
}

func (p *pickler) bytes(b ...byte) { _, _ = p.w.Write(b) }

func (p *pickler) value(value any) {
	switch v := value.(type) {
	case dict:
		p.bytes(opEmptyDict, opMark)
		for _, x := range v {
			p.text(x.key)
			p.value(x.value)
		}
		p.bytes(opSetItems)
	case list:
		p.bytes(opEmptyList, opMark)
		for _, x := range v {
			p.value(x)
		}
		p.bytes(opAppends)
	case pair:
		p.value(v[0])
		p.value(v[1])
		p.bytes(opTuple2)
	case string:
		p.text(v)
	case int64:
		p.int(v)
	case bool:
		if v {
			p.bytes(opNewTrue)
		} else {
			p.bytes(opNewFalse)
		}
	default:
		panic(fmt.Sprintf("BUG: memory: a pickle of %T", v))
	}
}

func (p *pickler) text(s string) {
	s = strings.ToValidUTF8(s, "�")
	p.bytes(opBinUnicode)
	p.bytes(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))...)
	_, _ = p.w.WriteString(s)
}

func (p *pickler) int(n int64) {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		p.bytes(opBinInt)
		p.bytes(binary.LittleEndian.AppendUint32(nil, uint32(int32(n)))...)
		return
	}
	p.bytes(opLong1, 8)
	p.bytes(binary.LittleEndian.AppendUint64(nil, uint64(n))...)
}
