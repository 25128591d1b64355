// Package moments runs a language model over a text and adds up the second moments of what its linear layers are given:
// for each input x of a layer x·xᵀ, which is what GPTQ weighs a weight's errors by. It is the calibration of package
// quantize.
//
// The products are ops of the model's own graph, so that they are planned, paged and computed as everything else is. A
// pass computes the moments of as many inputs as memory allows, and of the model only what these need; a text is read
// once for each such set.
//
// It is a package of its own since it runs models, which quantize does not. It does not know tokenizers, folders or
// codes.
//
//	text, err := moments.Of(model, tokens, moments.Options{})
//	f, err := quantize.Open(ctx, "Qwen3-4B", quantize.Options{Scheme: scheme, Calibration: text})
package moments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Options say how a text is read. The zero value is right.
type Options struct {
	// Context is how many tokens a window has at most; 0 is [perplexity.DefaultContext], or what the model was made for
	// where that is less. Windows follow each other.
	Context int
	// MemoryBytes bounds what the model's session and the moments take together. At most half of it is for moments,
	// unless those of one input take more. 0 is what a session finds free.
	MemoryBytes int64
	// Session is how the session runs: its mode, device, …. Its memory is what MemoryBytes leaves.
	Session runtime.Options
	// Done, where it is not nil, is told how many tokens more were read; passes of several sets of inputs begin again.
	Done func(tokens int)
}

// A Text is a text that a model reads, with what its layers are given.
type Text struct {
	model  *models.Model
	tokens []uint32
	opts   Options
	length int
	// inputs are those of the layers, by weights; the name of an input is that of the first weight that is multiplied
	// by it.
	inputs map[string]string
	widths map[string]int
	// routed are how many rows of the text experts were given, by inputs: 0 until it was read for them.
	routed map[string]int64
}

// ErrMemory says that the moments of one input take more than there is.
var ErrMemory = errors.New("not enough memory for what a layer is given")

// Of finds the linear layers of a model. The model's checkpoint must be open as long as the text is used.
func Of(model *models.Model, tokens []uint32, opts Options) (*Text, error) {
	length, err := perplexity.Context(model, opts.Context)
	if err != nil {
		return nil, err
	}
	if len(tokens) < 2 {
		return nil, perplexity.ErrShort
	}
	t := &Text{model: model, tokens: tokens, opts: opts, length: min(length, len(tokens))}
	t.inputs, t.widths, t.routed = make(map[string]string), make(map[string]int), make(map[string]int64)
	g, err := model.Graph(map[string]tensor.Shape{idsInput: {1, t.length}})
	if err != nil {
		return nil, err
	}
	// Layers are given the same if their operands are the same, one by one where a layer is used several times.
	same := make(map[string]string)
	weights, products := linears(g)
	for _, name := range weights {
		var given []graph.Operand
		for _, op := range products[name] {
			given = append(given, g.Ops[op].In[0])
		}
		key := fmt.Sprint(given)
		if same[key] == "" {
			same[key] = name
			shape := given[0].Layout.Shape
			t.widths[name] = shape[len(shape)-1]
		}
		t.inputs[name] = same[key]
	}
	t.addExperts(g)
	return t, nil
}

// idsInput is the model's input.
const idsInput = "input_ids"

// linears returns the names of the weights of a graph's linear layers, in order, and the ops in which each is
// multiplied. A weight that anything else reads, or part of which is read, is left out.
func linears(g *graph.Graph) ([]string, map[string][]int) {
	weights := make(map[graph.ValueID]*tensor.Weight) // also of what a weight was widened to
	for i := range g.Values {
		if v := &g.Values[i]; v.Role == graph.Weight {
			weights[graph.ValueID(i)] = &v.Weight
		}
	}
	var names []string
	products, others := make(map[string][]int), make(map[string]bool)
	for i := range g.Ops {
		op := &g.Ops[i]
		for k, in := range op.In {
			w := weights[in.Value]
			if w == nil {
				continue
			}
			whole := isWhole(in, w.Layout.Shape) && len(op.Guard) == 0
			switch {
			case whole && op.Kind == "cast" && g.Values[op.Out[0]].DType == tensor.Float32:
				weights[op.Out[0]] = w
			case whole && op.Kind == "linear" && k == 1 && isFloat(g.Spec(op.In[0]).DType):
				if products[w.Name] == nil {
					names = append(names, w.Name)
				}
				products[w.Name] = append(products[w.Name], i)
			default:
				others[w.Name] = true
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return others[name] })
	return names, products
}

func isFloat(d tensor.DType) bool { return d == tensor.Float32 || d.IsHalf() }

// Input names what a layer is given: the first weight that is multiplied by it, "" where that is not known.
func (t *Text) Input(weight string) string { return t.inputs[weight] }

// Routed returns how many rows of the text the sums of an input are made of, where the model sends it only some: that of
// experts. It is known once [Text.Sums] has returned them.
func (t *Text) Routed(input string) (rows int64, ok bool) {
	rows, ok = t.routed[input]
	return rows, ok
}

// Each number of a matrix of moments is held as float64, and as float32 in a pass's output and in the plan.
const sumBytes, passBytes = 8, 4 + 4

// Sums returns the moments of as many of the inputs as memory allows, in order and of one at least, over all of the
// text. A pass's sums are of float32, those over passes of float64.
func (t *Text) Sums(ctx context.Context, inputs []string, heldBytes int64) (sums [][]float64, err error) {
	budget := t.opts.MemoryBytes - heldBytes
	session := t.opts.Session
	if t.opts.MemoryBytes == 0 {
		session.Memory = 0
		if budget, err = t.free(ctx); err != nil {
			return nil, err
		}
	}
	n, taken := 0, int64(0)
	for _, name := range inputs {
		width := int64(t.widths[name])
		need := width * width * (sumBytes + passBytes)
		if n > 0 && (taken+need > budget/2 || width == 0) {
			break
		}
		n, taken = n+1, taken+need
	}
	if n == 0 || t.widths[inputs[0]] == 0 {
		return nil, fmt.Errorf("%w: no such input", perplexity.ErrModel)
	}
	if taken >= budget {
		return nil, fmt.Errorf("%w: %d bytes, and %d more for the moments of %s", ErrMemory, budget, taken, inputs[0])
	}
	inputs = inputs[:n]
	// What the plan holds of the sums is in the session's own memory.
	session.Memory = budget - taken*(sumBytes+4)/(sumBytes+passBytes)
	session.MemoryShare = 0
	session.Extend = func(g *graph.Graph) (*graph.Graph, error) { return extended(g, inputs) }
	return t.read(ctx, inputs, session)
}

// free is what a session of the model would take of memory by itself.
func (t *Text) free(ctx context.Context) (int64, error) {
	s, err := runtime.Start(ctx, t.model, t.opts.Session)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	bytes, _ := s.Budget()
	if bytes == 0 {
		return math.MaxInt64 / 2, nil
	}
	return bytes, nil
}

// read runs the model over the text.
func (t *Text) read(ctx context.Context, inputs []string, opts runtime.Options) (sums [][]float64, err error) {
	session, err := runtime.Start(ctx, t.model, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, session.Close()) }()
	out := make(runtime.Values)
	for _, name := range inputs {
		width := t.widths[name]
		sums = append(sums, make([]float64, width*width))
		out[outputName(name)] = tensor.Of(make([]float32, width*width), width, width)
		if _, ok := t.routed[name]; ok {
			t.routed[name], out[rowsName(name)] = 0, tensor.Of(make([]float32, 1))
		}
	}
	for begin := 0; begin < len(t.tokens); begin += t.length {
		window := t.tokens[begin:min(begin+t.length, len(t.tokens))]
		ids := make([]int64, len(window))
		for i, id := range window {
			ids[i] = int64(id)
		}
		if err := session.RunInto(ctx, runtime.Values{idsInput: tensor.Of(ids, 1, len(ids))}, out); err != nil {
			return nil, err
		}
		for i, name := range inputs {
			numbers, err := tensor.Slice[float32](out[outputName(name)])
			if err != nil {
				return nil, err
			}
			if err := add(ctx, sums[i], numbers); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if rows := out[rowsName(name)]; rows != nil {
				n, err := tensor.Slice[float32](rows)
				if err != nil {
					return nil, err
				}
				t.routed[name] += int64(n[0])
			}
		}
		if t.opts.Done != nil {
			t.opts.Done(len(window))
		}
	}
	return sums, nil
}

// ErrInfinite says that a layer is given what is no finite number.
var ErrInfinite = errors.New("what a layer is given of the text is no finite number")

func add(ctx context.Context, sum []float64, numbers []float32) error {
	for i, x := range numbers {
		if x-x != 0 {
			return ErrInfinite
		}
		sum[i] += float64(x)
	}
	return ctx.Err()
}

// outputName is what an input's moments are called in a graph.
func outputName(input string) string { return "moments:" + input }

// rowsName is what the number of the rows that an expert is given is called.
func rowsName(input string) string { return "rows:" + input }

// extended returns the graph whose outputs are the moments of inputs, and no others. They are computed just before the
// first layer that is given them, so that no input waits for the end.
func extended(g *graph.Graph, inputs []string) (*graph.Graph, error) {
	wide := *g
	wide.Values, wide.Ops, wide.Outputs, wide.Updates = slices.Clip(g.Values), slices.Clip(g.Ops), nil, nil
	_, products := linears(g)
	experts, _ := expertInputs(g)
	before := make(map[int][]graph.Op) // what comes before an op
	for _, name := range inputs {
		var sum graph.Operand
		if e, ok := experts[name]; ok {
			sum, rows, err := expertMoment(&wide, &g.Ops[e.op], e)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			before[e.op] = append(before[e.op], wide.Ops[len(g.Ops):]...)
			wide.Ops = slices.Clip(wide.Ops[:len(g.Ops)])
			wide.Outputs = append(wide.Outputs, graph.Output{Name: outputName(name), Operand: sum},
				graph.Output{Name: rowsName(name), Operand: rows})
			continue
		}
		for i, at := range products[name] {
			op := &g.Ops[at]
			product, err := moment(&wide, op.Path, op.In[0])
			if err == nil && i > 0 {
				product, err = emit(&wide, graph.Op{Kind: "add", Path: op.Path, In: []graph.Operand{sum, product}})
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			before[at] = append(before[at], wide.Ops[len(g.Ops):]...)
			wide.Ops, sum = slices.Clip(wide.Ops[:len(g.Ops)]), product
		}
		wide.Outputs = append(wide.Outputs, graph.Output{Name: outputName(name), Operand: sum})
	}
	wide.Ops = nil
	for i, op := range g.Ops {
		wide.Ops = append(append(wide.Ops, before[i]...), op)
	}
	return &wide, nil
}

// moment emits what computes the sum of x·xᵀ over the rows of an operand.
func moment(g *graph.Graph, path string, in graph.Operand) (graph.Operand, error) {
	spec := g.Spec(in)
	var err error
	switch {
	case spec.DType != tensor.Float32:
		in, err = emit(g, graph.Op{Kind: "cast", Path: path, Attrs: graph.Attrs{"dtype": tensor.Float32}, In: []graph.Operand{in}})
	case !in.Layout.IsContiguous():
		in, err = emit(g, graph.Op{Kind: "copy", Path: path, In: []graph.Operand{in}})
	}
	if err != nil {
		return in, err
	}
	width := spec.Shape[len(spec.Shape)-1]
	elements, err := spec.Shape.NumElements()
	if err != nil || width == 0 || elements > math.MaxInt32 {
		return in, fmt.Errorf("%w: an input of the shape %v", perplexity.ErrModel, spec.Shape)
	}
	rows := int(elements) / width
	x, turned := in, in
	x.Layout = tensor.Layout{Shape: tensor.Shape{rows, width}, Strides: []int{width, 1}, Offset: in.Layout.Offset}
	turned.Layout = tensor.Layout{Shape: tensor.Shape{width, rows}, Strides: []int{1, width}, Offset: in.Layout.Offset}
	return emit(g, graph.Op{Kind: "matmul", Path: path, Attrs: graph.Attrs{"alpha": 1.0}, In: []graph.Operand{turned, x}})
}

func emit(g *graph.Graph, op graph.Op) (graph.Operand, error) {
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		return graph.Operand{}, err
	}
	return g.Whole(out[0]), nil
}
