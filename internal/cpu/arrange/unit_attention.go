package arrange

import (
	"maps"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/tensor"
)

// A unitHeads is attention over rows of bfloat16.
type unitHeads struct {
	attention *blocked.UnitAttention
	// q, k and v are the values of the graph whose rows have the heads side by side.
	q, k, v graph.ValueID
	// rows and columns are the result's, readers the operands that show them.
	rows, columns int
	readers       []graph.Operand
	made          []graph.ValueID
}

// findAttentions finds attention whose queries, keys, values and results are heads side by side in rows.
func (n *rowNarrower) findAttentions() {
	for i := range n.g.Ops {
		op := &n.g.Ops[i]
		if op.Kind != "scaled_dot_product_attention" || !rounds(op.Attrs) || len(op.Out) != 1 || len(op.Guard) > 0 {
			continue
		}
		if h := n.heads(op); h != nil {
			n.attentions[i] = h
		}
	}
	// Copies of queries, keys and values that only such attention reads.
	for i := range n.g.Ops {
		op := &n.g.Ops[i]
		if op.Kind != "copy" || len(op.Guard) > 0 {
			continue
		}
		only := len(n.readers[op.Out[0]]) > 0
		for _, r := range n.readers[op.Out[0]] {
			h := n.attentions[max(r, 0)]
			only = only && r >= 0 && h != nil && (len(n.g.Ops[r].In) < 4 || n.g.Ops[r].In[3].Value != op.Out[0])
		}
		if only {
			n.dissolved[i] = true
		}
	}
}

// heads returns how attention is computed over rows, nil where it is not.
func (n *rowNarrower) heads(op *graph.Op) *unitHeads {
	rank := len(op.In[0].Layout.Shape)
	q, k, v := op.In[0].Layout.Shape, op.In[1].Layout.Shape, op.In[2].Layout.Shape
	if n.g.Spec(op.In[0]).DType != tensor.Float32 || rank < 2 || volume(q) == 0 || volume(k) == 0 || volume(v) == 0 {
		return nil
	}
	if len(op.In) > 3 && op.In[3].Value != graph.NoValue {
		if d := n.g.Spec(op.In[3]).DType; d != tensor.Bool && d != tensor.Float32 {
			return nil
		}
	}
	h := &unitHeads{}
	a := blocked.UnitAttention{
		Queries: q[rank-2], Keys: k[rank-2], Width: q[rank-1], ValueWidth: v[rank-1],
		Scale: float32(op.Attrs.Float("scale")), Causal: op.Attrs.Bool("is_causal"),
	}
	if op.Attrs.Bool("unseen_nan") {
		a.Unseen = float32(math.NaN())
	}
	var ok [4]bool
	h.q, a.Q, ok[0] = n.headsOf(op.In[0])
	h.k, a.K, ok[1] = n.headsOf(op.In[1])
	h.v, a.V, ok[2] = n.headsOf(op.In[2])
	a.Y, ok[3] = n.headsMade(op, h)
	if ok != [4]bool{true, true, true, true} {
		return nil
	}
	attention, err := blocked.NewUnitAttention(a, n.set)
	if err != nil {
		return nil
	}
	h.attention = attention
	copied := n.readers[op.Out[0]][0]
	n.dissolved[copied] = true
	h.made = []graph.ValueID{op.Out[0], n.g.Ops[copied].Out[0]}
	return h
}

// run returns how many elements of a layout, in row-major order, lie one behind the other from each multiple of that number
// on.
func run(l tensor.Layout) int {
	n := 1
	for d := len(l.Shape) - 1; d >= 0 && (l.Shape[d] == 1 || l.Strides[d] == n); d-- {
		n *= l.Shape[d]
	}
	return n
}

// headsOf returns the value in whose rows an operand [… T D] shows heads side by side, and where they lie. It looks through
// a copy.
func (n *rowNarrower) headsOf(o graph.Operand) (graph.ValueID, blocked.UnitHeads, bool) {
	shape := o.Layout.Shape
	rows, width := shape[len(shape)-2], shape[len(shape)-1]
	whole := run(o.Layout)%width == 0
	at := func(i int) int { return o.Layout.OffsetOf(i) }
	base := o.Value
	if maker := n.makers[base]; maker != nil && maker.Kind == "copy" && len(maker.Guard) == 0 {
		from := maker.In[0]
		base, whole = from.Value, whole && run(from.Layout)%width == 0
		at = func(i int) int {
			i = o.Layout.OffsetOf(i)
			whole = whole && i%width == 0
			return from.Layout.OffsetOf(i)
		}
	}
	value := n.g.Values[base]
	if !whole || value.DType != tensor.Float32 || len(value.Shape) == 0 || width%blocked.UnitLanes != 0 {
		return 0, blocked.UnitHeads{}, false
	}
	columns := value.Shape[len(value.Shape)-1]
	h := blocked.UnitHeads{Rows: volume(value.Shape) / columns, RowStep: 1}
	for m := range volume(shape[:len(shape)-2]) {
		first := at(m * rows * width)
		if m == 0 && rows > 1 {
			h.RowStep = (at(width) - first) / columns
		}
		if first%columns%blocked.UnitLanes != 0 || first%columns+width > columns {
			return 0, h, false
		}
		for r := range rows {
			if at((m*rows+r)*width) != first+r*h.RowStep*columns || !whole {
				return 0, h, false
			}
		}
		h.First = append(h.First, (first%columns/blocked.UnitLanes*h.Rows+first/columns)*blocked.UnitLanes)
	}
	return base, h, true
}

// headsMade returns where the heads that attention makes lie in the rows that linears read, through a copy that nothing else
// reads.
func (n *rowNarrower) headsMade(op *graph.Op, h *unitHeads) (blocked.UnitHeads, bool) {
	var heads blocked.UnitHeads
	readers := n.readers[op.Out[0]]
	if len(readers) != 1 || readers[0] < 0 {
		return heads, false
	}
	copied := &n.g.Ops[readers[0]]
	if copied.Kind != "copy" || len(copied.Guard) > 0 || len(n.readers[copied.Out[0]]) == 0 {
		return heads, false
	}
	whole := volume(copied.In[0].Layout.Shape)
	for _, i := range n.readers[copied.Out[0]] {
		if i < 0 || n.linears[i] == nil {
			return heads, false
		}
		for k, o := range n.g.Ops[i].In {
			if o.Value != copied.Out[0] {
				continue
			}
			columns := o.Layout.Shape[len(o.Layout.Shape)-1]
			if k != 0 || o.Layout.Offset != 0 || !o.Layout.IsContiguous() || volume(o.Layout.Shape) != whole ||
				h.columns != 0 && columns != h.columns || columns%blocked.UnitLanes != 0 {
				return heads, false
			}
			h.columns = columns
			h.readers = append(h.readers, o)
		}
	}
	shape := n.g.Values[op.Out[0]].Shape
	tokens, width := shape[len(shape)-2], shape[len(shape)-1]
	from := copied.In[0].Layout
	if whole != volume(shape) || width%blocked.UnitLanes != 0 || h.columns%width != 0 || run(from)%width != 0 {
		return heads, false
	}
	h.rows = whole / h.columns
	heads = blocked.UnitHeads{Rows: h.rows, RowStep: 1, First: make([]int, whole/tokens/width)}
	for i := range heads.First {
		heads.First[i] = -1
	}
	// Rows come in order, so that the first token of each head comes before its others.
	for i := 0; i < whole; i += width {
		first := from.OffsetOf(i)
		head, token := first/(tokens*width), first/width%tokens
		at := (i%h.columns/blocked.UnitLanes*h.rows + i/h.columns) * blocked.UnitLanes
		if token == 0 {
			heads.First[head] = at
		}
		if first%width != 0 || heads.First[head] < 0 || at != heads.First[head]+token*blocked.UnitLanes {
			return heads, false
		}
	}
	return heads, true
}

// attention adds attention.
func (n *rowNarrower) attention(op graph.Op, h *unitHeads) {
	rows := func(id graph.ValueID) graph.Operand { return n.rows(n.g.Whole(id)) }
	in := []graph.Operand{rows(h.q), rows(h.k), rows(h.v), graph.Absent}
	if len(op.In) > 3 {
		in[3] = op.In[3]
	}
	half := n.value(h.rows, h.columns)
	op.Kind, op.Attrs, op.In, op.Out = "attention32", maps.Clone(op.Attrs), in, []graph.ValueID{half}
	op.Attrs["attention"], op.Attrs["set"] = h.attention, n.set
	n.out.Ops = append(n.out.Ops, op)
	for _, o := range h.readers {
		n.halves[rowsKey(n.g, o)] = half
	}
	for _, id := range h.made {
		n.rounded[id] = half
	}
}
