//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// blasFile is the cuBLASLt that BenchmarkOps measures with, as in cuda.Options.
var blasFile = flag.String("cublaslt", "", "with -gpu: products by cuBLASLt at `FILE`, auto for the first one found, none for the kernels")

// An opCase is an op to time, with its arithmetic and the bytes that it has to touch. benchmarks/gpu/single_ops.py has
// the same ones for PyTorch.
type opCase struct {
	name  string
	dtype tensor.DType
	kind  graph.Kind
	attrs graph.Attrs
	in    []tensor.Shape
	flops float64
}

// opCases are sizes that networks have.
func opCases() []opCase {
	var all []opCase
	in := func(precision string) graph.Attrs {
		if precision == "" {
			return nil
		}
		return graph.Attrs{"precision": precision}
	}
	linear := func(name string, d tensor.DType, precision string, m, n, k int) {
		a := in(precision)
		all = append(all, opCase{name, d, "linear", a, []tensor.Shape{{m, k}, {n, k}, {n}}, 2 * float64(m) * float64(n) * float64(k)})
	}
	matmul := func(name string, d tensor.DType, precision string, batch, m, n, k int) {
		all = append(all, opCase{name, d, "matmul", in(precision), []tensor.Shape{{batch, m, k}, {batch, k, n}},
			2 * float64(batch*m*n) * float64(k)})
	}
	window := func(precision string, width, stride, groups int) graph.Attrs {
		a := graph.Attrs{
			"stride": []int{stride, stride}, "padding": []int{width / 2, width / 2}, "dilation": []int{1, 1}, "groups": groups,
		}
		if precision != "" {
			a["precision"] = precision
		}
		return a
	}
	conv := func(name string, rows, channels, size, kernels, width, stride int) {
		out := (size-1)/stride + 1
		flops := 2 * float64(rows*kernels*out*out) * float64(channels*width*width)
		all = append(all, opCase{name, tensor.Float32, "conv", window("", width, stride, 1),
			[]tensor.Shape{{rows, channels, size, size}, {kernels, channels, width, width}, {kernels}}, flops})
	}
	// tensorConvs are on tensor cores, from N×C×H×W and, as regions have them, from channels-last to channels-last.
	tensorConvs := func(name string, rows, channels, size, kernels, width, groups int) {
		flops := 2 * float64(rows*kernels*size*size) * float64(channels/groups*width*width)
		for _, how := range []struct {
			name, precision string
			dtype           tensor.DType
		}{{"f16", "", tensor.Float16}, {"bf16", "", tensor.BFloat16}, {"bf16 factors", "bf16", tensor.Float32}, {"tf32", "tf32", tensor.Float32}} {
			shapes := []tensor.Shape{{rows, channels, size, size}, {kernels, channels / groups, width, width}, {kernels}}
			all = append(all, opCase{name + " " + how.name, how.dtype, "conv", window(how.precision, width, 1, groups), shapes, flops})
			last := window(how.precision, width, 1, groups)
			last["channels_last"], last["reads_channels_last"] = true, true
			all = append(all, opCase{name + " " + how.name + ", channels last", how.dtype, "conv", last, shapes, flops})
		}
	}
	attention := func(name string, d tensor.DType, batch, heads, rows, keys, width int, causal bool) {
		flops := 4 * float64(batch*heads*rows) * float64(keys*width)
		if causal {
			flops /= 2
		}
		shape := func(n int) tensor.Shape { return tensor.Shape{batch, heads, n, width} }
		all = append(all, opCase{name, d, "scaled_dot_product_attention", graph.Attrs{"is_causal": causal},
			[]tensor.Shape{shape(rows), shape(keys), shape(keys)}, flops})
	}
	linear("linear 4096", tensor.Float32, "", 4096, 4096, 4096)
	linear("linear 4096 tf32", tensor.Float32, "tf32", 4096, 4096, 4096)
	linear("linear 4096 bf16 factors", tensor.Float32, "bf16", 4096, 4096, 4096)
	linear("linear 4096 f16", tensor.Float16, "", 4096, 4096, 4096)
	linear("linear 4096 bf16", tensor.BFloat16, "", 4096, 4096, 4096)
	linear("linear 128x3072x768", tensor.Float32, "", 128, 3072, 768)
	linear("linear 128x3072x768 tf32", tensor.Float32, "tf32", 128, 3072, 768)
	linear("linear 128x3072x768 f16", tensor.Float16, "", 128, 3072, 768)
	linear("linear 128x768x3072", tensor.Float32, "", 128, 768, 3072)
	linear("linear 128x768x3072 tf32", tensor.Float32, "tf32", 128, 768, 3072)
	linear("linear 128x768x3072 f16", tensor.Float16, "", 128, 768, 3072)
	linear("linear 16x4096x4096 f16", tensor.Float16, "", 16, 4096, 4096)
	matmul("matmul 96x128x128x64", tensor.Float32, "", 96, 128, 128, 64)
	matmul("matmul 96x128x128x64 tf32", tensor.Float32, "tf32", 96, 128, 128, 64)
	matmul("matmul 96x128x128x64 bf16", tensor.BFloat16, "", 96, 128, 128, 64)
	linear("linear 1x4096x4096", tensor.Float32, "", 1, 4096, 4096)
	linear("linear 1x4096x4096 bf16", tensor.BFloat16, "", 1, 4096, 4096)
	conv("conv 7x7/2 3 to 64, 512", 1, 3, 512, 64, 7, 2)
	conv("conv 3x3 64, 128", 1, 64, 128, 64, 3, 1)
	conv("conv 3x3 256, 32", 1, 256, 32, 256, 3, 1)
	conv("conv 1x1 256 to 1024, 32", 1, 256, 32, 1024, 1, 1)
	conv("conv 3x3 256, 32, 16 rows", 16, 256, 32, 256, 3, 1)
	conv("conv 3x3 256, 32, 16 rows, winograd", 16, 256, 32, 256, 3, 1)
	all[len(all)-1].attrs["winograd"] = true // its arithmetic is counted as that of sums of products
	tensorConvs("conv 3x3 64, 128", 1, 64, 128, 64, 3, 1)
	tensorConvs("conv 3x3 256, 32, 16 rows", 16, 256, 32, 256, 3, 1)
	tensorConvs("conv 1x1 256 to 1024, 32", 1, 256, 32, 1024, 1, 1)
	tensorConvs("conv 3x3 96 by themselves, 112, 16 rows", 16, 96, 112, 96, 3, 96)
	attention("attention 12x128x64", tensor.Float32, 1, 12, 128, 128, 64, true)
	attention("attention 32x2048x128", tensor.Float32, 1, 32, 2048, 2048, 128, true)
	attention("attention 32x2048x128 bf16", tensor.BFloat16, 1, 32, 2048, 2048, 128, true)
	attention("attention 32x1 of 2048x128", tensor.Float32, 1, 32, 1, 2048, 128, false)
	rows, image := tensor.Shape{8192, 4096}, tensor.Shape{16, 64, 128, 128}
	heads := tensor.Shape{1, 32, 2048, 128}
	pool := func(kernel, stride, padding int) graph.Attrs {
		return graph.Attrs{"kernel": []int{kernel, kernel}, "stride": []int{stride, stride}, "padding": []int{padding, padding}}
	}
	resize := func(mode string) graph.Attrs { return graph.Attrs{"size": []int{256, 256}, "mode": mode} }
	return append(all, []opCase{
		{"relu 4 KiB", tensor.Float32, "relu", nil, []tensor.Shape{{1024}}, 0}, // what giving it out takes
		{"relu 128 MiB", tensor.Float32, "relu", nil, []tensor.Shape{rows}, 0},
		{"add 128 MiB", tensor.Float32, "add", nil, []tensor.Shape{rows, rows}, 0},
		{"gelu 128 MiB", tensor.Float32, "gelu", nil, []tensor.Shape{rows}, 0},
		{"softmax 8192x4096", tensor.Float32, "softmax", graph.Attrs{"dim": 1}, []tensor.Shape{rows}, 0},
		{"layer_norm 8192x4096", tensor.Float32, "layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5},
			[]tensor.Shape{rows, {4096}, {4096}}, 0},
		{"sum 8192x4096", tensor.Float32, "sum", graph.Attrs{"dims": []int{1}, "keepdim": false, "dtype": tensor.Float32}, []tensor.Shape{rows}, 0},
		{"rotary 32x2048x128", tensor.Float32, "rotary", nil, []tensor.Shape{heads, heads, heads}, 0},
		{"turned 8192x4096", tensor.Float32, "copy", nil, []tensor.Shape{rows}, 0},
		{"max_pool 3x3/2 16x64x128", tensor.Float32, "max_pool", pool(3, 2, 1), []tensor.Shape{image}, 0},
		{"max_pool 5x5 16x64x128", tensor.Float32, "max_pool", pool(5, 1, 2), []tensor.Shape{image}, 0},
		{"avg_pool to 1 16x2048x16", tensor.Float32, "adaptive_avg_pool", graph.Attrs{"size": []int{1, 1}},
			[]tensor.Shape{{16, 2048, 16, 16}}, 0},
		{"upsample nearest 16x64x128", tensor.Float32, "interpolate", resize("nearest"), []tensor.Shape{image}, 0},
		{"upsample linear 16x64x128", tensor.Float32, "interpolate", resize("linear"), []tensor.Shape{image}, 0},
		{"cat of channels 16x64x128", tensor.Float32, "cat", graph.Attrs{"dim": 1}, []tensor.Shape{image, image}, 0},
	}...)
}

// BenchmarkOps times ops on a GPU, several given out at once, and says what they did of arithmetic and of memory.
func BenchmarkOps(b *testing.B) {
	if !*onDriver {
		b.Skip("needs a GPU: -gpu")
	}
	dev, err := cuda.New(cuda.Options{Library: driverPath(), CUBLASLt: *blasFile})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := dev.Close(); err != nil {
			b.Error(err)
		}
	})
	for _, c := range opCases() {
		b.Run(c.name, func(b *testing.B) { c.run(b, dev) })
	}
}

func (c *opCase) run(b *testing.B, dev *cuda.Device) {
	g := &graph.Graph{}
	op := graph.Op{Kind: c.kind, Attrs: c.attrs}
	for _, s := range c.in {
		op.In = append(op.In, g.Whole(g.AddInput("x", c.dtype, s)))
	}
	if c.kind == "copy" {
		op.In[0] = turned(op.In[0])
	}
	if c.attrs.Bool("channels_last") {
		op.In[0] = lastly(op.In[0], 0, c.in[0][1])
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		b.Fatal(err)
	}
	l, err := dev.Lower(g)
	if err != nil {
		b.Skip(err)
	}
	const align = 256
	var bytes int64
	places := make([]int64, len(g.Values))
	for i := range g.Values {
		places[i] = bytes
		bytes += (g.Values[i].Bytes() + align - 1) / align * align
	}
	touched := bytes
	mem, err := dev.Alloc(bytes + l.Steps[0].WorkBytes)
	if err != nil {
		b.Skip(err)
	}
	defer func() { _ = mem.Free() }()
	stream, err := dev.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	for i, v := range g.Values {
		if err := stream.CopyIn(device.Region{Memory: mem, Offset: places[i], Bytes: v.Bytes()}, someValues(v.DType, v.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
	at := func(o graph.Operand) device.Argument {
		return device.Argument{
			Operand: o, Spec: g.Spec(o),
			Region: device.Region{Memory: mem, Offset: places[o.Value], Bytes: g.Values[o.Value].Bytes()},
		}
	}
	launch := device.Launch{Step: l.Steps[0], Op: g.Ops[0], Work: device.Region{Memory: mem, Offset: bytes, Bytes: l.Steps[0].WorkBytes}}
	for _, o := range g.Ops[0].In {
		launch.In = append(launch.In, at(o))
	}
	launch.Out = append(launch.Out, at(g.Whole(out[0])))
	if err := stream.Run(b.Context(), launch); err != nil {
		b.Fatal(err)
	}
	keeper := stream.(device.Keeper)
	const together = 16
	if err := keeper.BeginKeeping(); err != nil {
		b.Fatal(err)
	}
	for range together {
		if err := stream.Run(b.Context(), launch); err != nil {
			b.Fatal(err)
		}
	}
	kept, err := keeper.EndKeeping()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = kept.Free() }()
	for b.Loop() {
		if err := keeper.RunKept(b.Context(), kept); err != nil {
			b.Fatal(err)
		}
		if err := stream.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	seconds := b.Elapsed().Seconds() / float64(b.N) / together
	b.ReportMetric(seconds*1e6, "us/op")
	b.ReportMetric(float64(touched)/seconds/1e9, "GB/s")
	b.ReportMetric(c.flops/seconds/1e12, "TFLOP/s")
}

// someValues are numbers between a half and one with random signs and digits: on zeros a GPU draws less power and is faster.
func someValues(d tensor.DType, bytes int64) []byte {
	data := make([]byte, bytes)
	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at+4 <= len(data); at += 4 {
		bits := r.Uint32()
		switch d {
		case tensor.Float32:
			bits = bits&0x807fffff | 126<<23
		case tensor.Float16:
			bits = bits&0x83ff83ff | 14<<10 | 14<<26
		case tensor.BFloat16:
			bits = bits&0x807f807f | 126<<7 | 126<<23
		}
		binary.LittleEndian.PutUint32(data[at:], bits)
	}
	return data
}

// BenchmarkModules loads every kernel, as the first ops of a process do. What the driver compiled before it keeps in a
// cache of its own.
func BenchmarkModules(b *testing.B) {
	if !*onDriver {
		b.Skip("needs a GPU: -gpu")
	}
	for b.Loop() {
		dev, err := cuda.New(cuda.Options{Library: driverPath()})
		if err != nil {
			b.Fatal(err)
		}
		if err := dev.LoadKernels(); err != nil {
			b.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
