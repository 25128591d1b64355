package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// unitKernels are ops over values of bfloat16 in blocks of 32 channels, which only package arrange makes, for processors
// with a matrix unit. Attribute "set" is the kernels.
var unitKernels = map[graph.Kind]kernel{
	// conv16, with a blocked.UnitConv.
	"conv32": {
		run: runConv32, workOn: convWorkBlocked, packs: convPacksBlocked, pack: packConvBlocked, cost: conv32Cost,
		label: unitLabel("conv32"),
	},
	// pool16 of the largest elements.
	"max32": {run: runMax32, cost: pool16Cost},
	// From a value in blocks of sixteen float32, and to it.
	"to32":   {run: runTo32, cost: blockedCost(0)},
	"from32": {run: runFrom32, cost: blockedCost(0)},
}

// conv32Of returns the convolution that attributes hold, unitSet the kernels.
func conv32Of(a graph.Attrs) *blocked.UnitConv { return a["conv"].(*blocked.UnitConv) }

func unitSet(a graph.Attrs) *simd.UnitSet { return a["set"].(*simd.UnitSet) }

// unitLabel returns what reports call an op over bfloat16: they say what multiplies it.
func unitLabel(kind string) func(a graph.Attrs) string {
	return func(a graph.Attrs) string { return kind + "_" + unitSet(a).Name + "_bf16" }
}

// halves32 returns the elements of a view from its first on.
func halves32(v view) []uint16 {
	if v.absent() {
		return nil
	}
	return elements[uint16](v)[v.layout.Offset:]
}

func conv32Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv32Of(a)
	c.FLOPs = 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(volume(in[1].Shape[1:])) / int64(unitSet(a).Speed)
	return c
}

func runConv32(c *call) error {
	conv := conv32Of(c.attrs)
	a := blocked.UnitArgs{Y: halves32(c.out[0]), Residual: halves32(c.operand(7))}
	if conv.Planar {
		a.Planes, a.XStrides = floats16(c.in[0]), planarStrides(c.in[0])
	} else {
		a.X = halves32(c.in[0])
	}
	if w := c.in[1]; w.packed {
		a.Packed = floats16(view{data: w.data, dtype: tensor.Float32})
	} else {
		a.Weight = weight16(w, &c.weights[0])
	}
	work := elements[float32](view{data: c.work})
	a.Scale, a.Shift = c.channelScales(conv.Out, work)
	a.Act, a.A, a.B = actOf(c.attrs)
	a.Work = work[int(scaleBytes(c.in[1].shape()))/4:]
	return conv.Run(c.ctx, c.pool, a)
}

func runMax32(c *call) error {
	w := window16(c.in[0].shape(), c.out[0].shape(), c.attrs)
	blocked.UnitMax(c.pool, unitSet(c.attrs), w, halves32(c.in[0]), halves32(c.out[0]))
	return nil
}

func runTo32(c *call) error {
	n, _, height, width := blockedSizes(c.in[0].shape())
	blocked.ToUnit(
		c.pool, unitSet(c.attrs), n, c.attrs.Int("channels"), height*width, floats16(c.in[0]), halves32(c.out[0]))
	return nil
}

func runFrom32(c *call) error {
	n, _, height, width := blockedSizes(c.in[0].shape())
	blocked.FromUnit(
		c.pool, unitSet(c.attrs), n, c.attrs.Int("channels"), height*width, halves32(c.in[0]), floats16(c.out[0]))
	return nil
}
