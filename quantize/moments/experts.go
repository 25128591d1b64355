package moments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/tensor"
)

// An expertInput is what an expert's gate and up, or its down, are given: op is that of all experts of a layer.
type expertInput struct {
	op, expert int
	down       bool
}

// expertInputs returns what the experts of a graph are given, by the name of the first weight that is multiplied by it,
// and the names in order with those of the weights that share it. Weights that are parts of a tensor of all experts have the
// names that package quantize gives them. Experts are left out whose weights are read by anything else.
func expertInputs(g *graph.Graph) (inputs map[string]expertInput, names [][]string) {
	weights, reads := wholeWeights(g)
	inputs = make(map[string]expertInput)
	for i := range g.Ops {
		op := &g.Ops[i]
		if op.Kind != "experts" || len(op.Guard) > 0 || g.Spec(op.In[0]).DType != tensor.Float32 {
			continue
		}
		each := graph.ExpertOperands(op.Attrs)
		own := make([][graph.LentOperands]string, op.Attrs.Int("experts"))
		parts := make(map[string]int) // how many operands are of a tensor
		for e := range own {
			for k := range own[e] {
				in := op.In[graph.ExpertsFirst+e*each+k]
				if w := weights[in.Value]; w.Weight != nil {
					if own[e][k] = w.nameOf(in, e, k); own[e][k] != "" {
						parts[w.Name]++
					}
				}
			}
		}
		for e, own := range own {
			gate, up, down := own[0], own[1], own[2]
			given := []string{gate, up}
			if gate == up { // without gates, what is multiplied is the same twice
				given = given[:1]
			}
			alone := gate != "" && up != "" && down != ""
			for k := range own {
				w := weights[op.In[graph.ExpertsFirst+e*each+k].Value]
				alone = alone && reads[w.Name] == parts[w.Name]
			}
			if !alone {
				continue
			}
			inputs[gate], inputs[down] = expertInput{i, e, false}, expertInput{i, e, true}
			names = append(names, given, []string{down})
		}
	}
	return inputs, names
}

// A stored is a weight that a value is: all of it, or a part that was widened, whose layout it is then.
type stored struct {
	*tensor.Weight
	part *tensor.Layout
}

// nameOf is what the tensor of an expert's operand is called, "" where it is none. The operands are the gate, the up and the down.
func (s stored) nameOf(in graph.Operand, expert, operand int) string {
	shape, l := s.Layout.Shape, in.Layout
	switch {
	case s.part != nil:
		if !isWhole(in, s.part.Shape) {
			return ""
		}
		l = *s.part
	case isWhole(in, shape):
		return s.Name
	}
	if len(shape) != 3 || len(l.Shape) != 2 || l.Offset/(shape[1]*shape[2]) != expert {
		return ""
	}
	at := strings.LastIndexByte(s.Name, '.') + 1
	name := s.Name[at:]
	switch {
	case name == "gate_up_proj" && operand == 0:
		name = "gate_proj"
	case name == "gate_up_proj" && operand == 1:
		name = "up_proj"
	case name != "gate_proj" && name != "up_proj" && name != "down_proj":
		return ""
	}
	return fmt.Sprintf("%s%d.%s.weight", s.Name[:at], expert, name)
}

// wholeWeights returns the weights of a graph by values, also by those of what they, or parts of them, are widened to, and how many
// operands of other ops each is, by name.
func wholeWeights(g *graph.Graph) (map[graph.ValueID]stored, map[string]int) {
	weights, reads := make(map[graph.ValueID]stored), make(map[string]int)
	for i := range g.Values {
		if v := &g.Values[i]; v.Role == graph.Weight {
			weights[graph.ValueID(i)] = stored{Weight: &v.Weight}
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		for _, in := range op.In {
			w := weights[in.Value]
			widened := op.Kind == "cast" && w.Weight != nil && w.part == nil && g.Values[op.Out[0]].DType == tensor.Float32
			switch {
			case w.Weight == nil:
			case widened && isWhole(in, w.Layout.Shape):
				weights[op.Out[0]] = w
			case widened && len(w.Layout.Shape) == 3:
				weights[op.Out[0]] = stored{Weight: w.Weight, part: &in.Layout}
			default:
				reads[w.Name]++
			}
		}
	}
	return weights, reads
}

// isWhole reports whether an operand is all of a weight, in order.
func isWhole(in graph.Operand, weight tensor.Shape) bool {
	return in.Layout.IsContiguous() && in.Layout.Offset == 0 && in.Layout.Shape.Equal(weight)
}

// An expertGraph emits what an expert's moments are computed of.
type expertGraph struct {
	g  *graph.Graph
	op *graph.Op
	e  expertInput
	// ids and weights are those of rows by place; named is whether an id is the expert's.
	ids, weights, named graph.Operand
	err                 error
}

// expertMoment emits the sum of x·xᵀ over the rows x that an expert is given, and the number of these.
func expertMoment(g *graph.Graph, op *graph.Op, e expertInput) (sum, rows graph.Operand, err error) {
	x := &expertGraph{g: g, op: op, e: e, ids: op.In[1], weights: op.In[2]}
	shape := x.ids.Layout.Shape
	x.named = x.emit("eq", nil, x.ids, x.constant(shape, tensor.Int64, e.expert))
	// Every row has one place at most that names the expert.
	is := x.emit("amax", graph.Attrs{"dims": []int{len(shape) - 1}, "keepdim": true},
		x.emit("cast", graph.Attrs{"dtype": tensor.Float32}, x.named))
	every := make([]int, len(shape))
	for i := range every {
		every[i] = i
	}
	rows = x.emit("sum", graph.Attrs{"dims": every, "keepdim": false, "dtype": tensor.Float32}, is)
	given := x.rows(is)
	if e.down {
		given = x.activations()
	}
	if x.err == nil {
		sum, x.err = moment(g, op.Path, given)
	}
	return sum, rows, x.err
}

func (x *expertGraph) emit(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) graph.Operand {
	if x.err != nil {
		return graph.Operand{}
	}
	out, err := emit(x.g, graph.Op{Kind: kind, Path: x.op.Path, Attrs: attrs, In: in})
	x.err = err
	return out
}

// constant is a tensor of one number.
func (x *expertGraph) constant(shape tensor.Shape, dtype tensor.DType, value int) graph.Operand {
	attrs := graph.Attrs{"dtype": dtype, "size": 1, "start": value, "step": 0}
	if dtype == tensor.Float32 {
		attrs["start"], attrs["step"] = float64(value), 0.0
	}
	one := x.emit("arange", attrs)
	one.Layout = tensor.Layout{Shape: slices.Clone(shape), Strides: make([]int, len(shape))}
	return one
}

// rows are those of the layer that go through the expert, and zeros; a router may weigh rows before experts.
func (x *expertGraph) rows(is graph.Operand) graph.Operand {
	if x.op.Attrs.Bool("weigh_input") {
		named := x.emit("cast", graph.Attrs{"dtype": tensor.Float32}, x.named)
		weighed := x.emit("mul", nil, named, x.weights)
		is = x.emit("sum", graph.Attrs{"dims": []int{len(x.ids.Layout.Shape) - 1}, "keepdim": true,
			"dtype": tensor.Float32}, weighed)
	}
	in := x.op.In[0]
	wide := is
	wide.Layout.Shape = in.Layout.Shape
	wide.Layout.Strides = slices.Clone(is.Layout.Strides)
	if n := len(wide.Layout.Strides); n > 0 {
		wide.Layout.Strides[n-1] = 0
	}
	return x.emit("mul", nil, in, wide)
}

// activations are what the expert's down is given, and zeros for rows that do not go through it. They are what a layer
// of this expert alone gives, whose down passes its inputs on, as many at a time as the layer has outputs.
func (x *expertGraph) activations() graph.Operand {
	each := graph.ExpertOperands(x.op.Attrs)
	weights := x.op.In[graph.ExpertsFirst+x.e.expert*each:][:each]
	if x.err != nil || len(weights[2].Layout.Shape) != 2 {
		x.err = fmt.Errorf("%w: an expert without a shape", perplexity.ErrModel)
		return graph.Operand{}
	}
	hidden, inner := weights[2].Layout.Shape[0], weights[2].Layout.Shape[1]
	count := inner/hidden + 1 // one more number than there are
	wide := count * hidden
	// Row h of a diagonal that begins n columns before the end of a row has its one in column n·hidden + h.
	ones := x.emit("eye", graph.Attrs{"dtype": tensor.Float32, "rows": hidden + 1, "columns": wide})
	attrs := graph.Attrs{"experts": 1}
	for _, name := range []string{"act", "alpha", "limit", "weigh_input", "biased"} {
		if v, ok := x.op.Attrs[name]; ok {
			attrs[name] = v
		}
	}
	ids := x.emit("sub", nil, x.emit("cast", graph.Attrs{"dtype": tensor.Int64}, x.named),
		x.constant(x.ids.Layout.Shape, tensor.Int64, 1))
	by := x.weights
	if !x.op.Attrs.Bool("weigh_input") {
		by = x.emit("cast", graph.Attrs{"dtype": tensor.Float32}, x.named)
	}
	var parts []graph.Operand
	for n := 0; n*hidden < inner; n++ {
		pass := ones
		pass.Layout = tensor.Layout{Shape: tensor.Shape{hidden, inner}, Strides: []int{wide, 1},
			Offset: wide + 1 - n*hidden}
		in := []graph.Operand{x.op.In[0], ids, by, weights[0], weights[1], pass}
		if each > graph.LentOperands {
			in = append(in, weights[3], weights[4], x.constant(tensor.Shape{hidden}, tensor.Float32, 0))
		}
		parts = append(parts, x.emit("experts", attrs, in...))
	}
	all := parts[0]
	if len(parts) > 1 {
		all = x.emit("cat", graph.Attrs{"dim": len(all.Layout.Shape) - 1}, parts...)
	}
	if x.err == nil {
		all.Layout.Shape = slices.Clone(all.Layout.Shape)
		all.Layout.Shape[len(all.Layout.Shape)-1] = inner
	}
	return all
}

// addExperts adds what experts are given.
func (t *Text) addExperts(g *graph.Graph) {
	inputs, names := expertInputs(g)
	for _, shared := range names {
		first := shared[0]
		e := inputs[first]
		op := &g.Ops[e.op]
		width := op.In[0].Layout.Shape[len(op.In[0].Layout.Shape)-1]
		if e.down {
			width = op.In[graph.ExpertsFirst].Layout.Shape[0]
		}
		t.widths[first], t.routed[first] = width, 0
		for _, name := range shared {
			t.inputs[name] = first
		}
	}
}
