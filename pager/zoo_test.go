package pager_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// writeHoles writes a safetensors file with the tensors of a state dict that has no contents and takes no disk.
func writeHoles(t testing.TB, path string, dict layers.StateDict) {
	t.Helper()
	header := make(map[string]any)
	names := map[tensor.DType]string{tensor.Float32: "F32", tensor.Int64: "I64", tensor.Bool: "BOOL"}
	var at int64
	for _, e := range dict {
		n, err := e.Shape.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		end := at + n*int64(e.DType.Size())
		shape := append([]int{}, e.Shape...)
		header[e.Name] = map[string]any{"dtype": names[e.DType], "shape": shape, "data_offsets": []int64{at, end}}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(file))+at); err != nil {
		t.Fatal(err)
	}
}

// A void is a source of any bytes: what it reads is not looked at.
type void int64

func (v *void) Size() int64                                         { return int64(*v) }
func (v *void) ReadAt(ctx context.Context, _ []byte, _ int64) error { return ctx.Err() }

// gpt2Config is that of the smallest GPT-2, gpt2Weights lists its weights.
const gpt2Config = `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_head": 12,
	"n_embd": 768, "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new"}`

func gpt2Weights() layers.StateDict {
	const n = 768
	var dict layers.StateDict
	add := func(name string, shape ...int) {
		dict = append(dict, layers.Entry{Name: "transformer." + name, DType: tensor.Float32, Shape: shape})
	}
	both := func(name string, shape ...int) {
		add(name+".weight", shape...)
		add(name+".bias", shape[len(shape)-1])
	}
	add("wte.weight", 50257, n)
	add("wpe.weight", 1024, n)
	for i := range 12 {
		block := fmt.Sprintf("h.%d.", i)
		both(block+"ln_1", n)
		both(block+"attn.c_attn", n, 3*n)
		both(block+"attn.c_proj", n, n)
		both(block+"ln_2", n)
		both(block+"mlp.c_fc", n, 4*n)
		both(block+"mlp.c_proj", 4*n, n)
	}
	both("ln_f", n)
	return dict
}

// realGraph returns the graph of a real architecture at its real size, whose weights have no contents.
func realGraph(t testing.TB, name string, rows int) *graph.Graph {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "model.safetensors")
	shape := tensor.Shape{rows, 3, 224, 224}
	if name == "gpt2" {
		writeHoles(t, path, gpt2Weights())
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(gpt2Config), 0o600); err != nil {
			t.Fatal(err)
		}
		path, shape = folder, tensor.Shape{rows, 16}
	} else {
		a, err := models.NewArchitecture(name)
		if err != nil {
			t.Fatal(err)
		}
		writeHoles(t, path, a.Root.StateDict())
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	})
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := model.Graph(map[string]tensor.Shape{model.Inputs()[0].Name: shape})
	if err != nil {
		t.Fatal(err)
	}
	g = rewrite.Prune(g)
	src := new(void)
	for i := range g.Values {
		if v := &g.Values[i]; v.Weight.Extent.Source != nil {
			*src = max(*src, void(v.Weight.Extent.Source.Size()))
			v.Weight.Extent.Source = src
		}
	}
	return g
}

// unequal returns a graph of layers of very different sizes and costs.
func unequal(t testing.TB, seed uint64) *graph.Graph {
	r := rand.New(rand.NewPCG(seed, 0))
	g := &graph.Graph{}
	src := new(void)
	rows, in := 16, 64+r.IntN(512)
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, in})
	for i := range 20 + r.IntN(60) {
		out := 32 << r.IntN(7)
		out += r.IntN(out)
		n := int64(in) * int64(out) * 4
		w := g.AddWeight(tensor.Weight{
			Name: fmt.Sprintf("%d.weight", i), DType: tensor.Float32, Layout: tensor.Contiguous(out, in),
			Extent: storage.Extent{Source: src, Offset: int64(*src), Bytes: n},
		}, graph.Weight)
		*src += void(n)
		y, err := g.Emit(graph.Standard(), graph.Op{Kind: "linear", Path: fmt.Sprint(i), In: []graph.Operand{
			g.Whole(x), {Value: w, Layout: tensor.Contiguous(out, in)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		x, in = y[0], out
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return g
}

// A bench is a graph on an emulated device whose bus is slower than its arithmetic by a factor.
type bench struct {
	t       testing.TB
	lowered *graph.Lowered
	options search.Options
	// weightBytes and computeSeconds are those of a resident pass.
	weightBytes    int64
	computeSeconds float64
}

// newBench returns a bench on which moving all weights takes ratio times what computing one instance does.
func newBench(t testing.TB, g *graph.Graph, ratio float64) *bench {
	t.Helper()
	l, _ := lowerPlainly(g)
	b := &bench{t: t, lowered: l, options: search.Options{
		Target: plan.Target{Name: "emu", AlignBytes: 256}, Lower: lowerPlainly,
		Rates: cost.Rates{FLOPs: 1e12, MemoryBytes: 100e9, OpSeconds: 1e-6, CopyBytes: 1e15, CopySeconds: 1e-9},
	}}
	o := b.options
	o.Mode = plan.Resident
	resident := planned(t, l, o)
	b.weightBytes, b.computeSeconds = resident.Fixed.WeightBytes, resident.Forecast.Seconds
	b.options.Rates.CopyBytes = float64(b.weightBytes) / (ratio * b.computeSeconds)
	return b
}

// lowerPlainly lowers for a device whose ops take no scratch memory and no packed weights, so that schedules do not change
// with any real device's kernels.
func lowerPlainly(g *graph.Graph) (*graph.Lowered, error) {
	return &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}, nil
}

func planned(t testing.TB, l *graph.Lowered, o search.Options) *plan.Plan {
	t.Helper()
	p, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// plan plans with the bench's options changed.
func (b *bench) plan(change func(o *search.Options)) *plan.Plan {
	b.t.Helper()
	o := b.options
	change(&o)
	return planned(b.t, b.lowered, o)
}

// silence gives and takes bytes that nobody looks at.
type silence struct {
	g     *graph.Graph
	bytes []byte
}

func (s *silence) Input(_ int, id graph.ValueID) []byte { return s.some(s.g.Values[id].Bytes()) }
func (s *silence) Output(_, output int, _ bool) []byte {
	o := s.g.Outputs[output].Operand
	first, end, _ := o.Layout.Span()
	return s.some((end - first) * int64(s.g.Values[o.Value].DType.Size()))
}

func (s *silence) some(n int64) []byte {
	if int64(len(s.bytes)) < n {
		s.bytes = make([]byte, n)
	}
	return s.bytes[:n]
}

// measure returns what a pass takes in the steady state on the emulated device's clock.
func (b *bench) measure(p *plan.Plan) float64 {
	b.t.Helper()
	rates := b.options.Rates
	dev := emulated.New(emulated.Options{
		MemoryBytes: p.PeakBytes(), CopyBytes: rates.CopyBytes, Dry: true,
		CopyLatency: time.Duration(rates.CopySeconds * float64(time.Second)),
		Cost: func(step *graph.Step, op *graph.Op, in, out []graph.Spec) time.Duration {
			return time.Duration(rates.StepSeconds(graph.Standard(), step, op, in, out) * float64(time.Second))
		},
	})
	g, err := pager.New(dev, pager.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	quiet := &silence{g: p.Lowered.Graph}
	var took time.Duration
	for range 4 {
		begin := dev.Elapsed()
		if err := g.Pass(b.t.Context(), p, quiet); err != nil {
			b.t.Fatal(err)
		}
		took = dev.Elapsed() - begin
	}
	if err := errors.Join(g.Close(), dev.Close()); err != nil {
		b.t.Fatal(err)
	}
	return took.Seconds()
}

// rest is what a plan takes beside weights.
func rest(p *plan.Plan) int64 { return p.ActivationBytes + p.WorkBytes + p.ConstBytes }

// graphs returns real architectures at their real sizes, and networks of very different layers.
func graphs(t *testing.T, random int) map[string]*graph.Graph {
	if testing.Short() {
		random /= 8
	}
	all := make(map[string]*graph.Graph)
	for _, name := range []string{"resnet101", "vgg16", "vit_b_16", "gpt2"} {
		all[name] = realGraph(t, name, 1)
	}
	for i := range random {
		all[fmt.Sprint("unequal", i)] = unequal(t, uint64(i))
	}
	return all
}

// TestPageReachesItsBound: with memory for it, a pass takes what loads or ops take by themselves and no more than a
// twentieth besides, however loads and ops relate; the clock of the device says so, and the forecast did.
func TestPageReachesItsBound(t *testing.T) {
	ratios := []float64{0.25, 0.5, 0.8, 1, 1.5, 3}
	for name, g := range graphs(t, 100) {
		for _, ratio := range ratios {
			b := newBench(t, g, ratio)
			p := b.plan(func(o *search.Options) { o.Mode = plan.Page })
			took := b.measure(p)
			// A tied weight that does not stay is moved more than once, so this is what must be moved, not what is.
			bound := max(float64(b.weightBytes)/b.options.Rates.CopyBytes, b.computeSeconds)
			if took > 1.05*bound {
				t.Errorf("%s at %g: a pass takes %.3f of its bound\n%v", name, ratio, took/bound, p)
			}
			if p.Fixed.Bytes+p.RingBytes > b.weightBytes+b.weightBytes/100 {
				t.Errorf("%s at %g: %d bytes for %d of weights", name, ratio, p.Fixed.Bytes+p.RingBytes, b.weightBytes)
			}
			checkForecast(t, name, p, took)
		}
	}
}

// TestLargestWeightIsPaged: VGG-16 has three quarters of its weights in one layer, and is paged through memory for a
// fiftieth of them.
func TestLargestWeightIsPaged(t *testing.T) {
	b := newBench(t, realGraph(t, "vgg16", 1), 3)
	for _, target := range []plan.Target{plan.CPU, b.options.Target} {
		free := b.plan(func(o *search.Options) { o.Mode, o.Target = plan.Page, target })
		p := b.plan(func(o *search.Options) { o.Mode, o.Target, o.MemoryBytes = plan.Page, target, free.MinBytes })
		if p.PeakBytes() > free.MinBytes || p.RingBytes > b.weightBytes/50 {
			t.Errorf("%s: a ring of %d bytes for %d of weights, a peak of %d where %d is the least",
				target.Name, p.RingBytes, b.weightBytes, p.PeakBytes(), free.MinBytes)
		}
		if !target.Direct {
			checkForecast(t, "vgg16", p, b.measure(p))
		}
	}
}

func checkForecast(t *testing.T, name string, p *plan.Plan, took float64) {
	t.Helper()
	if e := math.Abs(p.Forecast.Seconds/took - 1); e > 0.01 {
		t.Errorf("%s, %s: %g s were expected, and it took %g\n%v", name, p.Mode, p.Forecast.Seconds, took, p)
	}
}

// TestAutoBeatsPrefix keeps two fifths of the weights when moving all takes 1.5 times as long as computing, beside two
// of the smallest slots that work, and compares with a prefix of the same bytes: it is 1.2 times as fast, or no schedule is,
// but for a few networks. That is where few of the layers are most of a network: cut into pieces they cost launches, and
// whole they take the ring from what stays; where the layers that compute most have few weights, as in VGG-16, so that the
// others are waited for whatever stays; and where a prefix of whole layers leaves the ring so much that it waits little
// itself. Each of these passes takes at most a tenth longer than what is shown to be less than any schedule takes.
func TestAutoBeatsPrefix(t *testing.T) {
	const enough, nearly = 1.2, 1.1
	var logs, n, reached, beyond float64
	least := math.Inf(1)
	for name, g := range graphs(t, 100) {
		b := newBench(t, g, 1.5)
		page := b.plan(func(o *search.Options) { o.Mode = plan.Page })
		memory := rest(page) + b.weightBytes*2/5 + 2*(page.MinBytes-rest(page))
		auto := b.plan(func(o *search.Options) { o.Mode, o.MemoryBytes = plan.Auto, memory })
		o := b.options
		o.Mode, o.MemoryBytes, o.Capacity = plan.Chunk, memory, plan.Limit{N: b.weightBytes * 2 / 5, Unit: plan.Bytes}
		prefix, err := search.Plan(b.lowered, o)
		var capacity *plan.CapacityError
		if errors.As(err, &capacity) { // not even one slot beside the prefix
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		took, other := b.measure(auto), b.measure(prefix)
		checkForecast(t, name, auto, took)
		gain := other / took
		logs, n, least = logs+math.Log(gain), n+1, min(least, gain)
		weights := memory - min(rest(page), rest(auto))
		bound := b.leastSeconds(weights)
		if took < bound*0.999 {
			t.Errorf("%s: %g s, and %g is a bound", name, took, bound)
		}
		if gain >= enough {
			reached++
			continue
		}
		switch {
		case other < enough*bound || b.newStream(weights).tooShort(other/enough/b.computeSeconds):
			beyond++
			t.Logf("%s: %.3f times as fast as a prefix, and no schedule is %g times as fast", name, gain, enough)
		default:
			t.Logf("%s: %.3f times as fast as a prefix", name, gain)
		}
		if !b.newStream(weights).tooShort(took / nearly / b.computeSeconds) {
			t.Errorf("%s: %.3f of a bound, and not shown to be within %g of what any schedule takes\n%v\n%v",
				name, took/bound, nearly, auto, prefix)
		}
	}
	t.Logf("of %v networks %v reach %g, which no schedule can in %v of the others; %.3f at least, %.3f in the mean",
		n, reached, enough, beyond, least, math.Exp(logs/n))
	if mean := math.Exp(logs / n); !testing.Short() && (mean < 1.32 || n < 100 || reached+beyond < 0.92*n) || least < 1.07 {
		t.Errorf("%.3f times as fast as a prefix in the mean over %v networks, %v of them well and %v as can be, %.3f at least",
			mean, n, reached, beyond, least)
	}
}

// TestInstancesShareAPass: sixteen micro-batches that pass each group while it is there give five times the rows in a
// second of single runs in the same memory, where moving weights takes long: that of one run beside a third of the
// weights. Where the first layers leave much for the next ones, those are one group.
func TestInstancesShareAPass(t *testing.T) {
	for name, g := range graphs(t, 20) {
		b := newBench(t, g, 30)
		memory := rest(b.plan(func(o *search.Options) { o.Mode = plan.Page })) + b.weightBytes/3
		one := b.plan(func(o *search.Options) { o.Mode, o.MemoryBytes = plan.Auto, memory })
		many := b.plan(func(o *search.Options) { o.Mode, o.MemoryBytes, o.Instances = plan.Auto, memory, 16 })
		took := b.measure(many)
		checkForecast(t, name, many, took)
		if gain := 16 * b.measure(one) / took; gain < 5 {
			t.Errorf("%s: %.2f times the rows in a second of single runs", name, gain)
		}
	}
}
