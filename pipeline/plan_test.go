package pipeline_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
)

// TestDivide: weights are divided as memory is, at the narrow places near there.
func TestDivide(t *testing.T) {
	seams := []graph.Seam{{Module: "embed", Bytes: 8}}
	for i := range 32 {
		at := int64(100 + 100*i)
		seams = append(seams,
			graph.Seam{Module: fmt.Sprintf("layers.%d", i), Bytes: 64, WeightBytes: at},
			graph.Seam{Module: fmt.Sprintf("layers.%d.mlp", i), Bytes: 192, WeightBytes: at + 30})
	}
	for _, c := range []struct {
		memory []int64
		want   []string
	}{
		{[]int64{4, 4}, []string{"layers.15"}},
		{[]int64{1, 3}, []string{"layers.7"}},
		{[]int64{1, 1, 1, 1}, []string{"layers.7", "layers.15", "layers.24"}},
		{[]int64{0, 1 << 40}, []string{"embed"}},
		{[]int64{1}, nil},
	} {
		var got []string
		for _, s := range pipeline.Divide(seams, 3300, c.memory) {
			got = append(got, s.Module)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.memory, got, c.want)
		}
	}
	if pipeline.Divide(seams[:1], 10, []int64{1, 1, 1}) != nil {
		t.Error("one place is enough for three machines")
	}
}

// TestPlanMachines: what each machine keeps and brings, what goes over the links, and that one alone may be faster.
func TestPlanMachines(t *testing.T) {
	model := open(t, digits)
	shapes := shapesOf(inputs(digits, 0))
	machines := []pipeline.Machine{{Name: "a", MemoryBytes: 1 << 20}, {Name: "b", MemoryBytes: 1 << 20}}
	opts := pipeline.Options{At: []string{"hidden"}, LinkBytes: 1000, LinkSeconds: 2, Slower: true}
	p, err := pipeline.PlanMachines(t.Context(), model, shapes, machines, runtime.Options{}, opts)
	if err != nil {
		t.Fatal(err)
	}
	a, b := p.Stages[0], p.Stages[1]
	if a.HopBytes != 2*48*4*4*4 || a.HopSeconds != 2+float64(a.HopBytes)/1000 || b.HopBytes != 0 || b.From != "hidden" {
		t.Errorf("hops: %+v", p.Stages)
	}
	if whole := p.Alone.WeightBytes; a.Forecast.WeightBytes == 0 || b.Forecast.WeightBytes == 0 || a.Forecast.WeightBytes >= whole {
		t.Errorf("weights of %d and %d, of %d", a.Forecast.WeightBytes, b.Forecast.WeightBytes, whole)
	}
	const inputs, outputs = 2 * 64 * 4, 2 * 10 * 4 // which go between the head and the stages
	if p.InSeconds != 2+inputs/1000.0 || p.OutSeconds != 2+outputs/1000.0 {
		t.Errorf("the head's links take %v and %v s", p.InSeconds, p.OutSeconds)
	}
	sum := p.InSeconds + a.Forecast.Seconds + a.HopSeconds + b.Forecast.Seconds + p.OutSeconds
	if a.Forecast.BufferBytes < 3*a.HopBytes || math.Abs(p.PassSeconds()-sum) > 1e-9 || p.IntervalSeconds() < a.HopSeconds {
		t.Errorf("%+v", p)
	}
	opts.Slower = false
	var slower *pipeline.SlowerError
	if _, err := pipeline.PlanMachines(t.Context(), model, shapes, machines, runtime.Options{}, opts); !errors.As(err, &slower) {
		t.Errorf("got %v", err)
	}
	machines[1].MemoryBytes = 100
	var full *runtime.CapacityError
	var stage *pipeline.StageError
	if _, err := pipeline.PlanMachines(t.Context(), model, shapes, machines, runtime.Options{}, opts); !errors.As(err, &full) || !errors.As(err, &stage) ||
		stage.Address != "b" {
		t.Errorf("too small: %v", err)
	}
}
