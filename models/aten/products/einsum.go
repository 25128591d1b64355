package products

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// einsumTargets are sums of products over named dimensions.
var einsumTargets = []call.Overload{
	call.One("aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", einsum),
	call.One("aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor", tensordot),
	call.One("aten::inner(Tensor self, Tensor other) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		x, y := c.Tensor("self"), c.Tensor("other")
		if x.Rank() == 0 || y.Rank() == 0 {
			return c.Combine("mul", nil, x, y)
		}
		return tensordotOf(c.Builder, x, y, []int{x.Rank() - 1}, []int{y.Rank() - 1})
	}),
	call.One("aten::outer(Tensor self, Tensor vec2) -> Tensor", outer),
	call.One("aten::ger(Tensor self, Tensor vec2) -> Tensor", outer),
	call.One("aten::kron(Tensor self, Tensor other) -> Tensor", kron),
	call.One("aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", bilinear),
	call.One("aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			product, err := c.Combine("mul", nil, c.Tensor("x"), c.Tensor("y"))
			if err != nil {
				return nil, err
			}
			if product.Rank() == 0 {
				return nil, fmt.Errorf("vectors %v and %v", c.Tensor("x").Shape(), c.Tensor("y").Shape())
			}
			return total(c.Builder, product, []int{c.Dim("dim", product.Rank())})
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

func einsum(c *call.Call) (*cells.Ref, error) {
	tensors, path := c.Tensors("tensors"), c.Ints("path")
	if c.Err != nil || len(tensors) == 0 || slices.Contains(tensors, nil) {
		return nil, fmt.Errorf("%d operands", len(tensors))
	}
	if len(tensors) > maxTerms {
		return nil, fmt.Errorf("%d operands; at most %d can be", len(tensors), maxTerms)
	}
	ranks := make([]int, len(tensors))
	for i, r := range tensors {
		ranks[i] = r.Rank()
	}
	eq, err := parseEquation(c.Text("equation"), ranks)
	if err != nil {
		return nil, err
	}
	terms := make([]labelled, len(tensors))
	for i, r := range tensors {
		if terms[i], err = diagonals(c.Builder, r, eq.operands[i]); err != nil {
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
		product, err := contract(c.Builder, x, y, kept)
		if err != nil {
			return nil, err
		}
		if len(path) > 0 {
			terms = append(rest, product)
		} else {
			terms = slices.Insert(rest, 0, product)
		}
	}
	last, err := without(c.Builder, terms[0], inResult)
	if err != nil {
		return nil, err
	}
	return arranged(c.Builder, last, eq.result)
}

// diagonals gives a tensor labels; where one repeats it takes the diagonal.
func diagonals(b *cells.Builder, r *cells.Ref, labels []int) (labelled, error) {
	l := tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: r.Layout().Offset}
	var distinct []int
	for d, label := range labels {
		at := slices.Index(distinct, label)
		if at < 0 {
			distinct = append(distinct, label)
			l.Shape, l.Strides = append(l.Shape, r.Shape()[d]), append(l.Strides, r.Layout().Strides[d])
			continue
		}
		if l.Shape[at] != r.Shape()[d] {
			return labelled{}, fmt.Errorf("a diagonal of %v over sizes %d and %d", r.Shape(), l.Shape[at], r.Shape()[d])
		}
		l.Strides[at] += r.Layout().Strides[d]
	}
	return labelled{b.View(r, l), distinct}, nil
}

func tensordot(c *call.Call) (*cells.Ref, error) {
	x, y := c.Tensor("self"), c.Tensor("other")
	dx, dy := c.Ints("dims_self"), c.Ints("dims_other")
	if c.Err != nil {
		return nil, c.Err
	}
	if len(dx) != len(dy) {
		return nil, fmt.Errorf("dimensions %v of one tensor and %v of the other", dx, dy)
	}
	dx, dy = slices.Clone(dx), slices.Clone(dy)
	for i := range dx {
		dx[i], dy[i] = c.WrapDim(dx[i], x.Rank()), c.WrapDim(dy[i], y.Rank())
		if x.Rank() == 0 || y.Rank() == 0 || slices.Contains(dx[:i], dx[i]) || slices.Contains(dy[:i], dy[i]) {
			c.Fail("dimensions %v of %v and %v of %v", dx, x.Shape(), dy, y.Shape())
		}
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return tensordotOf(c.Builder, x, y, dx, dy)
}

// tensordotOf sums the products of x and y over dimensions dx of the one and dy of the other.
func tensordotOf(b *cells.Builder, x, y *cells.Ref, dx, dy []int) (*cells.Ref, error) {
	left, right := labelled{Ref: x}, labelled{Ref: y}
	var result []int
	for d := range x.Rank() {
		left.labels = append(left.labels, d)
		if !slices.Contains(dx, d) {
			result = append(result, d)
		}
	}
	for d := range y.Rank() {
		label := x.Rank() + d
		if i := slices.Index(dy, d); i >= 0 {
			label = dx[i]
		} else {
			result = append(result, label)
		}
		right.labels = append(right.labels, label)
	}
	out, err := contract(b, left, right, func(l int) bool { return slices.Contains(result, l) })
	if err != nil {
		return nil, err
	}
	return arranged(b, out, result)
}

func outer(c *call.Call) (*cells.Ref, error) {
	x, y := c.Tensor("self"), c.Tensor("vec2")
	if x.Rank() != 1 || y.Rank() != 1 {
		return nil, fmt.Errorf("vectors %v and %v", x.Shape(), y.Shape())
	}
	return outerProduct(c.Builder, labelled{x, []int{0}}, labelled{y, []int{1}}, []int{0, 1})
}

// kron builds the Kronecker product: every element of one tensor times the whole other.
func kron(c *call.Call) (*cells.Ref, error) {
	x, y := c.Tensor("self"), c.Tensor("other")
	rank := max(x.Rank(), y.Rank())
	for x.Rank() < rank {
		x = c.Unsqueeze(x, 0)
	}
	for y.Rank() < rank {
		y = c.Unsqueeze(y, 0)
	}
	left, right := labelled{Ref: x}, labelled{Ref: y}
	var order []int
	shape := tensor.Shape{}
	for d := range rank {
		left.labels, right.labels = append(left.labels, 2*d), append(right.labels, 2*d+1)
		order = append(order, 2*d, 2*d+1)
		n, ok := tensor.MulBytes(int64(x.Shape()[d]), int64(y.Shape()[d]))
		if !ok {
			return nil, fmt.Errorf("a product of %v and %v is too large", x.Shape(), y.Shape())
		}
		shape = append(shape, int(n))
	}
	out, err := outerProduct(c.Builder, left, right, order)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, shape)
}

// bilinear builds Σᵢⱼ input1[…, i]·weight[o, i, j]·input2[…, j] + bias[o].
func bilinear(c *call.Call) (*cells.Ref, error) {
	x, y, w, bias := c.Tensor("input1"), c.Tensor("input2"), c.Tensor("weight"), c.OptTensor("bias")
	n := x.Rank() - 1
	if n < 0 || y.Rank() != n+1 || w.Rank() != 3 || !x.Shape()[:n].Equal(y.Shape()[:n]) ||
		x.Shape()[n] != w.Shape()[1] || y.Shape()[n] != w.Shape()[2] {
		return nil, fmt.Errorf("inputs %v and %v do not fit weight %v", x.Shape(), y.Shape(), w.Shape())
	}
	const out, in1, in2 = -1, -2, -3
	lead := make([]int, n)
	for d := range lead {
		lead[d] = d
	}
	half, err := contract(c.Builder, labelled{x, append(slices.Clone(lead), in1)}, labelled{w, []int{out, in1, in2}},
		func(l int) bool { return l != in1 })
	if err != nil {
		return nil, err
	}
	whole, err := contract(c.Builder, half, labelled{y, append(slices.Clone(lead), in2)},
		func(l int) bool { return l != in2 })
	if err != nil {
		return nil, err
	}
	r, err := arranged(c.Builder, whole, append(lead, out))
	if err != nil || bias == nil {
		return r, err
	}
	return c.Sum("add", r, bias, 1)
}
