package quantized

import (
	"fmt"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// metal makes a weight of MLX's affine codes, as transformers' MetalLinear has them.
func (b *quantBuilder) metal(module string) error {
	codes, err := b.part(module, "weight", tensor.UInt32, tensor.Int32)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "scales", floats...)
	if err != nil {
		return err
	}
	zeros, err := b.part(module, "qbiases", scales.DType)
	if err != nil {
		return err
	}
	rows, words, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	w := encoded.Affine{
		Rows: rows, Columns: words * int64(32/b.Bits), Group: b.GroupSize, Bits: b.Bits, Rule: encoded.PlainFloat,
		Codes:  codes.Span(),
		Scales: scales.Span(), Zeros: zeros.Span(), ScaleDType: scales.DType, ZeroDType: zeros.DType,
		DType: scales.DType,
	}
	if w.Columns%w.Group != 0 {
		return fmt.Errorf("%w: %s has %d columns, no multiple of %d", loader.ErrFormat, codes.Name, w.Columns, w.Group)
	}
	for _, each := range []*tensor.Weight{scales, zeros} {
		if err := sized(each, rows, w.Columns/w.Group); err != nil {
			return err
		}
	}
	b.add(module, rows, w.Columns, w.DType, w.Matrix)
	return nil
}

// bitnet makes a weight of bitnet's codes of none, one and minus one, with a scale for all.
func (b *quantBuilder) bitnet(module string) error {
	codes, err := b.part(module, "weight", tensor.UInt8)
	if err != nil {
		return err
	}
	scale, err := b.part(module, "weight_scale", floats...)
	if err != nil {
		return err
	}
	lines, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	if scale.NumElements() != 1 {
		return fmt.Errorf("%w: %s has the shape %v, where one number fits", loader.ErrFormat, scale.Name,
			scale.Layout.Shape)
	}
	if b.Linear == "autobitlinear" && b.has(module, "bias") {
		return &cells.UnsupportedError{What: module + ".bias, which an autobitlinear multiplies by its scale"}
	}
	w := encoded.Ternary{
		Rows: 4 * lines, Columns: columns, Codes: codes.Span(), Scale: scale.Span(), ScaleDType: scale.DType,
		Divides: b.Linear != "autobitlinear",
	}
	b.add(module, w.Rows, columns, tensor.Float32, w.Matrix)
	return nil
}
