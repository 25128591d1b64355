package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// linearTargets are products of matrices.
var linearTargets = []atenOp{
	{"aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", func(c *call) error {
		return c.giveRef(c.linear(c.tensor("input"), c.tensor("weight"), c.optTensor("bias")))
	}},
	{"aten::mkldnn_linear(Tensor self, Tensor weight, Tensor? bias=None) -> Tensor", func(c *call) error {
		return c.giveRef(c.linear(c.tensor("self"), c.tensor("weight"), c.optTensor("bias")))
	}},
	{"aten::matmul(Tensor self, Tensor other) -> Tensor", matmul("self", "other")},
	{"aten::linalg_matmul(Tensor self, Tensor other) -> Tensor", matmul("self", "other")},
	{"aten::mm(Tensor self, Tensor mat2) -> Tensor", ranked(matmul("self", "mat2"), "self", 2, "mat2", 2)},
	{"aten::bmm(Tensor self, Tensor mat2) -> Tensor", ranked(func(c *call) error {
		return c.giveRef(c.multiply(c.tensor("self"), c.tensor("mat2")))
	}, "self", 3, "mat2", 3)},
	{"aten::mv(Tensor self, Tensor vec) -> Tensor", ranked(matmul("self", "vec"), "self", 2, "vec", 1)},
	{"aten::dot(Tensor self, Tensor tensor) -> Tensor", ranked(matmul("self", "tensor"), "self", 1, "tensor", 1)},
	{"aten::vdot(Tensor self, Tensor other) -> Tensor", ranked(matmul("self", "other"), "self", 1, "other", 1)},
	{"aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addmm},
	{"aten::addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addmm)},
	{"aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addmv},
	{"aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addmv)},
	{"aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", baddbmm},
	{"aten::baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(baddbmm)},
	{"aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addbmm},
	{"aten::addbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addbmm)},
	{"aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addr},
	{"aten::addr_(Tensor(a!) self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addr)},
	{"aten::chain_matmul(Tensor[] matrices) -> Tensor", chainMatmul("matrices")},
	{"aten::linalg_multi_dot(Tensor[] tensors) -> Tensor", chainMatmul("tensors")},
	{"aten::matrix_power(Tensor self, int n) -> Tensor", matrixPower},
	{"aten::linalg_matrix_power(Tensor self, int n) -> Tensor", matrixPower},
	{"aten::_int_mm(Tensor self, Tensor mat2) -> Tensor", ranked(func(c *call) error {
		x, err := c.Cast(c.tensor("self"), tensor.Int32)
		if err != nil {
			return err
		}
		y, err := c.Cast(c.tensor("mat2"), tensor.Int32)
		if err != nil {
			return err
		}
		return c.giveRef(c.matmul(x, y))
	}, "self", 2, "mat2", 2)},
	{
		"aten::_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor",
		ranked(int8PackMM, "self", 2, "mat2", 2),
	},
	{"aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) " +
		"-> Tensor", groupedMM},
	{"transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor", func(c *call) error {
		return c.give("grouped_matmul", nil,
			c.Read(c.tensor("input")), c.Read(c.tensor("weight")), c.Read(c.tensor("offs")))
	}},
	{"optimem::experts(Tensor self, Tensor ids, Tensor weights, Tensor[] gate, Tensor[] up, Tensor[] down, Tensor[]? biases=None, *, " +
		"str act='silu', float alpha=0., float limit=0., bool weigh_input=False) -> Tensor", experts},
	{
		"optimem::causal_conv(Tensor self, Tensor weight, Tensor? bias=None) -> Tensor",
		walking("causal_conv", "self", "weight", "bias"),
	},
	{"optimem::selective_scan(Tensor self, Tensor steps, Tensor a, Tensor b, Tensor c) -> Tensor",
		walking("selective_scan", "self", "steps", "a", "b", "c")},
	{"optimem::delta_rule(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor share) -> Tensor",
		walking("delta_rule", "query", "key", "value", "decay", "share")},
	{"aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", func(c *call) error {
		return c.cross(c.int("dim"))
	}},
	{"aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor", func(c *call) error {
		if c.has("dim") {
			return c.cross(c.int("dim"))
		}
		// The first dimension of size 3.
		return c.cross(slices.Index(c.tensor("self").shape(), 3))
	}},
}

// ranked checks the ranks of two arguments before build.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func ranked(build func(c *call) error, name string, rank int, name2 string, rank2 int) func(c *call) error {
	return func(c *call) error {
		x, y := c.tensor(name), c.tensor(name2)
		if c.err == nil && (x.rank() != rank || y.rank() != rank2) {
			return fmt.Errorf(
				"%s %v and %s %v do not have ranks %d and %d", name, x.shape(), name2, y.shape(), rank, rank2,
			)
		}
		return build(c)
	}
}

// writingSelf makes an op that gives a tensor one that writes it to the argument "self".
func writingSelf(build func(c *call) error) func(c *call) error {
	return func(c *call) error {
		if err := build(c); err != nil {
			return err
		}
		if c.err != nil {
			return c.err
		}
		self, result := c.tensor("self"), c.results[0].(*Ref)
		if !result.shape().Equal(self.shape()) {
			return fmt.Errorf("result %v does not fit into %v", result.shape(), self.shape())
		}
		if err := c.Write(self, result); err != nil {
			return err
		}
		c.set(self)
		return nil
	}
}

// int8PackMM is self·mat2ᵀ × scales for a weight of int8, in float32 and rounded once.
func int8PackMM(c *call) error {
	x, w, scales := c.tensor("self"), c.tensor("mat2"), c.tensor("scales")
	if w.dtype != tensor.Int8 || !IsFloat(x.dtype) || x.dtype == tensor.Float64 || scales.dtype != x.dtype ||
		!scales.shape().Equal(w.shape()[:1]) {
		return fmt.Errorf("%v %v times %v %v with scales %v %v", x.dtype, x.shape(), w.dtype, w.shape(), scales.dtype,
			scales.shape())
	}
	var wide [3]*Ref
	for i, r := range [3]*Ref{x, w, scales} {
		var err error
		if wide[i], err = c.Cast(r, tensor.Float32); err != nil {
			return err
		}
	}
	sums, err := c.linear(wide[0], wide[1], nil)
	if err != nil {
		return err
	}
	scaled, err := c.arithmetic("mul", nil, tensor.Float32, sums, wide[2])
	if err != nil {
		return err
	}
	return c.giveRef(c.Cast(scaled, x.dtype))
}

func matmul(name, name2 string) func(c *call) error {
	return func(c *call) error { return c.giveRef(c.matmul(c.tensor(name), c.tensor(name2))) }
}

// isWeight reports whether a tensor is part of the model rather than computed.
func (b *Builder) isWeight(r *Ref) bool {
	if r.cell.value < 0 || int(r.cell.value) >= len(b.Graph.Values) {
		return false
	}
	role := b.Graph.Values[r.cell.value].Role
	return role == graph.Weight || role == graph.Const
}

// linear returns x·wᵀ + bias for a weight [N K] or [K] and a bias that broadcasts to the result, or nil.
func (b *Builder) linear(x, w, bias *Ref) (*Ref, error) {
	if w.rank() == 1 && x.rank() > 0 {
		out, err := b.linear(x, b.unsqueeze(w, 0), bias)
		if err != nil {
			return nil, err
		}
		return b.selectAt(out, out.rank()-1, 0), nil
	}
	if x.rank() < 1 || w.rank() != 2 {
		return nil, fmt.Errorf("input %v does not fit weight %v", x.shape(), w.shape())
	}
	if bias != nil && bias.rank() > 1 {
		out := slices.Clone(x.shape())
		out[len(out)-1] = w.shape()[0]
		return b.addProduct(bias, x, b.transpose(w, 0, 1), out, 1, 1)
	}
	if bias != nil {
		var err error
		if bias, err = b.expand(bias, tensor.Shape{w.shape()[0]}); err != nil {
			return nil, fmt.Errorf("bias: %w", err)
		}
	}
	x, err := b.inRows(x)
	if err != nil {
		return nil, err
	}
	return b.Emit1("linear", nil, b.Read(x), b.Read(w), b.Read(bias))
}

// inRows returns x with rows that lie at one distance from each other: a copy where they do not.
func (b *Builder) inRows(x *Ref) (*Ref, error) {
	k := x.shape()[x.rank()-1]
	if k == 0 || NumElements(x.shape()) == 0 {
		return x, nil
	}
	if _, ok := x.layout.ViewAs(tensor.Shape{int(NumElements(x.shape())) / k, k}); ok {
		return x, nil
	}
	return b.copy(x)
}

// matmul returns the product of two tensors by the rules of torch.matmul.
func (b *Builder) matmul(x, y *Ref) (*Ref, error) {
	if x.rank() == 0 || y.rank() == 0 {
		return nil, fmt.Errorf("a product of %v and %v", x.shape(), y.shape())
	}
	switch {
	case y.rank() == 1 && x.rank() == 2: // each row of the matrix is a dot product, as in a linear layer of a vector
		return b.linear(y, x, nil)
	case y.rank() == 1:
		return b.linear(x, y, nil)
	case y.rank() == 2 && (x.rank() != 2 || b.isWeight(y)):
		return b.linear(x, b.transpose(y, 0, 1), nil)
	case x.rank() == 1:
		out, err := b.matmul(b.unsqueeze(x, 0), y)
		if err != nil {
			return nil, err
		}
		return b.selectAt(out, out.rank()-2, 0), nil
	}
	if n := y.rank() - 2; y.rank() <= x.rank() && NumElements(y.shape()[:n]) == 1 {
		for y.rank() > 2 {
			y = b.selectAt(y, 0, 0)
		}
		if x.rank() > 2 || b.isWeight(y) {
			return b.linear(x, b.transpose(y, 0, 1), nil)
		}
	}
	batch, err := broadcast(x.shape()[:x.rank()-2], y.shape()[:y.rank()-2])
	if err != nil {
		return nil, fmt.Errorf("matrices %v and %v: %w", x.shape(), y.shape(), err)
	}
	if x, err = b.expandLeading(x, batch, 2); err != nil {
		return nil, err
	}
	if y, err = b.expandLeading(y, batch, 2); err != nil {
		return nil, err
	}
	return b.multiply(x, y)
}

// multiply returns the products of matrices [… M K] and [… K N] with equal leading dimensions.
func (b *Builder) multiply(x, y *Ref) (*Ref, error) {
	return b.Emit1("matmul", graph.Attrs{"alpha": 1.0, "beta": 1.0}, b.Read(x), b.Read(y))
}

// expandLeading expands all but the last n dimensions.
func (b *Builder) expandLeading(r *Ref, lead tensor.Shape, n int) (*Ref, error) {
	return b.expand(r, slices.Concat(lead, r.shape()[r.rank()-n:]))
}

// addProduct returns beta·addend + alpha·x·y, of the given shape, which the addend expands to. y may have fewer
// dimensions than x.
func (b *Builder) addProduct(addend, x, y *Ref, out tensor.Shape, alpha, beta float64) (*Ref, error) {
	var err error
	if x.rank() == 1 {
		x, out = b.unsqueeze(x, 0), slices.Insert(slices.Clone(out), 0, 1)
		r, err := b.addProduct(addend, x, y, out, alpha, beta)
		if err != nil {
			return nil, err
		}
		return b.selectAt(r, 0, 0), nil
	}
	if y, err = b.expandLeading(y, x.shape()[:x.rank()-2], 2); err != nil {
		return nil, err
	}
	if beta == 0 {
		addend = nil
	} else if addend, err = b.expand(addend, out); err != nil {
		return nil, err
	}
	return b.Emit1("matmul", graph.Attrs{"alpha": alpha, "beta": beta}, b.Read(x), b.Read(y), b.Read(addend))
}

// addMatrices returns beta·addend + alpha·x·y for two matrices.
func (c *call) addMatrices(addend, x, y *Ref) (*Ref, error) {
	alpha, beta := c.float("alpha"), c.float("beta")
	if c.err != nil {
		return nil, c.err
	}
	if alpha == 0 && x.shape()[1] == y.shape()[0] { // the factors do not count, not even their NaN
		x, y = c.slice(x, 1, 0, 0, 1), c.slice(y, 0, 0, 0, 1)
	}
	n := y.shape()[1]
	row := addend.rank() == 0 || addend.rank() == 1 || addend.rank() == 2 && addend.shape()[0] == 1 && x.shape()[0] != 1
	if alpha == 1 && beta == 1 && row && addend.dtype == x.dtype {
		if addend.rank() == 2 {
			addend = c.selectAt(addend, 0, 0)
		}
		bias, err := c.expand(addend, tensor.Shape{n})
		if err != nil {
			return nil, err
		}
		return c.linear(x, c.transpose(y, 0, 1), bias)
	}
	return c.addProduct(addend, x, y, tensor.Shape{x.shape()[0], n}, alpha, beta)
}

func addmm(c *call) error {
	x, y := c.tensor("mat1"), c.tensor("mat2")
	if x.rank() != 2 || y.rank() != 2 {
		return fmt.Errorf("matrices %v and %v", x.shape(), y.shape())
	}
	return c.giveRef(c.addMatrices(c.tensor("self"), x, y))
}

func addmv(c *call) error {
	addend, x, y := c.tensor("self"), c.tensor("mat"), c.tensor("vec")
	if x.rank() != 2 || y.rank() != 1 || addend.rank() > 1 {
		return fmt.Errorf("%v plus matrix %v times vector %v", addend.shape(), x.shape(), y.shape())
	}
	if addend.rank() == 1 {
		addend = c.unsqueeze(addend, 1)
	}
	// The addend is a column: it must not be taken for the bias of a row.
	addend, err := c.expand(addend, tensor.Shape{x.shape()[0], 1})
	if err != nil {
		return err
	}
	out, err := c.addMatrices(addend, x, c.unsqueeze(y, 1))
	if err != nil {
		return err
	}
	return c.giveRef(c.selectAt(out, 1, 0), nil)
}

func addr(c *call) error {
	x, y := c.tensor("vec1"), c.tensor("vec2")
	if x.rank() != 1 || y.rank() != 1 {
		return fmt.Errorf("vectors %v and %v", x.shape(), y.shape())
	}
	out := tensor.Shape{x.shape()[0], y.shape()[0]}
	return c.giveRef(c.addProduct(c.tensor("self"), c.unsqueeze(x, 1), c.unsqueeze(y, 0), out,
		c.float("alpha"), c.float("beta")))
}

// batches returns the arguments "batch1" and "batch2", checked.
func (c *call) batches() (x, y *Ref, err error) {
	x, y = c.tensor("batch1"), c.tensor("batch2")
	if x.rank() != 3 || y.rank() != 3 || x.shape()[0] != y.shape()[0] || x.shape()[2] != y.shape()[1] {
		return nil, nil, fmt.Errorf("batches of matrices %v and %v", x.shape(), y.shape())
	}
	return x, y, nil
}

func baddbmm(c *call) error {
	x, y, err := c.batches()
	if err != nil {
		return err
	}
	out := tensor.Shape{x.shape()[0], x.shape()[1], y.shape()[2]}
	return c.giveRef(c.addProduct(c.tensor("self"), x, y, out, c.float("alpha"), c.float("beta")))
}

// addbmm adds the products of all pairs: one product, of the matrices side by side.
func addbmm(c *call) error {
	x, y, err := c.batches()
	if err != nil {
		return err
	}
	batch, m, k, n := x.shape()[0], x.shape()[1], x.shape()[2], y.shape()[2]
	if x, err = c.Reshape(c.permute(x, 1, 0, 2), tensor.Shape{m, batch * k}); err != nil {
		return err
	}
	if y, err = c.Reshape(y, tensor.Shape{batch * k, n}); err != nil {
		return err
	}
	return c.giveRef(c.addMatrices(c.tensor("self"), x, y))
}

// maxFactors bounds the matrices of a chain, whose best order takes the cube of their number to find.
const maxFactors = 256

// chainMatmul multiplies matrices in the order that takes the fewest multiplications.
func chainMatmul(name string) func(c *call) error {
	return func(c *call) error {
		list := slices.Clone(c.tensors(name))
		if len(list) == 0 || slices.Contains(list, nil) {
			return fmt.Errorf("a product of %d matrices", len(list))
		}
		if len(list) > maxFactors {
			return fmt.Errorf("a product of %d matrices; at most %d can be", len(list), maxFactors)
		}
		if len(list) == 1 {
			return c.giveRef(c.Builder.copy(list[0]))
		}
		first, last := list[0].rank() == 1, list[len(list)-1].rank() == 1
		if first {
			list[0] = c.unsqueeze(list[0], 0)
		}
		if last {
			list[len(list)-1] = c.unsqueeze(list[len(list)-1], 1)
		}
		for _, r := range list {
			if r.rank() != 2 {
				return fmt.Errorf("a matrix of shape %v", r.shape())
			}
		}
		out, err := c.chain(list)
		if err != nil {
			return err
		}
		return c.giveRef(c.squeeze(out, func(d int) bool { return d == 0 && first || d == 1 && last }), nil)
	}
}

func (b *Builder) chain(list []*Ref) (*Ref, error) {
	n := len(list)
	// cost[i][j] is what the product of the matrices i…j takes when it is cut after split[i][j].
	cost, split := make([][]float64, n), make([][]int, n)
	for i := range list {
		cost[i], split[i] = make([]float64, n), make([]int, n)
	}
	for length := 1; length < n; length++ {
		for i := 0; i+length < n; i++ {
			j := i + length
			for s := i; s < j; s++ {
				rows, inner, columns := list[i].shape()[0], list[s].shape()[1], list[j].shape()[1]
				total := cost[i][s] + cost[s+1][j] + float64(rows)*float64(inner)*float64(columns)
				if s == i || total < cost[i][j] {
					cost[i][j], split[i][j] = total, s
				}
			}
		}
	}
	var multiply func(i, j int) (*Ref, error)
	multiply = func(i, j int) (*Ref, error) {
		if i == j {
			return list[i], nil
		}
		x, err := multiply(i, split[i][j])
		if err != nil {
			return nil, err
		}
		y, err := multiply(split[i][j]+1, j)
		if err != nil {
			return nil, err
		}
		return b.matmul(x, y)
	}
	return multiply(0, n-1)
}

// identities gives a matrix with a diagonal of ones for each matrix of x.
func (c *call) identities(x *Ref) error {
	if x.rank() < 2 || x.shape()[x.rank()-1] != x.shape()[x.rank()-2] {
		return fmt.Errorf("power of matrices %v", x.shape())
	}
	size := x.shape()[x.rank()-1]
	one, err := c.Emit1("eye", graph.Attrs{"rows": size, "columns": size, "dtype": x.dtype})
	if err != nil {
		return err
	}
	if one, err = c.expand(one, x.shape()); err != nil {
		return err
	}
	return c.giveRef(c.copy(one))
}

// matrixPower multiplies by squaring.
func matrixPower(c *call) error {
	x, n := c.tensor("self"), c.int("n")
	switch {
	case c.err != nil:
		return c.err
	case n < 0:
		return c.Unsupported("power %d of matrices, which needs their inverse", n)
	case n == 0:
		return c.identities(x)
	}
	var out *Ref
	var err error
	for ; ; n /= 2 {
		switch {
		case n%2 == 0:
		case out == nil:
			out = x
		default:
			if out, err = c.matmul(out, x); err != nil {
				return err
			}
		}
		if n == 1 {
			return c.giveRef(c.Builder.copy(out))
		}
		if x, err = c.matmul(x, x); err != nil {
			return err
		}
	}
}

func groupedMM(c *call) error {
	x, y, ends := c.tensor("self"), c.tensor("mat2"), c.optTensor("offs")
	if c.has("bias") || c.dtype("out_dtype", x.dtype) != x.dtype {
		return fmt.Errorf("a grouped product with a bias or of another dtype")
	}
	switch {
	case x.rank() == 3 && y.rank() == 3 && ends == nil:
		return c.giveRef(c.multiply(x, y))
	case x.rank() == 2 && y.rank() == 3 && ends != nil:
		return c.give("grouped_matmul", nil, c.Read(x), c.Read(y), c.Read(ends))
	case x.rank() == 3 && y.rank() == 2 && ends != nil: // groups of columns
		out, err := c.Emit1("grouped_matmul", nil,
			c.Read(c.transpose(y, 0, 1)), c.Read(c.transpose(x, 1, 2)), c.Read(ends))
		if err != nil {
			return err
		}
		return c.giveRef(c.transpose(out, 0, 1), nil)
	}
	return fmt.Errorf("a grouped product of %v and %v", x.shape(), y.shape())
}

// experts are those of a mixture, with the weights of each; biases has those of gate, up and down, expert by expert, or nothing.
func experts(c *call) error {
	gate, up, down, biases := c.tensors("gate"), c.tensors("up"), c.tensors("down"), c.tensors("biases")
	n := len(gate)
	if len(up) != n || len(down) != n || len(biases) != 0 && len(biases) != 3*n {
		return fmt.Errorf("%d gates, %d ups, %d downs and %d biases", n, len(up), len(down), len(biases))
	}
	if slices.Contains(slices.Concat(gate, up, down, biases), nil) {
		return fmt.Errorf("an expert lacks a weight")
	}
	attrs := graph.Attrs{"experts": n, "act": c.str("act")}
	for _, name := range []string{"alpha", "limit"} {
		if x := c.float(name); x != 0 {
			attrs[name] = x
		}
	}
	if c.bool("weigh_input") {
		attrs["weigh_input"] = true
	}
	in := []graph.Operand{c.Read(c.tensor("self")), c.Read(c.tensor("ids")), c.Read(c.tensor("weights"))}
	for i := range n {
		in = append(in, c.Read(gate[i]), c.Read(up[i]), c.Read(down[i]))
		if len(biases) > 0 {
			attrs["biased"] = true
			in = append(in, c.Read(biases[3*i]), c.Read(biases[3*i+1]), c.Read(biases[3*i+2]))
		}
	}
	return c.give("experts", attrs, in...)
}

// walking gives an op that walks sequences from their beginning, whose operands are the arguments named.
func walking(kind graph.Kind, names ...string) func(c *call) error {
	return func(c *call) error {
		in := make([]graph.Operand, len(names))
		for i, name := range names {
			in[i] = c.Read(c.optTensor(name))
		}
		return c.give(kind, nil, in...)
	}
}

// cross gives the vector product of "self" and "other", which broadcast, over a dimension.
func (c *call) cross(dim int) error {
	x, y := c.tensor("self"), c.tensor("other")
	if c.err != nil {
		return c.err
	}
	shape, err := broadcast(x.shape(), y.shape())
	if err != nil {
		return err
	}
	if x.rank() != y.rank() {
		return fmt.Errorf("vectors %v and %v of different ranks", x.shape(), y.shape())
	}
	if x, err = c.expand(x, shape); err != nil {
		return err
	}
	if y, err = c.expand(y, shape); err != nil {
		return err
	}
	return c.give("cross", graph.Attrs{"dim": c.wrapDim(dim, len(shape))}, c.Read(x), c.Read(y))
}
