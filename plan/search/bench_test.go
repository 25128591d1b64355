package search

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// thousand returns a graph of a thousand groups with weights of several sizes, skips and ops without weights.
func thousand(t fatal) *graph.Lowered {
	b := newBuilder(t)
	const rows, width = 4, 512
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{rows, width})
	for i := range 500 {
		path := fmt.Sprintf("layers.%d", i)
		n := width << (i % 4)
		h := b.emit(path+".up", "linear", nil, b.g.Whole(x), b.weight(path+".up.weight", n, width), b.weight(path+".up.bias", n))
		h = b.emit(path+".act", "relu", nil, b.g.Whole(h))
		h = b.emit(path+".down", "linear", nil, b.g.Whole(h), b.weight(path+".down.weight", width, n))
		x = b.emit(path, "add", nil, b.g.Whole(h), b.g.Whole(x))
	}
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(x)}}
	l, _ := lower(b.g)
	return l
}

// BenchmarkPlan is planning a thousand groups. What it allocates is what a plan holds, several times over.
func BenchmarkPlan(b *testing.B) {
	l := thousand(b)
	resident, err := Plan(l, Options{Mode: plan.Resident})
	if err != nil {
		b.Fatal(err)
	}
	for _, target := range []plan.Target{plan.CPU, {Name: "emu", AlignBytes: 256}} {
		for _, o := range []Options{
			{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Auto, MemoryBytes: resident.PeakBytes() * 2 / 5},
			{Mode: plan.Auto, MemoryBytes: resident.PeakBytes() * 2 / 5, Instances: 16},
			{Mode: plan.Chunk, Capacity: plan.Limit{N: 1 << 27, Unit: plan.Params}},
		} {
			o.Target, o.Lower = target, lower
			b.Run(fmt.Sprintf("%s/%s/%d", target.Name, o.Mode, o.Instances), func(b *testing.B) {
				for b.Loop() {
					p, err := Plan(l, o)
					if err != nil {
						b.Fatal(err)
					}
					if len(p.Groups) < 1000 && o.Instances == 0 { // for micro-batches neighbours are merged
						b.Fatalf("%d groups", len(p.Groups))
					}
				}
			})
		}
	}
}
