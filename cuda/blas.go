package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/cuda/internal/cublaslt"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// blasKernel is what reports call a product that is cuBLASLt's.
const blasKernel = "cublaslt"

// blasWorkBytes is the memory that cuBLASLt may use besides for a product on GPUs of a compute capability, as its makers advise.
func blasWorkBytes(capability int) int64 {
	if capability < 90 {
		return 4 << 20
	}
	return 32 << 20
}

// blasNone is the path for kernels alone.
const blasNone = "none"

// A blasRow says on which GPUs, and from how large products on, cuBLASLt computes products without being asked: those of a name, or "",
// and of a major compute capability, or 0.
type blasRow struct {
	gpu   string
	major int
	// from is the least number of multiplications, side that of rows and of columns.
	from, side int64
	// exact says that float32 that is not rounded is among them; else products on tensor cores are all.
	exact bool
}

// blasRows: on an H200 the library took 0.4 to 0.8 of the time of the kernels here, for products of 100 million multiplications as for the
// largest, but for single rows (benchmarks/results/gpu-h200-*). GPUs of 10.x and 11.x are reckoned to be alike and were not measured: only
// large products on tensor cores are the library's there.
var blasRows = []blasRow{
	{major: 9, from: 1 << 26, side: 16, exact: true},
	{major: 10, from: 1 << 31, side: 256},
	{major: 11, from: 1 << 31, side: 256},
}

// blasRowOf looks a GPU up.
func blasRowOf(rows []blasRow, i *Info) (row blasRow, found bool) {
	for _, r := range rows {
		if strings.Contains(i.Name, r.gpu) && (r.major == 0 || r.major == i.Capability/10) {
			return r, true
		}
	}
	return row, false
}

// takes reports whether a product is one of the row. Matrices whose columns do not begin at multiples of 16 bytes have slower ways,
// and others where they are cut.
func (r *blasRow) takes(b *blasProduct) bool {
	const even = 16
	size := int64(4)
	if b.Type != cublaslt.Float32 {
		size = 2
	} else if b.Sum == cublaslt.Exact && !r.exact {
		return false
	}
	return b.multiplications() >= r.from && min(b.D.Columns, b.Whole) >= r.side &&
		b.A.Pitch*size%even == 0 && b.B.Pitch*size%even == 0 && b.Whole*size%even == 0
}

// A blasState is cuBLASLt on a device.
type blasState struct {
	// asked says that it was asked for, and computes what it can; else row says what it computes once it is found, which it is
	// looked for at path when there is the first such product.
	asked, may bool
	row        blasRow
	path       string
	env        func(string) string
	// products says that it computes products.
	products atomic.Bool
	handle   atomic.Pointer[cublaslt.Handle]
	finding  sync.Mutex
	sought   bool
}

// openBLAS opens cuBLASLt where it was asked for. Where it was not, and pays, it is looked for later. The context is current.
func (d *Device) openBLAS(o Options) error {
	b := &d.blas
	if b.env = o.Environment; b.env == nil {
		b.env = func(string) string { return "" }
	}
	switch o.CUBLASLt {
	case blasNone:
		return nil
	case "":
		b.row, b.may = blasRowOf(blasRows, &d.info)
		if b.path = "auto"; d.info.Simulated {
			b.path = o.Library // which simulates that, too
		}
		return nil
	}
	b.asked, b.path = true, o.CUBLASLt
	if err := d.reopenBLAS(); err != nil {
		return err
	}
	b.products.Store(true)
	return nil
}

// reopenBLAS opens cuBLASLt in a new context. It may fail where nobody asked for it: the kernels here compute then.
func (d *Device) reopenBLAS() error {
	lib, err := cublaslt.Open(d.blas.path, d.release, d.blas.env)
	var h *cublaslt.Handle
	if err == nil {
		h, err = lib.New()
	}
	if err == nil {
		d.blas.handle.Store(h)
	} else if d.blas.asked {
		return &UnavailableError{Reason: "cuBLASLt cannot be used", Err: err}
	}
	return nil
}

// byBLAS reports whether a product is given to cuBLASLt.
func (d *Device) byBLAS(p *blasProduct) bool {
	b := &d.blas
	if b.asked {
		return true
	}
	if !b.may || !b.row.takes(p) {
		return false
	}
	b.finding.Lock()
	defer b.finding.Unlock()
	if b.sought {
		return b.products.Load()
	}
	b.sought = true
	if d.Resting() { // it is opened with the context
		_, err := cublaslt.Open(b.path, d.release, b.env)
		b.products.Store(err == nil)
	} else if d.enter() == nil {
		b.products.Store(d.reopenBLAS() == nil && b.handle.Load() != nil)
		d.leave()
	}
	return b.products.Load()
}

// Lower decides how every op of a graph is computed on the device.
func (d *Device) Lower(g *graph.Graph) (*graph.Lowered, error) {
	for _, op := range g.Ops {
		if p := op.Attrs.String("precision"); p != "" && !slices.Contains(d.info.Precisions(), p) {
			return nil, fmt.Errorf("%s: %s: %w: precision %s on a GPU of compute capability %d.%d", op.Path, op.Kind,
				graph.ErrUnsupported, p, d.info.Capability/10, d.info.Capability%10)
		}
	}
	l, err := LowerFor(g, d.lowered())
	if err != nil || !d.blas.may && !d.blas.asked {
		return l, err
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		in := make([]operand, len(op.In))
		for j, o := range op.In {
			if o.Value != graph.NoValue {
				in[j] = operand{dtype: g.Values[o.Value].DType, layout: o.Layout}
			}
		}
		if op.Attrs.Bool(graph.RowsAlone) { // it chooses by the number of rows
			continue
		}
		var p product
		switch op.Kind {
		case "linear":
			out := operand{dtype: g.Values[op.Out[0]].DType, layout: g.Whole(op.Out[0]).Layout}
			if out.size() == 0 || len(in) > 4 || graph.IsEncoded(op.Attrs) || narrowWeight(specs(in)) {
				continue
			}
			p = linearProduct(in, out)
		case "matmul":
			p = matmulProduct(in, op.Attrs)
		default:
			continue
		}
		if b, ok := d.blasProductOf(p, op.Attrs); ok && d.byBLAS(&b) {
			l.Steps[i].Kernel = blasKernel
			l.Steps[i].WorkBytes = max(l.Steps[i].WorkBytes, b.workBytes())
		}
	}
	return l, nil
}

// A blasProduct is a product as cuBLASLt is asked for it.
type blasProduct struct {
	cublaslt.Product
	// ends says that the product alone goes to scratch memory, and a kernel ends it from there.
	ends bool
}

// multiplications counts those of the product, or of the one that it is a part of.
func (b *blasProduct) multiplications() int64 {
	terms := b.B.Rows
	if b.B.Transposed {
		terms = b.B.Columns
	}
	return int64(b.Batch) * b.Whole * b.D.Columns * terms
}

// endingBytes is the scratch memory for the product alone.
func (b *blasProduct) endingBytes() int64 {
	if !b.ends {
		return 0
	}
	return ceilDiv(int64(b.Batch)*b.D.Rows*b.D.Columns*4, alignBytes) * alignBytes
}

func (b *blasProduct) workBytes() int64 { return b.MostWork + b.endingBytes() }

var blasTypes = map[tensor.DType]cublaslt.Type{
	tensor.Float32: cublaslt.Float32, tensor.Float16: cublaslt.Float16, tensor.BFloat16: cublaslt.BFloat16,
}

var blasSums = map[string]cublaslt.Sum{"": cublaslt.Exact, "bf16": cublaslt.ByBFloat16s, "tf32": cublaslt.ByTF32}

// blasProductOf describes a product to cuBLASLt, whose matrices lie by columns: it computes the transpose of the result
// from the transposes of the factors. It reports false for what cuBLASLt is not asked for.
func (d *Device) blasProductOf(p product, attrs graph.Attrs) (b blasProduct, ok bool) {
	dtype := p.left.dtype
	b.Type, ok = blasTypes[dtype]
	sum, known := blasSums[attrs.String("precision")]
	if !ok || !known || p.right.dtype != dtype || p.m*p.n*p.k == 0 {
		return b, false
	}
	b.Sum, b.MostWork = sum, blasWorkBytes(d.info.Capability)
	batch, leftBatch, rightBatch, leftLine, ok := batches(p)
	if !ok {
		return b, false
	}
	b.Batch = int32(batch)
	m := p.m
	if batch == 1 {
		m = rowsOf(p)
	}
	if b.A, ok = factor(p.n, p.k, p.line, p.rightStep); !ok {
		return b, false
	}
	if b.B, ok = factor(m, p.k, leftLine, p.leftStep); !ok {
		return b, false
	}
	b.A.Transposed = !b.A.Transposed // lines are A's rows, B's columns
	b.A.Step, b.B.Step = rightBatch, leftBatch
	b.D = cublaslt.Matrix{Rows: p.n, Columns: m, Pitch: p.n, Step: m * p.n}
	b.Whole = int64(rewrite.WholeColumns(attrs, int(p.n)))
	return b, b.finish(p, attrs)
}

// factor describes lines of terms: by columns, terms × lines where terms lie behind each other, else lines × terms, which
// is Transposed.
func factor(lines, terms int64, line, step int) (cublaslt.Matrix, bool) {
	switch {
	case (step == 1 || terms == 1) && (int64(line) >= terms || lines == 1):
		return cublaslt.Matrix{Rows: terms, Columns: lines, Pitch: max(int64(line), terms)}, true
	case (line == 1 || lines == 1) && int64(step) >= lines:
		return cublaslt.Matrix{Rows: lines, Columns: terms, Pitch: int64(step), Transposed: true}, true
	}
	return cublaslt.Matrix{}, false
}

// rowsOf counts the rows of all left factors.
func rowsOf(p product) int64 {
	n, err := p.rows.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return n
}

// batches says how many products there are, how far their factors are from each other, and how far rows of the left ones
// are. Where there is one right factor all rows are one product's.
func batches(p product) (n, leftStep, rightStep int64, line int, ok bool) {
	right := p.batches.Joined()
	count, err := right.NumElements()
	if err != nil {
		return 0, 0, 0, 0, false
	}
	last := len(p.rows.Shape) - 1
	if rows := p.rows.Joined(); count == 1 && len(rows.Shape) <= 1 {
		if len(rows.Shape) == 1 {
			line = rows.Strides[0]
		}
		return 1, 0, 0, line, true
	}
	const most = 1<<31 - 1
	left := p.rows
	left.Shape, left.Strides = left.Shape[:last], left.Strides[:last]
	left = left.Joined()
	if last < 1 || len(left.Shape) > 1 || len(right.Shape) > 1 || count > most {
		return 0, 0, 0, 0, false
	}
	products, err := left.NumElements()
	if err != nil || count != 1 && count != products || products > most {
		return 0, 0, 0, 0, false
	}
	if len(left.Strides) == 1 {
		leftStep = int64(left.Strides[0])
	}
	if len(right.Strides) == 1 && count > 1 {
		rightStep = int64(right.Strides[0])
	}
	return products, leftStep, rightStep, p.rows.Strides[last], true
}

// finish decides how a product ends: as cuBLASLt can end it, or by a kernel.
func (b *blasProduct) finish(p product, attrs graph.Attrs) bool {
	act, dtype := attrs.String("act"), p.left.dtype
	adds := !p.added.absent() && p.beta != 0
	b.Bias = !p.bias.absent()
	plainBias := !b.Bias || p.bias.dtype == dtype && p.biasStep() == 1
	switch {
	case plainBias && (act == "" || act == "relu") && !adds:
		b.Clip = act == "relu"
	case plainBias && act == "" && p.added.dtype == dtype && b.addedLies(p):
		b.AddsC = true
	case dtype == tensor.Float32:
		b.Bias, b.ends = false, true
	default:
		return false
	}
	return true
}

// addedLies describes what is added, whose rows may be apart where it is some columns of a whole one, and reports false where the
// library is not asked for it.
func (b *blasProduct) addedLies(p product) bool {
	b.C = b.D
	if b.Whole == b.D.Rows && p.added.layout.IsContiguous() {
		return true
	}
	rows, even := evenRows(p.added)
	pitch, last := int64(rows), len(p.added.shape())-1
	if b.D.Columns == 1 {
		pitch = b.Whole
	}
	if b.Batch != 1 || !even || p.added.layout.Strides[last] != 1 || pitch < p.n {
		return false
	}
	b.C.Pitch = pitch
	b.C.Step = b.C.Pitch * b.C.Columns
	return true
}

// blasProduct gives a product to cuBLASLt, and reports false where that knows no way to compute it. That it does not
// depends on the product alone, so that it is the same each time.
func (l *launch) blasProduct(p product) (done bool, err error) {
	b, ok := l.s.d.blasProductOf(p, l.attrs)
	if !ok {
		return false, nil
	}
	out := l.out[0]
	at := cublaslt.Places{A: p.right.first(), B: p.left.first(), D: out.address, Alpha: float32(p.alpha), Beta: float32(p.beta)}
	if b.AddsC {
		at.C = p.added.first()
	}
	if b.Bias {
		at.Bias = p.bias.first()
	}
	if b.ends {
		at.D, at.Alpha = l.work.slice(0, b.endingBytes()).address, 1
	}
	at.Work = l.work.slice(b.endingBytes(), b.MostWork).address
	b.AlignTo = 16
	if (at.A|at.B|at.C|at.D|at.Bias)%16 != 0 {
		b.AlignTo = uint32(out.dtype.Size())
	}
	if err := l.s.d.blas.handle.Load().Product(&b.Product, &at, uintptr(l.s.handle)); err != nil {
		var noWay *cublaslt.NoWayError
		if errors.As(err, &noWay) {
			return false, nil
		}
		return false, fmt.Errorf("product by cuBLASLt: %w", err)
	}
	if !b.ends {
		return true, nil
	}
	c := l.call("om_product_sum_f32").write(out).scratch(l.work.slice(0, b.endingBytes())).productEnding(l, p)
	return true, c.i64(p.n).i64(out.size()).i32(1).over(out.size())
}

// first is the address of an operand's first element.
func (o operand) first() uint64 {
	return uint64(int64(o.address) + int64(o.layout.Offset)*int64(o.dtype.Size()))
}
