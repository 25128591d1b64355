package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// decodeOps make numbers of blocks of codes.
var decodeOps = []OpDef{
	// decode: the numbers, as float32, of the blocks In[0] [… bytes], uint8, whose encoding the attribute "encoding" names. A
	// block lies within the last dimension.
	{Kind: "decode", Shape: decodeShape, Axes: decodeAxes},
}

// EncodingAttr is the attribute of ops that read blocks of codes: the name of their encoding.
const EncodingAttr = "encoding"

// IsEncoded reports whether an op reads blocks of codes, by its attributes.
func IsEncoded(a Attrs) bool { return a.String(EncodingAttr) != "" }

// EncodingOf returns the encoding that attributes name, nil where there is none, or none of that name.
func EncodingOf(a Attrs) *encoded.Encoding {
	e, _ := encoded.ByName(a.String(EncodingAttr))
	return e
}

// encodedRows returns the shape of the numbers of blocks.
func encodedRows(s Spec, a Attrs) (tensor.Shape, error) {
	e := EncodingOf(a)
	if e == nil || !e.Readable() {
		return nil, fmt.Errorf("no encoding %q can be read", a.String(EncodingAttr))
	}
	last := len(s.Shape) - 1
	if s.DType != tensor.UInt8 || last < 0 || int64(s.Shape[last])%e.Bytes != 0 {
		return nil, fmt.Errorf("%v %v are no blocks of %s", s.DType, s.Shape, e.Name)
	}
	shape := slices.Clone(s.Shape)
	n, ok := tensor.MulBytes(int64(shape[last])/e.Bytes, e.Elements)
	if !ok {
		return nil, fmt.Errorf("%v of %s have more numbers than can be", s.Shape, e.Name)
	}
	shape[last] = int(n)
	return shape, nil
}

func decodeShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 1, 1); err != nil {
		return nil, err
	}
	shape, err := encodedRows(in[0], a)
	if err != nil {
		return nil, err
	}
	return []Spec{{DType: tensor.Float32, Shape: shape}}, nil
}

// decodeAxes keeps the dimensions before the last.
func decodeAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	keep(axes[0], 0, len(axes[0])-1, 0)
	return axes
}
