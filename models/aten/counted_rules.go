package aten

import (
	"slices"
	"strings"
)

// A countedRule builds a call with arguments whose sizes only data says.
type countedRule func(c *call, t Target) error

// countedRules are what ops that are not elementwise make of tensors with a count, by their names without the overload.
var countedRules map[string]countedRule

func init() { // rules build calls, and calls look for rules
	countedRules = map[string]countedRule{
		"slice": sliceCounted, "narrow": keepsRows("self", "dim", 0), "select": keepsRows("self", "dim", -1),
		"unbind": keepsRows("self", "dim", -1), "unsqueeze": unsqueezeCounted, "squeeze": squeezeCounted,
		"cat": catCounted, "concat": catCounted, "concatenate": catCounted, "stack": stackCounted,
		"expand": expandCounted, "expand_as": expandAsCounted,
		"index": indexCounted, "_unsafe_index": indexCounted, "index_select": indexCounted, "embedding": indexCounted,
		"index_put": putCounted, "index_put_": putCounted, "scatter": scatterCounted, "scatter_": scatterCounted,
		"sum": foldCounted(0), "mean": meanCounted, "prod": foldCounted(1), "any": foldCounted(0),
		"all":           foldCounted(1),
		"count_nonzero": foldCounted(0), "amax": foldCounted(lowest), "amin": foldCounted(highest),
		"max": foldCounted(lowest),
		"min": foldCounted(highest), "argmax": foldCounted(lowest), "argmin": foldCounted(highest),
		"sort": sortCounted, "argsort": sortCounted, "topk": topKCounted,
		"zeros": sizeCounted, "ones": sizeCounted, "full": sizeCounted, "empty": sizeCounted, "new_zeros": sizeCounted,
		"new_ones": sizeCounted, "new_full": sizeCounted, "new_empty": sizeCounted, "arange": arangeCounted,
		"nonzero": mindsCounts, "argwhere": mindsCounts, "where": mindsCounts, "nonzero_numpy": mindsCounts,
		"nms":         mindsCounts,
		"batched_nms": mindsCounts, "heatmap_peaks": mindsCounts,
		"_unique2": mindsCounts, "unique_consecutive": mindsCounts,
		"matmul": matmulCounted, "bmm": matmulCounted, "mm": leftCounted("self"), "addmm": leftCounted("mat1"),
		"linear": leftCounted("input"),
	}
	for names, rule := range map[string]countedRule{
		"view _unsafe_view reshape flatten unflatten":                                                          reshapeCounted,
		"pad constant_pad_nd":                                                                                  padCounted,
		"split split_with_sizes":                                                                               splitCounted,
		"permute transpose swapaxes swapdims t numpy_T mT movedim moveaxis":                                    permuteCounted,
		"chunk unsafe_chunk tensor_split softmax _softmax log_softmax _log_softmax":                            keepsRows("self", "dim", 0),
		"cumsum cumprod logcumsumexp cummax cummin":                                                            scanCounted,
		"zeros_like ones_like full_like empty_like fill zero fill_ zero_":                                      likeCounted,
		"roi_align roi_pool ps_roi_align ps_roi_pool":                                                          regionsCounted,
		"conv2d convolution _convolution conv_transpose2d batch_norm group_norm":                               firstCounted("input", 4),
		"max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d upsample_bilinear2d upsample_nearest2d": firstCounted("self", 4),
	} {
		for _, name := range strings.Fields(names) {
			countedRules[name] = rule
		}
	}
}

// mindsCounts is the rule of ops whose meaning looks after counts itself.
func mindsCounts(c *call, t Target) error { return t.build(c) }

// onlyCounted returns the argument that is the only one of those with a size that data says, else nil, which fails the call.
func (c *call) onlyCounted(name string) *Ref {
	var own *Ref
	for arg, v := range c.args {
		others := &call{args: map[string]any{arg: v}}
		switch r, ok := v.(*Ref); {
		case !others.hasCounted():
		case ok && arg == name:
			own = r
		default:
			own = nil
			c.err = c.Unsupported("of %s, whose size depends on data: %s", arg, SizeOfData)
			return nil
		}
	}
	if own == nil && c.err == nil {
		c.err = c.Unsupported("%s", SizeOfData)
	}
	return own
}

// keepsRows is the rule of ops along another dimension than the rows', which they leave where they are, or, where they drop
// their own, by one before.
func keepsRows(self, along string, drops int) countedRule {
	return func(c *call, t Target) error {
		r := c.onlyCounted(self)
		if r == nil {
			return c.err
		}
		d, at := c.dim(along, r.rank()), r.counted.dim
		if c.err == nil && d == at {
			return c.Unsupported("along rows that data counts: %s", SizeOfData)
		}
		if d < at {
			at += drops
		}
		return c.giveSame(t, r.counted.Count, at, nil)
	}
}

// giveSame builds a call of all that memory holds and gives its results with as many rows in a dimension as a count says.
func (c *call) giveSame(t Target, k *Count, dim int, changed map[string]any) error {
	if c.err != nil {
		return c.err
	}
	results, err := c.bareRun(t, changed)
	if err != nil {
		return err
	}
	return c.giveCounted(results, k, dim)
}

func scanCounted(c *call, t Target) error { // each row depends on those before
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	return c.giveSame(t, r.counted.Count, r.counted.dim, nil)
}

func likeCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	return c.giveSame(t, r.counted.Count, r.counted.dim, nil)
}

// firstCounted is the rule of ops that compute each of a batch by itself.
func firstCounted(name string, rank int) countedRule {
	return func(c *call, t Target) error {
		if !c.schema.has(name) { // which overloads with scale factors call so
			name = "input"
		}
		r := c.onlyCounted(name)
		if r == nil {
			return c.err
		}
		if r.counted.dim != 0 || r.rank() != rank || c.schema.has("training") && c.bool("training") {
			return c.Unsupported("along rows that data counts: %s", SizeOfData)
		}
		return c.giveSame(t, r.counted.Count, 0, nil)
	}
}

// matmulCounted is the rule of products of as many matrices as are counted, or by one from the right.
func matmulCounted(c *call, t Target) error {
	name := "other"
	if c.schema.has("mat2") {
		name = "mat2"
	}
	left, right := c.tensor("self"), c.tensor(name)
	if c.err != nil {
		return c.err
	}
	if k, alike := countOf([]*Ref{left, right}); alike && k.dim == 0 && left.rank() == 3 && right.rank() == 3 {
		return c.giveSame(t, k.Count, 0, nil)
	}
	return leftCounted("self")(c, t)
}

// padCounted is the rule of what makes other dimensions than the rows' longer: "pad" counts them from the last.
func padCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	if len(c.ints("pad")) > 2*(r.rank()-1-r.counted.dim) && c.err == nil {
		return c.Unsupported("along rows that data counts: %s", SizeOfData)
	}
	return c.giveSame(t, r.counted.Count, r.counted.dim, nil)
}

// leftCounted is the rule of products by a matrix from the right.
func leftCounted(name string) countedRule {
	return func(c *call, t Target) error {
		r := c.onlyCounted(name)
		if r == nil {
			return c.err
		}
		right, ok := c.args["other"].(*Ref)
		if r.counted.dim == r.rank()-1 || ok && right.rank() != 2 {
			return c.Unsupported("a product over rows that data counts: %s", SizeOfData)
		}
		return c.giveSame(t, r.counted.Count, r.counted.dim, nil)
	}
}

func regionsCounted(c *call, t Target) error {
	r := c.onlyCounted("rois")
	if r == nil {
		return c.err
	}
	if r.counted.dim != 0 {
		return c.Unsupported("%s", SizeOfData)
	}
	whole, err := c.filledBehind(r, 0) // regions of an image that there is
	if err != nil {
		return err
	}
	return c.giveSame(t, r.counted.Count, 0, map[string]any{"rois": whole})
}

// sizeCounted is the rule of ops that fill a size.
func sizeCounted(c *call, t Target) error {
	sizes, ok := c.args["size"].([]any)
	if self, is := c.args["self"].(*Ref); is && self.IsCounted() && !ok {
		results, err := c.bareRun(t, nil) // only its dtype matters
		c.set(results...)
		return err
	}
	at := slices.IndexFunc(sizes, func(n any) bool { _, is := n.(*Count); return is })
	if at < 0 {
		return c.Unsupported("%s", SizeOfData)
	}
	for _, n := range sizes[at+1:] {
		if _, is := n.(*Count); is {
			return c.Unsupported("of two sizes that depend on data: %s", SizeOfData)
		}
	}
	return c.giveSame(t, sizes[at].(*Count), at, nil)
}

func arangeCounted(c *call, t Target) error {
	k, ok := c.args["end"].(*Count)
	start, hasStart := c.args["start"]
	step, hasStep := c.args["step"]
	if !ok || hasStart && start != any(0) || hasStep && step != any(1) {
		return c.Unsupported("%s", SizeOfData)
	}
	return c.giveSame(t, k, 0, nil)
}
