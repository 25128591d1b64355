package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// linearKernels are products of matrices: kernels/gemm.cu for floats, kernels/tensor_*.cu for half floats and for factors that
// are rounded, kernels/linear.cu.
var linearKernels = map[graph.Kind]kernel{
	"linear":         orOfCodes(kernel{supports: supportsProduct, work: linearWork, launch: launchLinear, narrows: true, exact: readNarrow}),
	"matmul":         {supports: supportsProduct, work: productWork("matmul"), launch: launchMatmul, narrows: true},
	"grouped_matmul": {supports: supportsGrouped, launch: launchGroupedMatmul},
	"cross":          {supports: onlyNumbers, launch: launchCross},
}

// productSide is SIDE of kernels/linear.cu, productThreads its THREADS; mostBlocksDown is how many blocks lie one above the
// other, beyond which the kernel goes round.
const (
	productSide    = 64
	productThreads = 16
	mostBlocksDown = 1 << 15
)

// narrow reports whether the factors of a product may be rounded to bfloat16: see [rewrite.Narrow].
func narrow(a graph.Attrs) bool { return a.String("precision") == "bf16" }

// rounds reports whether the factors of a product are to be rounded to some precision.
func rounds(a graph.Attrs) bool { return narrow(a) || a.String("precision") == "tf32" }

func supportsProduct(in, out []graph.Spec, a graph.Attrs) error {
	if p := a.String("precision"); p != "" && (!rounds(a) || in[0].DType != tensor.Float32) {
		return fmt.Errorf("there are no products of %v in precision %q", in[0].DType, p)
	}
	return onlyNumbers(in, out, a)
}

// activationCodes are those of om.h.
var activationCodes = map[string]int32{
	"": 0, "relu": 1, "relu6": 2, "hardtanh": 3, "silu": 4, "hardswish": 5, "hardsigmoid": 6, "sigmoid": 7, "tanh": 8, "gelu": 9,
	"gelu_tanh": 10, "leaky_relu": 11, "elu": 12,
}

// activation passes an epilogue's activation and its numbers.
func (c *call) activation(a graph.Attrs, d tensor.DType) *call {
	return c.i32(activationCodes[a.String("act")]).float(a.Float("act_a"), d).float(a.Float("act_b"), d)
}

// float passes a number in what elements of a dtype are computed in: float, or double of doubles.
func (c *call) float(x float64, d tensor.DType) *call {
	if d == tensor.Float64 {
		return c.f64(x)
	}
	return c.f32(float32(x))
}

func supportsGrouped(in, out []graph.Spec, a graph.Attrs) error {
	if !isReal(in[0].DType) {
		return fmt.Errorf("it takes floats, not %v", in[0].DType)
	}
	return onlyNumbers(in, out, a)
}

// A product is alpha × left · right + bias + beta × added, of matrices of m × k and k × n.
type product struct {
	left, right, bias, added operand
	// rows are all dimensions of left but the last, batches those of right but its two of terms and columns.
	rows, batches             tensor.Layout
	leftStep, line, rightStep int
	m, n, k                   int64
	alpha, beta               float64
}

func (l *launch) product(p product) error {
	out := l.out[0]
	if out.size() == 0 {
		return nil
	}
	if p.beta == 0 {
		p.added = operand{}
	}
	if l.blas {
		if done, err := l.blasProduct(p); done || err != nil {
			return err
		}
	}
	if done, err := l.hopperProduct(p); done || err != nil {
		return err
	}
	if f := l.productFamily(); f.name != "" {
		return l.blockProduct(p, f)
	}
	biasStep := p.biasStep()
	added := p.added.layout
	if p.added.absent() {
		added = tensor.Contiguous(1)
	}
	name := "om_product_i"
	if isReal(out.dtype) {
		name = "om_product_" + suffix(out.dtype)
	}
	threads := dims{productThreads, productThreads, 1}
	c := l.call(name).write(out).read(p.left).layout(p.rows).i64(int64(p.leftStep))
	c.read(p.right).layout(p.batches).i64(int64(p.line)).i64(int64(p.rightStep))
	c.read(p.bias).i64(int64(biasStep)).read(p.added).layout(added)
	if !isReal(out.dtype) {
		c.i32(dtypeCodes[out.dtype]).i64(p.m).i64(p.n).i64(p.k).i64(out.size())
		return c.i64(int64(p.alpha)).i64(int64(p.beta)).over(out.size())
	}
	batch := out.size() / (p.m * p.n)
	c.i64(p.m).i64(p.n).i64(p.k).i64(batch)
	c.float(p.alpha, out.dtype).float(p.beta, out.dtype).activation(l.attrs, out.dtype)
	grid := dims{ceilDiv(p.n, productSide), min(ceilDiv(p.m, productSide), mostBlocksDown), min(batch, mostBlocksDown)}
	return c.grid(grid, threads, 0)
}

// biasStep is how far elements of the bias lie from each other.
func (p *product) biasStep() int {
	if p.bias.absent() {
		return 0
	}
	return p.bias.layout.Strides[0]
}

// columns are those of all right factors: where each begins.
func (p *product) columns() tensor.Layout {
	return tensor.Layout{
		Shape: append(slices.Clone(p.batches.Shape), int(p.n)), Strides: append(slices.Clone(p.batches.Strides), p.line),
		Offset: p.batches.Offset,
	}
}

// productWork returns the scratch memory of linear or matmul.
func productWork(kind graph.Kind) func(in, out []graph.Spec, a graph.Attrs) int64 {
	return func(in, out []graph.Spec, a graph.Attrs) int64 {
		count, m, n, k := productSizes(kind, in)
		f := productFamilyOf(out[0].DType, a.String("precision"))
		if f.name == "" || count*m*n == 0 {
			return 0
		}
		return divideColumns(f.blocks, count, m, n, k, a).partsBytes(count * m * n)
	}
}

// How the lines of a factor lie: the enum of kernels/tile.h.
const (
	lieAlong = iota
	lieAcross
	lieAcrossFours
)

// lie says how the lines of a factor lie, each of which begins at an element of a layout; their terms are a step apart.
func lie(o operand, step int, lines tensor.Layout, right bool) int32 {
	last := len(lines.Shape) - 1
	switch {
	case step == 1 || last < 0 || lines.Strides[last] != 1:
		return lieAlong
	case right && inSixteens(o, 1, lines.Leading(1)) && step%4 == 0:
		return lieAcrossFours
	}
	return lieAcross
}

// A productFamily is the kernels that compute products in blocks of several sizes, the same way for each.
type productFamily struct {
	// name is what kernels' names begin with, sum the kernel that adds the sums of parts.
	name, sum string
	blocks    []blocking
	// lie says how the lines of a factor lie, the right one or the left.
	lie func(o operand, step int, lines tensor.Layout, right bool) int32
	// sixteens says that the largest blocks only take factors that lie in sixteens of bytes, rounded that there are roundedBlocks.
	sixteens, rounded bool
}

// productFamilyOf returns the kernels for products of a dtype in a precision.
func productFamilyOf(d tensor.DType, precision string) productFamily {
	switch {
	case d == tensor.Float32 && precision == "bf16":
		return productFamily{"om_tensor_narrow", "om_product_sum_f32", tensorBlocks, lieInBytes, true, true}
	case d == tensor.Float32 && precision == "tf32":
		return productFamily{"om_tensor_tf32", "om_product_sum_f32", tensorBlocks, lieInBytes, true, false}
	case d == tensor.Float32:
		return productFamily{"om_product_f32", "om_product_sum_f32", floatBlocks, lie, false, false}
	case isHalf(d):
		return productFamily{"om_tensor_" + suffix(d), "om_tensor_sum_" + suffix(d), tensorBlocks, lieInBytes, true, false}
	}
	return productFamily{}
}

func isHalf(d tensor.DType) bool { return d == tensor.Float16 || d == tensor.BFloat16 }

// tensorCapability is the compute capability from which on tensor cores multiply halves of both kinds, and floats that are rounded. Those
// of the GPUs before, from kernels.LowestCapability on, multiply float16 alone.
const tensorCapability = 80

// wideningCapability is that from which on kernels widen a weight on the way to tensor cores: kernels/tensor_weights.cu.
const wideningCapability = 75

// onTensorCores reports whether a GPU computes products and convolutions of a dtype that way, rounded or not.
func onTensorCores(capability int, d tensor.DType) bool {
	return capability >= tensorCapability || d == tensor.Float16
}

// productFamily returns the kernels that compute the launch's product, none where kernels/linear.cu does.
func (l *launch) productFamily() productFamily {
	if d := l.out[0].dtype; isHalf(d) && !onTensorCores(l.s.d.info.Capability, d) {
		return productFamily{}
	}
	return productFamilyOf(l.out[0].dtype, l.attrs.String("precision"))
}

// blockProduct computes a product by blocks.
func (l *launch) blockProduct(p product, f productFamily) error {
	out := l.out[0]
	count := out.size() / (p.m * p.n)
	d := divideColumns(f.blocks, count, p.m, p.n, p.k, l.attrs)
	left, right := f.lie(p.left, p.leftStep, p.rows, false), f.lie(p.right, p.rightStep, p.columns(), true)
	switch larger := d.with(roundedBlocks, count, p.m, p.n); {
	case !f.sixteens || d.suffix != onlySixteens:
	case left == anyhow || right == anyhow:
		d = d.with(anyhowBlocks, count, p.m, p.n)
	case f.rounded && larger.cost() < d.cost() && nearby(p.left) && nearby(p.right):
		d = larger
	}
	c := l.call(f.name + d.suffix).write(out)
	c.scratch(l.work.slice(0, d.partsBytes(out.size())))
	c.read(p.left).layout(p.rows).i64(int64(p.leftStep))
	c.read(p.right).layout(p.batches).i64(int64(p.line)).i64(int64(p.rightStep))
	c.productEnding(l, p).i64(p.m).i64(p.n).i64(p.k).i64(count).i64(d.part)
	c.i32(left).i32(right)
	c.i32(int32(flag(p.n%4 == 0 && out.address%16 == 0)))
	if err := c.grid(dims{d.blocks, 1, 1}, dims{d.threads, 1, 1}, 0); err != nil || d.parts < 2 {
		return err
	}
	c = l.call(f.sum).write(out).scratch(l.work.slice(0, d.partsBytes(out.size()))).productEnding(l, p)
	return c.i64(p.n).i64(out.size()).i32(int32(d.parts)).over(out.size())
}

// farBytes is how far apart the parts of a factor are whose sixteens of bytes kernels cannot count in an int.
const farBytes = 1 << 35

// nearby reports whether kernels can count the sixteens of bytes of a factor in an int.
func nearby(o operand) bool {
	first, end, err := o.layout.Span()
	return err == nil && end-first < farBytes/int64(o.dtype.Size())
}

// How the lines of a factor lie for kernels/product.h: an enum of it.
const (
	bytesAlong = iota
	bytesAcross
	anyhow
)

// lieInBytes is lie for kernels/product.h.
func lieInBytes(o operand, step int, lines tensor.Layout, right bool) int32 {
	switch last := len(lines.Shape) - 1; {
	case inSixteens(o, step, lines):
		return bytesAlong
	case right && lines.Strides[last] == 1 && step*o.dtype.Size()%16 == 0 && inSixteens(o, 1, lines.Leading(1)):
		return bytesAcross
	}
	return anyhow
}

// productEnding passes what a product of floats ends with: ENDING of kernels/gemm.cu.
func (c *call) productEnding(l *launch, p product) *call {
	added, step := tensor.Contiguous(1), 0
	if !p.added.absent() {
		added, step = p.added.layout.Leading(1), p.added.layout.Strides[len(p.added.shape())-1]
	}
	c.read(p.bias).i64(int64(p.biasStep())).read(p.added).layout(added).i64(int64(step))
	return c.f32(float32(p.alpha)).f32(float32(p.beta)).activation(l.attrs, tensor.Float32)
}

// inSixteens reports whether the terms of a factor lie behind each other, and each sixteen bytes of a line at a multiple of 16.
func inSixteens(o operand, step int, lines tensor.Layout) bool {
	size := o.dtype.Size()
	aligned := step == 1 && (o.address+uint64(o.layout.Offset*size))%16 == 0
	for d, s := range lines.Strides {
		aligned = aligned && (s*size%16 == 0 || lines.Shape[d] == 1)
	}
	return aligned
}

// launchLinear computes out[r, j] = f(Σ_k in[0][r, k]·in[1][j, k] + in[2][j]) + in[3][r, j], f being an activation.
func launchLinear(l *launch) error {
	if l.out[0].size() == 0 {
		return nil
	}
	in := specs(l.in)
	m := l.out[0].size() / int64(l.in[1].shape()[0])
	if may, must := byGemv(in, m, l.attrs); must || may && !l.blas && inVectors(l.in[0], l.in[1]) {
		return launchGemv(l, m)
	}
	if l.byFew(m) {
		return l.few(m)
	}
	factors := l.in
	if widensOnGPU(in, l.attrs, l.s.d.info.Capability) {
		return l.widening(m)
	}
	if narrowWeight(in) {
		w, bias, err := l.widened()
		if err != nil {
			return err
		}
		factors = []operand{l.in[0], w, bias, l.optional(3)}
	}
	return l.product(linearProduct(factors, l.out[0]))
}

// linearProduct is the product of a linear, whose result is not empty.
func linearProduct(in []operand, out operand) product {
	x, w := in[0], in[1]
	n := int64(w.shape()[0])
	p := product{
		left: x, rows: x.layout.Leading(1), leftStep: x.layout.Strides[len(x.shape())-1],
		right: w, batches: tensor.Contiguous(1), line: w.layout.Strides[0], rightStep: w.layout.Strides[1],
		m: out.size() / n, n: n, k: int64(w.shape()[1]), alpha: 1,
	}
	if len(in) > 2 {
		p.bias = in[2]
	}
	if len(in) > 3 {
		p.added, p.beta = in[3], 1
	}
	return p
}

// launchMatmul computes alpha × in[0] · in[1] + beta × in[2].
func launchMatmul(l *launch) error { return l.product(matmulProduct(l.in, l.attrs)) }

// matmulProduct is the product of a matmul.
func matmulProduct(in []operand, attrs graph.Attrs) product {
	x, y := in[0], in[1]
	d := len(x.shape())
	p := product{
		left: x, rows: x.layout.Leading(1), leftStep: x.layout.Strides[d-1],
		right: y, batches: y.layout.Leading(2), line: y.layout.Strides[d-1], rightStep: y.layout.Strides[d-2],
		m: int64(x.shape()[d-2]), n: int64(y.shape()[d-1]), k: int64(y.shape()[d-2]), alpha: number(attrs, "alpha", 1),
	}
	if len(in) > 2 {
		p.added, p.beta = in[2], number(attrs, "beta", 1)
	}
	return p
}

// number returns a number that an op may have as an int or a float64.
func number(a graph.Attrs, name string, absent float64) float64 {
	switch x := a[name].(type) {
	case int:
		return float64(x)
	case float64:
		return x
	}
	return absent
}

// launchGroupedMatmul computes rows of in[0], in groups that end where in[2] says, each times its group's matrix of in[1].
func launchGroupedMatmul(l *launch) error {
	x, w, ends, out := l.in[0], l.in[1], l.in[2], l.out[0]
	n := out.size()
	c := l.call("om_grouped_" + suffix(out.dtype)).write(out)
	c.read(x).i64(int64(x.layout.Strides[0])).i64(int64(x.layout.Strides[1])).read(w)
	for _, s := range w.layout.Strides {
		c.i64(int64(s))
	}
	c.read(ends).i64(int64(ends.layout.Strides[0])).i32(dtypeCodes[ends.dtype]).i64(int64(ends.shape()[0]))
	c.i64(int64(x.shape()[0])).i64(int64(w.shape()[2])).i64(int64(x.shape()[1]))
	return c.status().over(n)
}

// launchCross computes the vector product of in[0] and in[1] over a dimension of three.
func launchCross(l *launch) error {
	a, b, out := l.in[0], l.in[1], l.out[0]
	n, inner := out.size(), int64(1)
	for _, d := range out.shape()[l.attrs.Int("dim")+1:] {
		inner *= int64(d)
	}
	if isReal(out.dtype) {
		c := l.call("om_cross_" + suffix(out.dtype)).write(out).read(a).layout(a.layout).read(b).layout(b.layout)
		return c.i64(inner).i64(n).over(n)
	}
	c := l.call("om_cross_i").write(out).read(a).layout(a.layout).read(b).layout(b.layout)
	return c.i32(dtypeCodes[out.dtype]).i64(inner).i64(n).over(n)
}
