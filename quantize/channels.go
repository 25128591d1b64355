package quantize

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/loader"
)

// channels are how the numbers of tensors are scaled, by the tensors' names.
type channels struct {
	// columns multiply those of a layer, and rows divide those of what makes its inputs: a norm, a layer, its bias.
	columns, rows map[string][]float32
	// squares are the sums of squares of a layer's inputs as they were.
	squares map[string][]float64
	// alike has layers whose groups' scales are those of the least error of numbers that all weigh the same.
	alike map[string]bool
	// few are inputs of too few rows: see [fewRows].
	few map[string]bool
}

// A turned is how a layer is scaled.
type turned struct {
	columns, rows []float32
	// squares are those of its inputs; weights are what a code's squared error counts for.
	squares, weights []float64
	alike            bool
}

// of returns how a layer is scaled, nil where it is not.
func (x *channels) of(it *item) *turned {
	name := it.weight.Name
	t := &turned{columns: x.columns[name], rows: x.rows[name], squares: x.squares[name], alike: x.alike[name]}
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

// weightsOf are those of some columns, by which a group's scale is chosen.
func (t *turned) weightsOf(first, n int64) []float64 {
	if t == nil || t.weights == nil || t.alike {
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
var scaledTypes = []string{"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"}

// A maker is what makes the inputs of layers of a block: a norm or a layer, whose numbers or rows are divided.
type maker struct {
	maker  string
	layers []string
}

// makers are those of every block, expertMakers those of each of its experts. What experts have in common with their
// router is not scaled.
var makers = []maker{
	{"input_layernorm", []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
	{"self_attn.v_proj", []string{"self_attn.o_proj"}},
	{"post_attention_layernorm", []string{"mlp.gate_proj", "mlp.up_proj"}},
	{"mlp.up_proj", []string{"mlp.down_proj"}},
	{"mlp.shared_expert.up_proj", []string{"mlp.shared_expert.down_proj"}},
}

var expertMakers = []maker{
	{"mlp.experts.%d.up_proj", []string{"mlp.experts.%d.down_proj"}},
	{"block_sparse_moe.experts.%d.w3", []string{"block_sparse_moe.experts.%d.w2"}},
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
			if x, complete := f.scaling(items, prefix, m); complete {
				list = append(list, x)
			}
		}
		for _, of := range expertMakers {
			for expert := 0; ; expert++ {
				m := maker{fmt.Sprintf(of.maker, expert), []string{fmt.Sprintf(of.layers[0], expert)}}
				if items[prefix+m.maker+".weight"] == nil {
					break
				}
				if x, complete := f.scaling(items, prefix, m); complete {
					list = append(list, x)
				}
			}
		}
	}
}

// scaling returns what a maker of a block makes the inputs of, and whether it can be scaled.
func (f *Folder) scaling(items map[string]*item, prefix string, m maker) (x scaling, complete bool) {
	x.maker = items[prefix+m.maker+".weight"]
	if _, ok := items[prefix+m.maker+".bias"]; ok {
		x.bias = prefix + m.maker + ".bias"
	}
	complete = x.maker != nil && (x.maker.module != "" || len(x.maker.weight.Layout.Shape) == 1)
	for _, name := range m.layers {
		it := items[prefix+name+".weight"]
		complete = complete && it != nil && it.module != "" && int64(x.maker.weight.Layout.Shape[0]) == it.columns
		if complete = complete && it.weight.Layout.IsContiguous() && x.maker.weight.Layout.IsContiguous(); !complete {
			break
		}
		input := f.opts.Calibration.Input(it.weight.Name)
		complete = input != "" && (x.input == "" || x.input == input)
		x.layers, x.input = append(x.layers, it), input
	}
	return x, complete
}

// findChannels finds the scales of all channels, before anything is written.
func (f *Folder) findChannels(ctx context.Context) error {
	var config struct {
		ModelType string `json:"model_type"`
	}
	if json.Unmarshal(f.config, &config) != nil || !slices.Contains(scaledTypes, config.ModelType) {
		return fmt.Errorf("%w: channels of models of the type %.40q are not scaled: only of %s", loader.ErrUnsupported, config.ModelType, strings.Join(scaledTypes, ", "))
	}
	f.channels = channels{
		columns: make(map[string][]float32), rows: make(map[string][]float32), squares: make(map[string][]float64),
		alike: make(map[string]bool), few: make(map[string]bool),
	}
	list := f.scalings()
	if len(list) == 0 {
		return fmt.Errorf("%w: no channels to scale", loader.ErrUnsupported)
	}
	var inputs []string
	widest := int64(0)
	for _, x := range list {
		widest = max(widest, x.layers[0].columns)
		if !slices.Contains(inputs, x.input) {
			inputs = append(inputs, x.input)
		}
	}
	held := int64(goruntime.GOMAXPROCS(0)) * tryBytes(widest)
	for len(inputs) > 0 {
		sums, err := f.opts.Calibration.Sums(ctx, inputs, held)
		if err != nil {
			return err
		}
		if len(sums) == 0 || len(sums) > len(inputs) {
			return fmt.Errorf("%w: sums of %d inputs of %d", errInputs, len(sums), len(inputs))
		}
		for i := range sums {
			n := int(math.Sqrt(float64(len(sums[i]))))
			h := newHessian(sums[i][:n*n], n, false)
			for k := range list {
				if list[k].input != inputs[i] {
					continue
				}
				if f.channels.few[inputs[i]] = f.isFew(list[k].layers[0]); !f.channels.few[inputs[i]] {
					if err := f.scale(ctx, &list[k], h); err != nil {
						return err
					}
				}
			}
			sums[i] = nil // what is found out of them is less
		}
		inputs = inputs[len(sums):]
	}
	return nil
}

const (
	// powers are how many exponents are tried from 0 on, below 1.
	powers = 20
	// triedRows are how many rows of a layer a choice is judged by, spread over all.
	triedRows = 32
)

// scale finds the scales of a layer's inputs: a power of how large these are, and whether numbers weigh the same where
// a group's scale is chosen. The choice with the least error of what the layers compute wins. Inputs are not
// independent, so that error is of all their products: where codes have a zero point, numbers of a group are off in the
// same direction, and by the squares alone a choice that is worse than none at all may seem to be the best.
func (f *Folder) scale(ctx context.Context, x *scaling, h *hessian) error {
	if int64(h.n) != x.layers[0].columns {
		return fmt.Errorf("%w: sums of %d inputs for %d columns", errInputs, h.n, x.layers[0].columns)
	}
	var tries []*turned
	for p := range powers {
		columns := channelScales(h.squares, float64(p)/powers)
		if columns == nil {
			return errNotFinite
		}
		for _, alike := range []bool{false, true} {
			all := channels{columns: map[string][]float32{"": columns}, squares: map[string][]float64{"": h.squares}}
			t := all.of(&item{})
			t.alike = alike
			tries = append(tries, t)
		}
	}
	lost := make([]float64, len(tries))
	for _, it := range x.layers {
		if err := f.try(ctx, it, h, tries, lost); err != nil {
			return fmt.Errorf("%s: %w", it.weight.Name, err)
		}
	}
	best := tries[slices.Index(lost, slices.Min(lost))]
	for _, it := range x.layers {
		name := it.weight.Name
		f.channels.columns[name], f.channels.squares[name], f.channels.alike[name] = best.columns, h.squares, best.alike
	}
	f.channels.rows[x.maker.weight.Name] = best.columns
	if x.bias != "" {
		f.channels.rows[x.bias] = best.columns
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

// tryBytes is what a worker takes to try all choices for a row.
func tryBytes(columns int64) int64 { return columns * (2*powers*8 + 4 + 4) }

// try adds to each choice the squared error of what a layer computes with it, by some of its rows.
func (f *Folder) try(ctx context.Context, it *item, h *hessian, tries []*turned, lost []float64) error {
	n := min(it.rows, triedRows)
	sums, bad := make([][]float64, n), make([]error, n)
	var rooms sync.Pool
	err := shareOut(ctx, int(n), func(i int) {
		room, _ := rooms.Get().(*tryRoom)
		if room == nil {
			room = newTryRoom(it, len(tries))
		}
		defer rooms.Put(room)
		sums[i], bad[i] = make([]float64, len(tries)), f.tryRow(ctx, it, int64(i)*it.rows/n, tries, room)
		h.weigh(room.off, sums[i])
	})
	for i := range bad {
		if bad[i] != nil {
			return bad[i]
		}
	}
	if err != nil {
		return err
	}
	for _, row := range sums {
		for p, sum := range row {
			lost[p] += sum * float64(it.rows) / float64(n)
		}
	}
	return nil
}

// A tryRoom is what a worker needs to try choices.
type tryRoom struct {
	raw     []byte
	numbers []float32
	off     [][]float64 // what a row's numbers are off by, for each choice
}

func newTryRoom(it *item, tries int) *tryRoom {
	room := &tryRoom{raw: make([]byte, it.columns*int64(it.weight.DType.Size())), numbers: make([]float32, it.columns)}
	for range tries {
		room.off = append(room.off, make([]float64, it.columns))
	}
	return room
}

// tryRow finds what the numbers of a row are off by with each choice.
func (f *Folder) tryRow(ctx context.Context, it *item, row int64, tries []*turned, room *tryRoom) error {
	if err := it.weight.Span().ReadAt(ctx, room.raw, row*int64(len(room.raw))); err != nil {
		return err
	}
	k := integers{f.opts.Scheme.bits(), it.weight.DType}
	size, top := it.columns/f.opts.Scheme.groups(it.columns), float32(int(1)<<k.bits-1)
	for p, t := range tries {
		decode(room.numbers, room.raw, it.weight.DType)
		if all := t.turn(room.numbers, 0); all-all != 0 {
			return &notFinite{name: it.weight.Name, row: row, value: float32(all)}
		}
		for first := int64(0); first < it.columns; first += size {
			group, off := room.numbers[first:][:size], room.off[p][first:][:size]
			s, z := k.fit(group, t.weightsOf(first, size), f.opts.Scheme.Minimum)
			for i, v := range group {
				code := k.code(v, 1/s, z, top)
				off[i] = (float64(v) - float64(rounded((code-z)*s, k.dtype))) / float64(t.columns[first+int64(i)])
			}
		}
	}
	return nil
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
