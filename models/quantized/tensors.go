package quantized

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// packed makes a weight of compressed-tensors' words.
func (b *quantBuilder) packed(module string) error {
	codes, err := b.part(module, "weight_packed", tensor.Int32)
	if err != nil {
		return err
	}
	shape, err := b.part(module, "weight_shape", tensor.Int64, tensor.Int32)
	if err != nil {
		return err
	}
	if err := sized(shape, 2); err != nil {
		return err
	}
	scales, err := b.part(module, "weight_scale", floats...)
	if err != nil {
		return err
	}
	rows, size, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	columns, err := secondNumber(shape)
	if err != nil {
		return err
	}
	w := encoded.Words{
		Rows: rows, Columns: columns, Order: encoded.InRows, Codes: codes.Span(), Scales: scales.Span(),
		DType: scales.DType, ByRow: true,
	}
	for _, bits := range []int64{4, 8} {
		if columns > 0 && (columns+32/bits-1)/(32/bits) == size {
			w.Bits, w.Nothing = int(bits), 1<<(bits-1)
		}
	}
	if w.Bits == 0 {
		return &cells.UnsupportedError{What: fmt.Sprintf("%s, words of other than 4 or 8 bits for each of %d numbers",
			codes.Name, columns)}
	}
	if w.Group, err = groupOf(scales, rows, columns); err != nil {
		return err
	}
	groups := (columns + w.Group - 1) / w.Group
	if b.has(module, "weight_zero_point") {
		zeros, err := b.part(module, "weight_zero_point", tensor.Int32)
		if err != nil {
			return err
		}
		each := int64(32 / w.Bits)
		if err := sized(zeros, (rows+each-1)/each, groups); err != nil {
			return err
		}
		w.Zeros = zeros.Span()
	}
	if b.has(module, "weight_g_idx") {
		index, err := b.part(module, "weight_g_idx", tensor.Int32)
		if err != nil {
			return err
		}
		if err := sized(index, columns); err != nil {
			return err
		}
		if ordered, err := inOrder(index, columns, w.Group); err != nil {
			return err
		} else if !ordered {
			w.Groups = index.Span()
		}
	}
	b.add(module, rows, columns, w.DType, w.Matrix)
	return nil
}

// secondNumber reads the second of two integers.
func secondNumber(w *tensor.Weight) (int64, error) {
	raw := make([]byte, w.Bytes())
	if err := w.Span().ReadAt(context.Background(), raw, 0); err != nil {
		return 0, err
	}
	n := int64(int32(binary.LittleEndian.Uint32(raw[4:])))
	if w.DType == tensor.Int64 {
		n = int64(binary.LittleEndian.Uint64(raw[8:]))
	}
	if n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%w: %s says %d columns", loader.ErrFormat, w.Name, n)
	}
	return n, nil
}

// groupOf returns how many columns a scale is for, by the shape of the scales of each row.
func groupOf(scales *tensor.Weight, rows, columns int64) (int64, error) {
	s := scales.Layout.Shape
	if len(s) == 1 && int64(s[0]) == rows {
		return columns, nil
	}
	if len(s) != 2 || int64(s[0]) != rows || s[1] < 1 || columns%int64(s[1]) != 0 {
		return 0, fmt.Errorf("%w: %s has the shape %v, where the weight is [%d %d]", loader.ErrFormat, scales.Name,
			s, rows, columns)
	}
	return columns / int64(s[1]), nil
}

// scaled makes a weight of compressed-tensors' bytes: int8 or float8 with scales.
func (b *quantBuilder) scaled(module string) error {
	codes := b.all[module+".weight"]
	if codes == nil {
		return fmt.Errorf("%w: %s.weight is missing", loader.ErrFormat, module)
	}
	if codes.DType == tensor.Float8E4M3FN {
		scales := b.all[module+".weight_scale"]
		if scales.DType == tensor.UInt8 {
			return b.powers8(module)
		}
		return b.floats8(module, "weight", "weight_scale", scales.DType)
	}
	codes, err := b.part(module, "weight", tensor.Int8)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "weight_scale", floats...)
	if err != nil {
		return err
	}
	if b.has(module, "weight_zero_point") {
		return &cells.UnsupportedError{What: module + ".weight_zero_point, zero points of bytes"}
	}
	rows, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	w := encoded.Words{
		Rows: rows, Columns: columns, Bits: 8, Order: encoded.SignedBytes, Codes: codes.Span(), Scales: scales.Span(),
		DType: scales.DType, ByRow: true, Nothing: 128,
	}
	if w.Group, err = groupOf(scales, rows, columns); err != nil {
		return err
	}
	b.add(module, rows, columns, w.DType, w.Matrix)
	return nil
}

// mxGroup is how many numbers of a row have a power of two in common.
const mxGroup = 32

// powers8 makes a weight of float8 with powers of two as scales of groups: MXFP8.
func (b *quantBuilder) powers8(module string) error {
	codes, err := b.part(module, "weight", tensor.Float8E4M3FN)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "weight_scale", tensor.UInt8)
	if err != nil {
		return err
	}
	rows, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	if columns%mxGroup != 0 {
		return fmt.Errorf("%w: %s has %d columns, no multiple of %d", loader.ErrFormat, codes.Name, columns, mxGroup)
	}
	if err := sized(scales, rows, columns/mxGroup); err != nil {
		return err
	}
	f := encoded.Floats8{
		Rows: rows, Columns: columns, BlockRows: 1, BlockColumns: mxGroup, Codes: codes.Span(), Scales: scales.Span(),
		ScaleDType: scales.DType, DType: tensor.BFloat16,
	}
	b.add(module, rows, columns, f.DType, f.Matrix)
	return nil
}

// fours makes a weight of compressed-tensors' floats of 4 bits: MXFP4, or NVFP4, whose scales have a divisor.
func (b *quantBuilder) fours(module string) error {
	codes, err := b.part(module, "weight_packed", tensor.UInt8)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "weight_scale", tensor.UInt8, tensor.Float8E4M3FN)
	if err != nil {
		return err
	}
	if b.has(module, "weight_zero_point") {
		return &cells.UnsupportedError{What: module + ".weight_zero_point, zero points of floats"}
	}
	rows, half, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	f := encoded.Fours{
		Rows: rows, Columns: 2 * half, Group: 16, Codes: codes.Span(), Scales: scales.Span(),
		Powers: scales.DType == tensor.UInt8, DType: tensor.BFloat16,
	}
	if f.Powers {
		f.Group = mxGroup
	}
	if f.Columns%f.Group != 0 {
		return fmt.Errorf("%w: %s has %d columns, no multiple of %d", loader.ErrFormat, codes.Name, f.Columns, f.Group)
	}
	if err := sized(scales, rows, f.Columns/f.Group); err != nil {
		return err
	}
	if b.has(module, "weight_global_scale") {
		global, err := b.part(module, "weight_global_scale", tensor.Float32)
		if err != nil {
			return err
		}
		if global.NumElements() != 1 || f.Powers {
			n := global.NumElements()
			return fmt.Errorf("%w: %s has %d numbers, and scales are %v", loader.ErrFormat, global.Name, n,
				scales.DType)
		}
		raw, err := FirstBytes(global, 4)
		if err != nil {
			return err
		}
		f.Global = math.Float32frombits(binary.LittleEndian.Uint32(raw))
		if !(f.Global > 0) || math.IsInf(float64(f.Global), 0) {
			return fmt.Errorf("%w: %s is %v", loader.ErrFormat, global.Name, f.Global)
		}
	}
	b.add(module, rows, f.Columns, f.DType, f.Matrix)
	return nil
}
