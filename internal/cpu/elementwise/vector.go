package elementwise

import (
	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// A VectorOp is an elementwise op of float32 that a processor's kernels compute.
type VectorOp struct {
	M          simd.Map
	P0, P1, P2 float32
}

// VectorOps are the kinds with kernels; the second result is false for attributes that they do not know.
var VectorOps = map[graph.Kind]func(a graph.Attrs) (VectorOp, bool){
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
	"gelu": func(a graph.Attrs) (VectorOp, bool) {
		if a.String("approximate") == "tanh" {
			return VectorOp{M: simd.MapGeluTanh}, true
		}
		return VectorOp{M: simd.MapGelu}, true
	},
	"elu": func(a graph.Attrs) (VectorOp, bool) {
		alpha, scale, inner := a.Float("alpha"), a.Float("scale"), a.Float("input_scale")
		return VectorOp{simd.MapElu, float32(scale * alpha), float32(scale), float32(inner)}, true
	},
	"leaky_relu": func(a graph.Attrs) (VectorOp, bool) {
		return VectorOp{M: simd.MapLeakyRelu, P0: float32(a.Float("slope"))}, true
	},
	"clamp": func(a graph.Attrs) (VectorOp, bool) {
		low, high := a.Float("min"), a.Float("max")
		return VectorOp{M: simd.MapClamp, P0: float32(low), P1: float32(high)}, low == low && high == high
	},
	"add": func(a graph.Attrs) (VectorOp, bool) { return sumWith(alphaOf(a)), true },
	"sub": func(a graph.Attrs) (VectorOp, bool) {
		if alpha := alphaOf(a); alpha != 1 {
			return sumWith(-alpha), true
		}
		return VectorOp{M: simd.MapSub}, true
	},
	"addcmul": func(a graph.Attrs) (VectorOp, bool) {
		return VectorOp{M: simd.MapAddProduct, P0: float32(a.Float("value"))}, true
	},
}

// mapped is an op without attributes.
func mapped(m simd.Map) func(graph.Attrs) (VectorOp, bool) {
	return func(graph.Attrs) (VectorOp, bool) { return VectorOp{M: m}, true }
}

// sumWith is a + alpha × b.
func sumWith(alpha float64) VectorOp {
	if alpha == 1 {
		return VectorOp{M: simd.MapAdd}
	}
	return VectorOp{M: simd.MapAddScaled, P0: float32(alpha)}
}

// withVectors returns a kernel that computes float32 and the halves with the processor's kernels where there are some.
func withVectors(kind graph.Kind, k ops.Kernel) ops.Kernel {
	of, ok := VectorOps[kind]
	if !ok {
		return k
	}
	inGo, loopsInGo := k.Run, k.Loops
	k.Run = func(c *ops.Call) error {
		op, ok := of(c.Attrs)
		if !ok || c.Pool.Set == nil || !ops.IsSingle(c.Out[0].DType) {
			return inGo(c)
		}
		r := newBlocks(c)
		if r == nil {
			return inGo(c)
		}
		r.steps[0] = blockStep{op: op, args: [3]int{0, 1, 2}, operands: len(c.In), at: -1}
		r.count = 1
		r.run(c)
		return nil
	}
	if loopsInGo == nil {
		return k
	}
	k.Loops = func(a graph.Attrs, d tensor.DType) ops.Loops {
		l := loopsInGo(a, d)
		op, ok := of(a)
		if set := simd.Best(); ok && set != nil && l.F32 != nil {
			l.F32 = func(dst []float32, in [][]float32) {
				var b, c []float32
				if len(in) > 1 {
					b = in[1]
				}
				if len(in) > 2 {
					c = in[2]
				}
				set.Map(op.M, dst, in[0], b, c, op.P0, op.P1, op.P2)
			}
		}
		return l
	}
	return k
}
