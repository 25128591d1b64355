package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// oneRow was exported for a batch of one, twoRows for one of two.
func oneRow() string  { return fixturesFolder() + "pt2_shared.pt2" }
func twoRows() string { return fixturesFolder() + "pt2_mlp.pt2" }

// rowsOf returns rows of numbers for the only input of a model, and the rows [from, to) of them.
func rowsOf(m *models.Model, rows int) (all optimem.Values, cut func(from, to int) optimem.Values) {
	port := m.Inputs()[0]
	shape := append(tensor.Shape{}, port.Shape...)
	shape[0] = rows
	n, _ := shape.NumElements()
	data := make([]float32, n)
	for i := range data {
		data[i] = float32((i*37+11)%101)/50 - 1
	}
	each := len(data) / rows
	cut = func(from, to int) optimem.Values {
		part := append(tensor.Shape{}, shape...)
		part[0] = to - from
		return optimem.Values{port.Name: tensor.Of(data[from*each:to*each], part...)}
	}
	return cut(0, rows), cut
}

// oneByOne returns the only output of separate runs with micro rows each, one after the other.
func oneByOne(t *testing.T, m *models.Model, opts optimem.Options, rows, micro int) []byte {
	t.Helper()
	s := start(t, m, opts)
	_, cut := rowsOf(m, rows)
	var all []byte
	for from := 0; from < rows; from += micro {
		out, err := s.Run(t.Context(), cut(from, min(from+micro, rows)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out[m.Outputs()[0]].Data...)
	}
	return all
}

func open(t *testing.T, m mode, model *models.Model) *optimem.Session {
	t.Helper()
	s, err := m.start(t.Context(), model, m.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestRunBatch runs batches in every mode and compares them bit for bit with separate runs of the same micro-batches; the
// number of passes is that over the weights.
func TestRunBatch(t *testing.T) {
	for _, c := range []struct {
		path               string
		rows, micro        int
		wantMicro, wantRun int
	}{
		{oneRow(), 64, 0, 1, 1}, {oneRow(), 1, 0, 1, 1}, {twoRows(), 6, 0, 2, 1},
		{digitsModel, 13, 0, 13, 1}, {digitsModel, 13, 5, 5, 2}, {digitsModel, 12, 4, 4, 1}, {digitsModel, 3, 8, 3, 1},
	} {
		model := build(t, c.path, nil)
		want := oneByOne(t, model, optimem.Options{}, c.rows, c.wantMicro)
		for _, m := range smallModes() {
			t.Run(fmt.Sprintf("%s/%d in %d/%s on %s", c.path, c.rows, c.micro, m.name, m.opts.Device), func(t *testing.T) {
				m.opts.MicroBatch, m.opts.Memory = c.micro, 0
				s := open(t, m, model)
				in, _ := rowsOf(model, c.rows)
				for pass := range 2 {
					out, err := s.RunBatch(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					y := out[model.Outputs()[0]]
					if len(out) != 1 || y.Layout.Shape[0] != c.rows || !bytes.Equal(y.Data, want) {
						t.Fatalf("other bits: %v", y.Layout.Shape)
					}
					if got := s.Metrics().Runs; got != int64(c.wantRun*(pass+1)) {
						t.Errorf("%d passes, want %d", got, c.wantRun*(pass+1))
					}
				}
			})
		}
	}
}

// TestBatchWithinBudget: a batch whose rows do not fit at once goes through in smaller micro-batches or several passes,
// within the budget.
func TestBatchWithinBudget(t *testing.T) {
	const rows = 64
	model := build(t, digitsModel, nil)
	in, _ := rowsOf(model, rows)
	free := start(t, model, optimem.Options{})
	whole, err := free.RunBatch(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]tensor.Shape{"input": {1, 1, 8, 8}}
	for _, m := range smallModes() {
		if !strings.HasPrefix(m.name, "page") && m.name != "auto" {
			continue
		}
		least, err := open(t, m, model).Plan(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		for _, micro := range []int{0, 1} {
			m.opts.Memory, m.opts.MicroBatch = least.MinBytes+least.MinBytes/8, micro
			s := open(t, m, model)
			out, err := s.RunBatch(t.Context(), in)
			if err != nil {
				t.Fatalf("%s on %s: %v", m.name, m.opts.Device, err)
			}
			metrics := s.Metrics()
			if metrics.PeakBytes > m.opts.Memory {
				t.Errorf("%s on %s: %d of %d bytes", m.name, m.opts.Device, metrics.PeakBytes, m.opts.Memory)
			}
			if metrics.Runs < 2 {
				t.Errorf("%s on %s, micro-batches of %d: %d passes: the budget has not been felt", m.name, m.opts.Device, micro,
					metrics.Runs)
			}
			y, w := out["linear_1"], whole["linear_1"]
			got, _ := tensor.Slice[float32](y)
			want, _ := tensor.Slice[float32](w)
			for i := range want {
				if d := got[i] - want[i]; d > 1e-4 || d < -1e-4 {
					t.Fatalf("%s on %s: element %d is %v, want %v", m.name, m.opts.Device, i, got[i], want[i])
				}
			}
			if micro == 1 && !bytes.Equal(y.Data, oneByOne(t, model, optimem.Options{}, rows, 1)) {
				t.Errorf("%s on %s: other bits than row by row", m.name, m.opts.Device)
			}
		}
	}
}

// TestBatchesThatCannotBe: planning looks at no input that the model does not have, and refuses more rows than can be.
func TestBatchesThatCannotBe(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.Options{})
	least, err := s.LeastForBatch(t.Context(), map[string]tensor.Shape{"input": {7, 1, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []tensor.Shape{nil, {}, {3, 3}} {
		shapes := map[string]tensor.Shape{"input": {7, 1, 8, 8}, "other": other}
		if n, err := s.LeastForBatch(t.Context(), shapes); n != least || err != nil {
			t.Errorf("%v: the least is %d, %v, want %d", shapes, n, err, least)
		}
		if b, err := s.PlanBatch(t.Context(), shapes); err != nil || b.Rows != 7 {
			t.Errorf("%v: %v", shapes, err)
		}
	}
	for _, rows := range []int{math.MaxInt32 + 1, 1<<62 + 1, math.MaxInt} {
		shapes := map[string]tensor.Shape{"input": {rows, 1, 8, 8}}
		var refused *optimem.InputError
		if _, err := s.PlanBatch(t.Context(), shapes); !errors.As(err, &refused) {
			t.Errorf("%d rows: %v", rows, err)
		}
		if _, err := s.LeastForBatch(t.Context(), shapes); !errors.As(err, &refused) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

// TestNotBatchable: what mixes rows, has none, or does not divide is refused.
func TestNotBatchable(t *testing.T) {
	mixes := build(t, fixturesFolder()+"pt2_attention.pt2", nil)
	_, err := start(t, mixes, optimem.Options{}).RunBatch(t.Context(),
		optimem.Values{"src": tensor.Of(make([]float32, 12), 3, 1, 4)})
	var refused *graph.NotBatchableError
	if !errors.As(err, &refused) {
		t.Errorf("a program that mixes rows: %v", err)
	}
	digits := start(t, build(t, digitsModel, nil), optimem.Options{})
	if _, err := digits.RunBatch(t.Context(), digitsInput(nil)); !errors.As(err, &refused) {
		t.Errorf("no rows: %v", err)
	}
	two := build(t, twoRows(), nil)
	in, _ := rowsOf(two, 5)
	var shape *models.InputError
	if _, err := start(t, two, optimem.Options{}).RunBatch(t.Context(), in); !errors.As(err, &shape) {
		t.Errorf("five rows in twos: %v", err)
	}
	var input *optimem.InputError
	if _, err := digits.RunBatch(t.Context(), optimem.Values{}); !errors.As(err, &input) {
		t.Errorf("no input: %v", err)
	}
	small := start(t, build(t, digitsModel, nil), optimem.Options{Memory: 1000})
	var capacity *plan.CapacityError
	if _, err := small.RunBatch(t.Context(), digitsInput(pictures(2))); !errors.As(err, &capacity) {
		t.Errorf("no room for a row: %v", err)
	}
	// The session goes on.
	if _, err := digits.RunBatch(t.Context(), digitsInput(pictures(4))); err != nil {
		t.Error(err)
	}
}

// TestBatchDumps: outputs of modules have rows, too.
func TestBatchDumps(t *testing.T) {
	model := build(t, digitsModel, nil)
	all := start(t, model, optimem.Options{Dump: []string{"stem"}})
	batch := start(t, model, optimem.Options{Dump: []string{"stem"}, MicroBatch: 4})
	want, err := all.Run(t.Context(), digitsInput(pictures(10)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := batch.RunBatch(t.Context(), digitsInput(pictures(10)))
	if err != nil {
		t.Fatal(err)
	}
	y, w := got["dump:stem"], want["dump:stem"]
	if y == nil || w == nil || !y.Layout.Shape.Equal(w.Layout.Shape) || len(got) != 2 {
		t.Fatalf("%v, want %v", got, want)
	}
	a, _ := tensor.Slice[float32](y)
	b, _ := tensor.Slice[float32](w)
	for i := range b {
		if d := a[i] - b[i]; d > 1e-5 || d < -1e-5 {
			t.Fatalf("element %d is %v, want %v", i, a[i], b[i])
		}
	}
}

// TestLesserError: of what micro-batches of several sizes were refused for, the least budget is told, whatever else some of them
// fail with.
func TestLesserError(t *testing.T) {
	small, large, other := &plan.CapacityError{MinBytes: 1}, &plan.CapacityError{MinBytes: 2}, errors.New("a size that it does not take")
	for _, c := range []struct{ a, b, want error }{
		{nil, other, other}, {nil, large, large}, {large, small, small}, {small, large, small}, {large, other, large},
		{other, large, large}, {other, errors.New("another"), other},
	} {
		if got := optimem.Lesser(c.a, c.b); got != c.want {
			t.Errorf("of %v and %v: %v", c.a, c.b, got)
		}
	}
}

// TestBatchOfOtherRows: inputs that have not as many rows are refused, whichever has more.
func TestBatchOfOtherRows(t *testing.T) {
	s := start(t, build(t, rowsModel, nil), optimem.Options{MicroBatch: 1})
	for _, rows := range [][2]int{{2, 3}, {3, 2}, {1, 4}, {4, 1}} {
		in := optimem.Values{
			"x": tensor.Of(make([]float32, 4*rows[0]), rows[0], 4), "z": tensor.Of(make([]float32, 3*rows[1]), 3, rows[1]),
			"w": tensor.Of(make([]float32, 3), 3),
		}
		var refused *optimem.InputError
		if out, err := s.RunBatch(t.Context(), in); !errors.As(err, &refused) {
			t.Errorf("%d and %d rows: %v, %v", rows[0], rows[1], out, err)
		}
	}
}
