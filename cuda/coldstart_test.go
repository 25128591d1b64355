//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// What a start is reckoned with beside kernels/ptxas_times.txt and ptxas_alone.txt. Nothing of it has been measured on a GPU: assembled kernels are read,
// hashed and given to the driver, which copies them to the GPU; weights come from a disk; giving an op to the GPU takes the host
// some time.
const (
	moduleSeconds = 1e-3
	unpackSeconds = 10e-3 // of an image
	moduleRate    = 1e9
	weightRate    = 2e9
	opSeconds     = 5e-6
	mostSeconds   = 0.5 // that a start may take where kernels are assembled
)

// A ptxasCost is what ptxas took for a family, or for a kernel alone, and what it made.
type ptxasCost struct {
	assembling time.Duration
	bytes      int64
}

// ptxasTimes reads what ptxas took for families, and for kernels alone, for each compute capability.
func ptxasTimes(t *testing.T) map[int]map[string]ptxasCost {
	t.Helper()
	text, err := os.ReadFile("kernels/ptxas_times.txt")
	if err != nil {
		t.Fatal(err)
	}
	single, err := os.ReadFile("kernels/ptxas_alone.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[int]map[string]ptxasCost)
	for line := range strings.Lines(string(text) + string(single)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var capability int
		var ms, bytes int64
		if _, err := fmt.Sscanf(line, "%d %s %d %d", &capability, &name, &ms, &bytes); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if all[capability] == nil {
			all[capability] = make(map[string]ptxasCost)
		}
		all[capability][name] = ptxasCost{time.Duration(ms) * time.Millisecond, bytes}
	}
	return all
}

// A start is what a program does until it gave the GPU the last op of its first pass.
type start struct {
	// each are the modules that the ops launch kernels of, in their order, weights the bytes that they read of weights; opening a
	// GPU loads the module first.
	each    [][]string
	weights []int64
	first   string
	// loaders is how many modules are loaded at the same time, load what one takes.
	loaders int
	load    func(module string) time.Duration
}

// firstKernel is the kernel that opening a GPU loads.
const firstKernel = "om_gather_1"

// takes reckons the time: as Prepare does it loads the modules in the order in which ops ask for them, each by the loader that is
// free, while weights are read, and an op is given to the GPU once its kernels and weights are there, and the one before was.
func (s *start) takes() time.Duration {
	opened := s.load(s.first)
	there := map[string]time.Duration{s.first: opened}
	free := make([]time.Duration, s.loaders)
	for i := range free {
		free[i] = opened
	}
	for _, modules := range s.each {
		for _, f := range modules {
			if _, loads := there[f]; loads {
				continue
			}
			i := slices.Index(free, slices.Min(free))
			free[i] += s.load(f)
			there[f] = free[i]
		}
	}
	now, read := opened, int64(0)
	for i, modules := range s.each {
		read += s.weights[i]
		now = max(now, opened+seconds(float64(read)/weightRate))
		for _, f := range modules {
			now = max(now, there[f])
		}
		now += seconds(opSeconds)
	}
	return now
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// TestStartReckoned: loaders share the modules, an op waits for its own alone, and for its weights.
func TestStartReckoned(t *testing.T) {
	s := start{
		each: [][]string{{"a"}, {"c"}, {"b", "a"}}, first: "c", weights: []int64{0, 0, weightRate}, loaders: 1,
		load: func(f string) time.Duration {
			return map[string]time.Duration{"c": 1, "a": 2, "b": 4}[f] * time.Second
		},
	}
	ops := 3 * seconds(opSeconds)
	last := seconds(opSeconds)
	for _, c := range []struct {
		loaders int
		read    int64
		want    time.Duration
	}{{1, 0, 7*time.Second + last}, {2, 0, 5*time.Second + last}, {8, 10 * weightRate, 11*time.Second + last}} {
		s.loaders, s.weights[2] = c.loaders, c.read
		if got := s.takes(); got < c.want || got > c.want+ops {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// none has no bytes.
type none struct{ storage.Source }

// resNet returns ResNet-50's graph for a picture, as a session compiles it, without any weights' bytes.
func resNet(t *testing.T, dev *cuda.Device, precision string) *graph.Lowered {
	t.Helper()
	a, err := models.NewArchitecture("resnet50")
	if err != nil {
		t.Fatal(err)
	}
	var weights []tensor.Weight
	var at int64
	for _, e := range a.Root.StateDict() {
		n, err := e.Shape.NumElements()
		if err != nil {
			t.Fatal(err)
		}
		size := n * int64(e.DType.Size())
		weights = append(weights, tensor.Weight{
			Name: e.Name, DType: e.DType, Layout: tensor.Contiguous(e.Shape...),
			Extent: storage.Extent{Source: none{}, Offset: at, Bytes: size},
		})
		at += size
	}
	ckpt, err := loader.NewCheckpoint("resnet50.pt", weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.Build(ckpt, models.Options{Arch: "resnet50"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphContext(context.Background(), map[string]tensor.Shape{m.Inputs()[0].Name: {1, 3, 224, 224}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g = rewrite.Optimise(g, graph.Standard(), rewrite.FoldConstants, nil)
	if precision != "" {
		g = rewrite.Narrow(g, precision)
	}
	l, err := dev.Lower(dev.Arrange(cuda.Winograd(g)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestColdStart: by what ptxas took, a program with ResNet-50 has given its first pass to the GPU within half a second where its
// kernels were assembled before, whoever did that and however few processors there are. Where the driver assembles them, kernel by
// kernel, the log says what it takes: less than by family. It is reckoned, not measured.
func TestColdStart(t *testing.T) {
	costs := ptxasTimes(t)
	for _, capability := range []int{75, 80, 90} {
		for _, precision := range []string{"", "bf16", "tf32"} {
			name := fmt.Sprintf("%d %s", capability, precision)
			t.Run(strings.TrimSpace(name), func(t *testing.T) {
				if precision == "tf32" && capability < 80 {
					t.Skip("it has no TF32")
				}
				dev, _ := openSimulated(t, "cc="+strconv.Itoa(capability))
				l := resNet(t, dev, precision)
				alone := start{each: dev.KernelsEach(l), first: firstKernel, weights: weightsEach(l.Graph)}
				families := start{each: familiesEach(t, alone.each), first: "copy", weights: alone.weights, loaders: 1}
				for _, each := range [][][]string{alone.each, families.each} {
					used := slices.Compact(slices.Sorted(slices.Values(append(slices.Concat(each...), firstKernel))))
					for _, m := range used {
						if cost := costs[capability][m]; cost.bytes == 0 || cost.assembling == 0 {
							t.Fatalf("%s is not in the table", m)
						}
					}
					if len(used) < 4 {
						t.Fatalf("only %v", used)
					}
				}
				families.load = func(f string) time.Duration {
					return seconds(unpackSeconds + moduleSeconds + float64(costs[capability][f].bytes)/moduleRate)
				}
				before := families.takes()
				if before > seconds(mostSeconds) {
					t.Errorf("%v with kernels that were assembled before", before)
				}
				alone.load = func(kernel string) time.Duration {
					return seconds(unpackSeconds+moduleSeconds) + costs[capability][kernel].assembling
				}
				var took []string
				for _, alone.loaders = range []int{1, 2, 4, cuda.MostLoading} {
					took = append(took, fmt.Sprintf("%d at a time %.2f s", alone.loaders, alone.takes().Seconds()))
				}
				families.loaders = cuda.MostLoading
				families.load = func(f string) time.Duration {
					return seconds(unpackSeconds+moduleSeconds) + costs[capability][f].assembling
				}
				if kernel, family := alone.takes(), families.takes(); kernel >= family {
					t.Errorf("the driver assembles kernels in %v, families in %v", kernel, family)
				}
				t.Logf("assembled before %.2f s; by the driver %s", before.Seconds(), strings.Join(took, ", "))
			})
		}
	}
}

// weightsEach returns the bytes of weights that each op of a graph reads.
func weightsEach(g *graph.Graph) []int64 {
	var each []int64
	for _, op := range g.Ops {
		var bytes int64
		for _, in := range op.In {
			if in.Value != graph.NoValue && g.Values[in.Value].Role == graph.Weight {
				n, _ := g.Values[in.Value].Shape.NumElements()
				bytes += n * int64(g.Values[in.Value].DType.Size())
			}
		}
		each = append(each, bytes)
	}
	return each
}

// familiesEach returns the families of kernels.
func familiesEach(t *testing.T, each [][]string) (families [][]string) {
	t.Helper()
	for _, names := range each {
		var of []string
		for _, kernel := range names {
			f, err := kernels.Family(kernel)
			if err != nil {
				t.Fatal(err)
			}
			of = append(of, f)
		}
		families = append(families, of)
	}
	return families
}
