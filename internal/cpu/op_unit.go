package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// unitKernels are ops over values of bfloat16 in blocks of 32 channels, which only package arrange makes, for processors
// with a matrix unit. Attribute "set" is the kernels.
var unitKernels = map[graph.Kind]ops.Kernel{
	// conv16, with a blocked.UnitConv.
	"conv32": {
		Run: runConv32, WorkOn: convWorkBlocked, Packs: convPacksBlocked, Pack: packConvBlocked, Cost: conv32Cost,
		Label: unitLabel("conv32"),
	},
	// pool16 of the largest elements.
	"max32": {Run: runMax32, Cost: pool16Cost},
	// From a value in blocks of sixteen float32, and to it.
	"to32":   {Run: runTo32, Cost: blockedCost(0)},
	"from32": {Run: runFrom32, Cost: blockedCost(0)},
}

// conv32Of returns the convolution that attributes hold, unitSet the kernels.
func conv32Of(a graph.Attrs) *blocked.UnitConv { return a["conv"].(*blocked.UnitConv) }

func unitSet(a graph.Attrs) *simd.UnitSet { return a["set"].(*simd.UnitSet) }

// unitLabel returns what reports call an op over bfloat16: they say what multiplies it.
func unitLabel(kind string) func(a graph.Attrs) string {
	return func(a graph.Attrs) string { return kind + "_" + unitSet(a).Name + "_bf16" }
}

// halves32 returns the elements of a view from its first on.
func halves32(v ops.View) []uint16 {
	if v.Absent() {
		return nil
	}
	return ops.Elements[uint16](v)[v.Layout.Offset:]
}

func conv32Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv32Of(a)
	c.FLOPs = 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(ops.Volume(in[1].Shape[1:])) / int64(unitSet(a).Speed)
	return c
}

func runConv32(c *ops.Call) error {
	conv := conv32Of(c.Attrs)
	a := blocked.UnitArgs{Y: halves32(c.Out[0]), Residual: halves32(c.Operand(7))}
	if conv.Planar {
		a.Planes, a.XStrides = floats16(c.In[0]), planarStrides(c.In[0])
	} else {
		a.X = halves32(c.In[0])
	}
	if w := c.In[1]; w.Packed {
		a.Packed = floats16(ops.View{Data: w.Data, DType: tensor.Float32})
	} else {
		a.Weight = weight16(w, &c.Weights[0])
	}
	work := ops.Elements[float32](ops.View{Data: c.Work})
	a.Scale, a.Shift = channelScales(c, conv.Out, work)
	a.Act, a.A, a.B = actOf(c.Attrs)
	a.Work = work[int(scaleBytes(c.In[1].Shape()))/4:]
	return conv.Run(c.Ctx, c.Pool, a)
}

func runMax32(c *ops.Call) error {
	w := window16(c.In[0].Shape(), c.Out[0].Shape(), c.Attrs)
	blocked.UnitMax(c.Pool, unitSet(c.Attrs), w, halves32(c.In[0]), halves32(c.Out[0]))
	return nil
}

func runTo32(c *ops.Call) error {
	n, _, height, width := blockedSizes(c.In[0].Shape())
	blocked.ToUnit(
		c.Pool, unitSet(c.Attrs), n, c.Attrs.Int("channels"), height*width, floats16(c.In[0]), halves32(c.Out[0]))
	return nil
}

func runFrom32(c *ops.Call) error {
	n, _, height, width := blockedSizes(c.In[0].Shape())
	blocked.FromUnit(
		c.Pool, unitSet(c.Attrs), n, c.Attrs.Int("channels"), height*width, halves32(c.In[0]), floats16(c.Out[0]))
	return nil
}
