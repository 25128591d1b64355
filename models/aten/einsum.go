package aten

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// einsumTargets are sums of products over named dimensions.
var einsumTargets = []atenOp{
	op("aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", einsum),
	op("aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor", tensordot),
	op("aten::inner(Tensor self, Tensor other) -> Tensor", func(c *call) (*Ref, error) {
		x, y := c.tensor("self"), c.tensor("other")
		if x.rank() == 0 || y.rank() == 0 {
			return c.combine("mul", nil, x, y)
		}
		return c.tensordot(x, y, []int{x.rank() - 1}, []int{y.rank() - 1})
	}),
	op("aten::outer(Tensor self, Tensor vec2) -> Tensor", outer),
	op("aten::ger(Tensor self, Tensor vec2) -> Tensor", outer),
	op("aten::kron(Tensor self, Tensor other) -> Tensor", kron),
	op("aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", bilinear),
	op("aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", func(c *call) (*Ref, error) {
		product, err := c.combine("mul", nil, c.tensor("x"), c.tensor("y"))
		if err != nil {
			return nil, err
		}
		if product.rank() == 0 {
			return nil, fmt.Errorf("vectors %v and %v", c.tensor("x").shape(), c.tensor("y").shape())
		}
		return c.total(product, []int{c.dim("dim", product.rank())})
	}),
}

// An equation is a parsed einsum: the labels of each operand and of the result. Letters are their own labels; the
// dimensions of an ellipsis are −1, −2, … from the last.
type equation struct {
	operands [][]int
	result   []int
}

// parseEquation reads an equation for operands of the given ranks.
func parseEquation(text string, ranks []int) (equation, error) {
	text = strings.ReplaceAll(text, " ", "")
	inputs, output, explicit := strings.Cut(text, "->")
	terms := strings.Split(inputs, ",")
	if len(terms) != len(ranks) {
		return equation{}, fmt.Errorf("equation %q has %d operands, not %d", text, len(terms), len(ranks))
	}
	var eq equation
	uses := make(map[int]int)
	widest := 0
	for i, term := range terms {
		letters := len(strings.Replace(term, "...", "", 1))
		hidden := ranks[i] - letters
		if hidden < 0 || hidden > 0 && letters == len(term) {
			return eq, fmt.Errorf("term %q of equation %q for a tensor of rank %d", term, text, ranks[i])
		}
		labels, err := termLabels(term, hidden)
		if err != nil {
			return eq, fmt.Errorf("equation %q: %w", text, err)
		}
		widest = max(widest, hidden)
		for _, l := range labels {
			uses[l]++
		}
		eq.operands = append(eq.operands, labels)
	}
	if !explicit {
		eq.result, _ = termLabels("...", widest)
		var once []int
		for l, n := range uses {
			if l > 0 && n == 1 {
				once = append(once, l)
			}
		}
		slices.Sort(once)
		eq.result = append(eq.result, once...)
		return eq, nil
	}
	var err error
	if eq.result, err = termLabels(output, widest); err != nil {
		return eq, fmt.Errorf("equation %q: %w", text, err)
	}
	for i, l := range eq.result {
		if uses[l] == 0 || slices.Contains(eq.result[:i], l) {
			return eq, fmt.Errorf("equation %q: the result's %q is not one index of the operands", text, rune(l))
		}
	}
	return eq, nil
}

// termLabels reads one term whose ellipsis stands for n dimensions.
func termLabels(term string, n int) ([]int, error) {
	labels := []int{}
	ellipsis := false
	for rest := term; rest != ""; {
		letter := rest[0]
		switch {
		case letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z':
			labels = append(labels, int(letter))
			rest = rest[1:]
		case strings.HasPrefix(rest, "...") && !ellipsis:
			ellipsis = true
			for d := n; d > 0; d-- {
				labels = append(labels, -d)
			}
			rest = rest[3:]
		default:
			return nil, fmt.Errorf("term %q", term)
		}
	}
	return labels, nil
}

// maxTerms bounds the operands of einsum: before each product all that are left are asked what they need of it.
const maxTerms = 1 << 10

func einsum(c *call) (*Ref, error) {
	tensors, path := c.tensors("tensors"), c.ints("path")
	if c.err != nil || len(tensors) == 0 || slices.Contains(tensors, nil) {
		return nil, fmt.Errorf("%d operands", len(tensors))
	}
	if len(tensors) > maxTerms {
		return nil, fmt.Errorf("%d operands; at most %d can be", len(tensors), maxTerms)
	}
	ranks := make([]int, len(tensors))
	for i, r := range tensors {
		ranks[i] = r.rank()
	}
	eq, err := parseEquation(c.str("equation"), ranks)
	if err != nil {
		return nil, err
	}
	terms := make([]labelled, len(tensors))
	for i, r := range tensors {
		if terms[i], err = c.diagonals(r, eq.operands[i]); err != nil {
			return nil, err
		}
	}
	if len(terms) < 3 {
		path = nil
	}
	if len(path) > 0 && len(path) != 2*(len(terms)-1) {
		return nil, fmt.Errorf("a path of %d numbers for %d operands", len(path), len(terms))
	}
	inResult := func(l int) bool { return slices.Contains(eq.result, l) }
	for n := 0; len(terms) > 1; n++ {
		// A path says which two terms are next; their product goes last.
		i, j := 0, 1
		if len(path) > 0 {
			i, j = min(path[2*n], path[2*n+1]), max(path[2*n], path[2*n+1])
		}
		if i < 0 || i == j || j >= len(terms) {
			return nil, fmt.Errorf("path %v for %d operands", path, len(tensors))
		}
		x, y := terms[i], terms[j]
		rest := slices.Delete(slices.Delete(slices.Clone(terms), j, j+1), i, i+1)
		kept := func(l int) bool {
			return inResult(l) || slices.ContainsFunc(rest, func(t labelled) bool { return t.size(l) >= 0 })
		}
		product, err := c.contract(x, y, kept)
		if err != nil {
			return nil, err
		}
		if len(path) > 0 {
			terms = append(rest, product)
		} else {
			terms = slices.Insert(rest, 0, product)
		}
	}
	last, err := c.without(terms[0], inResult)
	if err != nil {
		return nil, err
	}
	return c.arranged(last, eq.result)
}

// diagonals gives a tensor labels; where one repeats it takes the diagonal.
func (b *Builder) diagonals(r *Ref, labels []int) (labelled, error) {
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.layout.Offset}
	var distinct []int
	for d, label := range labels {
		at := slices.Index(distinct, label)
		if at < 0 {
			distinct = append(distinct, label)
			l.Shape, l.Strides = append(l.Shape, r.shape()[d]), append(l.Strides, r.layout.Strides[d])
			continue
		}
		if l.Shape[at] != r.shape()[d] {
			return labelled{}, fmt.Errorf("a diagonal of %v over sizes %d and %d", r.shape(), l.Shape[at], r.shape()[d])
		}
		l.Strides[at] += r.layout.Strides[d]
	}
	return labelled{b.view(r, l), distinct}, nil
}

func tensordot(c *call) (*Ref, error) {
	x, y := c.tensor("self"), c.tensor("other")
	dx, dy := c.ints("dims_self"), c.ints("dims_other")
	if c.err != nil {
		return nil, c.err
	}
	if len(dx) != len(dy) {
		return nil, fmt.Errorf("dimensions %v of one tensor and %v of the other", dx, dy)
	}
	dx, dy = slices.Clone(dx), slices.Clone(dy)
	for i := range dx {
		dx[i], dy[i] = c.wrapDim(dx[i], x.rank()), c.wrapDim(dy[i], y.rank())
		if x.rank() == 0 || y.rank() == 0 || slices.Contains(dx[:i], dx[i]) || slices.Contains(dy[:i], dy[i]) {
			c.fail("dimensions %v of %v and %v of %v", dx, x.shape(), dy, y.shape())
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.tensordot(x, y, dx, dy)
}

// tensordot sums the products of x and y over dimensions dx of the one and dy of the other.
func (b *Builder) tensordot(x, y *Ref, dx, dy []int) (*Ref, error) {
	left, right := labelled{Ref: x}, labelled{Ref: y}
	var result []int
	for d := range x.rank() {
		left.labels = append(left.labels, d)
		if !slices.Contains(dx, d) {
			result = append(result, d)
		}
	}
	for d := range y.rank() {
		label := x.rank() + d
		if i := slices.Index(dy, d); i >= 0 {
			label = dx[i]
		} else {
			result = append(result, label)
		}
		right.labels = append(right.labels, label)
	}
	out, err := b.contract(left, right, func(l int) bool { return slices.Contains(result, l) })
	if err != nil {
		return nil, err
	}
	return b.arranged(out, result)
}

func outer(c *call) (*Ref, error) {
	x, y := c.tensor("self"), c.tensor("vec2")
	if x.rank() != 1 || y.rank() != 1 {
		return nil, fmt.Errorf("vectors %v and %v", x.shape(), y.shape())
	}
	return c.outer(labelled{x, []int{0}}, labelled{y, []int{1}}, []int{0, 1})
}

// kron builds the Kronecker product: every element of one tensor times the whole other.
func kron(c *call) (*Ref, error) {
	x, y := c.tensor("self"), c.tensor("other")
	rank := max(x.rank(), y.rank())
	for x.rank() < rank {
		x = c.unsqueeze(x, 0)
	}
	for y.rank() < rank {
		y = c.unsqueeze(y, 0)
	}
	left, right := labelled{Ref: x}, labelled{Ref: y}
	var order []int
	shape := tensor.Shape{}
	for d := range rank {
		left.labels, right.labels = append(left.labels, 2*d), append(right.labels, 2*d+1)
		order = append(order, 2*d, 2*d+1)
		n, ok := tensor.MulBytes(int64(x.shape()[d]), int64(y.shape()[d]))
		if !ok {
			return nil, fmt.Errorf("a product of %v and %v is too large", x.shape(), y.shape())
		}
		shape = append(shape, int(n))
	}
	out, err := c.outer(left, right, order)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// bilinear builds Σᵢⱼ input1[…, i]·weight[o, i, j]·input2[…, j] + bias[o].
func bilinear(c *call) (*Ref, error) {
	x, y, w, bias := c.tensor("input1"), c.tensor("input2"), c.tensor("weight"), c.optTensor("bias")
	n := x.rank() - 1
	if n < 0 || y.rank() != n+1 || w.rank() != 3 || !x.shape()[:n].Equal(y.shape()[:n]) ||
		x.shape()[n] != w.shape()[1] || y.shape()[n] != w.shape()[2] {
		return nil, fmt.Errorf("inputs %v and %v do not fit weight %v", x.shape(), y.shape(), w.shape())
	}
	const out, in1, in2 = -1, -2, -3
	lead := make([]int, n)
	for d := range lead {
		lead[d] = d
	}
	half, err := c.contract(labelled{x, append(slices.Clone(lead), in1)}, labelled{w, []int{out, in1, in2}},
		func(l int) bool { return l != in1 })
	if err != nil {
		return nil, err
	}
	whole, err := c.contract(half, labelled{y, append(slices.Clone(lead), in2)}, func(l int) bool { return l != in2 })
	if err != nil {
		return nil, err
	}
	r, err := c.arranged(whole, append(lead, out))
	if err != nil || bias == nil {
		return r, err
	}
	return c.sum("add", r, bias, 1)
}
