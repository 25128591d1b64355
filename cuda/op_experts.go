package cuda

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// expertsKernels are layers of which each row takes a few experts out of many: kernels/experts.cu.
var expertsKernels = map[graph.Kind]kernel{
	"experts": {supports: supportsExperts, work: expertsWork, launch: launchExperts},
}

// The constants of kernels/experts.cu: the threads of a block, its lines of the down and its pairs, what says that a gate is
// the clamped one, and how many experts a launch has.
const (
	expertsThreads = 128
	expertsLines   = 2
	expertsRows    = 4
	expertsClamped = -1
	expertsBatch   = 8
)

// expertsFloats bounds what experts give for rows, which are computed so many at a time that this suffices. It does not change what
// they give.
var expertsFloats = 4 << 20

// mostExpertsDown is how many blocks lie one above the other, beyond which they go round.
const mostExpertsDown = 32

// errLent is that nobody lends experts on a GPU.
var errLent = errors.New("it has its experts in memory")

func supportsExperts(in, _ []graph.Spec, a graph.Attrs) error {
	if a.Bool(graph.LentAttr) {
		return errLent
	}
	for _, name := range graph.ExpertEncodings {
		if e := a.String(name); e != "" && !ReadsCodes(e) {
			return fmt.Errorf("it does not read blocks of %s", e)
		}
	}
	return nil
}

// expertsSizes are those of a call: rows go through named of all experts each, chunk of them at a time.
type expertsSizes struct{ rows, hidden, inner, named, all, chunk int }

func sizesOfExperts(x, ids, gate tensor.Shape, a graph.Attrs) expertsSizes {
	last := len(x) - 1
	s := expertsSizes{rows: 1, hidden: x[last], inner: gate[0], named: ids[last], all: a.Int("experts")}
	for _, n := range x[:last] {
		s.rows *= n
	}
	s.chunk = max(1, min(s.rows, expertsFloats/max(1, s.named*(s.hidden+s.inner))))
	return s
}

// bytes returns the scratch memory: where experts' pairs end, the pairs, what their gates and ups give, and their results.
func (s *expertsSizes) bytes() [4]int64 {
	pairs := int64(s.chunk) * int64(s.named)
	list := [4]int64{int64(s.all) * 4, pairs * 4, pairs * int64(s.inner) * 4, pairs * int64(s.hidden) * 4}
	for i := range list {
		list[i] = ceilDiv(list[i], alignBytes) * alignBytes
	}
	return list
}

func expertsWork(in, _ []graph.Spec, a graph.Attrs) (total int64) {
	s := sizesOfExperts(in[0].Shape, in[1].Shape, in[graph.ExpertsFirst].Shape, a)
	for _, n := range s.bytes() {
		total += n
	}
	return total
}

// An expertsCall is a call with its scratch memory.
type expertsCall struct {
	expertsSizes
	l                             *launch
	ends, order, between, results span
	// codings are those of gates, ups and downs as the kernels take them, nil for numbers.
	codings [3][]int
	act     int32
	a, b    float32
}

// launchExperts has rows go through their experts.
func launchExperts(l *launch) error {
	if l.out[0].size() == 0 {
		return nil
	}
	e := expertsCall{expertsSizes: sizesOfExperts(l.in[0].shape(), l.in[1].shape(),
		l.in[graph.ExpertsFirst].shape(), l.attrs), l: l}
	at := int64(0)
	for i, bytes := range e.bytes() {
		*[]*span{&e.ends, &e.order, &e.between, &e.results}[i] = l.work.slice(at, bytes)
		at += bytes
	}
	for i, name := range graph.ExpertEncodings {
		if encoding, code, ok := codingOf(l.attrs.String(name)); ok {
			e.codings[i] = code.ints(encoding)
		}
	}
	e.act, e.a, e.b = activationCodes[l.attrs.String("act")], float32(l.attrs.Float("act_a")),
		float32(l.attrs.Float("act_b"))
	if l.attrs.String("act") == "clamped" {
		e.act, e.a, e.b = expertsClamped, float32(l.attrs.Float("alpha")), float32(l.attrs.Float("limit"))
	}
	for first := 0; first < e.rows; first += e.chunk {
		if err := e.compute(first, min(e.chunk, e.rows-first)); err != nil {
			return err
		}
	}
	return nil
}

// compute computes count rows from one on.
func (e *expertsCall) compute(first, count int) error {
	l, pairs := e.l, int64(count)*int64(e.named)
	x, ids, weights := l.in[0], l.in[1], l.in[2]
	c := l.call("om_experts_sort").scratch(e.ends).scratch(e.order).read(ids).
		layout(ids.layout.Leading(1)).i64(int64(lastStep(ids)))
	c.i64(int64(first)).i64(int64(e.named)).i64(pairs).i64(int64(e.all)).status()
	if err := c.grid(dims{1, 1, 1}, dims{expertsThreads, 1, 1}, 0); err != nil {
		return err
	}
	rows, even := evenRows(x)
	wide := func(terms int, o operand, strides ...int) int {
		return flag(terms%8 == 0 && vectors(o, 4, lastStep(o), strides...))
	}
	xWide := flag(even) & wide(e.hidden, x, rows)
	weigh := flag(l.attrs.Bool("weigh_input"))
	down := min(max(ceilDiv(pairs, int64(expertsRows*min(e.all, 8))), 1), mostExpertsDown)
	each := graph.ExpertOperands(l.attrs)
	for from := 0; from < e.all; {
		alike := e.alike(from)
		c := l.call("om_experts_gate").scratch(e.between).read(x).layout(x.layout.Leading(1)).
			read(weights).layout(weights.layout.Leading(1))
		c.scratch(e.ends).scratch(e.order)
		batch := l.in[graph.ExpertsFirst+from*each:][:alike*each]
		e.weights(c, batch, 0, e.hidden)
		e.weights(c, batch, 1, e.hidden)
		c.ints(9, from, e.named, first, e.inner, e.hidden, lastStep(x), xWide, weigh, lastStep(weights))
		c.i32(e.act).f32(e.a).f32(e.b)
		if err := c.grid(dims{int64(e.inner), down, int64(alike)}, dims{expertsThreads, 1, 1}, 0); err != nil {
			return err
		}
		c = l.call("om_experts_down").scratch(e.results).scratch(e.between).scratch(e.ends).scratch(e.order)
		e.weights(c, batch, 2, e.inner)
		c.ints(9, from, e.named, first, e.hidden, e.inner, 1, flag(e.inner%8 == 0))
		if err := c.grid(dims{ceilDiv(int64(e.hidden), expertsLines), down, int64(alike)},
			dims{expertsThreads, 1, 1}, 0); err != nil {
			return err
		}
		from += alike
	}
	n := int64(count) * int64(e.hidden)
	c = l.call("om_experts_sum").write(l.out[0]).scratch(e.results).read(ids).
		layout(ids.layout.Leading(1)).i64(int64(lastStep(ids)))
	c.read(weights).layout(weights.layout.Leading(1)).i64(int64(lastStep(weights))).i32(int32(1 - weigh))
	c.i64(int64(first)).i64(int64(e.named)).i64(int64(e.all)).i64(int64(e.hidden))
	return c.i64(n).over(n)
}

// A lying is how a weight lies and its bias, which experts of one launch have in common.
type lying struct {
	line, step, aligned, biasStep int
	dtype, bias                   tensor.DType
}

// lying returns how weight i of an expert with so many terms lies, and its bias.
func (e *expertsCall) lying(all []operand, i, terms int) lying {
	w := all[i]
	s := lying{line: w.layout.Strides[0], step: w.layout.Strides[1], dtype: w.dtype}
	if len(all) > graph.LentOperands && !all[graph.LentOperands+i].absent() {
		bias := all[graph.LentOperands+i]
		s.bias, s.biasStep = bias.dtype, bias.layout.Strides[0]
	}
	s.aligned = flag(terms%8 == 0 && e.codings[i] == nil && vectors(w, 16/w.dtype.Size(), s.step, s.line))
	return s
}

// alike returns how many experts from one on lie alike, and have a launch.
func (e *expertsCall) alike(from int) int {
	each := graph.ExpertOperands(e.l.attrs)
	of := func(expert int) (all [graph.LentOperands]lying) {
		w := e.l.in[graph.ExpertsFirst+expert*each:][:each]
		for i, terms := range [...]int{e.hidden, e.hidden, e.inner} {
			all[i] = e.lying(w, i, terms)
		}
		return all
	}
	first, n := of(from), 1
	for n < expertsBatch && from+n < e.all && of(from+n) == first {
		n++
	}
	return n
}

// weights passes weight i of some experts with their biases: as many pointers as a launch has experts, twice, an om_expert_weight
// and an om_coding.
func (e *expertsCall) weights(c *call, batch []operand, i, terms int) {
	each := graph.ExpertOperands(e.l.attrs)
	for _, at := range [...]int{i, graph.LentOperands + i} {
		for expert := range expertsBatch {
			if at < each && expert*each < len(batch) {
				c.read(batch[expert*each+at])
			} else {
				c.i64(0)
			}
		}
	}
	s, lines := e.lying(batch[:each], i, terms), batch[i].shape()[0]
	end := (lines-1)*s.line + batch[i].shape()[1] // of blocks
	c.ints(7, s.line, s.step, end, int(dtypeCodes[s.dtype]), s.aligned, int(dtypeCodes[s.bias]), s.biasStep)
	c.ints(codingInts, e.codings[i]...)
}
