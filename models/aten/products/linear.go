package products

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// linearTargets are products of matrices.
var linearTargets = []call.Overload{
	call.Several("aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", func(c *call.Call) error {
		return c.GiveRef(linear(c.Builder, c.Tensor("input"), c.Tensor("weight"), c.OptTensor("bias")))
	}),
	call.Several("aten::mkldnn_linear(Tensor self, Tensor weight, Tensor? bias=None) -> Tensor",
		func(c *call.Call) error {
			return c.GiveRef(linear(c.Builder, c.Tensor("self"), c.Tensor("weight"), c.OptTensor("bias")))
		}),
	call.Several("aten::matmul(Tensor self, Tensor other) -> Tensor", matmul("self", "other")),
	call.Several("aten::linalg_matmul(Tensor self, Tensor other) -> Tensor", matmul("self", "other")),
	call.Several("aten::mm(Tensor self, Tensor mat2) -> Tensor", ranked(matmul("self", "mat2"), "self", 2, "mat2", 2)),
	call.Several("aten::bmm(Tensor self, Tensor mat2) -> Tensor", ranked(func(c *call.Call) error {
		return c.GiveRef(multiply(c.Builder, c.Tensor("self"), c.Tensor("mat2")))
	}, "self", 3, "mat2", 3)),
	call.Several("aten::mv(Tensor self, Tensor vec) -> Tensor", ranked(matmul("self", "vec"), "self", 2, "vec", 1)),
	call.Several("aten::dot(Tensor self, Tensor tensor) -> Tensor",
		ranked(matmul("self", "tensor"), "self", 1, "tensor", 1)),
	call.Several("aten::vdot(Tensor self, Tensor other) -> Tensor",
		ranked(matmul("self", "other"), "self", 1, "other", 1)),
	call.Several("aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addmm),
	call.Several("aten::addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addmm)),
	call.Several("aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addmv),
	call.Several("aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addmv)),
	call.Several("aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
		baddbmm),
	call.Several("aten::baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(baddbmm)),
	call.Several("aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addbmm),
	call.Several("aten::addbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addbmm)),
	call.Several("aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addr),
	call.Several("aten::addr_(Tensor(a!) self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
		writingSelf(addr)),
	call.Several("aten::chain_matmul(Tensor[] matrices) -> Tensor", chainMatmul("matrices")),
	call.Several("aten::linalg_multi_dot(Tensor[] tensors) -> Tensor", chainMatmul("tensors")),
	call.Several("aten::matrix_power(Tensor self, int n) -> Tensor", matrixPower),
	call.Several("aten::linalg_matrix_power(Tensor self, int n) -> Tensor", matrixPower),
	call.Several("aten::_int_mm(Tensor self, Tensor mat2) -> Tensor", ranked(func(c *call.Call) error {
		x, err := c.Cast(c.Tensor("self"), tensor.Int32)
		if err != nil {
			return err
		}
		y, err := c.Cast(c.Tensor("mat2"), tensor.Int32)
		if err != nil {
			return err
		}
		return c.GiveRef(productOf(c.Builder, x, y))
	}, "self", 2, "mat2", 2)),
	call.Several(
		"aten::_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor",
		ranked(int8PackMM, "self", 2, "mat2", 2),
	),
	call.Several("aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) "+
		"-> Tensor", groupedMM),
	call.Several("transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
		func(c *call.Call) error {
			return c.Give("grouped_matmul", nil,
				c.Read(c.Tensor("input")), c.Read(c.Tensor("weight")), c.Read(c.Tensor("offs")))
		}),
	call.Several("optimem::experts(Tensor self, Tensor ids, Tensor weights, Tensor[] gate, Tensor[] up, Tensor[] down, Tensor[]? biases=None, *, "+
		"str act='silu', float alpha=0., float limit=0., bool weigh_input=False) -> Tensor", experts),
	call.Several(
		"optimem::causal_conv(Tensor self, Tensor weight, Tensor? bias=None) -> Tensor",
		walking("causal_conv", "self", "weight", "bias"),
	),
	call.Several("optimem::selective_scan(Tensor self, Tensor steps, Tensor a, Tensor b, Tensor c) -> Tensor",
		walking("selective_scan", "self", "steps", "a", "b", "c")),
	call.Several("optimem::delta_rule(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor share) -> Tensor",
		walking("delta_rule", "query", "key", "value", "decay", "share")),
	call.Several("aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", func(c *call.Call) error {
		return cross(c, c.Int("dim"))
	}),
	call.Several("aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor", func(c *call.Call) error {
		if c.Has("dim") {
			return cross(c, c.Int("dim"))
		}
		// The first dimension of size 3.
		return cross(c, slices.Index(c.Tensor("self").Shape(), 3))
	}),
}

// ranked checks the ranks of two arguments before build.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func ranked(build func(c *call.Call) error, name string, rank int, name2 string, rank2 int) func(c *call.Call) error {
	return func(c *call.Call) error {
		x, y := c.Tensor(name), c.Tensor(name2)
		if c.Err == nil && (x.Rank() != rank || y.Rank() != rank2) {
			return fmt.Errorf(
				"%s %v and %s %v do not have ranks %d and %d", name, x.Shape(), name2, y.Shape(), rank, rank2,
			)
		}
		return build(c)
	}
}

// writingSelf makes an op that gives a tensor one that writes it to the argument "self".
func writingSelf(build func(c *call.Call) error) func(c *call.Call) error {
	return func(c *call.Call) error {
		if err := build(c); err != nil {
			return err
		}
		if c.Err != nil {
			return c.Err
		}
		self, result := c.Tensor("self"), c.Results[0].(*cells.Ref)
		if !result.Shape().Equal(self.Shape()) {
			return fmt.Errorf("result %v does not fit into %v", result.Shape(), self.Shape())
		}
		if err := c.Write(self, result); err != nil {
			return err
		}
		c.Set(self)
		return nil
	}
}

// int8PackMM is self·mat2ᵀ × scales for a weight of int8, in float32 and rounded once.
func int8PackMM(c *call.Call) error {
	x, w, scales := c.Tensor("self"), c.Tensor("mat2"), c.Tensor("scales")
	if w.DType() != tensor.Int8 || !cells.IsFloat(x.DType()) || x.DType() == tensor.Float64 ||
		scales.DType() != x.DType() ||
		!scales.Shape().Equal(w.Shape()[:1]) {
		return fmt.Errorf("%v %v times %v %v with scales %v %v", x.DType(), x.Shape(), w.DType(), w.Shape(),
			scales.DType(),
			scales.Shape())
	}
	var wide [3]*cells.Ref
	for i, r := range [3]*cells.Ref{x, w, scales} {
		var err error
		if wide[i], err = c.Cast(r, tensor.Float32); err != nil {
			return err
		}
	}
	sums, err := linear(c.Builder, wide[0], wide[1], nil)
	if err != nil {
		return err
	}
	scaled, err := c.Arithmetic("mul", nil, tensor.Float32, sums, wide[2])
	if err != nil {
		return err
	}
	return c.GiveRef(c.Cast(scaled, x.DType()))
}

func matmul(name, name2 string) func(c *call.Call) error {
	return func(c *call.Call) error { return c.GiveRef(productOf(c.Builder, c.Tensor(name), c.Tensor(name2))) }
}

// isWeight reports whether a tensor is part of the model rather than computed.
func isWeight(b *cells.Builder, r *cells.Ref) bool {
	if r.Memory().Value() < 0 || int(r.Memory().Value()) >= len(b.Graph.Values) {
		return false
	}
	role := b.Graph.Values[r.Memory().Value()].Role
	return role == graph.Weight || role == graph.Const
}

// linear returns x·wᵀ + bias for a weight [N K] or [K] and a bias that broadcasts to the result, or nil.
func linear(b *cells.Builder, x, w, bias *cells.Ref) (*cells.Ref, error) {
	if w.Rank() == 1 && x.Rank() > 0 {
		out, err := linear(b, x, b.Unsqueeze(w, 0), bias)
		if err != nil {
			return nil, err
		}
		return b.SelectAt(out, out.Rank()-1, 0), nil
	}
	if x.Rank() < 1 || w.Rank() != 2 {
		return nil, fmt.Errorf("input %v does not fit weight %v", x.Shape(), w.Shape())
	}
	if bias != nil && bias.Rank() > 1 {
		out := slices.Clone(x.Shape())
		out[len(out)-1] = w.Shape()[0]
		return addProduct(b, bias, x, b.Transpose(w, 0, 1), out, 1, 1)
	}
	if bias != nil {
		var err error
		if bias, err = b.Expand(bias, tensor.Shape{w.Shape()[0]}); err != nil {
			return nil, fmt.Errorf("bias: %w", err)
		}
	}
	x, err := b.InRows(x)
	if err != nil {
		return nil, err
	}
	return b.Emit1("linear", nil, b.Read(x), b.Read(w), b.Read(bias))
}

// productOf returns the product of two tensors by the rules of torch.matmul.
func productOf(b *cells.Builder, x, y *cells.Ref) (*cells.Ref, error) {
	if x.Rank() == 0 || y.Rank() == 0 {
		return nil, fmt.Errorf("a product of %v and %v", x.Shape(), y.Shape())
	}
	switch {
	case y.Rank() == 1 && x.Rank() == 2: // each row of the matrix is a dot product, as in a linear layer of a vector
		return linear(b, y, x, nil)
	case y.Rank() == 1:
		return linear(b, x, y, nil)
	case y.Rank() == 2 && (x.Rank() != 2 || isWeight(b, y)):
		return linear(b, x, b.Transpose(y, 0, 1), nil)
	case x.Rank() == 1:
		out, err := productOf(b, b.Unsqueeze(x, 0), y)
		if err != nil {
			return nil, err
		}
		return b.SelectAt(out, out.Rank()-2, 0), nil
	}
	if n := y.Rank() - 2; y.Rank() <= x.Rank() && cells.NumElements(y.Shape()[:n]) == 1 {
		for y.Rank() > 2 {
			y = b.SelectAt(y, 0, 0)
		}
		if x.Rank() > 2 || isWeight(b, y) {
			return linear(b, x, b.Transpose(y, 0, 1), nil)
		}
	}
	batch, err := cells.Broadcast(x.Shape()[:x.Rank()-2], y.Shape()[:y.Rank()-2])
	if err != nil {
		return nil, fmt.Errorf("matrices %v and %v: %w", x.Shape(), y.Shape(), err)
	}
	if x, err = expandLeading(b, x, batch, 2); err != nil {
		return nil, err
	}
	if y, err = expandLeading(b, y, batch, 2); err != nil {
		return nil, err
	}
	return multiply(b, x, y)
}

// multiply returns the products of matrices [… M K] and [… K N] with equal leading dimensions.
func multiply(b *cells.Builder, x, y *cells.Ref) (*cells.Ref, error) {
	return b.Emit1("matmul", graph.Attrs{"alpha": 1.0, "beta": 1.0}, b.Read(x), b.Read(y))
}

// expandLeading expands all but the last n dimensions.
func expandLeading(b *cells.Builder, r *cells.Ref, lead tensor.Shape, n int) (*cells.Ref, error) {
	return b.Expand(r, slices.Concat(lead, r.Shape()[r.Rank()-n:]))
}

// addProduct returns beta·addend + alpha·x·y, of the given shape, which the addend expands to. y may have fewer
// dimensions than x.
func addProduct(b *cells.Builder, addend, x, y *cells.Ref, out tensor.Shape, alpha, beta float64) (*cells.Ref, error) {
	var err error
	if x.Rank() == 1 {
		x, out = b.Unsqueeze(x, 0), slices.Insert(slices.Clone(out), 0, 1)
		r, err := addProduct(b, addend, x, y, out, alpha, beta)
		if err != nil {
			return nil, err
		}
		return b.SelectAt(r, 0, 0), nil
	}
	if y, err = expandLeading(b, y, x.Shape()[:x.Rank()-2], 2); err != nil {
		return nil, err
	}
	if beta == 0 {
		addend = nil
	} else if addend, err = b.Expand(addend, out); err != nil {
		return nil, err
	}
	return b.Emit1("matmul", graph.Attrs{"alpha": alpha, "beta": beta}, b.Read(x), b.Read(y), b.Read(addend))
}

// addMatrices returns beta·addend + alpha·x·y for two matrices.
func addMatrices(c *call.Call, addend, x, y *cells.Ref) (*cells.Ref, error) {
	alpha, beta := c.Float("alpha"), c.Float("beta")
	if c.Err != nil {
		return nil, c.Err
	}
	if alpha == 0 && x.Shape()[1] == y.Shape()[0] { // the factors do not count, not even their NaN
		x, y = c.Slice(x, 1, 0, 0, 1), c.Slice(y, 0, 0, 0, 1)
	}
	n := y.Shape()[1]
	row := addend.Rank() == 0 || addend.Rank() == 1 || addend.Rank() == 2 && addend.Shape()[0] == 1 && x.Shape()[0] != 1
	if alpha == 1 && beta == 1 && row && addend.DType() == x.DType() {
		if addend.Rank() == 2 {
			addend = c.SelectAt(addend, 0, 0)
		}
		bias, err := c.Expand(addend, tensor.Shape{n})
		if err != nil {
			return nil, err
		}
		return linear(c.Builder, x, c.Transpose(y, 0, 1), bias)
	}
	return addProduct(c.Builder, addend, x, y, tensor.Shape{x.Shape()[0], n}, alpha, beta)
}

func addmm(c *call.Call) error {
	x, y := c.Tensor("mat1"), c.Tensor("mat2")
	if x.Rank() != 2 || y.Rank() != 2 {
		return fmt.Errorf("matrices %v and %v", x.Shape(), y.Shape())
	}
	return c.GiveRef(addMatrices(c, c.Tensor("self"), x, y))
}

func addmv(c *call.Call) error {
	addend, x, y := c.Tensor("self"), c.Tensor("mat"), c.Tensor("vec")
	if x.Rank() != 2 || y.Rank() != 1 || addend.Rank() > 1 {
		return fmt.Errorf("%v plus matrix %v times vector %v", addend.Shape(), x.Shape(), y.Shape())
	}
	if addend.Rank() == 1 {
		addend = c.Unsqueeze(addend, 1)
	}
	// The addend is a column: it must not be taken for the bias of a row.
	addend, err := c.Expand(addend, tensor.Shape{x.Shape()[0], 1})
	if err != nil {
		return err
	}
	out, err := addMatrices(c, addend, x, c.Unsqueeze(y, 1))
	if err != nil {
		return err
	}
	return c.GiveRef(c.SelectAt(out, 1, 0), nil)
}

func addr(c *call.Call) error {
	x, y := c.Tensor("vec1"), c.Tensor("vec2")
	if x.Rank() != 1 || y.Rank() != 1 {
		return fmt.Errorf("vectors %v and %v", x.Shape(), y.Shape())
	}
	out := tensor.Shape{x.Shape()[0], y.Shape()[0]}
	return c.GiveRef(addProduct(c.Builder, c.Tensor("self"), c.Unsqueeze(x, 1), c.Unsqueeze(y, 0), out,
		c.Float("alpha"), c.Float("beta")))
}

// batches returns the arguments "batch1" and "batch2", checked.
func batches(c *call.Call) (x, y *cells.Ref, err error) {
	x, y = c.Tensor("batch1"), c.Tensor("batch2")
	if x.Rank() != 3 || y.Rank() != 3 || x.Shape()[0] != y.Shape()[0] || x.Shape()[2] != y.Shape()[1] {
		return nil, nil, fmt.Errorf("batches of matrices %v and %v", x.Shape(), y.Shape())
	}
	return x, y, nil
}

func baddbmm(c *call.Call) error {
	x, y, err := batches(c)
	if err != nil {
		return err
	}
	out := tensor.Shape{x.Shape()[0], x.Shape()[1], y.Shape()[2]}
	return c.GiveRef(addProduct(c.Builder, c.Tensor("self"), x, y, out, c.Float("alpha"), c.Float("beta")))
}

// addbmm adds the products of all pairs: one product, of the matrices side by side.
func addbmm(c *call.Call) error {
	x, y, err := batches(c)
	if err != nil {
		return err
	}
	batch, m, k, n := x.Shape()[0], x.Shape()[1], x.Shape()[2], y.Shape()[2]
	if x, err = c.Reshape(c.Permute(x, 1, 0, 2), tensor.Shape{m, batch * k}); err != nil {
		return err
	}
	if y, err = c.Reshape(y, tensor.Shape{batch * k, n}); err != nil {
		return err
	}
	return c.GiveRef(addMatrices(c, c.Tensor("self"), x, y))
}

// maxFactors bounds the matrices of a chain, whose best order takes the cube of their number to find.
const maxFactors = 256

// chainMatmul multiplies matrices in the order that takes the fewest multiplications.
func chainMatmul(name string) func(c *call.Call) error {
	return func(c *call.Call) error {
		list := slices.Clone(c.Tensors(name))
		if len(list) == 0 || slices.Contains(list, nil) {
			return fmt.Errorf("a product of %d matrices", len(list))
		}
		if len(list) > maxFactors {
			return fmt.Errorf("a product of %d matrices; at most %d can be", len(list), maxFactors)
		}
		if len(list) == 1 {
			return c.GiveRef(c.Builder.Copy(list[0]))
		}
		first, last := list[0].Rank() == 1, list[len(list)-1].Rank() == 1
		if first {
			list[0] = c.Unsqueeze(list[0], 0)
		}
		if last {
			list[len(list)-1] = c.Unsqueeze(list[len(list)-1], 1)
		}
		for _, r := range list {
			if r.Rank() != 2 {
				return fmt.Errorf("a matrix of shape %v", r.Shape())
			}
		}
		out, err := chain(c.Builder, list)
		if err != nil {
			return err
		}
		return c.GiveRef(c.Squeeze(out, func(d int) bool { return d == 0 && first || d == 1 && last }), nil)
	}
}

func chain(b *cells.Builder, list []*cells.Ref) (*cells.Ref, error) {
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
				rows, inner, columns := list[i].Shape()[0], list[s].Shape()[1], list[j].Shape()[1]
				total := cost[i][s] + cost[s+1][j] + float64(rows)*float64(inner)*float64(columns)
				if s == i || total < cost[i][j] {
					cost[i][j], split[i][j] = total, s
				}
			}
		}
	}
	var multiply func(i, j int) (*cells.Ref, error)
	multiply = func(i, j int) (*cells.Ref, error) {
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
		return productOf(b, x, y)
	}
	return multiply(0, n-1)
}

// identities gives a matrix with a diagonal of ones for each matrix of x.
func identities(c *call.Call, x *cells.Ref) error {
	if x.Rank() < 2 || x.Shape()[x.Rank()-1] != x.Shape()[x.Rank()-2] {
		return fmt.Errorf("power of matrices %v", x.Shape())
	}
	size := x.Shape()[x.Rank()-1]
	one, err := c.Emit1("eye", graph.Attrs{"rows": size, "columns": size, "dtype": x.DType()})
	if err != nil {
		return err
	}
	if one, err = c.Expand(one, x.Shape()); err != nil {
		return err
	}
	return c.GiveRef(c.Copy(one))
}

// matrixPower multiplies by squaring.
func matrixPower(c *call.Call) error {
	x, n := c.Tensor("self"), c.Int("n")
	switch {
	case c.Err != nil:
		return c.Err
	case n < 0:
		return c.Unsupported("power %d of matrices, which needs their inverse", n)
	case n == 0:
		return identities(c, x)
	}
	var out *cells.Ref
	var err error
	for ; ; n /= 2 {
		switch {
		case n%2 == 0:
		case out == nil:
			out = x
		default:
			if out, err = productOf(c.Builder, out, x); err != nil {
				return err
			}
		}
		if n == 1 {
			return c.GiveRef(c.Builder.Copy(out))
		}
		if x, err = productOf(c.Builder, x, x); err != nil {
			return err
		}
	}
}

func groupedMM(c *call.Call) error {
	x, y, ends := c.Tensor("self"), c.Tensor("mat2"), c.OptTensor("offs")
	if c.Has("bias") || c.DType("out_dtype", x.DType()) != x.DType() {
		return fmt.Errorf("a grouped product with a bias or of another dtype")
	}
	switch {
	case x.Rank() == 3 && y.Rank() == 3 && ends == nil:
		return c.GiveRef(multiply(c.Builder, x, y))
	case x.Rank() == 2 && y.Rank() == 3 && ends != nil:
		return c.Give("grouped_matmul", nil, c.Read(x), c.Read(y), c.Read(ends))
	case x.Rank() == 3 && y.Rank() == 2 && ends != nil: // groups of columns
		out, err := c.Emit1("grouped_matmul", nil,
			c.Read(c.Transpose(y, 0, 1)), c.Read(c.Transpose(x, 1, 2)), c.Read(ends))
		if err != nil {
			return err
		}
		return c.GiveRef(c.Transpose(out, 0, 1), nil)
	}
	return fmt.Errorf("a grouped product of %v and %v", x.Shape(), y.Shape())
}

// experts are those of a mixture, with the weights of each; biases has those of gate, up and down, expert by expert, or
// nothing.
func experts(c *call.Call) error {
	gate, up, down, biases := c.Tensors("gate"), c.Tensors("up"), c.Tensors("down"), c.Tensors("biases")
	n := len(gate)
	if len(up) != n || len(down) != n || len(biases) != 0 && len(biases) != 3*n {
		return fmt.Errorf("%d gates, %d ups, %d downs and %d biases", n, len(up), len(down), len(biases))
	}
	if slices.Contains(slices.Concat(gate, up, down, biases), nil) {
		return fmt.Errorf("an expert lacks a weight")
	}
	attrs := graph.Attrs{"experts": n, "act": c.Text("act")}
	for _, name := range []string{"alpha", "limit"} {
		if x := c.Float(name); x != 0 {
			attrs[name] = x
		}
	}
	if c.Bool("weigh_input") {
		attrs["weigh_input"] = true
	}
	in := []graph.Operand{c.Read(c.Tensor("self")), c.Read(c.Tensor("ids")), c.Read(c.Tensor("weights"))}
	for i := range n {
		in = append(in, c.Read(gate[i]), c.Read(up[i]), c.Read(down[i]))
		if len(biases) > 0 {
			attrs["biased"] = true
			in = append(in, c.Read(biases[3*i]), c.Read(biases[3*i+1]), c.Read(biases[3*i+2]))
		}
	}
	return c.Give("experts", attrs, in...)
}

// walking gives an op that walks sequences from their beginning, whose operands are the arguments named.
func walking(kind graph.Kind, names ...string) func(c *call.Call) error {
	return func(c *call.Call) error {
		in := make([]graph.Operand, len(names))
		for i, name := range names {
			in[i] = c.Read(c.OptTensor(name))
		}
		return c.Give(kind, nil, in...)
	}
}

// cross gives the vector product of "self" and "other", which broadcast, over a dimension.
func cross(c *call.Call, dim int) error {
	x, y := c.Tensor("self"), c.Tensor("other")
	if c.Err != nil {
		return c.Err
	}
	shape, err := cells.Broadcast(x.Shape(), y.Shape())
	if err != nil {
		return err
	}
	if x.Rank() != y.Rank() {
		return fmt.Errorf("vectors %v and %v of different ranks", x.Shape(), y.Shape())
	}
	if x, err = c.Expand(x, shape); err != nil {
		return err
	}
	if y, err = c.Expand(y, shape); err != nil {
		return err
	}
	return c.Give("cross", graph.Attrs{"dim": c.WrapDim(dim, len(shape))}, c.Read(x), c.Read(y))
}
