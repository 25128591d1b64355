package models

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Synthesize returns the state dict of an architecture with random weights: names, order and shapes are PyTorch's, and
// the same seed gives the same weights on every machine. Floats are of the given dtype. Weights are scaled to what
// reaches them, so that activations stay near one; tables that have one right value have it. Nothing is computed before
// the contents are read.
func Synthesize(a *layers.Architecture, seed uint64, dtype tensor.DType) ([]loader.TensorData, error) {
	reaching := estimate(a)
	var out []loader.TensorData
	var err error
	var total int64
	made := make(map[string]func(ctx context.Context, p []byte, off int64) error)
	a.Root.Walk(func(path string, m *layers.Module) {
		for _, p := range m.Params {
			if p.None || p.Transient || err != nil {
				continue
			}
			name := layers.Join(path, p.Name)
			d := loader.TensorData{Name: name, DType: p.DType, Shape: p.Shape}
			if cells.IsFloat(p.DType) {
				d.DType = dtype
			}
			n, sizeErr := p.Shape.NumElements()
			size, ok := tensor.MulBytes(n, int64(d.DType.Size()))
			if sizeErr != nil || !ok || size > math.MaxInt64/2-total {
				err = fmt.Errorf("%s: no file can hold %v", name, p.Shape)
				return
			}
			total += size
			switch tied, isTied := made[a.Weights[name]]; {
			case isTied:
				d.ReadAt = tied
			case p.Init != nil:
				d.ReadAt = contents(p.Init, d.DType)
			case !cells.IsFloat(p.DType):
				d.ReadAt = zeros
			default:
				offset, scale := spread(m, p, reaching[name])
				d.ReadAt = loader.Random{
					Seed: seed, Tensor: uint64(len(out)), DType: dtype, Offset: offset, Scale: scale,
				}.ReadAt
			}
			made[name] = d.ReadAt
			out = append(out, d)
		}
	})
	return out, err
}

func zeros(ctx context.Context, p []byte, _ int64) error {
	clear(p)
	return ctx.Err()
}

// contents reads a table that __init__ makes, which is made when it is first read.
func contents(make func() *tensor.Tensor, dtype tensor.DType) func(context.Context, []byte, int64) error {
	var data []byte
	return func(ctx context.Context, p []byte, off int64) error {
		if data == nil {
			t := make()
			data = t.Data
			if t.DType == tensor.Float32 && dtype != tensor.Float32 {
				data = narrowed(t.Data, dtype)
			}
		}
		if off < 0 || off > int64(len(data)) || copy(p, data[off:]) < len(p) {
			return io.ErrUnexpectedEOF
		}
		return ctx.Err()
	}
}

// narrowed rounds float32s to a type of 16 bits.
func narrowed(float32s []byte, dtype tensor.DType) []byte {
	round := tensor.Float16FromFloat32
	if dtype == tensor.BFloat16 {
		round = tensor.BFloat16FromFloat32
	}
	var out []byte
	for p := float32s; len(p) >= 4; p = p[4:] {
		bits := uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24
		h := round(math.Float32frombits(bits))
		out = append(out, byte(h), byte(h>>8))
	}
	return out
}

// spread returns the middle and the half width of a parameter's random values. reaching is the mean square of what
// reaches the module's op, 0 where that is not known.
func spread(m *layers.Module, p layers.Param, reaching float64) (offset, scale float64) {
	normalizes := strings.Contains(m.Class, "Norm")
	switch {
	case p.Name == "running_mean":
		return 0, 0.1
	case p.Name == "running_var":
		return 1, 0.1
	case p.Name == "logit_scale":
		return math.Log(10), 0.1
	case strings.HasSuffix(p.Name, "bias"):
		return 0, 0.1
	case normalizes && len(p.Shape) <= 1:
		return 1, 0.1
	case strings.Contains(p.Name, "scale") || strings.Contains(p.Name, "gamma"):
		return 0.1, 0.05 // what a residual branch is multiplied with
	case len(p.Shape) < 2 || strings.Contains(m.Class, "Embedding") || p.Name != "weight" &&
		!strings.HasSuffix(p.Name, "_weight"):
		return 0, 0.1
	}
	return 0, math.Sqrt(3 / (fanIn(m, p.Shape) * cmp.Or(reaching, 1)))
}

// fanIn is how many products are summed for one element of the output of a convolution or a linear layer.
func fanIn(m *layers.Module, shape tensor.Shape) float64 {
	n := 1.0
	for _, d := range shape[1:] {
		n *= float64(max(d, 1))
	}
	if strings.Contains(m.Class, "ConvTranspose") {
		n = n / float64(max(shape[1], 1)) * float64(max(shape[0], 1))
	}
	return n
}

// moments are the mean and the variance of a value's elements.
type moments struct{ mean, variance float64 }

// square returns the mean square.
func (m moments) square() float64 { return m.mean*m.mean + m.variance }

// estimate traces the architecture and estimates the mean square of what reaches the op of each weight, if weights give
// everything a variance of 1. An architecture that cannot be traced for the inputs of [ExampleInputs] has no estimates.
func estimate(a *layers.Architecture) map[string]float64 {
	g := exampleGraph(a)
	if g == nil {
		return nil
	}
	reaching := make(map[string]float64)
	values := make([]moments, len(g.Values))
	for i, v := range g.Values {
		switch v.Role {
		case graph.Computed:
		case graph.Input:
			values[i] = moments{0, 1.0 / 3} // between −1 and 1
		default:
			values[i] = moments{0, 0.01}
		}
	}
	for _, op := range g.Ops {
		in := make([]moments, max(len(op.In), 2))
		for i, o := range op.In {
			if o.Value != graph.NoValue {
				in[i] = values[o.Value]
			}
		}
		switch op.Kind {
		case "conv", "conv_transpose", "linear":
			if w := g.Values[op.In[1].Value]; w.Role == graph.Weight {
				reaching[w.Weight.Name] = in[0].square()
			}
		}
		result := in[0].through(op.Kind, in)
		result.variance = min(max(result.variance, 1e-3), 1e4)
		for _, id := range op.Out {
			values[id] = result
		}
	}
	return reaching
}

// through returns what an op makes of its inputs, the first of which is m, as if elements were independent and normal.
func (m moments) through(kind graph.Kind, in []moments) moments {
	if f := activations[kind]; f != nil {
		return m.under(f)
	}
	switch kind {
	case "sigmoid", "hardsigmoid", "softmax":
		return moments{0.5, 0.1}
	case "tanh":
		return moments{0, min(m.variance, 0.5)}
	case "conv", "conv_transpose", "linear", "layer_norm", "rms_norm", "group_norm", "instance_norm":
		return moments{0, 1}
	case "add", "sub":
		return moments{m.mean + in[1].mean, m.variance + in[1].variance}
	case "mul":
		mean := m.mean * in[1].mean
		return moments{mean, m.square()*in[1].square() - mean*mean}
	case "matmul": // of attention, whose rows are averages
		return moments{in[1].mean, in[1].variance / 2}
	case "cat":
		var mean, square float64
		for _, x := range in {
			mean += x.mean / float64(len(in))
			square += x.square() / float64(len(in))
		}
		return moments{mean, square - mean*mean}
	case "max_pool":
		return moments{m.mean + math.Sqrt(m.variance), m.variance}
	case "embedding", "index":
		return moments{0, 0.01}
	}
	return m // averages too: deep in a net, what they average over is nearly equal
}

// activations are the functions whose moments are worth knowing.
var activations = map[graph.Kind]func(x float64) float64{
	"relu":      func(x float64) float64 { return max(x, 0) },
	"relu6":     func(x float64) float64 { return min(max(x, 0), 6) },
	"silu":      func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"gelu":      func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
	"hardswish": func(x float64) float64 { return x * min(max(x/6+0.5, 0), 1) },
}

// under returns the moments of a function of a normal variable, by adding up over four standard deviations. The
// variable is taken to be wider than was estimated: SiLU and its like pass more of what is larger, so that an estimate
// that is too low grows from layer to layer, and one that is too high only makes less of a residual branch.
func (m moments) under(f func(float64) float64) moments {
	const steps, width, wider = 64, 4.0, 1.25
	var mean, square, total float64
	for i := range steps {
		z := (float64(i)+0.5)/steps*2*width - width
		density := math.Exp(-z * z / 2)
		y := f(wider*(m.mean+z*math.Sqrt(m.variance))) / wider
		mean, square, total = mean+density*y, square+density*y*y, total+density
	}
	mean /= total
	return moments{mean, square/total - mean*mean}
}

// exampleGraph traces an architecture without weights, nil where that fails.
func exampleGraph(a *layers.Architecture) *graph.Graph {
	var weights []tensor.Weight
	var end int64
	for _, e := range a.Root.StateDict() {
		n, err := e.Shape.NumElements()
		if err != nil {
			return nil
		}
		name := e.Name
		if other, ok := a.Weights[name]; ok {
			name = other
		}
		w := tensor.Weight{Name: name, DType: e.DType, Layout: tensor.Contiguous(e.Shape...)}
		w.Extent = storage.Extent{Source: absent{}, Offset: end, Bytes: n * int64(e.DType.Size())}
		end += w.Extent.Bytes
		weights = append(weights, w)
	}
	ckpt, err := loader.NewCheckpoint(a.Name, weights, nil)
	if err != nil {
		return nil
	}
	m := &Model{}
	if err := m.useArchitecture(ckpt, a, Options{Ops: graph.Standard()}, nil); err != nil {
		return nil
	}
	g, err := m.build(context.Background(), Call{Inputs: ExampleInputs(a.Inputs)})
	if err != nil {
		return nil
	}
	return g
}

// absent is the source of weights that are not there.
type absent struct{}

func (absent) Size() int64 { return math.MaxInt64 }

func (absent) ReadAt(context.Context, []byte, int64) error { return io.ErrUnexpectedEOF }

// ExampleInputs returns shapes that inputs may have, for trying a model: one row, pictures of 224 by 224, 16 frames of
// a video, 8 tokens.
func ExampleInputs(ports []Port) map[string]tensor.Shape {
	sizes := map[string]int{"batch": 1, "height": 224, "width": 224, "frames": 16}
	shapes := make(map[string]tensor.Shape)
	for _, p := range ports {
		if p.Optional {
			continue
		}
		shape := make(tensor.Shape, len(p.Shape))
		for i, n := range p.Shape {
			if shape[i] = n; n < 0 {
				shape[i] = cmp.Or(sizes[p.Dims[i]], 8)
			}
		}
		shapes[p.Name] = shape
	}
	return shapes
}
