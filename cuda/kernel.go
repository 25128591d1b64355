package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A kernel computes one kind of op.
type kernel struct {
	// name is what reports say; "" is the kind.
	name string
	// narrows says that factors are rounded where that is allowed, which reports tell.
	narrows bool
	// exact says that the factors of given operands are not, for another kernel computes them; nil is never.
	exact func(in, out []graph.Spec, a graph.Attrs) bool
	// label returns the name that reports give where that depends on the operands; nil is name.
	label func(in, out []graph.Spec, a graph.Attrs) string
	// work returns the scratch memory needed for given operands, wherever they lie; nil is none.
	work func(in, out []graph.Spec, a graph.Attrs) int64
	// supports returns why given operands cannot be computed; nil takes all that the shape rule takes.
	supports func(in, out []graph.Spec, a graph.Attrs) error
	// packs returns the operands that the kernel also takes in forms of its own; nil is none.
	packs func(in, out []graph.Spec, op *graph.Op) []graph.Pack
	// pack writes such a form of an operand, or of some of it, all of whose bytes are given.
	pack func(l *launch, p graph.Pack, raw operand, to span) error
	// launch gives the op to the stream.
	launch func(l *launch) error
}

// families are the kernels, one file each.
var families = []map[graph.Kind]kernel{
	elementwiseKernels,
	copyKernels,
	castKernels,
	linearKernels,
	codesKernels,
	expertsKernels,
	convKernels,
	rowKernels,
	attentionKernels,
	attendKernels,
	poolKernels,
	indexKernels,
	resampleKernels,
	sortKernels,
	specialKernels,
	recurrentKernels,
	stateKernels,
	chainKernels,
}

// table is put together from the families.
var table = func() map[graph.Kind]kernel {
	all := make(map[graph.Kind]kernel)
	for _, family := range families {
		for kind, k := range family {
			if _, dup := all[kind]; dup {
				panic("BUG: two kernels for " + string(kind))
			}
			if k.name == "" {
				k.name = string(kind)
			}
			all[kind] = k
		}
	}
	return all
}()

// maxDims is the most dimensions of an operand: OM_DIMS of om.h.
const maxDims = 8

// lookup returns how an op is computed, or why it is not.
func lookup(op graph.Op, in, out []graph.Spec) (kernel, error) {
	k, ok := table[op.Kind]
	if !ok {
		return kernel{}, fmt.Errorf("there is no CUDA kernel for %s", op.Kind)
	}
	for _, list := range [][]graph.Spec{in, out} {
		for _, s := range list {
			if len(s.Shape) > maxDims {
				return kernel{}, fmt.Errorf("%d dimensions, CUDA kernels take %d", len(s.Shape), maxDims)
			}
		}
	}
	if k.supports == nil {
		return k, nil
	}
	return k, k.supports(in, out, op.Attrs)
}

// Supports returns nil when there is a kernel that takes the operands. It needs no GPU.
func Supports(op graph.Op, in, out []graph.Spec) error {
	_, err := lookup(op, in, out)
	return err
}

// Lower decides how every op of a graph is computed, by GPUs from compute capability 8.0 on; the scratch memory is enough for
// any. It needs no GPU.
func Lower(g *graph.Graph) (*graph.Lowered, error) {
	l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	for i, op := range g.Ops {
		in, out := g.Specs(&op, nil, nil)
		k, err := lookup(op, in, out)
		if err != nil {
			source := ""
			if op.Source != "" {
				source = " (" + op.Source + ")"
			}
			return nil, fmt.Errorf("%s: %s: %w: %w%s", op.Path, op.Kind, graph.ErrUnsupported, err, source)
		}
		l.Steps[i].Kernel = k.name
		if k.label != nil {
			l.Steps[i].Kernel = k.label(in, out, op.Attrs)
		}
		if k.narrows && rounds(op.Attrs) && (k.exact == nil || !k.exact(in, out, op.Attrs)) {
			l.Steps[i].Kernel += "_" + op.Attrs.String("precision")
		}
		if k.work != nil {
			l.Steps[i].WorkBytes = k.work(in, out, op.Attrs)
		}
		if k.packs != nil {
			l.Steps[i].Packs = k.packs(in, out, &op)
		}
	}
	return l, nil
}

// LowerFor is [Lower] for GPUs of a compute capability.
func LowerFor(g *graph.Graph, capability int) (*graph.Lowered, error) {
	l, err := Lower(g)
	if err != nil {
		return nil, err
	}
	for i := range g.Ops {
		op, step := &g.Ops[i], &l.Steps[i]
		step.Packs = slices.DeleteFunc(step.Packs, func(p graph.Pack) bool {
			return p.Form == packedLast && !onTensorCores(capability, g.Values[op.In[p.In].Value].DType)
		})
		if in, out := g.Specs(op, nil, nil); op.Kind == "conv" && capability == kernels.HopperCapability {
			lowerHopperConv(in, out, op.Attrs, step)
		}
		if capability == kernels.HopperCapability && op.Kind == "linear" && lowersToHopper(g, op) {
			in, _ := g.Specs(op, nil, nil)
			step.Kernel, step.WorkBytes = hopperKernel, max(step.WorkBytes, hopperWork(in, op.Attrs))
		}
		if in, _ := g.Specs(op, nil, nil); op.Kind == "linear" && !graph.IsEncoded(op.Attrs) &&
			widensOnGPU(in, op.Attrs, capability) {
			step.WorkBytes = wideningWork(in, op.Attrs) // no weight is widened in memory
		}
	}
	return l, nil
}

// suffixes name the dtypes in the names of kernels.
var suffixes = map[tensor.DType]string{
	tensor.Float32: "f32", tensor.Float64: "f64", tensor.Float16: "f16", tensor.BFloat16: "bf16",
	tensor.Int8: "i8", tensor.Int16: "i16", tensor.Int32: "i32", tensor.Int64: "i64",
	tensor.UInt8: "u8", tensor.UInt16: "u16", tensor.UInt32: "u32", tensor.UInt64: "u64",
	tensor.Bool: "bool", tensor.Complex64: "c64", tensor.Complex128: "c128",
}

// suffix returns what the name of a kernel for elements of a dtype ends in.
func suffix(d tensor.DType) string {
	if s, ok := suffixes[d]; ok {
		return s
	}
	return d.String()
}

// isReal reports whether a dtype is a float of a width that kernels compute with.
func isReal(d tensor.DType) bool {
	switch d {
	case tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16:
		return true
	}
	return false
}

// onlyReal is the support of kernels that take floats of one dtype.
func onlyReal(in, _ []graph.Spec, _ graph.Attrs) error {
	for _, s := range in {
		if s.DType != tensor.Invalid && (!isReal(s.DType) || s.DType != in[0].DType) {
			return fmt.Errorf("it takes floats of one dtype, not %v beside %v", s.DType, in[0].DType)
		}
	}
	return nil
}
