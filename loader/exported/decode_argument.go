package exported

import (
	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/strictjson"
	"github.com/optimem/optimem/tensor"
)

func (d *decoder) arguments() ([]Argument, error) { return list(d, argumentBytes, d.argument) }

func (d *decoder) argument() (a Argument, err error) {
	err = d.union(func(name string) (err error) {
		tag, known := tagsByName[name]
		if !known {
			return d.unknownTag(name)
		}
		a.Tag = tag
		switch tag {
		case None:
			err = d.Skip()
		case Tensor:
			a.Name, err = d.tensorArgument()
		case OptionalTensor:
			a.Name, err = d.optionalTensor()
		case Int:
			a.Int, err = d.Int()
		case Float:
			a.Float, err = d.float()
		case Bool:
			a.Int, err = d.boolInt()
		case String, Operator:
			a.Name, err = d.String()
		case SymbolicInt, SymbolicFloat, SymbolicBool:
			var s Sym
			s, err = d.sym()
			a.Name, a.Int, a.Float = s.Name, s.Int, s.Float
		case ScalarType:
			var dt tensor.DType
			_, dt, err = d.scalarType()
			a.Int = int64(dt)
		case Memory:
			a.Int, err = d.enum(int64(numMemoryFormats), "memory format")
		case StorageLayout:
			a.Int, err = d.enum(int64(numLayouts), "layout")
		default:
			a.Data, err = d.argumentData(&a)
		}
		return err
	})
	return a, err
}

// argumentData reads the values that do not fit the plain fields of an argument.
func (d *decoder) argumentData(a *Argument) (data any, err error) {
	if err := d.charge(1, 24); err != nil { // the header that an interface points to
		return nil, err
	}
	switch a.Tag {
	case Tensors:
		return list(d, 16, d.tensorArgument)
	case OptionalTensors:
		return list(d, 16, d.optionalTensor)
	case NestedTensors:
		return list(d, 24, func() ([]string, error) { return list(d, 16, d.tensorArgument) })
	case Ints:
		return d.ints()
	case IntLists:
		return list(d, 24, d.ints)
	case Floats:
		return d.floats()
	case FloatLists:
		return list(d, 24, d.floats)
	case Bools:
		return list(d, 1, d.Bool)
	case Strings:
		return d.strings()
	case SymbolicInts, SymbolicFloats, SymbolicBools:
		return list(d, 32, d.sym)
	case Complex:
		return d.complex()
	case OnDevice:
		return d.device()
	case Subgraph:
		a.Name, data, err = d.graphArgument()
		return data, err
	case CustomObj:
		a.Name, data, err = d.customObjData()
		return data, err
	case Dict:
		return d.argumentDict()
	}
	panic("BUG: no reader for " + a.Tag.String())
}

func (d *decoder) tensorArgument() (name string, err error) {
	given := false
	err = d.Object(func(key string) (err error) {
		if key == "name" {
			given = true
			name, err = d.String()
		}
		return err
	})
	if err == nil && !given {
		err = d.Errorf(fault.ErrFormat, "a value without a name")
	}
	return name, err
}

// optionalTensor returns the name of a value, "" for None. The oldest files write the bare name.
func (d *decoder) optionalTensor() (name string, err error) {
	err = d.union(func(tag string) (err error) {
		switch tag {
		case "as_none":
			return d.Skip()
		case "as_tensor":
			if k, err := d.Kind(); err != nil {
				return err
			} else if k == strictjson.String {
				name, err = d.String()
				return err
			}
			name, err = d.tensorArgument()
			return err
		}
		return d.unknownTag(tag)
	})
	return name, err
}

// sym reads a symbolic number.
func (d *decoder) sym() (s Sym, err error) {
	err = d.union(func(tag string) (err error) {
		switch tag {
		case "as_name":
			if s.Name, err = d.String(); err == nil && s.Name == "" {
				err = d.Errorf(fault.ErrFormat, "a symbolic number without a name")
			}
		case "as_int":
			s.Int, err = d.Int()
		case "as_float":
			s.Float, err = d.float()
		case "as_bool":
			s.Int, err = d.boolInt()
		default:
			err = d.unknownTag(tag)
		}
		return err
	})
	return s, err
}

func (d *decoder) boolInt() (int64, error) {
	b, err := d.Bool()
	if b {
		return 1, err
	}
	return 0, err
}

func (d *decoder) enum(end int64, what string) (int64, error) {
	n, err := d.Int()
	if err == nil && (n < 0 || n >= end) {
		err = d.Errorf(fault.ErrUnsupported, "the unknown %s number %d", what, n)
	}
	return n, err
}

func (d *decoder) scalarType() (number int64, dt tensor.DType, err error) {
	if number, err = d.Int(); err != nil {
		return 0, tensor.Invalid, err
	}
	dt, ok := scalarTypes[number]
	if !ok && !d.anyDType {
		return 0, tensor.Invalid, d.Errorf(fault.ErrUnsupported, "the unknown dtype number %d", number)
	}
	return number, dt, nil
}

func (d *decoder) complex() (any, error) {
	var re, im float64
	err := d.Object(func(key string) (err error) {
		switch key {
		case "real":
			re, err = d.float()
		case "imag":
			im, err = d.float()
		}
		return err
	})
	return complex(re, im), err
}

func (d *decoder) device() (dev Device, err error) {
	dev.Index = -1
	err = d.Object(func(key string) (err error) {
		switch key {
		case "type":
			dev.Type, err = d.String()
		case "index":
			dev.Index, err = d.optionalInt(-1)
		}
		return err
	})
	return dev, err
}

func (d *decoder) graphArgument() (name string, g *Graph, err error) {
	err = d.Object(func(key string) (err error) {
		switch key {
		case "name":
			name, err = d.String()
		case "graph":
			g, err = d.graph()
		}
		return err
	})
	if err == nil && g == nil {
		err = d.Errorf(fault.ErrFormat, "a graph argument without a graph")
	}
	return name, g, err
}

func (d *decoder) customObj() (name, class string, err error) {
	err = d.Object(func(key string) (err error) {
		switch key {
		case "name":
			name, err = d.String()
		case "class_fqn":
			class, err = d.String()
		}
		return err
	})
	return name, class, err
}

func (d *decoder) customObjData() (string, any, error) {
	name, class, err := d.customObj()
	return name, class, err
}

func (d *decoder) argumentDict() ([]NamedArgument, error) {
	var entries []NamedArgument
	err := d.Object(func(key string) error {
		if err := d.charge(1, 2*namedBytes); err != nil {
			return err
		}
		arg, err := d.argument()
		entries = append(entries, NamedArgument{Name: key, Arg: arg})
		return err
	})
	return entries, err
}

// maxDims is far more dimensions than a program's tensors have.
const maxDims = 64

// tensorMeta reads what is known of a tensor and checks what can be checked without the graph.
func (d *decoder) tensorMeta() (*TensorMeta, error) {
	if err := d.charge(1, metaBytes); err != nil {
		return nil, err
	}
	m := &TensorMeta{Device: Device{Index: -1}}
	var seen struct{ dtype, sizes, strides bool }
	err := d.Object(func(key string) (err error) {
		switch key {
		case "dtype":
			seen.dtype = true
			m.ScalarType, m.DType, err = d.scalarType()
		case "sizes":
			seen.sizes = true
			m.Sizes, err = list(d, symIntBytes, d.symInt)
		case "strides":
			seen.strides = true
			m.Strides, err = list(d, symIntBytes, d.symInt)
		case "requires_grad":
			m.RequiresGrad, err = d.Bool()
		case "device":
			m.Device, err = d.device()
		case "storage_offset":
			m.StorageOffset, err = d.symInt()
		case "layout":
			var n int64
			n, err = d.enum(int64(numLayouts), "layout")
			m.Layout = Layout(n)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !seen.dtype || !seen.sizes || !seen.strides:
		return nil, d.Errorf(fault.ErrFormat, "a tensor without dtype, sizes or strides")
	case len(m.Sizes) > maxDims:
		return nil, d.Errorf(fault.ErrLimit, "a tensor of %d dimensions, more than %d", len(m.Sizes), maxDims)
	case m.Layout == Strided && len(m.Sizes) != len(m.Strides):
		return nil, d.Errorf(fault.ErrFormat, "%d sizes and %d strides", len(m.Sizes), len(m.Strides))
	}
	if err := m.check(); err != nil {
		return nil, d.Errorf(fault.ErrFormat, "%v", err)
	}
	return m, nil
}

// symInt reads an integer or expression; old files have bare integers in places.
func (d *decoder) symInt() (s SymInt, err error) {
	if k, err := d.Kind(); err != nil {
		return s, err
	} else if k == strictjson.Number {
		s.Int, err = d.Int()
		return s, err
	}
	err = d.union(func(tag string) (err error) {
		switch tag {
		case "as_int":
			s.Int, err = d.Int()
		case "as_expr":
			s.Expr, err = d.symExpr()
		case "as_symbol": // the oldest files
			s.Expr, err = d.exprString()
		default:
			err = d.unknownTag(tag)
		}
		return err
	})
	if s.Expr != nil && s.Expr.Fn == FnInteger {
		s = SymInt{Int: s.Expr.Int}
	}
	return s, err
}

func (d *decoder) symFloat() (s SymFloat, err error) {
	err = d.union(func(tag string) (err error) {
		switch tag {
		case "as_float":
			s.Float, err = d.float()
		case "as_expr":
			s.Expr, err = d.symExpr()
		default:
			err = d.unknownTag(tag)
		}
		return err
	})
	return s, err
}

func (d *decoder) symBool() (s SymBool, err error) {
	err = d.union(func(tag string) (err error) {
		switch tag {
		case "as_bool":
			s.Bool, err = d.Bool()
		case "as_expr":
			s.Expr, err = d.symExpr()
		default:
			err = d.unknownTag(tag)
		}
		return err
	})
	return s, err
}

// symExpr reads an expression and remembers its hint where it is a symbol.
func (d *decoder) symExpr() (e *Expr, err error) {
	hint, hinted := int64(0), false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "expr_str":
			e, err = d.exprString()
		case "hint":
			if null, err := d.IsNull(); err != nil || null {
				return err
			}
			err = d.union(func(tag string) (err error) {
				if tag == "as_int" {
					hinted = true
					hint, err = d.Int()
				}
				return err
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, d.Errorf(fault.ErrFormat, "an expression without text")
	}
	if hinted && e.Fn == FnSymbol {
		if _, known := d.hints[e.Name]; !known {
			if err := d.charge(1, mapEntryBytes); err != nil {
				return nil, err
			}
			d.hints[e.Name] = hint
		}
	}
	return e, nil
}

// exprString reads and parses an expression, once for all that are equal.
func (d *decoder) exprString() (*Expr, error) {
	text, err := d.Text()
	if err != nil {
		return nil, err
	}
	if e, ok := d.exprs[string(text)]; ok {
		return e, nil
	}
	if err := d.charge(1, int64(len(text))+mapEntryBytes); err != nil {
		return nil, err
	}
	whole := string(text)
	e, err := parseExpr(whole, d.opts)
	if err != nil {
		return nil, d.exprError(whole, err)
	}
	d.exprs[whole] = e
	return e, nil
}
