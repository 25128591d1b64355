package loader

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A GGUFKey is something that a GGUF file says of itself: a string, bool, uint32, uint64, int32, float32, or a slice of
// strings, int32 or float32.
type GGUFKey struct {
	Name  string
	Value any
}

// A GGUFTensor is a tensor of a GGUF file that is to be written. The last dimension is a multiple of what a block of
// the encoding has.
type GGUFTensor struct {
	Name     string
	Encoding *encoded.Encoding
	Shape    tensor.Shape
}

// Bytes is what the tensor takes.
func (t *GGUFTensor) Bytes() (int64, error) {
	n, err := t.Shape.NumElements()
	if err != nil {
		return 0, err
	}
	row := int64(1)
	if len(t.Shape) > 0 {
		row = int64(t.Shape[len(t.Shape)-1])
	}
	if row%t.Encoding.Elements != 0 {
		return 0, fmt.Errorf("rows of %d numbers are no whole blocks of %s", row, t.Encoding.Name)
	}
	blocks := n / t.Encoding.Elements
	bytes, ok := tensor.MulBytes(blocks, t.Encoding.Bytes)
	if !ok {
		return 0, fmt.Errorf("%d blocks take more bytes than can be", blocks)
	}
	return bytes, nil
}

const (
	ggufVersion   = 3
	ggufAlign     = 32
	ggufArray     = 9
	mostGGUFDims  = 4
	ggufMagicText = "GGUF"
)

// LayOutGGUF returns what a GGUF file of version 3 begins with, where in the file the bytes of each tensor are, and how
// long the file is. What is between tensors is zeros.
func LayOutGGUF(keys []GGUFKey, tensors []GGUFTensor) (head []byte, offsets []int64, size int64, err error) {
	le := binary.LittleEndian
	head = le.AppendUint32([]byte(ggufMagicText), ggufVersion)
	head = le.AppendUint64(le.AppendUint64(head, uint64(len(tensors))), uint64(len(keys)))
	for _, k := range keys {
		if head, err = appendGGUFValue(appendGGUFText(head, k.Name), k.Value); err != nil {
			return nil, nil, 0, fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	at := int64(0)
	for _, t := range tensors {
		bytes, err := t.Bytes()
		if err != nil || len(t.Shape) > mostGGUFDims || !utf8.ValidString(t.Name) {
			return nil, nil, 0, fmt.Errorf("%q of the shape %v cannot be a tensor of a GGUF file: %v", t.Name,
				t.Shape, err)
		}
		head = le.AppendUint32(appendGGUFText(head, t.Name), uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			head = le.AppendUint64(head, uint64(d))
		}
		head = le.AppendUint64(le.AppendUint32(head, t.Encoding.ID), uint64(at))
		offsets = append(offsets, at)
		at += (bytes + ggufAlign - 1) / ggufAlign * ggufAlign
	}
	head = append(head, make([]byte, -len(head)&(ggufAlign-1))...)
	for i := range offsets {
		offsets[i] += int64(len(head))
	}
	return head, offsets, int64(len(head)) + at, nil
}

func appendGGUFText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendGGUFValue appends the type of a value and the value.
func appendGGUFValue(b []byte, value any) ([]byte, error) {
	le := binary.LittleEndian
	array := func(kind, n int) {
		b = le.AppendUint32(le.AppendUint32(b, ggufArray), uint32(kind))
		b = le.AppendUint64(b, uint64(n))
	}
	const kindUint32, kindInt32, kindFloat32, kindBool, kindString, kindUint64 = 4, 5, 6, 7, 8, 10
	switch v := value.(type) {
	case string:
		b = appendGGUFText(le.AppendUint32(b, kindString), v)
	case bool:
		if b = append(le.AppendUint32(b, kindBool), 0); v {
			b[len(b)-1] = 1
		}
	case uint32:
		b = le.AppendUint32(le.AppendUint32(b, kindUint32), v)
	case int32:
		b = le.AppendUint32(le.AppendUint32(b, kindInt32), uint32(v))
	case uint64:
		b = le.AppendUint64(le.AppendUint32(b, kindUint64), v)
	case float32:
		b = le.AppendUint32(le.AppendUint32(b, kindFloat32), math.Float32bits(v))
	case []string:
		array(kindString, len(v))
		for _, s := range v {
			b = appendGGUFText(b, s)
		}
	case []int32:
		array(kindInt32, len(v))
		for _, n := range v {
			b = le.AppendUint32(b, uint32(n))
		}
	case []float32:
		array(kindFloat32, len(v))
		for _, x := range v {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	default:
		return nil, fmt.Errorf("a %T is nothing that a GGUF file says", value)
	}
	return b, nil
}
