package cuda

import (
	goruntime "runtime"
	"slices"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

var _ device.Preparer = (*Device)(nil)

// mostLoading bounds how many families are loaded at the same time.
const mostLoading = 8

// Prepare begins to load the kernels that a graph's ops will launch, several families at a time, and returns. Whoever launches one
// that is being loaded waits for it, and gets an error that loading it has.
func (d *Device) Prepare(l *graph.Lowered) {
	families := d.familiesOf(l)
	d.mu.Lock()
	families = slices.DeleteFunc(families, func(f string) bool { return d.modules[f] != nil })
	d.mu.Unlock()
	if len(families) == 0 {
		return
	}
	next := make(chan string, len(families))
	for _, f := range families {
		next <- f
	}
	close(next)
	for range min(len(families), mostLoading, goruntime.GOMAXPROCS(0)) {
		d.preparing.Go(func() {
			if d.enter() != nil {
				return // whoever launches will see
			}
			defer d.leave()
			for f := range next {
				_, _ = d.family(f) // whoever launches asks again
			}
		})
	}
}

// familiesOf returns the families of the kernels that a graph's ops launch, in their order, by having them launched on a stream that
// only notes the names.
func (d *Device) familiesOf(l *graph.Lowered) []string {
	var families []string
	s := &stream{d: d}
	s.dry = func(kernel string) {
		if f, err := kernels.Family(kernel); err == nil && !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	s.launch.s = s
	for i := range l.Graph.Ops {
		if l.Steps[i].Kernel != blasKernel {
			s.pretend(l.Graph, &l.Graph.Ops[i], &l.Steps[i])
		}
	}
	return families
}

// pretendBytes is what operands of ops that are not run take, and how far apart they lie.
const pretendBytes = 1 << 40

// pretend launches an op on operands that lie nowhere.
func (s *stream) pretend(g *graph.Graph, op *graph.Op, step *graph.Step) {
	k, ok := table[op.Kind]
	if !ok {
		return
	}
	// How many rows an operand has may be known only when the op runs. What is prepared is a guess, and a wrong one costs nothing
	// but the time to load a family then.
	defer func() { _ = recover() }()
	next := uint64(pretendBytes)
	place := func(spec graph.Spec, layout tensor.Layout) operand {
		if spec.DType == tensor.Invalid {
			return operand{}
		}
		next += pretendBytes
		return operand{span: span{next, pretendBytes}, dtype: spec.DType, layout: layout}
	}
	in, out := g.Specs(op, nil, nil)
	a := &s.launch
	a.kind, a.attrs, a.in, a.out = op.Kind, op.Attrs, a.in[:0], a.out[:0]
	a.hopper = byWGMMA(step)
	for i, spec := range in {
		a.in = append(a.in, place(spec, op.In[i].Layout))
	}
	for _, spec := range out {
		a.out = append(a.out, place(spec, tensor.Contiguous(spec.Shape...)))
	}
	a.work = span{pretendBytes, step.WorkBytes}
	s.op = op
	_ = k.launch(a)
}
