package cpu

import (
	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// A vectorOp is an elementwise op of float32 that a processor's kernels compute.
type vectorOp struct {
	m          simd.Map
	p0, p1, p2 float32
}

// vectorOps are the kinds with kernels; the second result is false for attributes that they do not know.
var vectorOps = map[graph.Kind]func(a graph.Attrs) (vectorOp, bool){
	"relu": mapped(simd.MapRelu), "silu": mapped(simd.MapSilu), "mish": mapped(simd.MapMish),
	"hardswish": mapped(simd.MapHardSwish), "hardsigmoid": mapped(simd.MapHardSigmoid),
	"abs": mapped(simd.MapAbs), "neg": mapped(simd.MapNeg), "square": mapped(simd.MapSquare),
	"ceil": mapped(simd.MapCeil), "floor": mapped(simd.MapFloor), "round": mapped(simd.MapRound),
	"trunc": mapped(simd.MapTrunc), "exp": mapped(simd.MapExp), "sigmoid": mapped(simd.MapSigmoid),
	"sqrt": mapped(simd.MapSqrt), "rsqrt": mapped(simd.MapRsqrt), "reciprocal": mapped(simd.MapReciprocal),
	"tanh": mapped(simd.MapTanh), "erf": mapped(simd.MapErf),
	"log": mapped(simd.MapLog), "sin": mapped(simd.MapSin), "cos": mapped(simd.MapCos),
	"mul": mapped(simd.MapMul), "div": mapped(simd.MapDiv), "maximum": mapped(simd.MapMaximum),
	"minimum": mapped(simd.MapMinimum), "prelu": mapped(simd.MapPrelu), "glu": mapped(simd.MapGlu),
	"where": mapped(simd.MapWhere),
	"gelu": func(a graph.Attrs) (vectorOp, bool) {
		if a.String("approximate") == "tanh" {
			return vectorOp{m: simd.MapGeluTanh}, true
		}
		return vectorOp{m: simd.MapGelu}, true
	},
	"elu": func(a graph.Attrs) (vectorOp, bool) {
		alpha, scale, inner := a.Float("alpha"), a.Float("scale"), a.Float("input_scale")
		return vectorOp{simd.MapElu, float32(scale * alpha), float32(scale), float32(inner)}, true
	},
	"leaky_relu": func(a graph.Attrs) (vectorOp, bool) {
		return vectorOp{m: simd.MapLeakyRelu, p0: float32(a.Float("slope"))}, true
	},
	"clamp": func(a graph.Attrs) (vectorOp, bool) {
		low, high := a.Float("min"), a.Float("max")
		return vectorOp{m: simd.MapClamp, p0: float32(low), p1: float32(high)}, low == low && high == high
	},
	"add": func(a graph.Attrs) (vectorOp, bool) { return sumWith(alphaOf(a)), true },
	"sub": func(a graph.Attrs) (vectorOp, bool) {
		if alpha := alphaOf(a); alpha != 1 {
			return sumWith(-alpha), true
		}
		return vectorOp{m: simd.MapSub}, true
	},
	"addcmul": func(a graph.Attrs) (vectorOp, bool) {
		return vectorOp{m: simd.MapAddProduct, p0: float32(a.Float("value"))}, true
	},
}

// mapped is an op without attributes.
func mapped(m simd.Map) func(graph.Attrs) (vectorOp, bool) {
	return func(graph.Attrs) (vectorOp, bool) { return vectorOp{m: m}, true }
}

// sumWith is a + alpha × b.
func sumWith(alpha float64) vectorOp {
	if alpha == 1 {
		return vectorOp{m: simd.MapAdd}
	}
	return vectorOp{m: simd.MapAddScaled, p0: float32(alpha)}
}

// withVectors returns a kernel that computes float32 and the halves with the processor's kernels where there are some.
func withVectors(kind graph.Kind, k kernel) kernel {
	of, ok := vectorOps[kind]
	if !ok {
		return k
	}
	inGo, loopsInGo := k.run, k.loops
	k.run = func(c *call) error {
		op, ok := of(c.attrs)
		if !ok || c.pool.set == nil || !isSingle(c.out[0].dtype) {
			return inGo(c)
		}
		r := newBlocks(c)
		if r == nil {
			return inGo(c)
		}
		r.steps[0] = blockStep{op: op, args: [3]int{0, 1, 2}, operands: len(c.in), at: -1}
		r.count = 1
		r.run(c)
		return nil
	}
	if loopsInGo == nil {
		return k
	}
	k.loops = func(a graph.Attrs, d tensor.DType) loops {
		l := loopsInGo(a, d)
		op, ok := of(a)
		if set := simd.Best(); ok && set != nil && l.f32 != nil {
			l.f32 = func(dst []float32, in [][]float32) {
				var b, c []float32
				if len(in) > 1 {
					b = in[1]
				}
				if len(in) > 2 {
					c = in[2]
				}
				set.Map(op.m, dst, in[0], b, c, op.p0, op.p1, op.p2)
			}
		}
		return l
	}
	return k
}
