package aten

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// A countedRule builds a call with arguments whose sizes only data says.
type countedRule func(c *call.Call, t Target) error

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
func mindsCounts(c *call.Call, t Target) error { return t.build(c) }

// onlyCounted returns the argument that is the only one of those with a size that data says, else nil, which fails the call.
func onlyCounted(c *call.Call, name string) *cells.Ref {
	var own *cells.Ref
	for arg, v := range c.Args {
		others := &call.Call{Args: map[string]any{arg: v}}
		switch r, ok := v.(*cells.Ref); {
		case !hasCounted(others):
		case ok && arg == name:
			own = r
		default:
			own = nil
			c.Err = c.Unsupported("of %s, whose size depends on data: %s", arg, cells.SizeOfData)
			return nil
		}
	}
	if own == nil && c.Err == nil {
		c.Err = c.Unsupported("%s", cells.SizeOfData)
	}
	return own
}

// keepsRows is the rule of ops along another dimension than the rows', which they leave where they are, or, where they drop
// their own, by one before.
func keepsRows(self, along string, drops int) countedRule {
	return func(c *call.Call, t Target) error {
		r := onlyCounted(c, self)
		if r == nil {
			return c.Err
		}
		d, at := c.Dim(along, r.Rank()), r.Rows().Dim
		if c.Err == nil && d == at {
			return c.Unsupported("along rows that data counts: %s", cells.SizeOfData)
		}
		if d < at {
			at += drops
		}
		return giveSame(c, t, r.Rows().Count, at, nil)
	}
}

// giveSame builds a call of all that memory holds and gives its results with as many rows in a dimension as a count says.
func giveSame(c *call.Call, t Target, k *cells.Count, dim int, changed map[string]any) error {
	if c.Err != nil {
		return c.Err
	}
	results, err := bareRun(c, t, changed)
	if err != nil {
		return err
	}
	return giveCounted(c, results, k, dim)
}

func scanCounted(c *call.Call, t Target) error { // each row depends on those before
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	return giveSame(c, t, r.Rows().Count, r.Rows().Dim, nil)
}

func likeCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	return giveSame(c, t, r.Rows().Count, r.Rows().Dim, nil)
}

// firstCounted is the rule of ops that compute each of a batch by itself.
func firstCounted(name string, rank int) countedRule {
	return func(c *call.Call, t Target) error {
		if !c.Schema.Has(name) { // which overloads with scale factors call so
			name = "input"
		}
		r := onlyCounted(c, name)
		if r == nil {
			return c.Err
		}
		if r.Rows().Dim != 0 || r.Rank() != rank || c.Schema.Has("training") && c.Bool("training") {
			return c.Unsupported("along rows that data counts: %s", cells.SizeOfData)
		}
		return giveSame(c, t, r.Rows().Count, 0, nil)
	}
}

// matmulCounted is the rule of products of as many matrices as are counted, or by one from the right.
func matmulCounted(c *call.Call, t Target) error {
	name := "other"
	if c.Schema.Has("mat2") {
		name = "mat2"
	}
	left, right := c.Tensor("self"), c.Tensor(name)
	if c.Err != nil {
		return c.Err
	}
	if k, alike := countOf([]*cells.Ref{left, right}); alike && k.Dim == 0 && left.Rank() == 3 && right.Rank() == 3 {
		return giveSame(c, t, k.Count, 0, nil)
	}
	return leftCounted("self")(c, t)
}

// padCounted is the rule of what makes other dimensions than the rows' longer: "pad" counts them from the last.
func padCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	if len(c.Ints("pad")) > 2*(r.Rank()-1-r.Rows().Dim) && c.Err == nil {
		return c.Unsupported("along rows that data counts: %s", cells.SizeOfData)
	}
	return giveSame(c, t, r.Rows().Count, r.Rows().Dim, nil)
}

// leftCounted is the rule of products by a matrix from the right.
func leftCounted(name string) countedRule {
	return func(c *call.Call, t Target) error {
		r := onlyCounted(c, name)
		if r == nil {
			return c.Err
		}
		right, ok := c.Args["other"].(*cells.Ref)
		if r.Rows().Dim == r.Rank()-1 || ok && right.Rank() != 2 {
			return c.Unsupported("a product over rows that data counts: %s", cells.SizeOfData)
		}
		return giveSame(c, t, r.Rows().Count, r.Rows().Dim, nil)
	}
}

func regionsCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "rois")
	if r == nil {
		return c.Err
	}
	if r.Rows().Dim != 0 {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	whole, err := c.FilledBehind(r, 0) // regions of an image that there is
	if err != nil {
		return err
	}
	return giveSame(c, t, r.Rows().Count, 0, map[string]any{"rois": whole})
}

// sizeCounted is the rule of ops that fill a size.
func sizeCounted(c *call.Call, t Target) error {
	sizes, ok := c.Args["size"].([]any)
	if self, is := c.Args["self"].(*cells.Ref); is && self.IsCounted() && !ok {
		results, err := bareRun(c, t, nil) // only its dtype matters
		c.Set(results...)
		return err
	}
	at := slices.IndexFunc(sizes, func(n any) bool { _, is := n.(*cells.Count); return is })
	if at < 0 {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	for _, n := range sizes[at+1:] {
		if _, is := n.(*cells.Count); is {
			return c.Unsupported("of two sizes that depend on data: %s", cells.SizeOfData)
		}
	}
	return giveSame(c, t, sizes[at].(*cells.Count), at, nil)
}

func arangeCounted(c *call.Call, t Target) error {
	k, ok := c.Args["end"].(*cells.Count)
	start, hasStart := c.Args["start"]
	step, hasStep := c.Args["step"]
	if !ok || hasStart && start != any(0) || hasStep && step != any(1) {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	return giveSame(c, t, k, 0, nil)
}
