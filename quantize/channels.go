package quantize

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
)

// channels are how the numbers of tensors are scaled, by the tensors' names.
type channels struct {
	// columns multiply those of a layer, and rows divide those of what makes its inputs: a norm, a layer, its bias.
	columns, rows map[string][]float32
	// squares are the sums of squares of a layer's inputs as they were.
	squares map[string][]float64
}

// A turned is how a layer is scaled.
type turned struct {
	columns, rows []float32
	// squares are those of its inputs; weights are what a code's squared error counts for.
	squares, weights []float64
}

// of returns how a layer is scaled, nil where it is not.
func (x *channels) of(it *item) *turned {
	name := it.weight.Name
	t := &turned{columns: x.columns[name], rows: x.rows[name], squares: x.squares[name]}
	if t.columns == nil && t.rows == nil {
		return nil
	}
	if t.squares != nil {
		t.weights = make([]float64, len(t.squares))
		for i, s := range t.columns {
			t.weights[i] = t.squares[i] / (float64(s) * float64(s))
		}
	}
	return t
}

// weightsOf are those of some columns.
func (t *turned) weightsOf(first, n int64) []float64 {
	if t == nil || t.weights == nil {
		return nil
	}
	return t.weights[first:][:n]
}

// turn scales a row and returns the sum of its squares.
func (t *turned) turn(numbers []float32, row int64) (all float64) {
	by := float32(1)
	if t.rows != nil {
		by = 1 / t.rows[row]
	}
	for i := range numbers {
		if t.columns != nil {
			numbers[i] *= t.columns[i]
		}
		numbers[i] *= by
		all += float64(float64(numbers[i]) * float64(numbers[i]))
	}
	return all
}

// all is the sum of squares of what a row computes of its inputs, where these are taken for independent.
func (t *turned) all(numbers []float32) (sum float64) {
	for i := range t.squares {
		sum += float64(float64(float64(numbers[i])*float64(numbers[i])) * t.squares[i])
	}
	return sum
}

// lost is the squared error of what a group's codes compute.
func (t *turned) lost(k integers, x []float32, scale, zero float32, first int64) float64 {
	if t.weights == nil {
		return 0
	}
	top, inverse, sum := float32(int(1)<<k.bits-1), 1/scale, 0.0
	for i, v := range x {
		d := float64(v) - float64(rounded((k.code(v, inverse, zero, top)-zero)*scale, k.dtype))
		sum += float64(float64(d*d) * t.weights[first+int64(i)])
	}
	return sum
}

// scaledTypes are the models of transformers whose norms multiply by their weights, and whose blocks are as makers has
// them.
var scaledTypes = []string{"llama", "mistral", "qwen2", "qwen3"}

// makers are what makes the inputs of the layers of a block: a norm or a layer, whose numbers or rows are divided.
var makers = []struct {
	maker  string
	layers []string
}{
	{"input_layernorm", []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
	{"self_attn.v_proj", []string{"self_attn.o_proj"}},
	{"post_attention_layernorm", []string{"mlp.gate_proj", "mlp.up_proj"}},
	{"mlp.up_proj", []string{"mlp.down_proj"}},
}

// A scaling is layers that are given the same, and what makes it.
type scaling struct {
	maker  *item
	bias   string
	layers []*item
	input  string
}

// scalings lists what can be scaled: where all layers that are given the same become codes, and so does a layer that
// makes it.
func (f *Folder) scalings() []scaling {
	items := make(map[string]*item)
	for _, s := range f.shards {
		for i := range s.items {
			items[s.items[i].weight.Name] = &s.items[i]
		}
	}
	var list []scaling
	for block := 0; ; block++ {
		prefix := fmt.Sprintf("model.layers.%d.", block)
		if items[prefix+"input_layernorm.weight"] == nil {
			return list
		}
		for _, m := range makers {
			x := scaling{maker: items[prefix+m.maker+".weight"]}
			if _, ok := items[prefix+m.maker+".bias"]; ok {
				x.bias = prefix + m.maker + ".bias"
			}
			complete := x.maker != nil && (x.maker.module != "" || len(x.maker.weight.Layout.Shape) == 1)
			for _, name := range m.layers {
				it := items[prefix+name+".weight"]
				if complete = complete && it != nil && it.module != "" && int64(x.maker.weight.Layout.Shape[0]) == it.columns; !complete {
					break
				}
				input := f.opts.Calibration.Input(it.weight.Name)
				complete = input != "" && (x.input == "" || x.input == input)
				x.layers, x.input = append(x.layers, it), input
			}
			if complete {
				list = append(list, x)
			}
		}
	}
}

// findChannels finds the scales of all channels, before anything is written.
func (f *Folder) findChannels(ctx context.Context) error {
	var config struct {
		ModelType string `json:"model_type"`
	}
	if json.Unmarshal(f.config, &config) != nil || !slices.Contains(scaledTypes, config.ModelType) {
		return fmt.Errorf("%w: channels of models of the type %.40q are not scaled: only of %s", loader.ErrUnsupported, config.ModelType, strings.Join(scaledTypes, ", "))
	}
	f.channels = channels{make(map[string][]float32), make(map[string][]float32), make(map[string][]float64)}
	list := f.scalings()
	if len(list) == 0 {
		return fmt.Errorf("%w: no channels to scale", loader.ErrUnsupported)
	}
	var inputs []string
	for _, x := range list {
		if !slices.Contains(inputs, x.input) {
			inputs = append(inputs, x.input)
		}
	}
	squares := make(map[string][]float64)
	for len(inputs) > 0 {
		sums, err := f.opts.Calibration.Sums(ctx, inputs, 0)
		if err != nil {
			return err
		}
		if len(sums) == 0 || len(sums) > len(inputs) {
			return fmt.Errorf("%w: sums of %d inputs of %d", errInputs, len(sums), len(inputs))
		}
		for i, s := range sums {
			n := int(math.Sqrt(float64(len(s))))
			for k := range n {
				squares[inputs[i]] = append(squares[inputs[i]], s[k*n+k])
			}
		}
		inputs = inputs[len(sums):]
	}
	for _, x := range list {
		if err := f.scale(ctx, &x, squares[x.input]); err != nil {
			return err
		}
	}
	return nil
}

const (
	// powers are how many exponents are tried from 0 on, below 1.
	powers = 20
	// triedRows are how many rows of a layer a choice is judged by, spread over all.
	triedRows = 128
)

// scale finds the scales of a layer's inputs: a power of how large these are, the one with the least error of what the
// layers compute.
func (f *Folder) scale(ctx context.Context, x *scaling, squares []float64) error {
	if int64(len(squares)) != x.layers[0].columns {
		return fmt.Errorf("%w: %d sums of squares for %d columns", errInputs, len(squares), x.layers[0].columns)
	}
	tries := make([]*turned, powers)
	for p := range tries {
		columns := channelScales(squares, float64(p)/powers)
		if columns == nil {
			return errNotFinite
		}
		all := channels{columns: map[string][]float32{"": columns}, squares: map[string][]float64{"": squares}}
		tries[p] = all.of(&item{})
	}
	lost := make([]float64, powers)
	for _, it := range x.layers {
		if err := f.try(ctx, it, tries, lost); err != nil {
			return fmt.Errorf("%s: %w", it.weight.Name, err)
		}
	}
	best := tries[slices.Index(lost, slices.Min(lost))].columns
	for _, it := range x.layers {
		f.channels.columns[it.weight.Name], f.channels.squares[it.weight.Name] = best, squares
	}
	f.channels.rows[x.maker.weight.Name] = best
	if x.bias != "" {
		f.channels.rows[x.bias] = best
	}
	return nil
}

// channelScales are a power of how large inputs are, such that the largest and the least are as far from 1; nil where
// inputs are no numbers.
func channelScales(squares []float64, power float64) []float32 {
	scales := make([]float32, len(squares))
	low, high := math.Inf(1), 0.0
	largest := slices.Max(squares)
	if !(largest >= 0) || math.IsInf(largest, 0) {
		return nil
	}
	const floor = 1e-8 // of the largest square: what is given next to nothing
	at := func(i int) float64 { return math.Pow(max(squares[i], largest*floor, 1e-30), power/2) }
	for i := range scales {
		low, high = min(low, at(i)), max(high, at(i))
	}
	middle := math.Sqrt(low * high)
	for i := range scales {
		scales[i] = float32(at(i) / middle)
	}
	return scales
}

// try adds to each choice the squared error of what rows of a layer compute with it, rows that are spread over all.
func (f *Folder) try(ctx context.Context, it *item, tries []*turned, lost []float64) error {
	span, rowBytes := it.weight.Span(), it.columns*int64(it.weight.DType.Size())
	k := integers{f.opts.Scheme.bits(), it.weight.DType}
	size := it.columns / f.opts.Scheme.groups(it.columns)
	raw, numbers := make([]byte, rowBytes), make([]float32, it.columns)
	n := min(it.rows, triedRows)
	for i := range n {
		row := i * it.rows / n
		if err := span.ReadAt(ctx, raw, row*rowBytes); err != nil {
			return err
		}
		for p, t := range tries {
			decode(numbers, raw, it.weight.DType)
			if all := t.turn(numbers, 0); all-all != 0 {
				return &notFinite{name: it.weight.Name, row: row, value: float32(all)}
			}
			for first := int64(0); first < it.columns; first += size {
				group := numbers[first:][:size]
				s, z := k.fit(group, t.weightsOf(first, size), f.opts.Scheme.Minimum)
				lost[p] += t.lost(k, group, s, z, first)
			}
		}
	}
	return ctx.Err()
}

// copyDivided writes a norm or a bias whose numbers are divided.
func (f *Folder) copyDivided(ctx context.Context, it *item, file *os.File, at int64, divide []float32, progress func(int64)) error {
	span := it.weight.Span()
	raw, numbers := make([]byte, span.Bytes), make([]float32, len(divide))
	if err := span.ReadAt(ctx, raw, 0); err != nil {
		return fmt.Errorf("%s: %w", it.weight.Name, err)
	}
	decode(numbers, raw, it.weight.DType)
	size := it.weight.DType.Size()
	for i, x := range numbers {
		store(raw[i*size:], x/divide[i], it.weight.DType)
	}
	progress(span.Bytes)
	_, err := file.WriteAt(raw, at)
	return err
}
