package loader

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/optimem/optimem/tensor"
)

// typedStorages names the classes of PyTorch's typed storages. The tensors of other dtypes are pickled with an untyped
// storage and the dtype beside it.
var typedStorages = map[tensor.DType]string{
	tensor.Float32: "FloatStorage", tensor.Float64: "DoubleStorage", tensor.Float16: "HalfStorage",
	tensor.BFloat16: "BFloat16Storage", tensor.Int8: "CharStorage", tensor.Int16: "ShortStorage",
	tensor.Int32: "IntStorage", tensor.Int64: "LongStorage", tensor.UInt8: "ByteStorage", tensor.Bool: "BoolStorage",
	tensor.Complex64: "ComplexFloatStorage", tensor.Complex128: "ComplexDoubleStorage",
}

// pickleStateDict returns the pickle of an OrderedDict of the tensors, the i-th with storage i, opcode for opcode as
// Python's pickler writes it at protocol 2.
func pickleStateDict(tensors []TensorData) ([]byte, error) {
	p := pickler{memo: make(map[string]int)}
	p.op(0x80, 2)
	p.emptyOrderedDict()
	seen := make(map[string]bool, len(tensors))
	const batch = 1000 // of Python's pickler
	for i, t := range tensors {
		switch {
		case seen[t.Name]:
			return nil, fmt.Errorf("two tensors are named %q", t.Name)
		case !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("tensor name %q is not UTF-8", t.Name)
		case t.DType.Size() == 0 || t.DType.Quantized():
			return nil, fmt.Errorf("%s: %w: writing dtype %v", t.Name, ErrUnsupported, t.DType)
		}
		seen[t.Name] = true
		single := i%batch == 0 && i+1 == len(tensors)
		if i%batch == 0 && !single {
			p.op('(')
		}
		p.text(t.Name)
		p.put()
		if err := p.tensor(t, i); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		switch {
		case single:
			p.op('s')
		case i%batch == batch-1 || i+1 == len(tensors):
			p.op('u')
		}
	}
	p.op('.')
	return p.out, nil
}

// A pickler appends opcodes. Like Python's it remembers every object but integers and the empty tuple, whether it is
// asked for again or not.
type pickler struct {
	out   []byte
	memo  map[string]int // constants that are written again and again
	count int
}

func (p *pickler) op(b ...byte) { p.out = append(p.out, b...) }

// put remembers the object on top of the stack.
func (p *pickler) put() {
	if p.count <= math.MaxUint8 {
		p.op('q', byte(p.count))
	} else {
		p.op('r')
		p.out = binary.LittleEndian.AppendUint32(p.out, uint32(p.count))
	}
	p.count++
}

// again fetches the constant with this key, or reports that it has to be written now.
func (p *pickler) again(key string) bool {
	n, ok := p.memo[key]
	switch {
	case !ok:
		p.memo[key] = p.count
	case n <= math.MaxUint8:
		p.op('h', byte(n))
	default:
		p.op('j')
		p.out = binary.LittleEndian.AppendUint32(p.out, uint32(n))
	}
	return ok
}

func (p *pickler) global(module, name string) {
	if p.again(module + "." + name) {
		return
	}
	p.op('c')
	p.out = append(p.out, module+"\n"+name+"\n"...)
	p.put()
}

func (p *pickler) text(s string) {
	p.op('X')
	p.out = binary.LittleEndian.AppendUint32(p.out, uint32(len(s)))
	p.out = append(p.out, s...)
}

func (p *pickler) constant(s string) {
	if !p.again("text " + s) {
		p.text(s)
		p.put()
	}
}

func (p *pickler) int(n int64) {
	switch {
	case n <= math.MaxUint8:
		p.op('K', byte(n))
	case n <= math.MaxUint16:
		p.op('M', byte(n), byte(n>>8))
	case n <= math.MaxInt32:
		p.op('J')
		p.out = binary.LittleEndian.AppendUint32(p.out, uint32(n))
	default:
		var b []byte
		for v := n; ; v >>= 8 {
			b = append(b, byte(v))
			if v < 0x80 {
				break
			}
		}
		p.op(0x8a, byte(len(b)))
		p.op(b...)
	}
}

func (p *pickler) tuple(ns []int) {
	if len(ns) == 0 {
		p.op(')')
		return
	}
	if len(ns) > 3 {
		p.op('(')
	}
	for _, n := range ns {
		p.int(int64(n))
	}
	if len(ns) > 3 {
		p.op('t')
	} else {
		p.op(0x84 + byte(len(ns)))
	}
	p.put()
}

func (p *pickler) emptyOrderedDict() {
	p.global("collections", "OrderedDict")
	p.op(')', 'R')
	p.put()
}

// tensor pickles what torch._tensor.Tensor.__reduce_ex__ returns: a rebuild function and its arguments.
func (p *pickler) tensor(t TensorData, storage int) error {
	n, err := t.Shape.NumElements()
	if err != nil {
		return err
	}
	bytes, err := t.bytes()
	if err != nil {
		return err
	}
	class, typed := typedStorages[t.DType]
	if typed {
		p.global("torch._utils", "_rebuild_tensor_v2")
	} else {
		p.global("torch._utils", "_rebuild_tensor_v3")
	}
	p.op('(', '(')
	p.constant("storage")
	if typed {
		p.global("torch", class)
	} else {
		p.global("torch.storage", "UntypedStorage")
		n = bytes
	}
	p.text(fmt.Sprint(storage))
	p.put()
	p.constant("cpu")
	p.int(n)
	p.op('t')
	p.put()
	p.op('Q')
	p.int(0)
	p.tuple(t.Shape)
	p.tuple(tensor.Contiguous(t.Shape...).Strides)
	p.op(0x89) // requires no gradient
	p.emptyOrderedDict()
	if !typed {
		p.global("torch", t.DType.String())
	}
	p.op('t')
	p.put()
	p.op('R')
	p.put()
	return nil
}
