// Package values tells what tensors hold: elements of any dtype as numbers, text and JSON, and a summary of all of them.
//
//	s := values.Summarize("y", t) // least, largest, mean, the first elements, how many are NaN
//
// It does not know models, files or tables.
package values

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// Elements gives the elements of a tensor, whatever its dtype, in row-major order.
type Elements struct {
	N int
	// Real says that elements are numbers or bools that have an order, float that they may be NaN.
	Real, Float bool
	// Value returns an element as a number; integers beyond 2^53 are rounded.
	Value func(i int) float64
	// Less compares exactly. NaN is greater than all, as in torch.topk.
	Less func(i, j int) bool
	// Text writes an element so that it reads back exactly.
	Text func(i int) string
}

var native = binary.NativeEndian

// Of returns the elements of a tensor.
func Of(t *tensor.Tensor) Elements {
	t = t.Contiguous()
	d := t.Data
	switch t.DType {
	case tensor.Float32:
		return floats(t, 32, func(i int) float64 { return float64(math.Float32frombits(native.Uint32(d[4*i:]))) })
	case tensor.Float64:
		return floats(t, 64, func(i int) float64 { return math.Float64frombits(native.Uint64(d[8*i:])) })
	case tensor.Float16:
		return floats(t, 32, func(i int) float64 { return float64(tensor.Float16ToFloat32(native.Uint16(d[2*i:]))) })
	case tensor.BFloat16:
		return floats(t, 32, func(i int) float64 { return float64(tensor.BFloat16ToFloat32(native.Uint16(d[2*i:]))) })
	case tensor.Float8E4M3FN, tensor.Float8E5M2, tensor.Float8E4M3FNUZ, tensor.Float8E5M2FNUZ, tensor.Float8E8M0FNU:
		return floats(t, 32, func(i int) float64 { return float64(tensor.Float8ToFloat32(t.DType, d[i])) })
	case tensor.Int8, tensor.QInt8:
		return integers(t, func(i int) int64 { return int64(int8(d[i])) })
	case tensor.Int16:
		return integers(t, func(i int) int64 { return int64(int16(native.Uint16(d[2*i:]))) })
	case tensor.Int32, tensor.QInt32:
		return integers(t, func(i int) int64 { return int64(int32(native.Uint32(d[4*i:]))) })
	case tensor.Int64:
		return integers(t, func(i int) int64 { return int64(native.Uint64(d[8*i:])) })
	case tensor.UInt8, tensor.QUInt8:
		return integers(t, func(i int) uint8 { return d[i] })
	case tensor.UInt16:
		return integers(t, func(i int) uint16 { return native.Uint16(d[2*i:]) })
	case tensor.UInt32:
		return integers(t, func(i int) uint32 { return native.Uint32(d[4*i:]) })
	case tensor.UInt64:
		return integers(t, func(i int) uint64 { return native.Uint64(d[8*i:]) })
	case tensor.Bool:
		e := integers(t, func(i int) uint8 { return min(d[i], 1) })
		e.Text = func(i int) string { return strconv.FormatBool(d[i] != 0) }
		return e
	case tensor.Complex64:
		return complexes(t, func(k int) float64 { return float64(math.Float32frombits(native.Uint32(d[4*k:]))) })
	case tensor.Complex128:
		return complexes(t, func(k int) float64 { return math.Float64frombits(native.Uint64(d[8*k:])) })
	case tensor.Complex32:
		return complexes(t, func(k int) float64 { return float64(tensor.Float16ToFloat32(native.Uint16(d[2*k:]))) })
	}
	return Elements{Text: func(int) string { return "?" }}
}

func sizeOf(t *tensor.Tensor) int {
	n, err := t.Layout.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return int(n)
}

func floats(t *tensor.Tensor, bits int, at func(i int) float64) Elements {
	return Elements{
		N: sizeOf(t), Real: true, Float: true, Value: at,
		Less: func(i, j int) bool {
			x, y := at(i), at(j)
			return x < y || x == x && y != y
		},
		Text: func(i int) string { return strconv.FormatFloat(at(i), 'g', -1, bits) },
	}
}

func integers[T int64 | uint8 | uint16 | uint32 | uint64](t *tensor.Tensor, at func(i int) T) Elements {
	return Elements{
		N: sizeOf(t), Real: true,
		Value: func(i int) float64 { return float64(at(i)) },
		Less:  func(i, j int) bool { return at(i) < at(j) },
		Text:  func(i int) string { return fmt.Sprint(at(i)) },
	}
}

// complexes gives complex elements, whose parts lie one after the other. Their value is NaN where a part is, else 0.
func complexes(t *tensor.Tensor, part func(k int) float64) Elements {
	return Elements{
		N: sizeOf(t), Float: true,
		Value: func(i int) float64 {
			if re, im := part(2*i), part(2*i+1); re != re || im != im {
				return math.NaN()
			}
			return 0
		},
		Text: func(i int) string {
			re, im := part(2*i), part(2*i+1)
			return strconv.FormatFloat(re, 'g', -1, 64) + fmt.Sprintf("%+gi", im)
		},
	}
}

// JSON writes an element as JSON, which has no NaN and no infinity: they are text, as are complex numbers.
func (e Elements) JSON(i int) string { return JSONNumber(e.Text(i)) }

// JSONNumber writes the text of an element as JSON.
func JSONNumber(text string) string {
	switch text {
	case "+Inf", "Inf":
		return `"Infinity"`
	case "-Inf":
		return `"-Infinity"`
	case "true", "false":
		return text
	}
	if json.Valid([]byte(text)) {
		return text
	}
	return strconv.Quote(text)
}

// A Summary says what a tensor holds.
type Summary struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	// N counts all elements, NaN those that are none.
	N, NaN int
	// Min and Max are texts, "" where there is no number; Mean is that of the numbers.
	Min, Max string
	Mean     float64
	// First are the first elements as text, All gives every one.
	First []string
	All   Elements
}

// firstValues is how many elements a summary shows.
const firstValues = 6

// Summarize looks at all elements. NaN counts by itself and not in the others.
func Summarize(name string, t *tensor.Tensor) Summary {
	e := Of(t)
	s := Summary{Name: name, DType: t.DType, Shape: t.Layout.Shape, N: e.N, All: e}
	low, high, count := -1, -1, 0
	var sum float64
	for i := range e.N {
		v := 0.0
		if e.Value != nil {
			v = e.Value(i)
		}
		if e.Float && v != v {
			s.NaN++
			continue
		}
		if !e.Real {
			continue
		}
		if low < 0 || e.Less(i, low) {
			low = i
		}
		if high < 0 || e.Less(high, i) {
			high = i
		}
		sum += v
		count++
	}
	if count > 0 {
		s.Min, s.Max, s.Mean = e.Text(low), e.Text(high), sum/float64(count)
	}
	for i := range min(e.N, firstValues) {
		s.First = append(s.First, e.Text(i))
	}
	return s
}

// Short writes a number for people, to five digits, integers in full.
func Short(text string) string {
	if !strings.ContainsAny(text, ".e") {
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(f, 'g', 5, 64)
}
