package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// indexTargets are the ops that choose elements by index, and those that put tensors side by side.
var indexTargets = slices.Concat(lookupTargets, indexedTargets, scatterTargets, joinTargets)

var lookupTargets = []atenOp{
	{"aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False," +
		" bool sparse=False) -> Tensor", func(c *call) error {
		return c.give("embedding", nil, c.Read(c.tensor("weight")), c.Read(c.tensor("indices")))
	}},
	{"aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0," +
		" bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False)" +
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag},
	{"aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode," +
		" bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx)" +
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag},
	{"aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0," +
		" bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1)" +
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag},
	{"aten::_embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False," +
		" int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False," +
		" int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag},
	op("aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
		func(c *call) (*Ref, error) {
			r, index := c.tensor("self"), c.tensor("index")
			return c.gather(r, c.dim("dim", r.rank()), index)
		}),
	op("aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", takeAlongDim),
	op("aten::take(Tensor self, Tensor index) -> Tensor", func(c *call) (*Ref, error) {
		r, index := c.tensor("self"), c.tensor("index")
		if c.err != nil {
			return nil, c.err
		}
		flat, err := c.flat(r)
		if err != nil {
			return nil, err
		}
		return c.Emit1("index", graph.Attrs{"dim": 0, "wrap": true}, c.Read(flat), c.Read(index))
	}),
	op("aten::index_select(Tensor self, int dim, Tensor index) -> Tensor", func(c *call) (*Ref, error) {
		r, index := c.tensor("self"), c.tensor("index")
		return c.indexSelect(r, c.dim("dim", r.rank()), index)
	}),
	op("aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None)"+
		" -> Tensor", repeatEach),
	op("aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None)"+
		" -> Tensor", repeatByTensor),
	op("aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
		func(c *call) (*Ref, error) { return c.repeatIndices(c.tensor("repeats")) }),
	op("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", oneHot),
	op("aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False,"+
		" str? side=None, Tensor? sorter=None) -> Tensor", search("sorted_sequence")),
	op("aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False,"+
		" str? side=None, Tensor? sorter=None) -> Tensor", search("sorted_sequence")),
	op("aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
		search("boundaries")),
	op("aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
		search("boundaries")),
	op("aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor", func(c *call) (*Ref, error) {
		r, attrs := c.tensor("self"), graph.Attrs{"size": c.int("size"), "fill": c.int("fill_value")}
		if c.err != nil {
			return nil, c.err
		}
		return c.Emit1("nonzero", attrs, c.Read(r))
	}),
}

// flat returns r with one dimension.
func (b *Builder) flat(r *Ref) (*Ref, error) {
	return b.Reshape(r, tensor.Shape{int(NumElements(r.shape()))})
}

func (c *call) gather(r *Ref, d int, index *Ref) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	shape := index.shape()
	if r.rank()+index.rank() == 1 { // a scalar counts as a list of one
		var err error
		if r, err = c.flat(r); err != nil {
			return nil, err
		}
		if index, err = c.flat(index); err != nil {
			return nil, err
		}
	}
	out, err := c.Emit1("gather", graph.Attrs{"dim": d}, c.Read(r), c.Read(index))
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// indexSelect returns the elements of r that a list of indices names along dimension d.
func (c *call) indexSelect(r *Ref, d int, index *Ref) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	if index.rank() > 1 {
		return nil, fmt.Errorf("indices %v are not a list", index.shape())
	}
	scalar := r.rank() == 0
	if scalar {
		r = c.unsqueeze(r, 0)
	}
	if index.rank() == 0 {
		index = c.unsqueeze(index, 0)
	}
	out, err := c.Emit1("index", graph.Attrs{"dim": d}, c.Read(r), c.Read(index))
	if err != nil || !scalar {
		return out, err
	}
	return c.Reshape(out, tensor.Shape{})
}

// embeddingBag gives the bags alone: what PyTorch gives beside them is for its backward pass.
func embeddingBag(c *call) error {
	weight, index, offsets := c.tensor("weight"), c.tensor("indices"), c.tensor("offsets")
	padding := c.optInt("padding_idx", -1)
	if !c.schema.has("padding_idx") {
		padding = -1
	}
	mode, last := c.int("mode"), c.bool("include_last_offset")
	if c.err != nil {
		return c.err
	}
	// An index −1 does not exist, so nothing is padding. Of the one overload that may be None, other negative numbers
	// count from the end.
	if padding < 0 && weight.rank() > 0 && c.has("padding_idx") && (padding < -1 || c.schema.optional("padding_idx")) {
		padding += weight.shape()[0]
	}
	out, err := c.Emit1("embedding_bag",
		graph.Attrs{"mode": mode, "include_last_offset": last, "padding": padding},
		c.Read(weight), c.Read(index), c.Read(offsets), c.Read(c.optTensor("per_sample_weights")))
	if err != nil {
		return err
	}
	c.set(out, nil, nil, nil)
	return nil
}

// optional reports whether a parameter may be None.
func (s schema) optional(name string) bool {
	return slices.ContainsFunc(s.params, func(p param) bool { return p.name == name && p.typ[len(p.typ)-1] == '?' })
}

func takeAlongDim(c *call) (*Ref, error) {
	r, index := c.tensor("self"), c.tensor("indices")
	if c.err != nil {
		return nil, c.err
	}
	if !c.has("dim") {
		var err error
		if r, err = c.flat(r); err != nil {
			return nil, err
		}
		if index, err = c.flat(index); err != nil {
			return nil, err
		}
		return c.gather(r, 0, index)
	}
	d := c.dim("dim", r.rank())
	if c.err != nil || r.rank() != index.rank() || r.rank() == 0 {
		return nil, fmt.Errorf("%v along %v", r.shape(), index.shape())
	}
	// All dimensions but this one broadcast.
	left, right := slices.Clone(r.shape()), slices.Clone(index.shape())
	left[d], right[d] = 1, 1
	both, err := broadcast(left, right)
	if err != nil {
		return nil, err
	}
	left, right = slices.Clone(both), slices.Clone(both)
	left[d], right[d] = r.shape()[d], index.shape()[d]
	if r, err = c.expand(r, left); err != nil {
		return nil, err
	}
	if index, err = c.expand(index, right); err != nil {
		return nil, err
	}
	return c.gather(r, d, index)
}

// repeatEach returns every element a number of times.
func repeatEach(c *call) (*Ref, error) {
	r, n := c.tensor("self"), c.int("repeats")
	if c.err != nil {
		return nil, c.err
	}
	if n < 0 {
		return nil, fmt.Errorf("%d repeats", n)
	}
	d := 0
	if c.has("dim") && r.rank() > 0 {
		d = c.dim("dim", r.rank())
	} else {
		var err error
		if r, err = c.flat(r); err != nil {
			return nil, err
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	wide := slices.Insert(slices.Clone(r.shape()), d+1, n)
	if _, err := wide.NumElements(); err != nil {
		return nil, err
	}
	repeated, err := c.expand(c.unsqueeze(r, d+1), wide)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(r.shape())
	shape[d] *= n
	out, err := c.copy(repeated)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// repeatIndices returns each index as often as repeats says.
func (c *call) repeatIndices(repeats *Ref) (*Ref, error) {
	if c.err != nil {
		return nil, c.err
	}
	if !c.has("output_size") {
		return nil, &UnsupportedError{
			What: "repeat_interleave by a tensor without output_size: " + SizeOfData,
		}
	}
	return c.Emit1("repeat_indices", graph.Attrs{"size": c.int("output_size")}, c.Read(repeats))
}

func repeatByTensor(c *call) (*Ref, error) {
	r, repeats := c.tensor("self"), c.tensor("repeats")
	if c.err != nil {
		return nil, c.err
	}
	d := 0
	var err error
	if c.has("dim") && r.rank() > 0 {
		d = c.dim("dim", r.rank())
	} else if r, err = c.flat(r); err != nil {
		return nil, err
	}
	if c.err != nil {
		return nil, c.err
	}
	if repeats, err = c.expand(repeats, tensor.Shape{r.shape()[d]}); err != nil {
		return nil, err
	}
	index, err := c.repeatIndices(repeats)
	if err != nil {
		return nil, err
	}
	return c.indexSelect(r, d, index)
}

// oneHot puts a one at each class.
func oneHot(c *call) (*Ref, error) {
	r, n := c.tensor("self"), c.int("num_classes")
	if c.err != nil {
		return nil, c.err
	}
	if n < 1 {
		return nil, &UnsupportedError{What: "one_hot without num_classes: " + SizeOfData}
	}
	index := c.unsqueeze(r, r.rank())
	zeros, err := c.full(0, tensor.Int64, append(slices.Clone(r.shape()), n))
	if err != nil {
		return nil, err
	}
	ones, err := c.full(1, tensor.Int64, index.shape())
	if err != nil {
		return nil, err
	}
	return c.scatter(zeros, r.rank(), index, ones, "", true)
}

// search finds where elements go in the sorted tensor that an argument names; one list serves elements of any shape.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func search(sorted string) meaning {
	return func(c *call) (*Ref, error) {
		list := c.tensor(sorted)
		x := c.operand("self")
		attrs := graph.Attrs{"int32": c.bool("out_int32"), "right": c.bool("right")}
		switch side := c.str("side"); side {
		case "", "left", "right":
			if side != "" {
				attrs["right"] = side == "right"
			}
		default:
			return nil, fmt.Errorf("side %q", side)
		}
		if c.err != nil {
			return nil, c.err
		}
		// A number is a tensor of the list's dtype here; tensors of several dtypes meet in their common one.
		d := list.dtype
		if r, ok := x.(*Ref); ok {
			var err error
			if d, err = resultType(list, r); err != nil {
				return nil, err
			}
		} else if isIntegral(d) && NumberDType(x) == tensor.Float32 {
			d = tensor.Float32
		}
		list, err := c.Cast(list, d)
		if err != nil {
			return nil, err
		}
		value, err := c.as(x, d)
		if err != nil {
			return nil, err
		}
		return c.Emit1("searchsorted", attrs, c.Read(list), c.Read(value), c.Read(c.optTensor("sorter")))
	}
}
