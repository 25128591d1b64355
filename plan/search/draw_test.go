package search

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// lower is a device whose ops need scratch memory for a row of their weights, and take them packed in pairs of rows.
// Sums may be written over what is added.
func lower(g *graph.Graph) (*graph.Lowered, error) {
	l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	for i, op := range g.Ops {
		switch op.Kind {
		case "add":
			l.Steps[i].InPlace = []int{0, 1}
		case "relu":
			l.Steps[i].InPlace = []int{0}
		case "linear":
			n, k := op.In[1].Layout.Shape[0], op.In[1].Layout.Shape[1]
			l.Steps[i].WorkBytes = int64(n) * 4
			l.Steps[i].Packs = []graph.Pack{{In: 1, Bytes: int64((n + 1) / 2 * 2 * k * 4), Form: "pairs", Step: 2, Copy: n%2 == 0}}
		}
	}
	return l, nil
}

// A builder makes graphs for tests.
type builder struct {
	t   fatal
	g   *graph.Graph
	src *nowhere
	// guard is that of ops to come.
	guard []graph.Guard
}

func newBuilder(t fatal) *builder { return &builder{t: t, g: &graph.Graph{}, src: &nowhere{}} }

func (b *builder) weight(name string, shape ...int) graph.Operand {
	n := int64(4)
	for _, d := range shape {
		n *= int64(d)
	}
	w := b.g.AddWeight(tensor.Weight{
		Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(shape...),
		Extent: storage.Extent{Source: b.src, Offset: b.src.bytes, Bytes: n},
	}, graph.Weight)
	b.src.bytes += n
	return graph.Operand{Value: w, Layout: tensor.Contiguous(shape...)}
}

func (b *builder) emit(path string, kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) graph.ValueID {
	out, err := b.g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, Attrs: attrs, In: in, Guard: b.guard})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

// A drawing is a graph of layers of one width being drawn at random: weights of all sizes in two files, some of them
// tied, some read in views that overlap, and some that cannot be split; skips, branches, constants, further inputs,
// buffers that the program changes, and tables of which rows are looked up.
type drawing struct {
	*builder
	t           *rapid.T
	rows, width int
	ids         graph.ValueID
	values      []graph.ValueID
	squares     []graph.Operand
	files       [2]*nowhere
}

// drawGraph returns such a graph.
func drawGraph(t *rapid.T) *graph.Graph {
	d := &drawing{
		builder: newBuilder(t), t: t,
		rows: rapid.IntRange(1, 20).Draw(t, "rows"), width: rapid.IntRange(1, 60).Draw(t, "width") * 8,
	}
	d.files = [2]*nowhere{d.src, {}}
	d.ids = d.g.AddInput("ids", tensor.Int64, tensor.Shape{d.rows})
	table := d.weight("table", rapid.IntRange(2, 2000).Draw(t, "table"), d.width)
	d.values = []graph.ValueID{d.emit("embed", "embedding", nil, table, d.g.Whole(d.ids))}
	for i := range rapid.IntRange(1, 12).Draw(t, "layers") {
		d.src = d.files[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "file")]
		d.values = append(d.values, d.layer(fmt.Sprintf("layers.%d", i), d.values[rapid.IntRange(max(0, len(d.values)-2), len(d.values)-1).Draw(t, "from")]))
	}
	logits := d.emit("head", "linear", nil, d.g.Whole(d.values[len(d.values)-1]), table)
	d.g.Outputs = append(d.g.Outputs, graph.Output{Name: "logits", Operand: d.g.Whole(logits)})
	if rapid.Bool().Draw(t, "hidden") {
		d.g.Outputs = append(d.g.Outputs, graph.Output{Name: "hidden", Operand: d.g.Whole(d.values[0])})
	}
	if rapid.IntRange(0, 3).Draw(t, "packed") == 0 {
		inPacked(d.g)
	}
	return d.g
}

// layer draws what is made of x.
func (d *drawing) layer(path string, x graph.ValueID) graph.ValueID {
	t, g, width := d.t, d.g, d.width
	add := func(o graph.Operand) graph.ValueID { return d.emit(path, "add", nil, g.Whole(x), o) }
	switch kind := rapid.SampledFrom([]string{
		"linear", "wide", "matmul", "tied", "add", "relu", "first", "turned", "views", "branch", "const", "input", "state", "kept", "lookup",
	}).Draw(t, "kind"); {
	case kind == "linear" || kind == "tied" && len(d.squares) == 0:
		w := d.weight(path+".weight", width, width)
		d.squares = append(d.squares, w)
		if rapid.IntRange(0, 5).Draw(t, "goes out") == 0 {
			g.Outputs = append(g.Outputs, graph.Output{Name: path, Operand: w})
		}
		return d.emit(path, "linear", nil, g.Whole(x), w, d.weight(path+".bias", width))
	case kind == "tied":
		return d.emit(path, "linear", nil, g.Whole(x), d.squares[rapid.IntRange(0, len(d.squares)-1).Draw(t, "tied")])
	case kind == "wide":
		n := rapid.IntRange(1, 3000).Draw(t, "wide")
		h := d.emit(path+".up", "linear", nil, g.Whole(x), d.weight(path+".up.weight", n, width))
		return d.emit(path+".down", "linear", nil, g.Whole(h), d.weight(path+".down.weight", width, n))
	case kind == "matmul":
		return d.emit(path, "matmul", graph.Attrs{"alpha": 1.0}, g.Whole(x), d.weight(path+".weight", width, width))
	case kind == "add":
		return add(g.Whole(d.values[rapid.IntRange(0, len(d.values)-1).Draw(t, "skip")]))
	case kind == "turned": // a matrix whose columns lie one after the other
		w := d.weight(path+".weight", rapid.IntRange(1, 3000).Draw(t, "columns"), width)
		w.Layout.Shape[0], w.Layout.Shape[1] = w.Layout.Shape[1], w.Layout.Shape[0]
		w.Layout.Strides[0], w.Layout.Strides[1] = w.Layout.Strides[1], w.Layout.Strides[0]
		h := d.emit(path+".up", "matmul", graph.Attrs{"alpha": 1.0}, g.Whole(x), w)
		return d.emit(path+".down", "linear", nil, g.Whole(h), d.weight(path+".down.weight", width, w.Layout.Shape[1]))
	case kind == "first": // a value and its first row
		row := g.Whole(x)
		row.Layout.Strides = []int{0, 1}
		return add(row)
	case kind == "views": // the second half of a weight, then all of it or what begins before
		w := d.weight(path+".weight", 2*width, width)
		view := func(first, rows int) graph.Operand {
			v := w
			v.Layout.Shape, v.Layout.Offset = tensor.Shape{rows, width}, first*width
			return v
		}
		h := d.emit(path+".a", "linear", nil, g.Whole(x), view(width, width))
		if rapid.Bool().Draw(t, "third") {
			d.emit(path+".c", "linear", nil, g.Whole(x), view(0, rapid.IntRange(1, width).Draw(t, "view")))
		}
		return d.emit(path+rapid.SampledFrom([]string{".a", ".b"}).Draw(t, "second"), "linear", nil, g.Whole(h),
			view(rapid.SampledFrom([]int{0, width / 2, width}).Draw(t, "at"), width))
	case kind == "branch":
		return d.branch(path, x)
	case kind == "const":
		data := make([]byte, 4*width*rapid.SampledFrom([]int{1, d.rows}).Draw(t, "const"))
		c := g.AddConst(&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(len(data)/4/width, width), Data: data})
		o := g.Whole(c)
		if o.Layout.Shape[0] == 1 { // as broadcast
			o.Layout.Shape, o.Layout.Strides = tensor.Shape{d.rows, width}, []int{0, 1}
		}
		return add(o)
	case kind == "input":
		return add(g.Whole(g.AddInput(path+".in", tensor.Float32, tensor.Shape{d.rows, width})))
	case kind == "state":
		return d.state(path, x)
	case kind == "kept": // a weight that goes out as it is, and may be read
		w := d.weight(path+".weight", d.rows, width)
		out := w
		out.Layout.Shape = tensor.Shape{rapid.IntRange(1, d.rows).Draw(t, "out"), width}
		g.Outputs = append(g.Outputs, graph.Output{Name: path, Operand: out})
		if rapid.Bool().Draw(t, "read") {
			return add(w)
		}
		return d.emit(path, "relu", nil, g.Whole(x))
	case kind == "lookup": // by numbers that are computed, or in a table whose rows overlap
		ids, table := d.ids, d.weight(path+".table", rapid.IntRange(2, 2000).Draw(t, "table"), width)
		switch rapid.IntRange(0, 2).Draw(t, "by") {
		case 0:
			ids = d.emit(path, "add", nil, g.Whole(d.ids), g.Whole(d.ids))
		case 1:
			table.Layout.Strides = []int{width / 2, 1}
		}
		return add(g.Whole(d.emit(path, "embedding", nil, table, g.Whole(ids))))
	}
	return d.emit(path, "relu", nil, g.Whole(x))
}

// branch draws two ways to make a value of x, of which a condition that the program computes picks one.
func (d *drawing) branch(path string, x graph.ValueID) graph.ValueID {
	t, g := d.t, d.g
	truth := d.emit(path, "any", graph.Attrs{"dims": []int{0, 1}, "keepdim": false}, g.Whole(x))
	way := func(want bool, name string) graph.ValueID {
		d.guard = []graph.Guard{{Predicate: g.Whole(truth), Want: want}}
		y := x
		for k := range rapid.IntRange(1, 3).Draw(t, name) {
			step := fmt.Sprintf("%s.%s.%d", path, name, k)
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				y = d.emit(step, "linear", nil, g.Whole(y), d.weight(step+".weight", d.width, d.width))
			case 1:
				table := d.weight(step+".table", rapid.IntRange(2, 2000).Draw(t, "rows"), d.width)
				y = d.emit(step, "add", nil, g.Whole(y), g.Whole(d.emit(step, "embedding", nil, table, g.Whole(d.ids))))
			case 2:
				y = d.emit(step, "add", nil, g.Whole(y), g.Whole(x))
			default:
				y = d.emit(step, "relu", nil, g.Whole(y))
			}
		}
		d.guard = nil
		return y
	}
	yes, no := way(true, "yes"), way(false, "no")
	if rapid.IntRange(0, 2).Draw(t, "none picked") == 0 {
		return d.emit(path, "relu", nil, g.Whole(x))
	}
	return d.emit(path, "choose", nil, g.Whole(truth), g.Whole(yes), g.Whole(no))
}

// state draws a buffer that is read and, mostly, becomes what is computed.
func (d *drawing) state(path string, x graph.ValueID) graph.ValueID {
	g, n := d.g, int64(4*d.rows*d.width)
	state := g.AddWeight(tensor.Weight{
		Name: path + ".buffer", DType: tensor.Float32, Layout: tensor.Contiguous(d.rows, d.width),
		Extent: storage.Extent{Source: d.src, Offset: d.src.bytes, Bytes: n},
	}, graph.State)
	d.src.bytes += n
	view := graph.Operand{Value: state, Layout: tensor.Contiguous(d.rows, d.width)}
	next := d.emit(path, "add", nil, g.Whole(x), view)
	switch rapid.IntRange(0, 3).Draw(d.t, "becomes") {
	case 0:
		g.Updates = append(g.Updates, graph.StateUpdate{State: state, Operand: g.Whole(next)})
		return x
	case 1:
		g.Updates = append(g.Updates, graph.StateUpdate{State: state, Operand: g.Whole(next)})
		return d.emit(path, "relu", nil, g.Whole(next))
	case 2:
		g.Updates = append(g.Updates, graph.StateUpdate{State: state, Operand: g.Whole(next)})
	}
	return next
}

// drawOptions returns options for a graph, without a budget.
func drawOptions(t *rapid.T, g *graph.Graph) Options {
	o := Options{
		Mode:      rapid.SampledFrom([]plan.Mode{plan.Page, plan.Auto, plan.Chunk}).Draw(t, "mode"),
		Target:    rapid.SampledFrom([]plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}}).Draw(t, "target"),
		Instances: rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "instances"),
		Slots:     rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "slots"),
		Once:      rapid.Bool().Draw(t, "once"),
	}
	if len(g.Updates) > 0 { // each pass begins with what the one before made of them
		o.Instances = 1
	}
	if o.Target.Direct && rapid.Bool().Draw(t, "file") {
		o.SwapBytes = rapid.Int64Range(1<<12, 1<<20).Draw(t, "swap")
	}
	if rapid.Bool().Draw(t, "slow bus") {
		o.Rates.CopyBytes = 100e6
	}
	if rapid.Bool().Draw(t, "lower") {
		o.Lower = lower
		if !o.Target.Direct && rapid.Bool().Draw(t, "host") {
			o.HostLower = lower
		}
	}
	if o.Mode == plan.Chunk {
		o.Capacity = plan.Limit{N: rapid.Int64Range(0, 1<<21).Draw(t, "capacity"), Unit: plan.Params}
	}
	if rapid.Bool().Draw(t, "groups") {
		o.MaxGroup = plan.Limit{N: rapid.Int64Range(0, 1<<20).Draw(t, "max group"), Unit: plan.Params}
	}
	return o
}
