package quantized

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// hqqKinds are what mobiusml's HQQ has beside a module's codes, scales and zeros. Most of it says how they were found.
var hqqKinds = []string{
	"nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float", "quant_scale", "quant_zero", "compute_dtype",
	"offload_meta", "encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero",
}

// An hqqConfig is what a configuration says of all modules.
type hqqConfig struct {
	Bits float64 `json:"nbits"`
	Axis int64   `json:"axis"`
}

// hqqBits are how many bits codes have, by how they are packed.
var hqqBits = map[string]int{"8bit_u8": 8, "4bit_u8": 4, "3bit_32": 3, "2bit_u8": 2, "1bit_u8": 1}

// integerDTypes are those that sizes may have.
var integerDTypes = []tensor.DType{tensor.Int64, tensor.Int32, tensor.UInt8}

// hqq makes a weight of mobiusml's HQQ.
func (b *quantBuilder) hqq(module string) error {
	codes, err := b.part(module, "W_q", append([]tensor.DType{tensor.UInt8, tensor.Int32}, floats...)...) // floats are a view of bytes
	if err != nil {
		return err
	}
	scales, err := b.part(module, "scale", floats...)
	if err != nil {
		return err
	}
	zeros, err := b.part(module, "zero", scales.DType)
	if err != nil {
		return err
	}
	shape, err := b.part(module, "shape", integerDTypes...)
	if err != nil {
		return err
	}
	if err := sized(shape, 2); err != nil {
		return err
	}
	size, err := smallIntegers(shape)
	if err != nil {
		return err
	}
	q := encoded.HalfQuadratic{
		Rows: size[0], Columns: size[1], Codes: codes.Span(), Scales: scales.Span(), Zeros: zeros.Span(), DType: scales.DType,
	}
	if err := b.hqqPacking(module, &q); err != nil {
		return err
	}
	const most = 1 << 30 // of a dimension, so that sizes do not overflow
	groups, all := scales.NumElements(), q.Rows*q.Columns
	if q.Rows < 1 || q.Columns < 1 || q.Rows > most || q.Columns > most || groups < 1 || all%groups != 0 || zeros.NumElements() != groups {
		return fmt.Errorf("%w: %s has %d numbers, and %s %d, for %d × %d weights", loader.ErrFormat, scales.Name, groups, zeros.Name,
			zeros.NumElements(), q.Rows, q.Columns)
	}
	q.Group = all / groups
	if want, ok := q.CodeBytes(); !ok || want != codes.Bytes() {
		return fmt.Errorf("%w: %s has %d bytes, which %d × %d codes of %d bits in groups of %d do not", loader.ErrFormat, codes.Name,
			codes.Bytes(), q.Rows, q.Columns, q.Bits, q.Group)
	}
	for _, kind := range hqqKinds {
		b.gone[module+"."+kind] = true
	}
	b.add(module, q.Rows, q.Columns, q.DType, q.Matrix)
	return nil
}

// hqqPacking finds how a module's codes lie: as it says itself, or else as the configuration has it for all.
func (b *quantBuilder) hqqPacking(module string, q *encoded.HalfQuadratic) error {
	bits, axis := b.hqqConfig.Bits, b.hqqConfig.Axis
	if b.has(module, "nbits") {
		w, err := b.part(module, "nbits", append([]tensor.DType{tensor.Float32}, integerDTypes...)...)
		if err != nil {
			return err
		}
		if w.DType != tensor.Float32 { // 1.58 bits say how they are packed
			n, err := oneInteger(w)
			if err != nil {
				return err
			}
			bits = float64(n)
		}
	}
	if b.has(module, "axis") {
		w, err := b.part(module, "axis", integerDTypes...)
		if err != nil {
			return err
		}
		if axis, err = oneInteger(w); err != nil {
			return err
		}
	}
	packing, text := "", b.all[module+".packing"]
	if text != nil {
		const most = 64
		raw, err := FirstBytes(text, most)
		if err != nil {
			return err
		}
		packing = string(raw)
		if q.Bits = hqqBits[packing]; q.Bits == 0 {
			return &cells.UnsupportedError{What: fmt.Sprintf("%s, which is %.40q", text.Name, packing)}
		}
	} else {
		q.Bits = hqqPacked(bits)
	}
	if q.Bits == 0 || axis != 0 && axis != 1 {
		return &cells.UnsupportedError{What: fmt.Sprintf("%s.W_q, codes of %v bits along the axis %d", module, bits,
			axis)}
	}
	q.Across = axis == 0
	if compute := b.all[module+".compute_dtype"]; compute != nil {
		const most = 64
		raw, err := FirstBytes(compute, most)
		if err != nil {
			return err
		}
		if d, ok := tensor.ParseDType(strings.TrimPrefix(string(raw), "torch.")); !ok || d != q.DType {
			return &cells.UnsupportedError{What: fmt.Sprintf("%s, %.40q, where scales are of %v", compute.Name, raw,
				q.DType)}
		}
	}
	return nil
}

// hqqPacked is of how many bits the codes are that numbers of some bits are packed as, 0 for none.
func hqqPacked(bits float64) int {
	switch bits {
	case 5, 6, 8:
		return 8
	case 1, 2, 3, 4:
		return int(bits)
	case 1.58:
		return 2
	}
	return 0
}

// oneInteger reads an integer that stands alone.
func oneInteger(w *tensor.Weight) (int64, error) {
	if w.NumElements() != 1 {
		return 0, fmt.Errorf("%w: %s has the shape %v", loader.ErrFormat, w.Name, w.Layout.Shape)
	}
	n, err := smallIntegers(w)
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// smallIntegers reads a few integers.
func smallIntegers(w *tensor.Weight) ([]int64, error) {
	const most = 64 // bytes
	raw, err := FirstBytes(w, most)
	if err != nil {
		return nil, err
	}
	var all []int64
	for part := range slices.Chunk(raw, w.DType.Size()) {
		switch w.DType {
		case tensor.Int64:
			all = append(all, int64(binary.LittleEndian.Uint64(part)))
		case tensor.Int32:
			all = append(all, int64(int32(binary.LittleEndian.Uint32(part))))
		default:
			all = append(all, int64(part[0]))
		}
	}
	return all, nil
}
