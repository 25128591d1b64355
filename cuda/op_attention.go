package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// attentionKernels let positions look at each other: kernels/attention.cu for any operands, flash.cu, flash_half.h and
// decode.cu for most.
var attentionKernels = map[graph.Kind]kernel{
	"scaled_dot_product_attention": {supports: supportsAttention, work: attentionWork, launch: launchAttention},
}

// The constants of kernels/attention.cu, flash.cu and flash_half.cu: the threads of a block, the queries that it takes, and
// the columns.
const (
	attentionThreads     = 128
	attentionRows        = 16
	attentionColumns     = 64
	attentionWideColumns = 128
	flashRows            = 64
	flashWideRows        = 32
	mostFlashColumns     = 256
	mostOldColumns       = 128 // of those on tensor cores before capability 8.0
)

// The constants of kernels/decode.cu: the queries of a block and the keys that it takes at a time. Attention of more than
// mostDecoded queries fills blocks of flash.cu, and with few keys one launch is better than two.
const (
	decodeRows   = 8
	decodeKeys   = 128
	mostDecoded  = 16
	mostSplits   = 64
	fewestBlocks = 512
)

// supportsAttention takes floats of one dtype, and any mask that the shape rule takes.
func supportsAttention(in, out []graph.Spec, a graph.Attrs) error {
	if p := a.String("precision"); p != "" && (!rounds(a) || in[0].DType != tensor.Float32) {
		return fmt.Errorf("there is no attention of %v in precision %q", in[0].DType, p)
	}
	return onlyReal(in[:3], out, a)
}

// flag is 1 for true.
func flag(x bool) int {
	if x {
		return 1
	}
	return 0
}

// An attention is softmax(q·kᵀ·scale + mask)·v for batch matrices.
type attention struct {
	q, k, v, mask, out, also            operand
	qBatches, kBatches, vBatches        tensor.Layout
	maskBatches                         tensor.Layout
	batch, queries, keys, width, values int64
	// The strides of q, k, v and mask: of their lines, and within.
	line, step [4]int
	causal     bool
	unseenNaN  bool
	scale      float64
}

func attentionOf(l *launch) attention {
	t := attention{
		q: l.in[0], k: l.in[1], v: l.in[2], out: l.out[0], maskBatches: tensor.Contiguous(1), batch: 1,
		causal: l.attrs.Bool("is_causal"), unseenNaN: l.attrs.Bool("unseen_nan"), scale: l.attrs.Float("scale"),
	}
	n := len(t.q.shape())
	for _, d := range t.q.shape()[:n-2] {
		t.batch *= int64(d)
	}
	t.queries, t.keys = int64(t.q.shape()[n-2]), int64(t.k.shape()[n-2])
	t.width, t.values = int64(t.q.shape()[n-1]), int64(t.v.shape()[n-1])
	if len(l.in) > 3 && !l.in[3].absent() {
		t.mask = l.in[3]
	}
	for i, o := range []operand{t.q, t.k, t.v, t.mask} {
		if !o.absent() {
			t.line[i], t.step[i] = o.layout.Strides[n-2], o.layout.Strides[n-1]
		}
	}
	lead := 2
	if t.sharesKeys() {
		group := t.q.shape()[n-3]
		if t.queries == 1 {
			for i, o := range []operand{t.q, t.k, t.v, t.mask} {
				if i == 0 || i == 3 && !o.absent() {
					t.line[i] = o.layout.Strides[n-3]
				}
			}
		}
		t.batch, t.queries, lead = t.batch/int64(group), t.queries*int64(group), 3
	}
	t.qBatches, t.kBatches, t.vBatches = t.q.layout.Leading(lead), t.k.layout.Leading(lead), t.v.layout.Leading(lead)
	if !t.mask.absent() {
		t.maskBatches = t.mask.layout.Leading(lead)
	}
	if len(l.out) > 1 && l.attrs.String("also") == "logsumexp" {
		t.also = l.out[1]
	}
	return t
}

// sharesKeys reports whether the matrices of the last leading dimension have the same keys and values, and their queries lie
// one behind the other: then they are queries of one matrix, and keys are read once for all.
func (t *attention) sharesKeys() bool {
	n := len(t.q.shape())
	if n < 3 || t.causal || t.q.shape()[n-3] < 2 || t.k.layout.Strides[n-3] != 0 || t.v.layout.Strides[n-3] != 0 {
		return false
	}
	behind := func(o operand, line int) bool {
		return o.absent() || t.queries == 1 || o.layout.Strides[n-3] == line*int(t.queries)
	}
	return behind(t.q, t.line[0]) && behind(t.mask, t.line[3])
}

// vectors reports whether an operand's lines, and those of its matrices, begin at multiples of n elements and of their
// bytes, and its elements lie one behind the other.
func vectors(o operand, n int, step int, strides ...int) bool {
	if step != 1 || (int64(o.address)+int64(o.layout.Offset*o.dtype.Size()))%int64(n*o.dtype.Size()) != 0 {
		return false
	}
	return !slices.ContainsFunc(strides, func(s int) bool { return s%n != 0 })
}

// inSixteens reports whether q, k and v can be read sixteen bytes at a time and eight elements at a time; which are asked
// for by their places.
func (t *attention) inSixteens(which ...int) bool {
	if t.width%8 != 0 || t.values%8 != 0 || t.width == 0 || t.values == 0 {
		return false
	}
	all, batches := []operand{t.q, t.k, t.v}, []tensor.Layout{t.qBatches, t.kBatches, t.vBatches}
	for _, i := range which {
		if !vectors(all[i], 16/all[i].dtype.Size(), t.step[i], append([]int{t.line[i]}, batches[i].Strides...)...) {
			return false
		}
	}
	return true
}

// operands passes q, k, v and the mask, each with its batches.
func (t *attention) operands(c *call) *call {
	c.read(t.q).layout(t.qBatches).read(t.k).layout(t.kBatches).read(t.v).layout(t.vBatches)
	return c.read(t.mask).layout(t.maskBatches)
}

// sizes passes the dtypes, an om_attention and the scale.
func (t *attention) sizes(c *call) *call {
	sizes := []int{
		int(t.batch), int(t.queries), int(t.keys), int(t.width), int(t.values), t.line[0], t.step[0], t.line[1], t.step[1],
		t.line[2], t.step[2], t.line[3], t.step[3], flag(t.causal), flag(t.unseenNaN),
	}
	c.i32(dtypeCodes[t.q.dtype]).i32(dtypeCodes[t.mask.dtype]).ints(len(sizes), sizes...)
	return c.float(t.scale, t.q.dtype)
}

// splitKeys returns between how many blocks the keys of a matrix are shared, and how many each has. It depends on nothing
// but the sizes, so that a sum has the same order wherever it is computed.
func splitKeys(batch, queries, keys int64) (splits, each int64) {
	blocks := max(batch*ceilDiv(queries, decodeRows), 1)
	splits = min(ceilDiv(fewestBlocks, blocks), ceilDiv(keys, decodeKeys), mostSplits)
	each = ceilDiv(ceilDiv(keys, max(splits, 1)), decodeKeys) * decodeKeys
	return ceilDiv(keys, max(each, 1)), each
}

// attentionWork is room for what the splits of few queries find, whether or not they share keys.
func attentionWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	n := len(in[0].Shape)
	queries, keys, values := int64(in[0].Shape[n-2]), int64(in[1].Shape[n-2]), int64(in[2].Shape[n-1])
	batch, most := int64(1), int64(0)
	for _, d := range in[0].Shape[:n-2] {
		batch *= int64(d)
	}
	groups := []int64{1}
	if n > 2 {
		groups = append(groups, int64(in[0].Shape[n-3]))
	}
	for _, g := range groups {
		if g > 0 && queries*g <= mostDecoded && keys >= decodeKeys && in[0].DType != tensor.Float64 {
			splits, _ := splitKeys(batch/g, queries*g, keys)
			most = max(most, batch*queries*splits*(values+2)*4)
		}
	}
	return ceilDiv(most, alignBytes) * alignBytes
}

// launchAttention computes softmax(in[0]·in[1]ᵀ·scale + in[3])·in[2].
func launchAttention(l *launch) error {
	t := attentionOf(l)
	if t.batch == 0 || t.queries == 0 {
		return nil
	}
	if err := t.launch(l); err != nil {
		return err
	}
	if l.attrs.String("also") != "weights" || t.keys == 0 {
		return nil
	}
	name := "om_attention_weights_f32"
	if t.q.dtype == tensor.Float64 {
		name = "om_attention_weights_f64"
	}
	c := l.call(name).write(l.out[1]).read(t.q).layout(t.qBatches).read(t.k).layout(t.kBatches)
	t.sizes(c.read(t.mask).layout(t.maskBatches))
	rows := ceilDiv(t.batch*t.queries, attentionThreads/32)
	return c.grid(dims{min(rows, mostBlocks), 1, 1}, dims{attentionThreads, 1, 1}, 0)
}

// launch chooses the kernel by sizes, dtypes and how the operands lie.
func (t *attention) launch(l *launch) error {
	widest := max(t.width, t.values)
	half := t.q.dtype == tensor.Float16 || t.q.dtype == tensor.BFloat16
	fits := widest <= mostFlashColumns && min(t.width, t.values, t.keys) > 0 && t.q.dtype != tensor.Float64
	switch {
	case fits && !t.causal && t.queries <= mostDecoded && t.keys >= decodeKeys && t.inSixteens(1, 2):
		return t.decode(l)
	case fits && (half || narrow(l.attrs)) && flashes(l.s.d.info.Capability, t.q.dtype, widest) &&
		t.inSixteens(0, 1, 2):
		name := "bf16"
		if t.q.dtype == tensor.Float16 {
			name = "f16"
		}
		c := l.call(fmt.Sprintf("om_flash_%s_%d", name, columnsOf(widest))).write(t.out).write(t.also)
		return t.blocks(t.sizes(t.operands(c)), flashRows)
	case fits:
		c := l.call(fmt.Sprintf("om_flash_%d", columnsOf(widest))).write(t.out).write(t.also)
		t.sizes(t.operands(c))
		inFours := func(i int, o operand, columns int64, batches tensor.Layout) int32 {
			return int32(flag(columns%4 == 0 && vectors(o, 4, t.step[i], append([]int{t.line[i]}, batches.Strides...)...)))
		}
		c.i32(inFours(1, t.k, t.width, t.kBatches)).i32(inFours(2, t.v, t.values, t.vBatches))
		if widest > 64 {
			return t.blocks(c, flashWideRows)
		}
		return t.blocks(c, flashRows)
	}
	name, columns := "om_attention_f32", int64(attentionWideColumns)
	if t.q.dtype == tensor.Float64 {
		name, columns = "om_attention_f64", attentionColumns
	}
	c := t.sizes(t.operands(l.call(name).write(t.out).write(t.also)))
	units := t.batch * ceilDiv(t.queries, attentionRows) * max(ceilDiv(t.values, columns), 1)
	return c.grid(dims{min(units, mostBlocks), 1, 1}, dims{attentionThreads, 1, 1}, 0)
}

// flashes reports whether a GPU has kernels on tensor cores for heads of a width: HAS of kernels/flash_half.h.
func flashes(capability int, d tensor.DType, widest int64) bool {
	return capability >= tensorCapability || onTensorCores(capability, d) && widest <= mostOldColumns
}

// columnsOf is the kernel for heads of a width.
func columnsOf(widest int64) int {
	switch {
	case widest <= 64:
		return 64
	case widest <= 128:
		return 128
	}
	return mostFlashColumns
}

// blocks launches a block for so many queries of a matrix.
func (t *attention) blocks(c *call, rows int64) error {
	units := t.batch * ceilDiv(t.queries, rows)
	return c.grid(dims{units, 1, 1}, dims{attentionThreads, 1, 1}, 0)
}

// decode has blocks share the keys, and puts together what they found.
func (t *attention) decode(l *launch) error {
	splits, each := splitKeys(t.batch, t.queries, t.keys)
	found := l.work.slice(0, t.batch*t.queries*splits*(t.values+2)*4)
	name, rows := "om_attention_split_1", int64(1)
	if t.queries > 1 {
		name, rows = "om_attention_split_8", decodeRows
	}
	lanes := func(columns int64) int32 {
		n := int32(8)
		for int64(n)*8 < columns {
			n *= 2
		}
		return n
	}
	c := t.sizes(t.operands(l.call(name).scratch(found)))
	c.i32(lanes(t.width)).i32(lanes(t.values)).i64(splits).i64(each)
	units := t.batch * ceilDiv(t.queries, rows) * splits
	if err := c.grid(dims{units, 1, 1}, dims{attentionThreads, 1, 1}, 0); err != nil {
		return err
	}
	n := t.batch * t.queries
	c = l.call("om_attention_join").write(t.out).write(t.also).scratch(found).i32(dtypeCodes[t.q.dtype])
	c.i64(n).i64(splits).i64(t.values).i32(int32(flag(t.unseenNaN)))
	return c.grid(dims{min(n, mostBlocks), 1, 1}, dims{attentionThreads, 1, 1}, 0)
}
