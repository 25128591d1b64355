package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A gate is an op of the test's own in the middle of the program gate.pt2: it calls what the test wants called.
type gate struct{ pass func() }

func (g *gate) registry(t *testing.T) *graph.Registry {
	t.Helper()
	ops, err := graph.Standard().With(graph.OpDef{
		Kind:  "test::gate",
		Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in, nil },
		Reference: func(in, out []*tensor.Tensor, _ graph.Attrs) error {
			if g.pass != nil {
				g.pass()
			}
			copy(out[0].Data, in[0].Data)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// build builds the model in a file.
func build(t testing.TB, path string, ops *graph.Registry) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	})
	model, err := models.Build(ckpt, models.Options{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// start makes a session that the test closes at its end.
func start(t testing.TB, model *models.Model, opts optimem.ResidentOptions) *optimem.Session {
	t.Helper()
	s, err := optimem.Resident(t.Context(), model, opts)
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

func gateSession(t *testing.T, g *gate) *optimem.Session {
	t.Helper()
	ops := g.registry(t)
	return start(t, build(t, "testdata/gate.pt2", ops), optimem.ResidentOptions{Ops: ops})
}

// A recordedRun is a pass in PyTorch.
type recordedRun struct {
	X       [][]float32
	Outputs map[string]struct {
		DType string
		Shape []int
		Data  []float64
	}
}

func (r recordedRun) input() optimem.Values {
	return optimem.Values{"x": tensor.Of(slices.Concat(r.X...), len(r.X), len(r.X[0]))}
}

func recorded(t *testing.T, name string) []recordedRun {
	t.Helper()
	text, err := os.ReadFile("testdata/programs.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]recordedRun
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all[name]) == 0 {
		t.Fatalf("nothing is recorded of %s", name)
	}
	return all[name]
}

// numbers returns the elements of a tensor.
func numbers(t *testing.T, x *tensor.Tensor) []float64 {
	t.Helper()
	switch x.DType {
	case tensor.Float32:
		return widened[float32](t, x)
	case tensor.Float64:
		return widened[float64](t, x)
	case tensor.Int64:
		return widened[int64](t, x)
	case tensor.Int32:
		return widened[int32](t, x)
	case tensor.Int16:
		return widened[int16](t, x)
	case tensor.Int8:
		return widened[int8](t, x)
	case tensor.UInt64:
		return widened[uint64](t, x)
	case tensor.UInt32:
		return widened[uint32](t, x)
	case tensor.UInt16:
		return widened[uint16](t, x)
	case tensor.UInt8:
		return widened[uint8](t, x)
	case tensor.Bool:
		return widened[uint8](t, seenAs(x, tensor.UInt8))
	case tensor.Complex64:
		x = seenAs(x, tensor.Float32)
		x.Layout = tensor.Contiguous(len(x.Data) / 4)
		return widened[float32](t, x)
	case tensor.Complex128:
		x = seenAs(x, tensor.Float64)
		x.Layout = tensor.Contiguous(len(x.Data) / 8)
		return widened[float64](t, x)
	}
	var value func(bits float64) float32
	switch x.DType {
	case tensor.BFloat16:
		value = func(bits float64) float32 { return tensor.BFloat16ToFloat32(uint16(bits)) }
	case tensor.Float16:
		value = func(bits float64) float32 { return tensor.Float16ToFloat32(uint16(bits)) }
	default:
		value = func(bits float64) float32 { return tensor.Float8ToFloat32(x.DType, byte(bits)) }
	}
	raw := numbers(t, seenAs(x, map[int]tensor.DType{1: tensor.UInt8, 2: tensor.UInt16}[x.DType.Size()]))
	for i, bits := range raw {
		raw[i] = float64(value(bits))
	}
	return raw
}

// seenAs returns the bytes of a tensor as those of another dtype.
func seenAs(x *tensor.Tensor, d tensor.DType) *tensor.Tensor {
	return &tensor.Tensor{DType: d, Layout: x.Layout, Data: x.Data}
}

func widened[T float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](
	t *testing.T, x *tensor.Tensor,
) []float64 {
	t.Helper()
	data, err := tensor.Slice[T](x)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(data))
	for i, v := range data {
		out[i] = float64(v)
	}
	return out
}

// compare holds outputs against those of PyTorch, which differ by rounding at most.
func compare(t *testing.T, got optimem.Values, want recordedRun) {
	t.Helper()
	if len(got) != len(want.Outputs) {
		t.Errorf("%d outputs, want %d", len(got), len(want.Outputs))
	}
	for name, w := range want.Outputs {
		x, ok := got[name]
		if !ok {
			t.Errorf("no output %s", name)
			continue
		}
		if x.DType.String() != w.DType || !x.Layout.Shape.Equal(w.Shape) || !x.Layout.IsContiguous() {
			t.Errorf("output %s is %v %v, want %v %v", name, x.DType, x.Layout.Shape, w.DType, w.Shape)
			continue
		}
		for i, v := range numbers(t, x) {
			if d := math.Abs(v - w.Data[i]); !(d <= 1e-6*max(1, math.Abs(w.Data[i]))) {
				t.Errorf("output %s: element %d is %v, want %v", name, i, v, w.Data[i])
			}
		}
	}
}

// Outputs are PyTorch's, also where a program writes to what PyTorch keeps permuted or conjugated.
func TestOutputsAsPyTorch(t *testing.T) {
	for _, name := range []string{"odd", "permuted", "conjugated", "strided"} {
		s := start(t, build(t, "testdata/"+name+".pt2", nil), optimem.ResidentOptions{})
		for _, want := range recorded(t, name) {
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
		}
	}
}

// What masks select can be changed and put back: x[mask] += 1 needs no size that depends on data.
func TestSelectedRuns(t *testing.T) {
	s := start(t, build(t, "testdata/selected.pt2", nil), optimem.ResidentOptions{})
	for _, want := range recorded(t, "selected") {
		got, err := s.Run(t.Context(), want.input())
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
	}
}

// Buffers that the program changes persist from pass to pass, for every session by itself, whatever the shapes.
func TestStatePersists(t *testing.T) {
	model := build(t, "testdata/states.pt2", nil)
	first, second := start(t, model, optimem.ResidentOptions{}), start(t, model, optimem.ResidentOptions{})
	for i, want := range recorded(t, "states") {
		got, err := first.Run(t.Context(), want.input())
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
		if i > 0 {
			continue
		}
		if got, err = second.Run(t.Context(), want.input()); err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
	}
}

// Buffers may become what no op computes: the input, a number, a parameter, another buffer.
func TestStatesWithoutOps(t *testing.T) {
	s := start(t, build(t, "testdata/resets.pt2", nil), optimem.ResidentOptions{})
	for _, want := range recorded(t, "resets") {
		got, err := s.Run(t.Context(), want.input())
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
	}
}

// Outputs are the caller's, inputs too: neither is kept, and neither leads into the session.
func TestTensorsAreTheCallers(t *testing.T) {
	s := start(t, build(t, "testdata/odd.pt2", nil), optimem.ResidentOptions{})
	want := recorded(t, "odd")[0]
	in := want.input()
	before := slices.Clone(in["x"].Data)
	first, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, in["x"].Data) {
		t.Error("the input changed")
	}
	for _, x := range first { // outputs that are one value must not be one memory either: a later loop would show it
		for i := range x.Data {
			x.Data[i] = 0x55
		}
		for i := range x.Layout.Shape {
			x.Layout.Shape[i] = 99
		}
	}
	if !slices.Equal(before, in["x"].Data) {
		t.Error("the output is the input's memory")
	}
	again := want.input()
	in["x"].Layout.Shape[0] = 77
	got, err := s.Run(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
	y, other := got["y"].Data, got["again"].Data
	if y[0] ^= 1; y[0] == other[0] {
		t.Error("two outputs share memory")
	}
}

// Inputs may be strided; the session makes no demands on where the elements lie.
func TestStridedInput(t *testing.T) {
	s := gateSession(t, &gate{})
	want := recorded(t, "gate")[1]
	rows, columns := len(want.X), len(want.X[0])
	turned := make([]float32, 3+rows*columns)
	for i, row := range want.X {
		for j, v := range row {
			turned[3+j*rows+i] = v
		}
	}
	x := tensor.Of(turned, len(turned))
	x.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{1, rows}, Offset: 3}
	got, err := s.Run(t.Context(), optimem.Values{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

func TestInputsThatDoNotFit(t *testing.T) {
	s := gateSession(t, &gate{})
	good := tensor.Of(make([]float32, 8), 2, 4)
	outside := tensor.Of(make([]float32, 8), 2, 4)
	outside.Layout.Offset = 1
	noStrides := tensor.Of(make([]float32, 8), 2, 4)
	noStrides.Layout.Strides = nil
	for name, c := range map[string]struct {
		in   optimem.Values
		says string
	}{
		"missing":    {optimem.Values{}, "input x: is missing"},
		"nil":        {optimem.Values{"x": nil}, "input x: is missing"},
		"extra":      {optimem.Values{"x": good, "y": good}, "input y: the model has no such input"},
		"dtype":      {optimem.Values{"x": tensor.Of(make([]float64, 8), 2, 4)}, "float64"},
		"rank":       {optimem.Values{"x": tensor.Of(make([]float32, 8), 8)}, "[8]"},
		"size":       {optimem.Values{"x": tensor.Of(make([]float32, 6), 2, 3)}, "[2 3]"},
		"no rows":    {optimem.Values{"x": tensor.Of([]float32{}, 0, 4)}, "is 0"},
		"outside":    {optimem.Values{"x": outside}, "9 elements in 32 bytes"},
		"no strides": {optimem.Values{"x": noStrides}, "0 strides"},
	} {
		_, err := s.Run(t.Context(), c.in)
		var input *optimem.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want a mention of %q", name, err, c.says)
		}
	}
	if _, err := s.Run(t.Context(), optimem.Values{"x": good}); err != nil {
		t.Errorf("the session is not usable afterwards: %v", err)
	}
}

// A cancelled run names the op that it stopped before, and the session goes on.
func TestCancel(t *testing.T) {
	g := &gate{}
	s := gateSession(t, g)
	want := recorded(t, "gate")[0]
	ctx, cancel := context.WithCancel(t.Context())
	g.pass = cancel
	_, err := s.Run(ctx, want.input())
	var op *optimem.OpError
	if !errors.Is(err, context.Canceled) || !errors.As(err, &op) || op.Path != "after" || op.Kind != "linear" {
		t.Errorf("%v, want a cancelled linear in after", err)
	}
	g.pass = nil
	got, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
	if n := s.Metrics().Runs; n != 1 {
		t.Errorf("%d runs counted, want the one that ended well", n)
	}
}

// Who waits for another's pass stops waiting when cancelled.
func TestCancelWaiting(t *testing.T) {
	g := &gate{}
	s := gateSession(t, g)
	in := recorded(t, "gate")[0].input()
	inside, leave := make(chan struct{}), make(chan struct{})
	g.pass = func() {
		close(inside)
		<-leave
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), in)
		done <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("the pass that was waited for: %v", err)
	}
}

func TestSharedByGoroutines(t *testing.T) {
	s := gateSession(t, &gate{})
	runs := recorded(t, "gate")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 10 {
				want := runs[(i+k)%len(runs)]
				got, err := s.Run(t.Context(), want.input())
				if err != nil {
					t.Error(err)
					return
				}
				compare(t, got, want)
			}
		})
	}
	group.Wait()
	if n := s.Metrics().Runs; n != 80 {
		t.Errorf("%d runs counted, want 80", n)
	}
}

// More shapes than are kept, in turn: plans come and go, results and memory stay.
func TestManyShapes(t *testing.T) {
	s := start(t, build(t, "testdata/odd.pt2", nil), optimem.ResidentOptions{})
	want := recorded(t, "odd")[0]
	var steady int64
	for round := range 3 {
		for rows := 1; rows <= 40; rows++ {
			x := make([]float32, 2*rows)
			for i := range x {
				x[i] = float32(i)
			}
			got, err := s.Run(t.Context(), optimem.Values{"x": tensor.Of(x, rows, 2)})
			if rows == 1 {
				if err == nil {
					t.Error("row 1 of one row was found")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if y := numbers(t, got["y"]); y[2*rows-1] != 2*float64(2*rows-1) {
				t.Fatalf("%d rows: the last is %v", rows, y[2*rows-1])
			}
		}
		if m := s.Metrics(); round == 0 {
			steady = m.WeightBytes + m.ActivationBytes + m.WorkBytes
		} else if now := m.WeightBytes + m.ActivationBytes + m.WorkBytes; now != steady {
			t.Errorf("round %d: %d bytes held, %d before", round, now, steady)
		}
	}
	got, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

// A shape that no memory holds is refused, and what was planned before still runs.
func TestTooLarge(t *testing.T) {
	s := gateSession(t, &gate{})
	want := recorded(t, "gate")[0]
	for range 2 {
		got, err := s.Run(t.Context(), want.input())
		if err != nil {
			t.Fatal(err)
		}
		compare(t, got, want)
		huge := tensor.Of([]float32{1, 2, 3, 4}, 1, 4) // one row, seen 2^44 times
		huge.Layout = tensor.Layout{Shape: tensor.Shape{1 << 44, 4}, Strides: []int{0, 1}}
		if _, err := s.Run(t.Context(), optimem.Values{"x": huge}); err == nil {
			t.Fatal("2^48 bytes were found")
		}
	}
}

func TestClose(t *testing.T) {
	inUse := func() string {
		var b strings.Builder
		for p := hostmem.Weights; p <= hostmem.Staging; p++ {
			fmt.Fprintf(&b, "%v %d ", p, hostmem.InUse(p))
		}
		return b.String()
	}
	g := &gate{}
	ops := g.registry(t)
	model := build(t, "testdata/gate.pt2", ops)
	want := recorded(t, "gate")
	before := inUse()
	s, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if _, err := s.Run(t.Context(), w.input()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	g.pass = cancel
	if _, err := s.Run(ctx, want[0].input()); err == nil {
		t.Error("the cancelled run ended well")
	}
	if inUse() == before {
		t.Error("a session that ran holds no memory: nothing is measured here")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if now := inUse(); now != before {
		t.Errorf("in use after Close: %s, before: %s", now, before)
	}
	if m := s.Metrics(); onDevice(s) != 0 || m.HostBytes != 0 || m.PeakBytes == 0 {
		t.Errorf("after Close: %+v", m)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := s.Run(t.Context(), want[0].input()); !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

// Close waits for the pass that runs.
func TestCloseWaits(t *testing.T) {
	g := &gate{}
	s := gateSession(t, g)
	want := recorded(t, "gate")[0]
	inside, leave := make(chan struct{}), make(chan struct{})
	g.pass = func() {
		close(inside)
		<-leave
	}
	type result struct {
		out optimem.Values
		err error
	}
	done, closed := make(chan result, 1), make(chan error, 1)
	go func() {
		out, err := s.Run(t.Context(), want.input())
		done <- result{out, err}
	}()
	<-inside
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Error("closed under a pass")
	default:
	}
	close(leave)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	compare(t, r.out, want)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestDump(t *testing.T) {
	g := &gate{}
	ops := g.registry(t)
	model := build(t, "testdata/gate.pt2", ops)
	s := start(t, model, optimem.ResidentOptions{Ops: ops, Dump: []string{"before", "after"}})
	want := recorded(t, "gate")[0]
	out, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	if x := out["dump:before"]; x == nil || !x.Layout.Shape.Equal(tensor.Shape{1, 4}) {
		t.Errorf("before gave %v", x)
	}
	if diff := cmp.Diff(out["dump:after"], out[model.Outputs()[0]]); diff != "" {
		t.Errorf("the last module's output is not the model's: %s", diff)
	}
	// What a module gives is what the last of its submodules gave.
	paths := []string{"stem", "stem.relu", "stem.norm"}
	stem := start(t, build(t, digitsModel, nil), optimem.ResidentOptions{Dump: paths})
	out, err = stem.Run(t.Context(), optimem.Values{"input": tensor.Of(pictures(2), 2, 1, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	got := out["dump:stem"]
	if diff := cmp.Diff(out["dump:stem.relu"], got); diff != "" || cmp.Equal(out["dump:stem.norm"], got) {
		t.Errorf("the output of stem: %s", diff)
	}
}

// TestDumpIsCheckedAtTheStart: a path that the model does not have is refused before anything is planned, with those that it
// has, whatever form the model came in; that a module gives no tensor is said by the first plan.
func TestDumpIsCheckedAtTheStart(t *testing.T) {
	var option *optimem.OptionError
	for _, path := range []string{digitsModel, "../examples/digits/digits_script.pt", "../examples/digits/digits_module.pt"} {
		model := build(t, path, nil)
		for _, c := range [][2]string{{"stem.nrom", "stem.norm"}, {"nowhere at all", "classify, "}} {
			s, err := optimem.Page(t.Context(), model, optimem.Options{Dump: []string{"stem", c[0]}})
			if err == nil {
				s.Close()
			}
			if !errors.As(err, &option) || option.Option != "Dump" || !strings.Contains(option.Msg, c[1]) {
				t.Errorf("%s: the module %s: %v, want one that names %s", path, c[0], err, c[1])
			}
		}
		known := model.Modules()
		g, err := model.Graph(map[string]tensor.Shape{model.Inputs()[0].Name: {2, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		for module := range g.Modules {
			if !slices.Contains(known, module) {
				t.Errorf("%s: %q gives a tensor and is not known", path, module)
			}
		}
	}
	// A list of modules is one that computes nothing itself.
	lists := build(t, "../models/testdata/nn/whole/transformer.pt", nil)
	s := start(t, lists, optimem.ResidentOptions{Dump: []string{"encoder.layers"}})
	var output *optimem.OutputError
	_, err := s.Plan(t.Context(), map[string]tensor.Shape{"src": {1, 2, 8}, "tgt": {1, 2, 8}})
	if !errors.As(err, &output) {
		t.Errorf("a module that gives no tensor: %v", err)
	}
}
