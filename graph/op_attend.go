package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// BlockRows is how many positions of a sequence lie together in a cache: a block.
const BlockRows = 16

// Blocks returns how many blocks so many positions take.
func Blocks(positions int) int { return (positions + BlockRows - 1) / BlockRows }

// Sees is how many positions a row sees at most where it sees no more than a window's and none before its chunk, 0
// where neither is bounded: the attributes of the op attend.
func Sees(window, chunk int) int {
	if window == 0 || chunk == 0 {
		return max(window, chunk)
	}
	return min(window, chunk)
}

// CacheWidth is how many elements a row of a head's keys or values takes in a cache of a dtype: as many as it has or, of int8, with
// four bytes more for its scale.
func CacheWidth(d tensor.DType, width int) int {
	if d == tensor.Int8 {
		return width + scaleBytes
	}
	return width
}

// scaleBytes are those of a float32.
const scaleBytes = 4

// attendOps are attention over what earlier passes computed.
var attendOps = []OpDef{
	// attend: rows of tokens, of any sequences, see the tokens of their own sequence up to themselves.
	//
	// In[0], queries [N H D], In[1], keys [N K D], and In[2], values [N K E], are those of N rows, where K divides H
	// and query head h reads key head h÷(H÷K). In[3] and In[4] are whole caches of keys [P K D] and values [P K E], of
	// the operands' dtype or a narrower float, P a multiple of [BlockRows]; or of int8, [P K D+4] and [P K E+4], where
	// a row is rounded to 255 steps: its largest absolute value ÷ 127 is the scale, a float32 in the row's last four
	// bytes, the lowest first, and its values ÷ scale are rounded to the nearest number, halves to the even one. A row
	// with a NaN or an infinity has NaN as its scale and nothing else. In[5], int64 [N], is the position of each row in
	// its sequence. In[6], int64 [N B], names the blocks that hold the row's sequence: position p lies in place block[p
	// ÷ BlockRows] × BlockRows + p mod BlockRows of the caches. In[7], sinks [H], and In[8], a bias [H L] of float32,
	// may be absent. So may In[9], int64 [N M]: blocks that a row's key and value are
	// written to besides, at the place that its position has in a block; one that is the row's own says nothing. They
	// are of sequences that have the row in common. No two rows write to one place by way of them.
	//
	// First every row's key and value are written to their place, then every row attends: softmax over the positions 0
	// … p of q·k × "scale", tanh-bounded by "softcap" where that is not 0, plus the bias of the distance from p, the
	// last of its L for all that are further, of no more than the last "window" positions where that is not 0, and none
	// before the "chunk" of positions that p is in, where that is not 0; a sink is a score more whose value is nothing.
	// A row of negative position is no token: it writes nothing and gives zeros. Result [N H E] in the queries' dtype.
	//
	// In[1] and In[2] may both be absent: then nothing is written, and a row's position is the last one that it sees.
	//
	// A row's result is the same bits whatever other rows there are, and whether what it sees was written by this pass or
	// by earlier ones.
	{Kind: "attend", Shape: attendShape, FLOPs: attendFLOPs, Bytes: attendBytes, Axes: mixes},
}

// Writes reports whether an op of a kind writes to an operand: such an operand is a cache.
func (k Kind) Writes(in int) bool {
	if cache, ok := k.StateOperand(); ok {
		return in == cache
	}
	return k == "attend" && (in == 3 || in == 4)
}

// RowsAlone is an attribute of products: the bits of a row are not to depend on how many rows there are.
const RowsAlone = "rows_alone"

// WritesCache reports whether an op leaves something in a cache, so that it is needed whoever reads its results.
func (g *Graph) WritesCache(op *Op) bool {
	for i, o := range op.In {
		if op.Kind.Writes(i) && o.Value != NoValue {
			return true
		}
	}
	return false
}

// HasCaches reports whether an op of the graph leaves something in a cache.
func (g *Graph) HasCaches() bool {
	for i := range g.Ops {
		if g.WritesCache(&g.Ops[i]) {
			return true
		}
	}
	return false
}

// CacheElements is how many elements the rows of a cache of a dtype have whose [CacheWidth] is given.
func CacheElements(d tensor.DType, width int) int { return width - CacheWidth(d, 0) }

func attendShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) < 7 || len(in) > 10 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	q, k, v, keys, values := in[0], in[1], in[2], in[3], in[4]
	if !given(in, 1) && !given(in, 2) && len(q.Shape) == 3 && len(keys.Shape) == 3 && len(values.Shape) == 3 { // as if they were
		row := func(cache Spec) Spec {
			return Spec{q.DType, tensor.Shape{q.Shape[0], cache.Shape[1], CacheElements(cache.DType, cache.Shape[2])}}
		}
		k, v = row(keys), row(values)
	}
	for i, s := range []Spec{q, k, v, keys, values} {
		if len(s.Shape) != 3 || !isFloat(s.DType) && (i < 3 || s.DType != tensor.Int8) {
			return nil, fmt.Errorf("operand %d is %v %v", i, s.DType, s.Shape)
		}
	}
	n, heads, groups := q.Shape[0], q.Shape[1], k.Shape[1]
	switch {
	case q.DType != k.DType || q.DType != v.DType || keys.DType != values.DType:
		return nil, fmt.Errorf("queries %v, keys %v, values %v, caches %v and %v", q.DType, k.DType, v.DType,
			keys.DType, values.DType)
	case k.Shape[0] != n || v.Shape[0] != n || v.Shape[1] != groups || k.Shape[2] != q.Shape[2] || groups == 0 ||
		heads%groups != 0:
		return nil, fmt.Errorf("queries %v, keys %v and values %v do not fit", q.Shape, k.Shape, v.Shape)
	case keys.Shape[0] != values.Shape[0] || keys.Shape[0]%BlockRows != 0 ||
		!keys.Shape[1:].Equal(tensor.Shape{groups, CacheWidth(keys.DType, k.Shape[2])}) ||
		!values.Shape[1:].Equal(tensor.Shape{groups, CacheWidth(values.DType, v.Shape[2])}):
		return nil, fmt.Errorf("caches %v and %v for keys %v and values %v", keys.Shape, values.Shape, k.Shape, v.Shape)
	case in[5].DType != tensor.Int64 || !in[5].Shape.Equal(tensor.Shape{n}):
		return nil, fmt.Errorf("positions %v %v of %d rows", in[5].DType, in[5].Shape, n)
	case in[6].DType != tensor.Int64 || len(in[6].Shape) != 2 || in[6].Shape[0] != n:
		return nil, fmt.Errorf("blocks %v %v of %d rows", in[6].DType, in[6].Shape, n)
	case given(in, 7) && (in[7].DType != q.DType || !in[7].Shape.Equal(tensor.Shape{heads})):
		return nil, fmt.Errorf("sinks %v %v of %d heads", in[7].DType, in[7].Shape, heads)
	case given(in, 8) && (in[8].DType != tensor.Float32 || len(in[8].Shape) != 2 || in[8].Shape[0] != heads ||
		in[8].Shape[1] == 0):
		return nil, fmt.Errorf("a bias %v %v of %d heads", in[8].DType, in[8].Shape, heads)
	case given(in, 9) && (in[9].DType != tensor.Int64 || len(in[9].Shape) != 2 || in[9].Shape[0] != n || !given(in, 1)):
		return nil, fmt.Errorf("further blocks %v %v of %d rows", in[9].DType, in[9].Shape, n)
	case a.Int("window") < 0 || a.Int("chunk") < 0 || a.Float("softcap") < 0:
		return nil, fmt.Errorf("a window of %d, chunks of %d, scores bounded by %v", a.Int("window"), a.Int("chunk"),
			a.Float("softcap"))
	}
	return []Spec{{DType: q.DType, Shape: tensor.Shape{n, heads, v.Shape[2]}}}, nil
}

// attendFLOPs counts as if every row saw all positions that its blocks have room for, which it does at the end.
func attendFLOPs(in, _ []Spec, a Attrs) int64 {
	q, seen := in[0].Shape, int64(in[6].Shape[1])*BlockRows
	for _, most := range []string{"window", "chunk"} {
		if n := int64(a.Int(most)); n > 0 {
			seen = min(seen, n)
		}
	}
	return product(2, int64(q[0]), int64(q[1]), seen, int64(q[2])+int64(in[4].Shape[2]))
}

// attendBytes counts of the caches what rows look at: different rows may look at different places, but at no more than there
// are.
func attendBytes(in, out []Spec) int64 {
	q, tables, keys, values := in[0].Shape, in[6].Shape, in[3].Shape, in[4].Shape
	places := min(int64(keys[0]), product(int64(q[0]), int64(tables[1]), BlockRows))
	size := int64(in[3].DType.Size())
	caches := product(places, int64(keys[1]), int64(keys[2])+int64(values[2]), size)
	return movedBytes(in[:3]) + movedBytes(in[5:]) + caches + movedBytes(out)
}
