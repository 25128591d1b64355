package profiled

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/listing"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// nowhere is a source that nobody reads.
type nowhere struct{}

func (nowhere) Size() int64                                 { return 1 << 40 }
func (nowhere) ReadAt(context.Context, []byte, int64) error { return errors.New("read") }

// A sketch is a graph that is made op by op.
type sketch struct {
	t  testing.TB
	g  *graph.Graph
	at int64
}

func (s *sketch) weight(rows, columns int) graph.Operand {
	n := int64(4 * rows * columns)
	shape := tensor.Contiguous(rows, columns)
	id := s.g.AddWeight(tensor.Weight{
		Name: fmt.Sprint("w", s.at), DType: tensor.Float32, Layout: shape,
		Extent: storage.Extent{Source: nowhere{}, Offset: s.at, Bytes: n},
	}, graph.Weight)
	s.at += n
	return graph.Operand{Value: id, Layout: shape}
}

func (s *sketch) op(path string, kind graph.Kind, in ...graph.Operand) graph.Operand {
	s.t.Helper()
	out, err := s.g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, Source: path + ".py:1", In: in})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.g.Whole(out[0])
}

// planned plans the sketch, for a device whose linears take scratch memory of a row of their weights.
func (s *sketch) planned(last graph.Operand, o search.Options) *plan.Plan {
	s.t.Helper()
	s.g.Outputs = []graph.Output{{Name: "y", Operand: last}}
	l := &graph.Lowered{Graph: s.g, Steps: make([]graph.Step, len(s.g.Ops))}
	for i := range l.Steps {
		if s.g.Ops[i].Kind == "linear" {
			l.Steps[i].WorkBytes = 64
		}
	}
	o.Target = plan.CPU
	p, err := search.Plan(l, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// told has a watch see two runs of a plan in which op i takes i+1 ms, then 3·(i+1) ms, and every group that is brought
// stalls for 1 ms.
func told(p *plan.Plan) *Measurement {
	var w Watch
	w.Begin(p, false)
	all := &Measurement{}
	for run := range 2 {
		factor := time.Duration(2*run+1) * time.Millisecond
		w.BeginRun()
		for k := range p.Groups {
			g := &p.Groups[k]
			for i := g.First; i < g.End; i++ {
				op := &p.Lowered.Graph.Ops[i]
				w.Observe(runtime.Event{
					Kind: runtime.OpDone, Group: k, Op: i, Path: op.Path, OpKind: op.Kind, Took: time.Duration(i+1) * factor,
				})
			}
			e := runtime.Event{Kind: runtime.GroupDone, Group: k, Path: g.Path, LoadedBytes: g.SlotBytes}
			if g.Paged() {
				e.Stall = time.Millisecond
			}
			w.Observe(e)
		}
		w.Observe(runtime.Event{Kind: runtime.PassDone, Group: -1})
		all.Add(&w, Facts{Seconds: float64(run + 1)})
	}
	return all
}

// heavy is a model of a light linear layer, a heavy one, and a call of each of them again.
func heavy(t testing.TB, o search.Options) *plan.Plan {
	s := &sketch{t: t, g: &graph.Graph{}}
	x := s.g.Whole(s.g.AddInput("x", tensor.Float32, tensor.Shape{1, 16}))
	light, wide, narrow := s.weight(16, 16), s.weight(4096, 16), s.weight(16, 4096)
	x = s.op("net.light", "linear", x, light)
	y := s.op("net.heavy.up", "linear", x, wide)
	x = s.op("net.heavy.down", "linear", y, narrow)
	x = s.op("net.light@1", "linear", x, light)
	return s.planned(s.op("", "relu", x), o)
}

func profileOf(p *plan.Plan) *Profile {
	return New(p, told(p), About{Mode: "page", Device: "cpu", Threads: 1})
}

// TestProfile: modules have the sums of their ops, weights that several ops read count once, what is brought is its
// groups', and the module that holds most is named.
func TestProfile(t *testing.T) {
	for _, o := range []search.Options{{Mode: plan.Resident}, {Mode: plan.Page}} {
		p := heavy(t, o)
		d := profileOf(p)
		var out bytes.Buffer
		if err := d.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		var got struct {
			SecondsMedian float64 `json:"seconds_median"`
			Modules       []jsonModule
			Ops           []opEntry
			Kinds         []kindEntry
			Peak          peakEntry
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var selves, ops, stalls float64
		modules := make(map[string]jsonModule)
		for _, m := range got.Modules {
			selves += m.SelfSeconds
			modules[m.Path] = m
		}
		for i, op := range got.Ops {
			ops += op.Seconds
			if want := 2 * float64(i+1) / 1000; math.Abs(op.Seconds-want) > 1e-9 { // the median of one and of three times
				t.Errorf("op %d takes %g, want %g", i, op.Seconds, want)
			}
		}
		for k := range p.Groups {
			if p.Groups[k].Paged() {
				stalls += 0.001
			}
		}
		root := modules[""]
		if math.Abs(selves-ops) > 1e-9 || math.Abs(root.Seconds-ops) > 1e-9 || got.SecondsMedian != 1.5 {
			t.Errorf("%g s of modules' own, %g s of ops, %g s in all, runs of %g s", selves, ops, root.Seconds, got.SecondsMedian)
		}
		if root.MovedBytes != p.MovedBytes || math.Abs(root.StallSeconds-stalls) > 1e-9 || (o.Mode == plan.Page) != (stalls > 0) {
			t.Errorf("moved %d bytes, want %d; waited %g s, want %g s", root.MovedBytes, p.MovedBytes, root.StallSeconds, stalls)
		}
		if m := modules["net.heavy"]; math.Abs(m.Seconds-0.010) > 1e-9 || m.SelfSeconds != 0 || m.WeightBytes != 2*16*4096*4 ||
			m.ActivationBytes != (4096+16)*4 || m.Calls != 1 {
			t.Errorf("the heavy module: %+v", m)
		}
		if m := modules["net.light"]; m.Calls != 2 || m.WeightBytes != 16*16*4 || m.ActivationBytes != 2*16*4 ||
			math.Abs(m.SelfSeconds-0.010) > 1e-9 || m.PeakBytes != 64+64+64 {
			t.Errorf("the light module: %+v", m)
		}
		if root.WeightBytes != 16*16*4+2*16*4096*4 || math.Abs(root.SelfSeconds-0.010) > 1e-9 || len(got.Modules) != 6 {
			t.Errorf("the program: %+v of %d modules", root, len(got.Modules))
		}
		// Up and down hold the same; the first of them is told.
		x := got.Peak
		if x.Path != "net.heavy.up" || x.Kind != "linear" || x.Op != 1 || x.ActivationBytes != 4096*4+64 || x.WorkBytes != 64 ||
			x.Bytes != x.FixedBytes+x.RingBytes+x.ActivationBytes+x.WorkBytes || x.RingBytes != p.RingBytes ||
			!slices.Equal(x.Holders, []holderEntry{{Name: "linear", Path: "net.heavy.up", Bytes: 4096 * 4}, {Name: "linear", Path: "net.light", Bytes: 64}}) {
			t.Errorf("the peak: %+v", x)
		}
		if got.Kinds[0] != (kindEntry{"linear", 4, got.Kinds[0].Seconds}) || len(got.Kinds) != 2 {
			t.Errorf("kinds: %+v", got.Kinds)
		}
		var text strings.Builder
		if err := d.WriteText(&text, AutoDepth); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"\n    light       2  ", "\nmemory at its peak: ", " during net.heavy.up (linear), of ",
			"\nlinear      net.heavy.up  16.00 KiB\n",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%q is not in\n%s", want, text.String())
			}
		}
	}
}

// TestWatchedRuns: what a pass that failed told of does not count, nor do ops of other plans get lost.
func TestWatchedRuns(t *testing.T) {
	p := heavy(t, search.Options{Mode: plan.Resident})
	ops := p.Lowered.Graph.Ops
	var w Watch
	w.Begin(p, false)
	w.BeginRun()
	tell := func(op int, path string, kind graph.Kind) {
		w.Observe(runtime.Event{Kind: runtime.OpDone, Op: op, Path: path, OpKind: kind, Took: time.Second})
		w.Observe(runtime.Event{Kind: runtime.GroupDone, Path: p.Groups[0].Path})
	}
	tell(0, ops[0].Path, ops[0].Kind)
	w.Observe(runtime.Event{Kind: runtime.Replanned, Group: -1, Err: errors.New("full")})
	if !w.replanned {
		t.Error("another plan is not noticed")
	}
	tell(0, ops[0].Path, ops[0].Kind)
	tell(7, ops[2].Path, ops[2].Kind) // of another plan
	tell(3, ops[2].Path, "matmul")
	tell(99, "elsewhere", "matmul")
	w.Observe(runtime.Event{Kind: runtime.PassDone, Group: -1})
	if want := []float64{1, 0, 2, 0, 1}; !slices.Equal(w.run.seconds, want) {
		t.Errorf("ops took %v, want %v", w.run.seconds, want)
	}
}

// TestSimulatedGroups: where a device's clock is its own, what the CPU computes takes what the plan expects, shared as
// the wall's time was.
func TestSimulatedGroups(t *testing.T) {
	p := heavy(t, search.Options{Mode: plan.Resident, MaxGroup: plan.Limit{N: 1 << 40, Unit: plan.Params}})
	p.Groups[0].OnHost, p.Groups[0].Seconds = true, 4
	var w Watch
	w.Begin(p, true)
	for i, took := range []time.Duration{1, 3} {
		op := &p.Lowered.Graph.Ops[i]
		w.Observe(runtime.Event{Kind: runtime.OpDone, Op: i, Path: op.Path, OpKind: op.Kind, Instance: i, Took: took})
	}
	w.Observe(runtime.Event{Kind: runtime.GroupDone, Path: p.Groups[0].Path, Stall: time.Hour})
	if s := w.pass.seconds; math.Abs(s[0]-2) > 1e-9 || math.Abs(s[1]-6) > 1e-9 || w.pass.stall[0] != 0 {
		t.Errorf("ops of two micro-batches took %v and waited %v", s, w.pass.stall)
	}
}

// hostile returns the profile of a program with so many ops, each in a module with a name that would do harm.
func hostile(ops int) *Profile {
	d := &Profile{tree: listing.NewTree(), Runs: 1, Seconds: 1}
	for i := range ops {
		path := fmt.Sprintf("m%d.</title></svg><script>alert(%d)</script>\x1b[31m\u202e%s.x", i%977, i, strings.Repeat("y", i%3*500))
		d.ops = append(d.ops, opEntry{
			i, "<b>kind", path, "\"'><script>", 1e-6, int64(i + 1), plan.Holding{ActivationBytes: int64(i + 1)},
		})
		n := d.tree.At(path)
		for len(d.modules) < d.tree.Len() {
			d.modules = append(d.modules, moduleEntry{Calls: 1})
		}
		for ; n != listing.NoModule; n = d.tree.Parent(n) {
			d.modules[n].Seconds += 1e-6
		}
	}
	d.kinds = []kindEntry{{"<b>kind", ops, 1}}
	last := &d.ops[ops-1]
	d.peak = peakEntry{Bytes: last.HeldBytes, Op: ops - 1, Path: last.Path, Kind: last.Kind, ActivationBytes: last.HeldBytes}
	for range maxHolders {
		d.peak.Holders = append(d.peak.Holders, holderEntry{Name: "</td><script>", Path: last.Path, Bytes: 1})
	}
	return d
}

// TestHostilePage: whatever a program's modules are called, and however many there are, the page is well-formed, no
// longer than a few megabytes, and has no element but those of the template.
func TestHostilePage(t *testing.T) {
	sizes := []int{1, 2, 3000, 200_000}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, n := range sizes {
		var page bytes.Buffer
		if err := hostile(n).WritePage(&page, "<script>model</script>"); err != nil {
			t.Fatal(err)
		}
		if page.Len() > 4<<20 {
			t.Errorf("%d ops: %d bytes", n, page.Len())
		}
		elements, text := parsed(t, page.Bytes())
		for _, name := range []string{"script", "b>kind", "img", "a"} {
			if elements[name] > 0 {
				t.Errorf("%d ops: there is an element %q", n, name)
			}
		}
		if elements["svg"] != 2 || elements["b"] != 1 || elements["path"] != 1 || elements["table"] != 4 {
			t.Errorf("%d ops: elements %v", n, elements)
		}
		if !strings.Contains(text, "<script>alert(") || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%d ops: names are not what they were, or not harmless", n)
		}
	}
}

// TestPage: the picture has an area for each purpose that memory is for, a box for every module that is long enough to
// be seen, and says what is the peak.
func TestPage(t *testing.T) {
	d := profileOf(heavy(t, search.Options{Mode: plan.Page}))
	var page bytes.Buffer
	if err := d.WritePage(&page, "model.pt2"); err != nil {
		t.Fatal(err)
	}
	elements, text := parsed(t, page.Bytes())
	// The light layer's weight, which two groups read, stays; with the slots it is most, so that the rest is drawn twice.
	if elements["path"] != 4+2 || elements["circle"] != 2 || elements["svg"] != 3 {
		t.Errorf("elements %v", elements)
	}
	for _, want := range []string{
		"model.pt2: optimem profile", "during net.heavy.up (linear)", "net.light: 10 ms, 0.7 % of the run", "net.heavy.up.py:1",
		"net.heavy.down (linear): ", "weights that stay", "slots", "activations", "workspace",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	paged := 0
	for i := range d.stalls {
		paged += strings.Count(page.String(), fmt.Sprintf("<title>%s: weights waited for, 1 ms<", d.ops[d.stalls[i].op].Path))
	}
	if paged == 0 || paged != len(d.stalls) {
		t.Errorf("%d stalls are drawn of %d", paged, len(d.stalls))
	}
	if strings.Contains(page.String(), "NaN") {
		t.Error(page.String())
	}
}

// parsed reads a page as XML, which is stricter than HTML, and returns how many elements of each name there are, and
// the text.
func parsed(t *testing.T, page []byte) (map[string]int, string) {
	t.Helper()
	elements := make(map[string]int)
	var text strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(page)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, text.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			text.Write(token)
		}
	}
}

// TestProfileDepth: a table goes as deep as it has room for, at least to the first level, of which it then has what
// takes most time.
func TestProfileDepth(t *testing.T) {
	d := &Profile{tree: listing.NewTree()}
	for _, list := range []struct{ outer, inner int }{{5, 4}, {5, 12}, {200, 3}} {
		*d = Profile{tree: listing.NewTree()}
		for i := range list.outer {
			for k := range list.inner {
				d.tree.At(fmt.Sprintf("%d.%d", i, k))
			}
		}
		d.modules = make([]moduleEntry, d.tree.Len())
		for i := range d.modules {
			d.modules[i].Seconds = 1
		}
		d.modules[0].Seconds = 1000
		busy := d.tree.At(fmt.Sprint(list.outer - 1))
		d.modules[busy].Seconds = 2
		all := 1 + list.outer + list.outer*list.inner
		lines, cut, down := d.lines(AutoDepth)
		want, depth := all, 2
		switch list.outer * list.inner {
		case 60:
			want, depth = 6, 1
		case 600:
			want, depth = maxModuleLines, 0
			if !slices.Contains(lines, moduleLine{busy, 1}) {
				t.Error("the costliest module is left out")
			}
		}
		if len(lines) != want || cut != all-want || down != depth || lines[0] != (moduleLine{}) {
			t.Errorf("%v: %d lines down to %d, %d left out", list, len(lines), down, cut)
		}
		d.ops, d.kinds = nil, nil
		var text strings.Builder
		if err := d.WriteText(&text, AutoDepth); err != nil {
			t.Fatal(err)
		}
		said := map[int]string{0: " that take less time: --depth 0 lists all\n", 1: " below depth 1: --depth 0 lists all\n", 2: "\n\nmode "}
		if !strings.Contains(text.String(), said[depth]) || (depth < 2) != strings.Contains(text.String(), "… and") {
			t.Errorf("%v: %s", list, text.String())
		}
		if lines, cut, _ := d.lines(0); len(lines) != all || cut != 0 {
			t.Errorf("%v: %d lines of %d", list, len(lines), all)
		}
		if lines, _, _ := d.lines(1); len(lines) != 1+list.outer {
			t.Errorf("%v: %d lines down to 1", list, len(lines))
		}
	}
}

// TestCalledPath cuts off what says which call it is, and nothing else.
func TestCalledPath(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a.b": "a.b", "a.b@1": "a.b", "a@2.b@10": "a.b", "a@b": "a@b", "mail@x.y@3": "mail@x.y",
	} {
		if got := calledPath(path); got != want {
			t.Errorf("%q is called %q, want %q", path, got, want)
		}
	}
}

// Of ops that are too short to be drawn apart, the one that finds most in use is drawn.
func TestStepsKeepTheMost(t *testing.T) {
	list := []span{{0, 0, 10}, {10, 10, 10.5}, {10.5, 10.5, 11}, {11, 11, 11.5}, {11.5, 11.5, 30}}
	got := steps(list, []int64{5, 2, 9, 3, 4})
	want := []step{{list[0], 0, 0, 0}, {span{10, 10, 11.5}, 1, 3, 2}, {list[4], 4, 4, 4}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
