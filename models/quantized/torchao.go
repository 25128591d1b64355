package quantized

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// torchaoTypes are the configurations whose weights are read. How one lies is said by its tensors.
var torchaoTypes = []string{
	"Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Int8StaticActivationInt8WeightConfig",
	"Float8WeightOnlyConfig", "Float8DynamicActivationFloat8WeightConfig", "Int4WeightOnlyConfig",
	"Float8DynamicActivationInt4WeightConfig", "IntxWeightOnlyConfig", "Int8DynamicActivationIntxWeightConfig",
	"FqnToConfig", "ModuleFqnToConfig",
}

// torchaoType returns the name of the configuration of all modules, and whether its weights may be read.
func (b *quantBuilder) torchaoType() (string, bool) {
	var types map[string]struct {
		Type string `json:"_type"`
	}
	if json.Unmarshal(b.Types, &types) != nil {
		return string(b.Types), false
	}
	name := types["default"].Type
	return name, len(types) == 1 && slices.Contains(torchaoTypes, name)
}

// flattened is the name that a tensor has in safetensors: what torch.save writes has the parts of torchao's weights under their names.
func (b *quantBuilder) flattened(w *tensor.Weight) string {
	at := strings.LastIndexByte(w.Name, '.')
	if b.Method != "torchao" || at < 0 || !slices.Contains(torchaoParts, w.Name[at+1:]) {
		return w.Name
	}
	if module, ok := strings.CutSuffix(w.Name[:at], ".weight"); ok {
		return module + "._weight_" + w.Name[at+1:]
	}
	return w.Name
}

// torchaoParts are the tensors that torchao's weights are made of.
var torchaoParts = []string{"qdata", "scale", "zero_point", "scale_and_zero", "act_pre_scale", "act_quant_scale",
	"act_quant_zero_point"}

// A torchaoState is what a safetensors file says of a tensor of torchao's.
type torchaoState struct {
	Type string `json:"_type"`
	Data struct {
		Block []int64 `json:"block_size"`
		Shape []int64 `json:"shape"`
	} `json:"_data"`
}

// torchaoState finds what a file says of a module's weight; nothing where it says none.
func (b *quantBuilder) torchaoState(module string) (s torchaoState, err error) {
	for _, v := range b.values {
		if v.Name != "__metadata__."+module+".weight" {
			continue
		}
		const most = 1 << 16 // bytes
		if len(v.Text) > most || json.Unmarshal([]byte(v.Text), &s) != nil {
			return s, fmt.Errorf("%w: what is said of %s.weight is %.80q", loader.ErrFormat, module, v.Text)
		}
		return s, nil
	}
	return s, nil
}

// torchao makes a weight of torchao's codes.
func (b *quantBuilder) torchao(module string) error {
	codes, scales := b.all[module+"._weight_qdata"], b.all[module+"._weight_scale"]
	state, err := b.torchaoState(module)
	if err != nil {
		return err
	}
	switch state.Type {
	case "", "Int8Tensor", "IntxUnpackedToInt8Tensor", "Int4Tensor", "Int4PlainInt32Tensor",
		"Int4TilePackedTo4dTensor", "Float8Tensor":
	default:
		return &cells.UnsupportedError{What: fmt.Sprintf("%s, a %.60s", codes.Name, state.Type)}
	}
	if pre := b.all[module+"._weight_act_pre_scale"]; pre != nil {
		return &cells.UnsupportedError{What: pre.Name + ", by which inputs are multiplied"}
	}
	for _, kind := range []string{"_weight_act_quant_scale", "_weight_act_quant_zero_point"} {
		if w := b.all[module+"."+kind]; w != nil {
			b.gone[w.Name] = true // activations are not rounded
		}
	}
	switch {
	case codes.DType == tensor.Float8E4M3FN:
		return b.floats8(module, "_weight_qdata", "_weight_scale", b.dtype)
	case b.has(module, "_weight_scale_and_zero"):
		return b.torchaoTiles(module, state)
	case scales != nil && !slices.Contains(floats, scales.DType):
		return &cells.UnsupportedError{What: fmt.Sprintf("%s, scales of %v", scales.Name, scales.DType)}
	case codes.DType == tensor.Int32, codes.DType == tensor.UInt8, state.Type == "Int4Tensor", state.Type == "" &&
		b.halfBytes(module):
		return b.torchaoInt4(module)
	}
	return b.torchaoBytes(module)
}

// halfBytes reports whether a module has zero points as codes of half a byte do, [group][row] and no bytes.
func (b *quantBuilder) halfBytes(module string) bool {
	codes, zeros := b.all[module+"._weight_qdata"], b.all[module+"._weight_zero_point"]
	if zeros == nil || zeros.DType == tensor.Int8 || len(codes.Layout.Shape) != 2 || len(zeros.Layout.Shape) != 2 {
		return false
	}
	return zeros.Layout.Shape[0] != codes.Layout.Shape[0] && zeros.Layout.Shape[1] == codes.Layout.Shape[0]
}

// torchaoBytes makes a weight of torchao's bytes with a sign.
func (b *quantBuilder) torchaoBytes(module string) error {
	codes, err := b.part(module, "_weight_qdata", tensor.Int8)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "_weight_scale", floats...)
	if err != nil {
		return err
	}
	rows, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	whole := scales.NumElements() == 1 && rows > 1
	group, lines := columns, int64(1)
	if !whole {
		lines = rows
		if group, err = groupOf(scales, rows, columns); err != nil {
			return err
		}
	}
	w := encoded.Affine{
		Rows: rows, Columns: columns, Group: group, Bits: 8, Signed: true, Codes: codes.Span(), Scales: scales.Span(),
		ScaleDType: scales.DType, DType: b.dtype,
	}
	none := true
	if b.has(module, "_weight_zero_point") {
		zeros, err := b.part(module, "_weight_zero_point", append([]tensor.DType{tensor.Int8}, floats...)...)
		if err != nil {
			return err
		}
		if zeros.NumElements() != lines*(columns/group) {
			return fmt.Errorf("%w: %s has the shape %v, where scales have %v", loader.ErrFormat, zeros.Name,
				zeros.Layout.Shape,
				scales.Layout.Shape)
		}
		if none, err = isZero(zeros); err != nil {
			return err
		}
		if w.Zeros, w.ZeroDType = zeros.Span(), zeros.DType; zeros.DType != tensor.Int8 {
			w.Rule = encoded.OffsetFloat
		}
	}
	if none && scales.DType == tensor.Float32 {
		w := encoded.Signed8{Rows: rows, Columns: columns, Group: group, Codes: w.Codes, Scales: w.Scales,
			Whole: whole, DType: w.DType}
		b.add(module, rows, columns, w.DType, w.Matrix)
		return nil
	}
	if whole {
		return &cells.UnsupportedError{What: fmt.Sprintf("%s of %v, one for all, with a zero point", scales.Name,
			scales.DType)}
	}
	if none {
		w.Zeros, w.Rule = storage.Extent{}, encoded.OffsetInteger
	}
	b.add(module, rows, columns, w.DType, w.Matrix)
	return nil
}

// isZero reports whether all bytes of a tensor are zero.
func isZero(w *tensor.Weight) (bool, error) {
	buf := make([]byte, min(w.Bytes(), 64<<10))
	for off := int64(0); off < w.Bytes(); off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), w.Bytes()-off)]
		if err := w.Span().ReadAt(context.Background(), part, off); err != nil {
			return false, err
		}
		if slices.ContainsFunc(part, func(z byte) bool { return z != 0 }) {
			return false, nil
		}
	}
	return true, nil
}

// torchaoInt4 makes a weight of torchao's half bytes, two in a byte or eight in a word, with scales [group][row].
func (b *quantBuilder) torchaoInt4(module string) error {
	codes, err := b.part(module, "_weight_qdata", tensor.Int8, tensor.UInt8, tensor.Int32)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "_weight_scale", floats...)
	if err != nil {
		return err
	}
	zeros, err := b.part(module, "_weight_zero_point", tensor.Int8, scales.DType)
	if err != nil {
		return err
	}
	rows, size, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	w := encoded.Affine{
		Rows: rows, Columns: size * 2 * int64(codes.DType.Size()), Bits: 4, Codes: codes.Span(),
		Scales: scales.Span(), Zeros: zeros.Span(),
		ScaleDType: scales.DType, ZeroDType: zeros.DType, ByGroup: true, DType: scales.DType,
	}
	switch words, whole := codes.DType == tensor.Int32, zeros.DType == tensor.Int8; {
	case words && whole:
		w.Rule = encoded.OffsetInteger
	case !words && !whole:
		w.Rule, w.Signed = encoded.MiddleFloat, true
	default:
		return &cells.UnsupportedError{What: fmt.Sprintf("%s of %v with zero points of %v", codes.Name, codes.DType,
			zeros.DType)}
	}
	s := scales.Layout.Shape
	if len(s) != 2 || s[0] < 1 || w.Columns%int64(s[0]) != 0 || int64(s[1]) != rows {
		return fmt.Errorf("%w: %s has the shape %v, where the weight is [%d %d]", loader.ErrFormat, scales.Name, s,
			rows, w.Columns)
	}
	if err := sized(zeros, int64(s[0]), rows); err != nil {
		return err
	}
	w.Group = w.Columns / int64(s[0])
	b.add(module, rows, w.Columns, w.DType, w.Matrix)
	return nil
}

// torchaoTiles makes a weight of the tiles that tinygemm's kernels read: [row ÷ 8][column ÷ 128][32][4] words, of which rows and columns
// at the end may be no part of the weight.
func (b *quantBuilder) torchaoTiles(module string, state torchaoState) error {
	codes, err := b.part(module, "_weight_qdata", tensor.Int32)
	if err != nil {
		return err
	}
	pairs, err := b.part(module, "_weight_scale_and_zero", tensor.BFloat16)
	if err != nil {
		return err
	}
	c, p := codes.Layout.Shape, pairs.Layout.Shape
	const most = 1 << 26 // tiles, so that sizes do not overflow
	if len(c) != 4 || c[0] < 1 || c[0] > most || c[1] < 1 || c[1] > most || c[2] != 32 || c[3] != 4 {
		return &cells.UnsupportedError{What: fmt.Sprintf("%s, of the shape %v, where tiles are [rows ÷ 8, columns ÷ 128, 32, 4]", codes.Name, c)}
	}
	rows, wide := int64(c[0])*8, int64(c[1])*128
	if len(p) != 3 || p[0] < 1 || wide%int64(p[0]) != 0 || int64(p[1]) != rows || p[2] != 2 {
		return fmt.Errorf("%w: %s has the shape %v, where the weight is [%d %d]", loader.ErrFormat, pairs.Name, p,
			rows, wide)
	}
	w := encoded.Affine{
		Rows: rows, Columns: wide, Wide: wide, GroupRows: rows, Group: wide / int64(p[0]), Bits: 4,
		Rule:  encoded.MiddleFloat,
		Codes: codes.Span(), Tiles: true, Scales: pairs.Span(), ScaleDType: pairs.DType, ByGroup: true,
		Paired: true, DType: pairs.DType,
	}
	if s := state.Data.Shape; len(s) == 2 {
		if s[0] < 1 || s[0] > rows || s[1] < 1 || s[1] > wide {
			return fmt.Errorf("%w: %s has tiles of [%d %d], where the weight is %v", loader.ErrFormat, codes.Name,
				rows, wide, s)
		}
		w.Rows, w.Columns = s[0], s[1]
	}
	b.add(module, w.Rows, w.Columns, w.DType, w.Matrix)
	return nil
}
