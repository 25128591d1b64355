package runtime_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// bruteForce plans a pass of each number of rows by a session of its own that takes so many at a time.
func bruteForce(t *testing.T, model *models.Model, m mode, most int, shapes func(rows int) map[string]tensor.Shape) []optimem.BatchSize {
	t.Helper()
	var list []optimem.BatchSize
	for n := 1; n <= most; n++ {
		m.opts.MicroBatch = n
		s := open(t, m, model)
		b, err := s.PlanBatch(t.Context(), shapes(n))
		if errors.As(err, new(*plan.CapacityError)) || errors.As(err, new(*models.InputError)) || err == nil && b.Passes > 1 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, optimem.BatchSize{
			Rows: n, PeakBytes: b.Plan.PeakBytes(), HostBytes: b.Plan.HostBytes(), MovedBytes: b.MovedBytes, Seconds: b.Seconds,
		})
	}
	return list
}

// The sizes found, and the best of them, are those of a search that tries every number of rows.
func TestBatchesAreAllThatFit(t *testing.T) {
	const most = 40
	model := build(t, digitsModel, nil)
	for _, m := range []mode{
		{start: optimem.Page, opts: optimem.Options{Memory: 300 << 10}},
		{start: optimem.Auto, opts: optimem.Options{Memory: 330 << 10}},
		{start: optimem.Resident, opts: optimem.Options{Memory: 400 << 10}},
		{start: optimem.Auto, opts: optimem.Options{Device: "emu:memory=300KiB,bandwidth=1GB/s,latency=1us"}},
	} {
		want := bruteForce(t, model, m, most, pictureShapes)
		if len(want) == 0 || len(want) == most {
			t.Errorf("%+v: %d of %d sizes fit: nothing is compared", m.opts, len(want), most)
			continue
		}
		s := open(t, m, model)
		got, err := s.Batches(t.Context(), pictureShapes(3), optimem.BatchGoal{Max: most})
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%+v: %v\n%s", m.opts, err, cmp.Diff(want, got))
		}
		fastest, largest, power := want[0], want[len(want)-1], want[0]
		for _, b := range want {
			if b.Seconds*float64(fastest.Rows) < fastest.Seconds*float64(b.Rows)*(1-1e-9) {
				fastest = b
			}
			if slices.Contains([]int{2, 4, 8, 16, 32}, b.Rows) {
				power = b
			}
		}
		for goal, want := range map[optimem.BatchGoal]optimem.BatchSize{
			{Max: most}: fastest, {Largest: true, Max: most}: largest, {Largest: true, PowerOfTwo: true, Max: most}: power,
		} {
			if best, err := s.BestBatch(t.Context(), pictureShapes(1), goal); err != nil || best != want {
				t.Errorf("%+v, %+v: %+v, %v, want %+v", m.opts, goal, best, err, want)
			}
		}
	}
}

// A program that was exported for two rows goes through in twos.
func TestBatchesOfFixedPrograms(t *testing.T) {
	s := start(t, build(t, fixturesFolder()+"pt2_mlp.pt2", nil), optimem.Options{})
	shapes := map[string]tensor.Shape{"x": {2, 4}}
	list, err := s.Batches(t.Context(), shapes, optimem.BatchGoal{Max: 9})
	if err != nil || len(list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, b := range list {
		if b.Rows != 2*(i+1) || b.PeakBytes <= 0 || i > 0 && b.Seconds <= list[i-1].Seconds {
			t.Errorf("%+v", b)
		}
	}
	if _, err := s.Batches(t.Context(), shapes, optimem.BatchGoal{Max: 1}); !errors.As(err, new(*optimem.RowsError)) {
		t.Errorf("%v", err)
	}
}

// What cannot be answered says why, and for want of memory which budget would do.
func TestBatchesThatThereAreNot(t *testing.T) {
	model := build(t, digitsModel, nil)
	s := open(t, mode{start: optimem.Page, opts: optimem.Options{Memory: 100 << 10}}, model)
	_, err := s.BestBatch(t.Context(), pictureShapes(1), optimem.BatchGoal{Max: 20})
	var capacity *plan.CapacityError
	if !errors.As(err, &capacity) || capacity.MinBytes <= 100<<10 {
		t.Fatalf("%v", err)
	}
	if err := s.Resize(t.Context(), capacity.MinBytes); err != nil {
		t.Fatal(err)
	}
	if best, err := s.BestBatch(t.Context(), pictureShapes(1), optimem.BatchGoal{Max: 20}); err != nil || best.Rows != 1 {
		t.Errorf("%+v within the least: %v", best, err)
	}
	if _, err := s.Batches(t.Context(), pictureShapes(1), optimem.BatchGoal{Max: -1}); !errors.As(err, new(*optimem.OptionError)) {
		t.Errorf("%v", err)
	}
	if _, err := s.Batches(t.Context(), map[string]tensor.Shape{"input": {1, 1, 9}}, optimem.BatchGoal{}); err == nil {
		t.Error("of shapes that the model does not take")
	}
}

// An embedder's op has to state what it allocates, which is left to it of the budget.
func TestBatchesKnowOps(t *testing.T) {
	def := graph.OpDef{
		Kind: "mylib::double",
		Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) {
			return in, nil
		},
		Axes: func(in, _ []graph.Spec, _ graph.Attrs) [][]int { return [][]int{{0, 1}} },
		Reference: func(in, out []*tensor.Tensor, a graph.Attrs) error {
			copy(out[0].Data, in[0].Data)
			return nil
		},
	}
	sizes := func(def graph.OpDef, memory int64) ([]optimem.BatchSize, error) {
		ops, err := graph.Standard().With(def)
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, build(t, "../examples/custom_op/double.pt2", ops), optimem.Options{Ops: ops, Memory: memory})
		shapes := make(map[string]tensor.Shape)
		for _, p := range build(t, "../examples/custom_op/double.pt2", ops).Inputs() {
			shapes[p.Name] = slices.Clone(p.Shape)
			for d, n := range p.Shape {
				shapes[p.Name][d] = max(n, 2)
			}
		}
		return s.Batches(t.Context(), shapes, optimem.BatchGoal{Max: 16})
	}
	_, err := sizes(def, 1<<20)
	var unstated *optimem.UnstatedMemoryError
	if !errors.As(err, &unstated) || unstated.Kind != "mylib::double" {
		t.Fatalf("%v", err)
	}
	const each = 1 << 10
	def.Memory = func(in, out []graph.Spec, _ graph.Attrs) int64 { return int64(in[0].Shape[0]) * each }
	all, err := sizes(def, 1<<20)
	if err != nil || len(all) < 8 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, b := range all {
		if b.OpBytes != int64(b.Rows)*each {
			t.Errorf("%+v", b)
		}
	}
	const budget = 12 << 10
	some, err := sizes(def, budget)
	if err != nil || len(some) < 2 || len(some) >= len(all) {
		t.Fatalf("%+v fit, %v", some, err)
	}
	for _, b := range some {
		if b.PeakBytes+b.OpBytes > budget {
			t.Errorf("%+v does not fit", b)
		}
	}
	def.Memory = func(_, _ []graph.Spec, _ graph.Attrs) int64 { return 0 }
	if more, err := sizes(def, budget); err != nil || len(more) <= len(some) {
		t.Errorf("%d sizes where the op allocates, %d where it does not: %v", len(some), len(more), err)
	}
}

// Fit is a session whose batches are cut into the best size.
func TestFit(t *testing.T) {
	const memory, rows = 330 << 10, 50
	model := build(t, digitsModel, nil)
	s, err := optimem.Fit(t.Context(), model, memory)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	best, err := s.BestBatch(t.Context(), pictureShapes(1), optimem.BatchGoal{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.PlanBatch(t.Context(), pictureShapes(rows))
	if err != nil || b.MicroRows != best.Rows {
		t.Errorf("micro-batches of %d, the best are of %d: %v", b.MicroRows, best.Rows, err)
	}
	in, _ := rowsOf(model, rows)
	if _, err := s.RunBatch(t.Context(), in); err != nil || s.Metrics().PeakBytes > memory {
		t.Errorf("a peak of %d bytes, %v", s.Metrics().PeakBytes, err)
	}
	if _, err := optimem.Fit(t.Context(), model, 1000); !errors.As(err, new(*plan.CapacityError)) {
		t.Errorf("in 1000 bytes: %v", err)
	}
}
