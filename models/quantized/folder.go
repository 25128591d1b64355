// Package quantized makes weights of the tensors that libraries write of quantised ones: AWQ's, GPTQ's, compressed-tensors', torchao's and others'.
//
// It knows which tensors a module of such a Hugging Face folder has, and refuses by name what it does not know. It does not know what a block of
// codes stands for ([encoded] does), nor models.
//
//	quantization, rest, dtype := quantized.Of(config)
//	weights, err := quantized.Weights(ckpt, quantization, dtype) // for the model of rest
package quantized

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A quantConfig is what a folder's configuration says of how its weights are quantised.
type quantConfig struct {
	Method     string  `json:"quant_method"`
	Bits       int     `json:"bits"`
	GroupSize  int64   `json:"group_size"`
	Checkpoint string  `json:"checkpoint_format"`
	Version    string  `json:"version"`
	Format     string  `json:"format"`
	BlockSize  []int64 `json:"weight_block_size"`
	Eight      bool    `json:"load_in_8bit"`
	Four       bool    `json:"load_in_4bit"`
	// Types are torchao's configurations by module, or that of all of them, "default"; once it was a name.
	Types json.RawMessage `json:"quant_type"`
	// Linear, Mode and Normed are bitnet's.
	Linear string `json:"linear_class"`
	Mode   string `json:"quantization_mode"`
	Normed bool   `json:"use_rms_norm"`
	// Config are HQQ's, of all modules or by module.
	Config json.RawMessage `json:"quant_config"`
}

// quantMethods are those whose weights are read, in the words of an error.
const quantMethods = "awq (gemm), gptq, fp8, compressed-tensors (int4, int8, float8, nvfp4, mxfp4, mxfp8), bitsandbytes, torchao (int4, int8, intx and float8 weights), hqq, fbgemm_fp8, metal, bitnet and mxfp4 (gpt-oss)"

// Weights returns the weights of a folder: those that are no part of a quantised one as they are, and those that are made of tensors that
// belong together, under the names that they had.
func Weights(ckpt *loader.Checkpoint, quantization json.RawMessage, dtype tensor.DType) ([]tensor.Weight, error) {
	var q quantConfig
	if err := json.Unmarshal(quantization, &q); err != nil {
		return nil, fmt.Errorf("%w: quantization_config: %w", loader.ErrFormat, err)
	}
	b := &quantBuilder{quantConfig: q, dtype: dtype, values: ckpt.Values,
		all: make(map[string]*tensor.Weight, len(ckpt.Weights))}
	for i := range ckpt.Weights {
		b.all[ckpt.Weights[i].Name] = &ckpt.Weights[i]
	}
	if err := b.method(); err != nil {
		return nil, err
	}
	for i := range ckpt.Weights {
		b.all[b.flattened(&ckpt.Weights[i])] = &ckpt.Weights[i]
	}
	for i := range ckpt.Weights {
		if err := b.module(b.flattened(&ckpt.Weights[i])); err != nil {
			return nil, err
		}
	}
	return b.weights(ckpt.Weights), nil
}

// Of returns what a configuration says of quantised weights, the configuration without that, and the dtype that its
// weights have otherwise; nil where it says nothing.
func Of(config []byte) (quantization json.RawMessage, rest []byte, dtype tensor.DType) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(config, &fields) != nil {
		return nil, config, tensor.Invalid // whoever reads it says what is wrong
	}
	quantization = fields["quantization_config"]
	if quantization == nil || string(quantization) == "null" {
		return nil, config, tensor.Invalid
	}
	delete(fields, "quantization_config")
	dtype = tensor.Float32
	for _, key := range []string{"torch_dtype", "dtype"} {
		var name string
		if d, ok := tensor.DType(0), json.Unmarshal(fields[key], &name) == nil; ok {
			if d, ok = tensor.ParseDType(name); ok && (d.IsHalf() || d == tensor.Float32) {
				dtype = d
			}
		}
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, config, tensor.Invalid
	}
	return quantization, rest, dtype
}

// A quantBuilder makes weights of the tensors that quantised modules have.
type quantBuilder struct {
	quantConfig
	hqqConfig hqqConfig
	dtype     tensor.DType
	all       map[string]*tensor.Weight
	// values are what files say about themselves.
	values []loader.Value
	// modules are those whose weights are made, gone the tensors that they are made of, or that are of no use.
	modules []quantModule
	gone    map[string]bool
}

type quantModule struct {
	name          string
	rows, columns int64
	matrix        encoded.Matrix
	encoding      *encoded.Encoding
	dtype         tensor.DType
}

// method refuses what is not known.
func (b *quantBuilder) method() error {
	refused := func(why string) error {
		return &cells.UnsupportedError{
			What: fmt.Sprintf("weights quantised by %.40q%s; those that are read are %s", b.Method, why, quantMethods),
		}
	}
	switch b.Method {
	case "awq":
		if v := strings.ToLower(b.Version); v != "" && v != "gemm" {
			return refused(fmt.Sprintf(", version %.20q", b.Version))
		}
		if b.Bits != 4 && b.Bits != 0 {
			return refused(fmt.Sprintf(" with %d bits", b.Bits))
		}
		b.Bits = 4
	case "gptq":
		if f := b.Checkpoint; f != "" && f != "gptq" && f != "gptq_v2" {
			return refused(fmt.Sprintf(", checkpoint format %.20q", f))
		}
		if b.Bits != 2 && b.Bits != 3 && b.Bits != 4 && b.Bits != 8 {
			return refused(fmt.Sprintf(" with %d bits", b.Bits))
		}
	case "fp8", "fbgemm_fp8":
	case "hqq":
		var config struct {
			Weights hqqConfig `json:"weight_quant_params"`
		}
		if json.Unmarshal(b.Config, &config) == nil { // else modules say it themselves
			b.hqqConfig = config.Weights
		}
	case "bitsandbytes":
		if !b.Eight && !b.Four {
			return refused(", neither in 8 bits nor in 4")
		}
	case "torchao":
		if name, known := b.torchaoType(); !known {
			return refused(fmt.Sprintf(", quant_type %.60q", name))
		}
	case "metal":
		if b.Bits == 0 && b.GroupSize == 0 {
			b.Bits, b.GroupSize = 4, 64 // what transformers takes
		}
		if b.Bits != 2 && b.Bits != 4 && b.Bits != 8 || b.GroupSize < 1 || b.GroupSize > 1<<30 {
			return refused(fmt.Sprintf(" with %d bits in groups of %d", b.Bits, b.GroupSize))
		}
	case "bitnet":
		switch {
		case b.Mode != "" && b.Mode != "offline":
			return refused(fmt.Sprintf(", quantization_mode %.20q", b.Mode))
		case b.Linear != "" && b.Linear != "bitlinear" && b.Linear != "autobitlinear":
			return refused(fmt.Sprintf(", linear_class %.20q", b.Linear))
		case b.Normed:
			return refused(", use_rms_norm, a norm before each product")
		}
	case "compressed-tensors":
		switch b.Format {
		case "pack-quantized", "int-quantized", "naive-quantized", "float-quantized",
			"nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized":
		default:
			return refused(fmt.Sprintf(", format %.30q", b.Format))
		}
	default:
		return refused("")
	}
	b.gone = make(map[string]bool)
	return nil
}

// module makes the weight that a tensor is the first part of.
func (b *quantBuilder) module(name string) error {
	module, kind := "", ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		module, kind = name[:i], name[i+1:]
	}
	switch {
	case kind == "qweight" && b.Method == "awq":
		return b.words(module, encoded.AcrossRows)
	case kind == "qweight" && b.Method == "gptq":
		return b.words(module, encoded.AlongColumns)
	case kind == "weight_scale_inv" && b.Method == "fp8":
		return b.floats8(module, "weight", "weight_scale_inv", b.dtype)
	case kind == "weight_scale" && b.Method == "fbgemm_fp8" && b.has(module, "weight"):
		return b.floats8(module, "weight", "weight_scale", b.dtype)
	case kind == "W_q" && b.Method == "hqq":
		return b.hqq(module)
	case kind == "_weight_qdata" && b.Method == "torchao":
		return b.torchao(module)
	case b.Method == "torchao" && strings.HasPrefix(kind, "_") && strings.HasSuffix(kind, "_qdata"):
		return &cells.UnsupportedError{What: name + ", a weight of a module that is no linear layer"}
	case kind == "scales" && b.Method == "metal":
		return b.metal(module)
	case kind == "weight_scale" && b.Method == "bitnet":
		return b.bitnet(module)
	case slices.Contains([]string{"activation_scale", "input_scale", "input_global_scale"}, kind) &&
		(b.Method == "fp8" || b.Method == "compressed-tensors"):
		b.gone[name] = true // activations are not rounded
	case b.Method == "bitsandbytes" && strings.HasPrefix(kind, "bitsandbytes__") &&
		strings.HasSuffix(module, ".weight.quant_state"):
		return b.nested(strings.TrimSuffix(module, ".weight.quant_state"), kind)
	case kind == "SCB" && b.Method == "bitsandbytes":
		return b.llmInt8(module)
	case kind == "weight_packed" && b.Method == "compressed-tensors":
		if b.all[name].DType == tensor.UInt8 {
			return b.fours(module)
		}
		return b.packed(module)
	case kind == "weight_scale" && b.Method == "compressed-tensors" && b.all[module+".weight_packed"] == nil:
		return b.scaled(module)
	}
	return nil
}

// part returns a tensor of a module, which must be there, with elements of one of some dtypes in order.
func (b *quantBuilder) part(module, kind string, dtypes ...tensor.DType) (*tensor.Weight, error) {
	name := module + "." + kind
	w := b.all[name]
	switch {
	case w == nil:
		return nil, fmt.Errorf("%w: %s is missing", loader.ErrFormat, name)
	case !slices.Contains(dtypes, w.DType):
		return nil, fmt.Errorf("%w: %s is of %v", loader.ErrFormat, name, w.DType)
	case !w.Layout.IsContiguous() || w.BigEndian:
		return nil, &cells.UnsupportedError{What: name + ", whose elements are not in order"}
	}
	b.gone[w.Name] = true
	return w, nil
}

// has returns whether a module has a tensor.
func (b *quantBuilder) has(module, kind string) bool { return b.all[module+"."+kind] != nil }

// sized returns an error unless a tensor has a shape.
func sized(w *tensor.Weight, shape ...int64) error {
	want := make(tensor.Shape, len(shape))
	for i, n := range shape {
		want[i] = int(n)
	}
	if !w.Layout.Shape.Equal(want) {
		return fmt.Errorf("%w: %s has the shape %v, where %v fits", loader.ErrFormat, w.Name, w.Layout.Shape, want)
	}
	return nil
}

// matrixSizes returns the two dimensions of a tensor.
func matrixSizes(w *tensor.Weight) (int64, int64, error) {
	s := w.Layout.Shape
	const most = 1 << 30 // of a dimension, so that sizes do not overflow
	if len(s) != 2 || s[0] < 1 || s[1] < 1 || s[0] > most || s[1] > most {
		return 0, 0, fmt.Errorf("%w: %s has the shape %v, and a matrix is wanted", loader.ErrFormat, w.Name, s)
	}
	return int64(s[0]), int64(s[1]), nil
}

// floats are the dtypes that scales may have.
var floats = []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32}

// words makes a weight of AWQ or GPTQ.
func (b *quantBuilder) words(module string, order encoded.Order) error {
	codes, err := b.part(module, "qweight", tensor.Int32)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "scales", floats...)
	if err != nil {
		return err
	}
	zeros, err := b.part(module, "qzeros", tensor.Int32)
	if err != nil {
		return err
	}
	first, second, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	each, unit := int64(32/b.Bits), int64(1)
	if b.Bits == 3 {
		if each, unit = 32, 3; first%unit != 0 {
			return fmt.Errorf("%w: %s has %d lines of words, no multiple of 3", loader.ErrFormat, codes.Name, first)
		}
	}
	w := encoded.Words{Bits: b.Bits, Order: order, Codes: codes.Span(), Scales: scales.Span(), Zeros: zeros.Span(),
		DType: scales.DType}
	if w.Columns, w.Rows = first, second*each; order == encoded.AlongColumns {
		w.Columns, w.Rows = first/unit*each, second
		if b.Checkpoint != "gptq_v2" {
			w.ZeroLess = 1
		}
	}
	if w.Group = b.GroupSize; w.Group <= 0 || w.Group > w.Columns {
		w.Group = w.Columns
	}
	groups := (w.Columns + w.Group - 1) / w.Group
	if w.Rows%each != 0 {
		return fmt.Errorf("%w: %s has %d rows, no multiple of %d", loader.ErrFormat, codes.Name, w.Rows, each)
	}
	if err := sized(scales, groups, w.Rows); err != nil {
		return err
	}
	if err := sized(zeros, groups, w.Rows/each*unit); err != nil {
		return err
	}
	if order == encoded.AlongColumns && b.has(module, "g_idx") {
		index, err := b.part(module, "g_idx", tensor.Int32)
		if err != nil {
			return err
		}
		if err := sized(index, w.Columns); err != nil {
			return err
		}
		ordered, err := inOrder(index, w.Columns, w.Group)
		if err != nil {
			return err
		}
		if !ordered {
			w.Groups = index.Span()
		}
	}
	b.add(module, w.Rows, w.Columns, w.DType, w.Matrix)
	return nil
}

// inOrder reports whether columns are of groups in order. Each is read once, so that blocks of one scale can be made of them.
func inOrder(index *tensor.Weight, columns, group int64) (bool, error) {
	raw := make([]byte, 4*columns)
	if err := index.Span().ReadAt(context.Background(), raw, 0); err != nil {
		return false, err
	}
	ordered, groups := true, (columns+group-1)/group
	for k := range columns {
		g := int64(int32(binary.LittleEndian.Uint32(raw[4*k:])))
		if g < 0 || g >= groups {
			return false, fmt.Errorf("%w: %s has column %d in group %d of %d", loader.ErrFormat, index.Name, k, g,
				groups)
		}
		ordered = ordered && g == k/group
	}
	return ordered, nil
}

// llmInt8 makes a weight of bitsandbytes' bytes with a sign.
func (b *quantBuilder) llmInt8(module string) error {
	codes, err := b.part(module, "weight", tensor.Int8)
	if err != nil {
		return err
	}
	scales, err := b.part(module, "SCB", tensor.Float32)
	if err != nil {
		return err
	}
	rows, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	if err := sized(scales, rows); err != nil {
		return err
	}
	if b.has(module, "weight_format") {
		format, err := b.part(module, "weight_format", tensor.UInt8)
		if err != nil {
			return err
		}
		var kind [1]byte
		if format.NumElements() != 1 {
			return fmt.Errorf("%w: %s has %d numbers", loader.ErrFormat, format.Name, format.NumElements())
		}
		if err := format.Span().ReadAt(context.Background(), kind[:], 0); err != nil {
			return err
		}
		if kind[0] != 0 {
			return &cells.UnsupportedError{What: fmt.Sprintf("%s %d, an order of bytes other than that of rows",
				format.Name, kind[0])}
		}
	}
	w := encoded.Signed8{
		Rows: rows, Columns: columns, Group: columns, Codes: codes.Span(), Scales: scales.Span(), Of127: true,
		DType: b.dtype,
	}
	b.add(module, rows, columns, w.DType, w.Matrix)
	return nil
}

// floats8 makes a weight of float8 with scales of blocks, of rows, or of all.
func (b *quantBuilder) floats8(module, codesKind, kind string, dtype tensor.DType) error {
	codes, err := b.part(module, codesKind, tensor.Float8E4M3FN)
	if err != nil {
		return err
	}
	scales, err := b.part(module, kind, floats...)
	if err != nil {
		return err
	}
	rows, columns, err := matrixSizes(codes)
	if err != nil {
		return err
	}
	f := encoded.Floats8{
		Rows: rows, Columns: columns, BlockRows: rows, BlockColumns: columns, Codes: codes.Span(),
		Scales:     scales.Span(),
		ScaleDType: scales.DType, DType: dtype,
	}
	switch s := scales.Layout.Shape; {
	case scales.NumElements() == 1:
	case len(s) == 2 && int64(s[0]) == rows && s[1] == 1, len(s) == 1 && int64(s[0]) == rows:
		f.BlockRows = 1
	default:
		if len(b.BlockSize) != 2 || b.BlockSize[0] < 1 || b.BlockSize[1] < 1 {
			b.BlockSize = []int64{128, 128}
		}
		f.BlockRows, f.BlockColumns = b.BlockSize[0], b.BlockSize[1]
		if err := sized(scales, (rows+f.BlockRows-1)/f.BlockRows,
			(columns+f.BlockColumns-1)/f.BlockColumns); err != nil {
			return err
		}
	}
	b.add(module, rows, columns, dtype, f.Matrix)
	return nil
}

// A nestedState is what bitsandbytes says of a weight, as JSON in a tensor of bytes.
type nestedState struct {
	Kind         string  `json:"quant_type"`
	Block        int64   `json:"blocksize"`
	DType        string  `json:"dtype"`
	Shape        []int64 `json:"shape"`
	NestedBlock  int64   `json:"nested_blocksize"`
	NestedOffset float64 `json:"nested_offset"`
}

// nested makes a weight of bitsandbytes' codes of 4 bits.
func (b *quantBuilder) nested(module, kind string) error {
	state, err := b.part(module, "weight.quant_state."+kind, tensor.UInt8)
	if err != nil {
		return err
	}
	const most = 1 << 16 // bytes
	text, err := FirstBytes(state, most)
	if err != nil {
		return err
	}
	var q nestedState
	if err := json.Unmarshal(text, &q); err != nil {
		return fmt.Errorf("%w: %s: %w", loader.ErrFormat, state.Name, err)
	}
	dtype, known := tensor.ParseDType(q.DType)
	table, isKind := encoded.TableOf(strings.ToUpper(q.Kind))
	const size = 1 << 30 // of a dimension
	if !known || !slices.Contains(floats, dtype) || !isKind || len(q.Shape) != 2 || q.Shape[0] < 1 || q.Shape[1] < 1 ||
		q.Shape[0] > size || q.Shape[1] > size || q.Block < 32 || q.Block > 4096 || q.Block&(q.Block-1) != 0 {
		return fmt.Errorf("%w: %s says %.200s", loader.ErrFormat, state.Name, text)
	}
	w := encoded.Nested{Rows: q.Shape[0], Columns: q.Shape[1], Block: q.Block, Kind: strings.ToUpper(q.Kind),
		DType: dtype}
	codes, err := b.part(module, "weight", tensor.UInt8)
	if err != nil {
		return err
	}
	numbers := w.Rows * w.Columns
	if codes.NumElements() != (numbers+1)/2 {
		return fmt.Errorf("%w: %s has %d bytes, where %d × %d numbers have two in one", loader.ErrFormat, codes.Name,
			codes.NumElements(), w.Rows, w.Columns)
	}
	w.Codes = codes.Span()
	values, err := b.part(module, "weight.quant_map", tensor.Float32)
	if err != nil {
		return err
	}
	if err := sized(values, int64(len(table))); err != nil {
		return err
	}
	raw, err := FirstBytes(values, most)
	if err != nil {
		return err
	}
	for i, want := range table {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != want {
			return &cells.UnsupportedError{What: fmt.Sprintf("%s, where code %d is %v and not %v", values.Name, i,
				got, want)}
		}
	}
	if err := b.nestedScales(module, &w, q, (numbers+q.Block-1)/q.Block); err != nil {
		return err
	}
	m, e, ok := w.Matrix()
	if !ok {
		return &cells.UnsupportedError{What: fmt.Sprintf("%s, whose rows of %d numbers cut blocks of %d",
			codes.Name, w.Columns, w.Block)}
	}
	b.modules = append(b.modules, quantModule{module + ".weight", w.Rows, w.Columns, m, e, dtype})
	return nil
}

// nestedScales finds the scales of blocks, which may be codes themselves.
func (b *quantBuilder) nestedScales(module string, w *encoded.Nested, q nestedState, blocks int64) error {
	scales, err := b.part(module, "weight.absmax", tensor.Float32, tensor.UInt8)
	if err != nil {
		return err
	}
	if err := sized(scales, blocks); err != nil {
		return err
	}
	if w.Scales = scales.Span(); scales.DType == tensor.Float32 {
		return nil
	}
	w.Scales8, w.NestedBlock, w.Offset = scales.Span(), q.NestedBlock, float32(q.NestedOffset)
	if w.NestedBlock < 1 || w.NestedBlock > 1<<20 {
		return fmt.Errorf("%w: %s has nested blocks of %d", loader.ErrFormat, scales.Name, w.NestedBlock)
	}
	outer, err := b.part(module, "weight.nested_absmax", tensor.Float32)
	if err != nil {
		return err
	}
	if err := sized(outer, (blocks+w.NestedBlock-1)/w.NestedBlock); err != nil {
		return err
	}
	w.Scales = outer.Span()
	values, err := b.part(module, "weight.nested_quant_map", tensor.Float32)
	if err != nil {
		return err
	}
	if err := sized(values, int64(len(w.Map))); err != nil {
		return err
	}
	raw, err := FirstBytes(values, 4*int64(len(w.Map)))
	if err != nil {
		return err
	}
	for i := range w.Map {
		w.Map[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// FirstBytes reads a small tensor.
func FirstBytes(w *tensor.Weight, most int64) ([]byte, error) {
	n := w.Bytes()
	if n > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, and at most %d are read", loader.ErrFormat, w.Name, n, most)
	}
	raw := make([]byte, n)
	return raw, w.Span().ReadAt(context.Background(), raw, 0)
}

func (b *quantBuilder) add(module string, rows, columns int64, dtype tensor.DType,
	matrix func() (encoded.Matrix, *encoded.Encoding)) {
	m, e := matrix()
	b.modules = append(b.modules, quantModule{module + ".weight", rows, columns, m, e, dtype})
}

// weights returns the tensors that are left, and those that are made.
func (b *quantBuilder) weights(all []tensor.Weight) []tensor.Weight {
	var left []tensor.Weight
	for _, w := range all {
		if !b.gone[w.Name] {
			left = append(left, w)
		}
	}
	matrices := make([]encoded.Matrix, len(b.modules))
	for i := range b.modules {
		matrices[i] = b.modules[i].matrix
	}
	made, at := encoded.Make(matrices)
	var runs []encoded.Run
	for i, m := range b.modules {
		if m.encoding != nil {
			runs = append(runs, encoded.Run{Encoding: m.encoding, Offset: at[i], Rows: m.rows, RowElements: m.columns})
		}
	}
	source, offsets := encoded.New(made, runs)
	for i, m := range b.modules {
		w := tensor.Weight{
			Name: m.name, DType: m.dtype, Layout: tensor.Contiguous(int(m.rows), int(m.columns)),
			Extent: storage.Extent{Source: made, Offset: at[i], Bytes: m.rows * m.matrix.RowBytes},
		}
		if m.encoding != nil {
			w.DType = tensor.Float32
			w.Extent = storage.Extent{Source: source, Offset: offsets[0], Bytes: 4 * m.rows * m.columns}
			offsets = offsets[1:]
		}
		left = append(left, w)
	}
	return left
}
