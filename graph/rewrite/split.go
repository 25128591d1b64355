package rewrite

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// SplitRows returns the graph with every linear layer, product with a matrix and embedding whose weight takes more than
// maxBytes computed part by part: over row views of the same weight, each of about equal size and, unless one row is
// larger, within maxBytes. A linear layer becomes linear layers and a cat of their results, and so does a product, in which
// the weight's columns are what its rows are there; an embedding becomes a chain of "embedding_rows". Only weights whose
// rows lie apart are split, so that parts have few bytes in common.
//
// The results are the same to the bit wherever an element of a product does not depend on how many columns the product
// has, but perhaps on how many the undivided one has, which [WholeColumns] says. Values keep their ids. The second result has, for each op, the op of g that it was made from. Where nothing is to
// be split, the result is g itself.
func SplitRows(g *graph.Graph, maxBytes int64) (*graph.Graph, []int) {
	return SplitRowsAt(g, func(op int) []int { return RowParts(g, &g.Ops[op], maxBytes) })
}

// SplitRowsAt is [SplitRows] for parts of other sizes: where those of an op begin, and, last, the number of rows; nil for
// an op that is not divided. What can be divided [SplittableRows] says.
func SplitRowsAt(g *graph.Graph, partsOf func(op int) []int) (*graph.Graph, []int) {
	s := &splitting{g: g}
	for i := range g.Ops {
		op := &g.Ops[i]
		parts := partsOf(i)
		if len(parts) < 3 {
			s.add(*op, i)
			continue
		}
		if s.out == nil {
			s.begin(i)
		}
		if op.Kind == "embedding" {
			s.embedding(op, i, parts)
		} else {
			s.product(op, i, parts)
		}
	}
	if s.out == nil {
		return g, s.from
	}
	return s.out, s.from
}

// RowParts returns where the parts of an op begin into which [SplitRows] divides it, and, last, the number of rows; nil
// for an op that is not divided.
func RowParts(g *graph.Graph, op *graph.Op, maxBytes int64) []int {
	rows, rowBytes := SplittableRows(g, op)
	if rows < 2 || rowBytes <= 0 || int64(rows)*rowBytes <= maxBytes {
		return nil
	}
	const multiple = 8 // kernels take columns in small groups
	most := int(max(maxBytes/rowBytes, 1))
	each := (rows + (rows+most-1)/most - 1) / ((rows + most - 1) / most)
	if up := (each + multiple - 1) / multiple * multiple; up <= most {
		each = up
	}
	var parts []int
	for low := 0; low < rows; low += each {
		parts = append(parts, low)
	}
	return append(parts, rows)
}

// SplittableRows returns how many rows the weight of an op has by which [SplitRows] can divide it, and how far apart
// they are; no rows for an op that cannot be divided.
func SplittableRows(g *graph.Graph, op *graph.Op) (rows int, rowBytes int64) {
	k, dim := 0, SplitDim(op.Kind)
	switch op.Kind {
	case "linear", "matmul":
		k = 1
	case "embedding":
	default:
		return 0, 0
	}
	w := op.In[k]
	if w.Value == graph.NoValue || g.Values[w.Value].Role != graph.Weight || len(w.Layout.Shape) < 2 {
		return 0, 0
	}
	if op.Kind == "matmul" && len(w.Layout.Shape) != 2 { // a batch
		return 0, 0
	}
	row := tensor.Layout{
		Shape:   slices.Concat(w.Layout.Shape[:dim], w.Layout.Shape[dim+1:]),
		Strides: slices.Concat(w.Layout.Strides[:dim], w.Layout.Strides[dim+1:]),
	}
	_, end, err := row.Span()
	if stride := int64(w.Layout.Strides[dim]); err != nil || end == 0 || stride < end {
		return 0, 0
	}
	return w.Layout.Shape[dim], int64(w.Layout.Strides[dim]) * int64(g.Values[w.Value].DType.Size())
}

// wholeColumns is the attribute of a part of a product that WholeColumns reads.
const wholeColumns = "whole_columns"

// WholeColumns returns how many columns the product has that a product of some columns is a part of: as many where it is
// whole. A kernel whose sums have an order that follows from the number of columns goes by this one.
func WholeColumns(a graph.Attrs, columns int) int { return max(columns, a.Int(wholeColumns)) }

// SplitDim returns the dimension of a weight along which [SplitRows] divides it.
func SplitDim(kind graph.Kind) int {
	if kind == "matmul" {
		return 1
	}
	return 0
}

// A splitting is a graph being made.
type splitting struct {
	g, out *graph.Graph
	from   []int
}

// begin copies the graph up to an op.
func (s *splitting) begin(op int) {
	out := *s.g
	out.Values = slices.Clone(s.g.Values)
	out.Ops = slices.Clone(s.g.Ops[:op])
	s.out = &out
}

func (s *splitting) add(op graph.Op, from int) {
	if s.out != nil {
		s.out.Ops = append(s.out.Ops, op)
	}
	s.from = append(s.from, from)
}

// rowsOf returns rows [low, end) of an operand.
func rowsOf(o graph.Operand, low, end int) graph.Operand { return alongOf(o, 0, low, end) }

// alongOf returns indices [low, end) of an operand along a dimension.
func alongOf(o graph.Operand, dim, low, end int) graph.Operand {
	o.Layout = tensor.Layout{
		Shape: slices.Clone(o.Layout.Shape), Strides: o.Layout.Strides,
		Offset: o.Layout.Offset + low*o.Layout.Strides[dim],
	}
	o.Layout.Shape[dim] = end - low
	return o
}

// product divides a linear layer, or a product with a matrix.
func (s *splitting) product(op *graph.Op, from int, parts []int) {
	whole := s.g.Values[op.Out[0]]
	last := len(whole.Shape) - 1
	join := graph.Op{
		Kind: "cat", Path: op.Path, Source: op.Source, Guard: op.Guard, Out: op.Out, Attrs: graph.Attrs{"dim": last},
	}
	for k, low := range parts[:len(parts)-1] {
		end := parts[k+1]
		part := *op
		part.Attrs = maps.Clone(op.Attrs)
		if part.Attrs == nil {
			part.Attrs = make(graph.Attrs)
		}
		part.Attrs[wholeColumns] = WholeColumns(op.Attrs, parts[len(parts)-1])
		part.In = slices.Clone(op.In)
		part.In[1] = alongOf(op.In[1], SplitDim(op.Kind), low, end)
		for k := 2; k < len(op.In); k++ {
			switch {
			case op.In[k].Value == graph.NoValue:
			case k == graph.LinearResidual || op.Kind == "matmul": // as wide as the result
				part.In[k] = alongOf(op.In[k], last, low, end)
			default: // a bias, or scales
				part.In[k] = rowsOf(op.In[k], low, end)
			}
		}
		shape := slices.Clone(whole.Shape)
		shape[last] = end - low
		id := s.out.AddValue(graph.Value{DType: whole.DType, Shape: shape})
		part.Out = []graph.ValueID{id}
		s.add(part, from)
		join.In = append(join.In, s.out.Whole(id))
	}
	s.add(join, from)
}

func (s *splitting) embedding(op *graph.Op, from int, parts []int) {
	whole := s.g.Values[op.Out[0]]
	before := graph.Absent
	for k, low := range parts[:len(parts)-1] {
		end := parts[k+1]
		part := *op
		part.Kind = "embedding_rows"
		part.Attrs = graph.Attrs{"low": low, "size": parts[len(parts)-1]}
		part.In = []graph.Operand{rowsOf(op.In[0], low, end), op.In[1], before}
		if k < len(parts)-2 {
			part.Out = []graph.ValueID{s.out.AddValue(graph.Value{DType: whole.DType, Shape: whole.Shape})}
		}
		s.add(part, from)
		before = s.out.Whole(part.Out[0])
	}
}
