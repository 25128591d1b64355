package views

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// indexTargets are the ops that choose elements by index, and those that put tensors side by side.
var indexTargets = slices.Concat(lookupTargets, indexedTargets, scatterTargets, joinTargets)

var lookupTargets = []call.Overload{
	call.Several("aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False,"+
		" bool sparse=False) -> Tensor", func(c *call.Call) error {
		return c.Give("embedding", nil, c.Read(c.Tensor("weight")), c.Read(c.Tensor("indices")))
	}),
	call.Several("aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,"+
		" bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False)"+
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag),
	call.Several("aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode,"+
		" bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx)"+
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag),
	call.Several("aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0,"+
		" bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1)"+
		" -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag),
	call.Several("aten::_embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False,"+
		" int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False,"+
		" int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)", embeddingBag),
	call.One("aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			r, index := c.Tensor("self"), c.Tensor("index")
			return gather(c, r, c.Dim("dim", r.Rank()), index)
		}),
	call.One("aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", takeAlongDim),
	call.One("aten::take(Tensor self, Tensor index) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		r, index := c.Tensor("self"), c.Tensor("index")
		if c.Err != nil {
			return nil, c.Err
		}
		flat, err := c.Flat(r)
		if err != nil {
			return nil, err
		}
		return c.Emit1("index", graph.Attrs{"dim": 0, "wrap": true}, c.Read(flat), c.Read(index))
	}),
	call.One("aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			r, index := c.Tensor("self"), c.Tensor("index")
			return indexSelect(c, r, c.Dim("dim", r.Rank()), index)
		}),
	call.One("aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None)"+
		" -> Tensor", repeatEach),
	call.One("aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None)"+
		" -> Tensor", repeatByTensor),
	call.One("aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return repeatIndices(c, c.Tensor("repeats")) }),
	call.One("aten::one_hot(Tensor self, int num_classes=-1) -> Tensor", oneHot),
	call.One("aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False,"+
		" str? side=None, Tensor? sorter=None) -> Tensor", search("sorted_sequence")),
	call.One("aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False,"+
		" str? side=None, Tensor? sorter=None) -> Tensor", search("sorted_sequence")),
	call.One("aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
		search("boundaries")),
	call.One("aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
		search("boundaries")),
	call.One("aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			r, attrs := c.Tensor("self"), graph.Attrs{"size": c.Int("size"), "fill": c.Int("fill_value")}
			if c.Err != nil {
				return nil, c.Err
			}
			return c.Emit1("nonzero", attrs, c.Read(r))
		}),
}

func gather(c *call.Call, r *cells.Ref, d int, index *cells.Ref) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	shape := index.Shape()
	if r.Rank()+index.Rank() == 1 { // a scalar counts as a list of one
		var err error
		if r, err = c.Flat(r); err != nil {
			return nil, err
		}
		if index, err = c.Flat(index); err != nil {
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
func indexSelect(c *call.Call, r *cells.Ref, d int, index *cells.Ref) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if index.Rank() > 1 {
		return nil, fmt.Errorf("indices %v are not a list", index.Shape())
	}
	scalar := r.Rank() == 0
	if scalar {
		r = c.Unsqueeze(r, 0)
	}
	if index.Rank() == 0 {
		index = c.Unsqueeze(index, 0)
	}
	out, err := c.Emit1("index", graph.Attrs{"dim": d}, c.Read(r), c.Read(index))
	if err != nil || !scalar {
		return out, err
	}
	return c.Reshape(out, tensor.Shape{})
}

// embeddingBag gives the bags alone: what PyTorch gives beside them is for its backward pass.
func embeddingBag(c *call.Call) error {
	weight, index, offsets := c.Tensor("weight"), c.Tensor("indices"), c.Tensor("offsets")
	padding := c.OptInt("padding_idx", -1)
	if !c.Schema.Has("padding_idx") {
		padding = -1
	}
	mode, last := c.Int("mode"), c.Bool("include_last_offset")
	if c.Err != nil {
		return c.Err
	}
	// An index −1 does not exist, so nothing is padding. Of the one overload that may be None, other negative numbers
	// count from the end.
	if padding < 0 && weight.Rank() > 0 && c.Has("padding_idx") && (padding < -1 || optional(c.Schema, "padding_idx")) {
		padding += weight.Shape()[0]
	}
	out, err := c.Emit1("embedding_bag",
		graph.Attrs{"mode": mode, "include_last_offset": last, "padding": padding},
		c.Read(weight), c.Read(index), c.Read(offsets), c.Read(c.OptTensor("per_sample_weights")))
	if err != nil {
		return err
	}
	c.Set(out, nil, nil, nil)
	return nil
}

// optional reports whether a parameter may be None.
func optional(s call.Schema, name string) bool {
	return slices.ContainsFunc(s.Params, func(p call.Param) bool {
		return p.Name == name &&
			p.Type[len(p.Type)-1] == '?'
	})
}

func takeAlongDim(c *call.Call) (*cells.Ref, error) {
	r, index := c.Tensor("self"), c.Tensor("indices")
	if c.Err != nil {
		return nil, c.Err
	}
	if !c.Has("dim") {
		var err error
		if r, err = c.Flat(r); err != nil {
			return nil, err
		}
		if index, err = c.Flat(index); err != nil {
			return nil, err
		}
		return gather(c, r, 0, index)
	}
	d := c.Dim("dim", r.Rank())
	if c.Err != nil || r.Rank() != index.Rank() || r.Rank() == 0 {
		return nil, fmt.Errorf("%v along %v", r.Shape(), index.Shape())
	}
	// All dimensions but this one broadcast.
	left, right := slices.Clone(r.Shape()), slices.Clone(index.Shape())
	left[d], right[d] = 1, 1
	both, err := cells.Broadcast(left, right)
	if err != nil {
		return nil, err
	}
	left, right = slices.Clone(both), slices.Clone(both)
	left[d], right[d] = r.Shape()[d], index.Shape()[d]
	if r, err = c.Expand(r, left); err != nil {
		return nil, err
	}
	if index, err = c.Expand(index, right); err != nil {
		return nil, err
	}
	return gather(c, r, d, index)
}

// repeatEach returns every element a number of times.
func repeatEach(c *call.Call) (*cells.Ref, error) {
	r, n := c.Tensor("self"), c.Int("repeats")
	if c.Err != nil {
		return nil, c.Err
	}
	if n < 0 {
		return nil, fmt.Errorf("%d repeats", n)
	}
	d := 0
	if c.Has("dim") && r.Rank() > 0 {
		d = c.Dim("dim", r.Rank())
	} else {
		var err error
		if r, err = c.Flat(r); err != nil {
			return nil, err
		}
	}
	if c.Err != nil {
		return nil, c.Err
	}
	wide := slices.Insert(slices.Clone(r.Shape()), d+1, n)
	if _, err := wide.NumElements(); err != nil {
		return nil, err
	}
	repeated, err := c.Expand(c.Unsqueeze(r, d+1), wide)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(r.Shape())
	shape[d] *= n
	out, err := c.Copy(repeated)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// repeatIndices returns each index as often as repeats says.
func repeatIndices(c *call.Call, repeats *cells.Ref) (*cells.Ref, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if !c.Has("output_size") {
		return nil, &cells.UnsupportedError{
			What: "repeat_interleave by a tensor without output_size: " + cells.SizeOfData,
		}
	}
	return c.Emit1("repeat_indices", graph.Attrs{"size": c.Int("output_size")}, c.Read(repeats))
}

func repeatByTensor(c *call.Call) (*cells.Ref, error) {
	r, repeats := c.Tensor("self"), c.Tensor("repeats")
	if c.Err != nil {
		return nil, c.Err
	}
	d := 0
	var err error
	if c.Has("dim") && r.Rank() > 0 {
		d = c.Dim("dim", r.Rank())
	} else if r, err = c.Flat(r); err != nil {
		return nil, err
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if repeats, err = c.Expand(repeats, tensor.Shape{r.Shape()[d]}); err != nil {
		return nil, err
	}
	index, err := repeatIndices(c, repeats)
	if err != nil {
		return nil, err
	}
	return indexSelect(c, r, d, index)
}

// oneHot puts a one at each class.
func oneHot(c *call.Call) (*cells.Ref, error) {
	r, n := c.Tensor("self"), c.Int("num_classes")
	if c.Err != nil {
		return nil, c.Err
	}
	if n < 1 {
		return nil, &cells.UnsupportedError{What: "one_hot without num_classes: " + cells.SizeOfData}
	}
	index := c.Unsqueeze(r, r.Rank())
	zeros, err := c.Full(0, tensor.Int64, append(slices.Clone(r.Shape()), n))
	if err != nil {
		return nil, err
	}
	ones, err := c.Full(1, tensor.Int64, index.Shape())
	if err != nil {
		return nil, err
	}
	return Scatter(c, zeros, r.Rank(), index, ones, "", true)
}

// search finds where elements go in the sorted tensor that an argument names; one list serves elements of any shape.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func search(sorted string) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		list := c.Tensor(sorted)
		x := c.Operand("self")
		attrs := graph.Attrs{"int32": c.Bool("out_int32"), "right": c.Bool("right")}
		switch side := c.Text("side"); side {
		case "", "left", "right":
			if side != "" {
				attrs["right"] = side == "right"
			}
		default:
			return nil, fmt.Errorf("side %q", side)
		}
		if c.Err != nil {
			return nil, c.Err
		}
		// A number is a tensor of the list's dtype here; tensors of several dtypes meet in their common one.
		d := list.DType()
		if r, ok := x.(*cells.Ref); ok {
			var err error
			if d, err = cells.ResultType(list, r); err != nil {
				return nil, err
			}
		} else if cells.IsIntegral(d) && cells.NumberDType(x) == tensor.Float32 {
			d = tensor.Float32
		}
		list, err := c.Cast(list, d)
		if err != nil {
			return nil, err
		}
		value, err := c.As(x, d)
		if err != nil {
			return nil, err
		}
		return c.Emit1("searchsorted", attrs, c.Read(list), c.Read(value), c.Read(c.OptTensor("sorter")))
	}
}
