package memory_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// unpickle reads a pickle of protocol 2 with the opcodes that snapshots have, as Python's pickle.py does.
func unpickle(t *testing.T, data []byte) any {
	t.Helper()
	var stack []any
	var marks []int
	pop := func() any {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		return v
	}
	marked := func() []any {
		at := marks[len(marks)-1]
		marks = marks[:len(marks)-1]
		list := append([]any(nil), stack[at:]...)
		stack = stack[:at]
		return list
	}
	if !bytes.HasPrefix(data, []byte{0x80, 2}) {
		t.Fatalf("begins with %x", data[:2])
	}
	for at := 2; ; {
		op := data[at]
		at++
		switch op {
		case '.':
			if at != len(data) || len(stack) != 1 {
				t.Fatalf("%d bytes after the end, %d values", len(data)-at, len(stack))
			}
			return pop()
		case '(':
			marks = append(marks, len(stack))
		case '}':
			stack = append(stack, map[string]any{})
		case 'u':
			list := marked()
			d := stack[len(stack)-1].(map[string]any)
			for i := 0; i < len(list); i += 2 {
				d[list[i].(string)] = list[i+1]
			}
		case ']':
			stack = append(stack, []any{})
		case 'e':
			list := marked()
			stack[len(stack)-1] = append(stack[len(stack)-1].([]any), list...)
		case 'J':
			stack = append(stack, int64(int32(binary.LittleEndian.Uint32(data[at:]))))
			at += 4
		case 0x8a:
			if data[at] != 8 {
				t.Fatalf("a long of %d bytes", data[at])
			}
			stack = append(stack, int64(binary.LittleEndian.Uint64(data[at+1:])))
			at += 9
		case 'X':
			n := int(binary.LittleEndian.Uint32(data[at:]))
			stack = append(stack, string(data[at+4:][:n]))
			at += 4 + n
		case 0x88, 0x89:
			stack = append(stack, op == 0x88)
		case 0x86:
			b, a := pop(), pop()
			stack = append(stack, [2]any{a, b})
		default:
			t.Fatalf("opcode %q at %d", op, at-1)
		}
	}
}

func planOf(t *testing.T, o runtime.Options) *plan.Plan {
	t.Helper()
	s, _ := session(t, digits, o)
	p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {3, 1, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planOfSteps is the plan of a small Llama that keeps caches.
func planOfSteps(t *testing.T, o runtime.Options) *plan.Plan {
	t.Helper()
	_, model := session(t, "../models/testdata/families/hf/tiny_llama", runtime.Options{})
	steps, err := model.Steps(models.StepOptions{Blocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.Start(t.Context(), steps, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.Plan(t.Context(), map[string]tensor.Shape{
		models.StepTokens: {3}, models.StepPositions: {3}, models.StepBlocks: {3, 2}, models.StepWanted: {1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.CacheBytes == 0 {
		t.Fatal("a plan without caches")
	}
	return p
}

func snapshotModes() map[string]runtime.Options {
	params := func(n int64) plan.Limit { return plan.Limit{N: n, Unit: plan.Params} }
	return map[string]runtime.Options{
		"resident": {Mode: plan.Resident}, "page": {Mode: plan.Page}, "once": {Mode: plan.Resident, Once: true},
		"auto": {Mode: plan.Auto, Memory: 500 << 10}, "page, emulated": {Mode: plan.Page, Device: emulatedDevice},
		"chunk, emulated": {Mode: plan.Chunk, Device: emulatedDevice, Capacity: params(30_000)},
	}
}

// TestSnapshotIsThePlan replays snapshots as PyTorch's viewer does: arenas are as large as the plan's, nothing is allocated where something
// lies or outside of an arena, what is freed was allocated, the most that is in use is what the plan has in use at its peak, and what is left
// is what the segments say.
func TestSnapshotIsThePlan(t *testing.T) {
	plans := map[string]*plan.Plan{"caches": planOfSteps(t, runtime.Options{Mode: plan.Resident})}
	plans["caches, page"] = planOfSteps(t, runtime.Options{Mode: plan.Page, Device: emulatedDevice})
	for name, o := range snapshotModes() {
		plans[name] = planOf(t, o)
	}
	for name, p := range plans {
		var out bytes.Buffer
		if err := memory.WriteSnapshot(&out, p); err != nil {
			t.Fatal(err)
		}
		snapshot := unpickle(t, out.Bytes()).(map[string]any)
		parts := []*plan.Plan{p}
		if p.Sides != nil {
			parts = []*plan.Plan{p.Sides.Device, p.Sides.Host}
		}
		traces := snapshot["device_traces"].([]any)
		if len(traces) != len(parts) {
			t.Fatalf("%s: %d devices of %d", name, len(traces), len(parts))
		}
		for i, part := range parts {
			replay(t, fmt.Sprintf("%s, device %d", name, i), part, int64(i), traces[i].([]any), snapshot["segments"].([]any))
		}
	}
}

func replay(t *testing.T, name string, p *plan.Plan, device int64, trace, segments []any) {
	t.Helper()
	type span struct{ low, high int64 }
	var arenas []span
	var total, in, most, last int64
	blocks := make(map[int64]int64)
	for _, e := range trace {
		e := e.(map[string]any)
		at, n := e["addr"].(int64), e["size"].(int64)
		if us := e["time_us"].(int64); us < last {
			t.Errorf("%s: time goes back from %d to %d", name, last, us)
		} else {
			last = us
		}
		switch e["action"] {
		case "segment_alloc":
			arenas, total = append(arenas, span{at, at + n}), total+n
		case "alloc":
			inside := false
			for _, a := range arenas {
				inside = inside || a.low <= at && at+n <= a.high
			}
			if !inside || n <= 0 || at>>40 == 0 {
				t.Errorf("%s: %d bytes at %d are in no arena", name, n, at)
			}
			for other, bytes := range blocks {
				if at < other+bytes && other < at+n {
					t.Errorf("%s: %v overlaps what lies at %d", name, e, other)
				}
			}
			blocks[at] = n
			in += n
			most = max(most, in)
			if frames := e["frames"].([]any); len(frames) != 1 || frames[0].(map[string]any)["name"] == "" {
				t.Errorf("%s: %v has no name", name, e)
			}
		case "free_completed":
			if blocks[at] != n {
				t.Errorf("%s: %v frees %d bytes", name, e, blocks[at])
			}
			delete(blocks, at)
			in -= n
		}
	}
	if total != p.PassBytes() {
		t.Errorf("%s: arenas of %d bytes, planned are %d", name, total, p.PassBytes())
	}
	// Slots that are free meanwhile, and what is between weights, count for the plan's peak.
	var peak, between int64
	for _, h := range p.Holdings() {
		peak = max(peak, h.Total())
	}
	for _, d := range memory.Planned(p, "x", nil).Devices {
		for _, r := range d.Rest {
			switch {
			case strings.HasPrefix(r.Name, "alignment"):
				between += r.Bytes
			case strings.HasPrefix(r.Name, "raw weights"): // there are no constants at that time
				between += p.ConstBytes
				for _, part := range p.Consts {
					between -= part.High - part.Low
				}
			}
		}
	}
	if most > peak-between || p.RingBytes == 0 && most != peak-between {
		t.Errorf("%s: at most %d bytes are in use, %d of them planned but %d between weights", name, most, peak, between)
	}
	for _, s := range segments {
		s := s.(map[string]any)
		if s["device"] != device {
			continue
		}
		end, active := s["address"].(int64), int64(0)
		for _, b := range s["blocks"].([]any) {
			b := b.(map[string]any)
			if b["address"] != end {
				t.Errorf("%s: a block at %d, and the one before ends at %d", name, b["address"], end)
			}
			if end += b["size"].(int64); b["state"] == "active_allocated" {
				active += b["size"].(int64)
				if blocks[b["address"].(int64)] != b["size"] {
					t.Errorf("%s: %v is not what the trace leaves", name, b)
				}
				delete(blocks, b["address"].(int64))
			}
		}
		if end != s["address"].(int64)+s["total_size"].(int64) || active != s["active_size"] {
			t.Errorf("%s: blocks end at %d in %v", name, end, s)
		}
	}
	if len(blocks) > 0 {
		t.Errorf("%s: no segment has %v", name, blocks)
	}
}

// made returns a plan by hand: three groups of an op each, whose weights pass through a ring of two slots, and two weights that stay, the
// second within the first.
func made() *plan.Plan {
	g := &graph.Graph{}
	weight := func(name string, n int) graph.ValueID {
		return g.AddWeight(tensor.Weight{Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(n)}, graph.Weight)
	}
	whole, within := weight("whole", 64), weight("within", 16)
	p := &plan.Plan{Target: plan.CPU, Instances: 1, RingBytes: 512, MovedBytes: 768}
	p.Fixed = plan.Fixed{Bytes: 512, Parts: []plan.Part{{Value: within, High: 64, Offset: 128}, {Value: whole, High: 256, Offset: 64}}}
	for k, name := range []string{"a", "b", "c"} {
		id := weight(name, 64)
		g.Ops = append(g.Ops, graph.Op{Kind: "linear", Path: name})
		p.Groups = append(p.Groups, plan.Group{
			Path: name, First: k, End: k + 1, Parts: []plan.Part{{Value: id, High: 256}}, SlotOffset: int64(k % 2 * 256), SlotBytes: 256,
			After: 2, Seconds: 1,
		})
	}
	// A cache that two ops look at.
	for range 2 {
		id := g.AddCache("keys", tensor.Float32, tensor.Shape{5})
		p.Caches = append(p.Caches, plan.Cache{Value: id, Name: "keys", Bytes: 64})
	}
	p.CacheBytes = 64
	p.Places = make([]plan.Place, len(g.Values))
	for i := range p.Places {
		p.Places[i].First = -1
	}
	p.Lowered = &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	return p
}

// TestMadePlan: a slot is filled once the group is done that had it, and not later than the plan says; a weight within another takes
// nothing by itself.
func TestMadePlan(t *testing.T) {
	p := made()
	var out bytes.Buffer
	if err := memory.WriteSnapshot(&out, p); err != nil {
		t.Fatal(err)
	}
	snapshot := unpickle(t, out.Bytes()).(map[string]any)
	trace := snapshot["device_traces"].([]any)[0].([]any)
	replay(t, "made", p, 0, trace, snapshot["segments"].([]any))
	var order []string
	for _, e := range trace {
		e := e.(map[string]any)
		if frames := e["frames"].([]any); len(frames) == 1 && e["action"] != "free_requested" {
			order = append(order, fmt.Sprint(e["action"], " ", frames[0].(map[string]any)["name"], " ", e["time_us"]))
		}
	}
	want := []string{
		"alloc whole 0", "alloc keys 0", "alloc weights of a 0", "alloc weights of b 0", "free_completed weights of a 1000000",
		"alloc weights of c 1000000", "free_completed weights of b 2000000", "free_completed weights of c 3000000",
	}
	if !slices.Equal(order, want) {
		t.Errorf("%q\nwant\n%q", order, want)
	}
	p.Lowered.Steps[1].WorkBytes, p.WorkBytes = 64, 64
	if r := memory.Planned(p, "cpu", nil); r.Moment != "peak, b (linear)" {
		t.Errorf("most is in use at %q", r.Moment)
	}
	p.Lowered.Steps[1].WorkBytes, p.WorkBytes = 0, 0
	d := &memory.Planned(p, "cpu", nil).Devices[0]
	adds(t, "made", &memory.Report{Devices: []memory.Device{*d}})
	if w := d.Storages[1]; w.Name != "within" || w.Bytes != 0 || w.UsedBytes != 64 || w.SharedWith != "whole" {
		t.Errorf("%+v", d.Storages)
	}
	keys := memory.Storage{Name: "keys", Kind: memory.Cache, Shape: []int{5}, DType: "float32", Bytes: 64, UsedBytes: 20}
	if w := d.Storages[2]; !reflect.DeepEqual(w, keys) {
		t.Errorf("%+v, want %+v", w, keys)
	}
	if d.Rest[0] != (memory.Rest{Name: "alignment of weights that stay", Bytes: 256}) || d.StorageBytes() != 512+64 {
		t.Errorf("%+v", d)
	}
}

// TestSnapshotInPyTorch gives snapshots to PyTorch's own viewer, where the Python of OPTIMEM_PYTHON has it.
func TestSnapshotInPyTorch(t *testing.T) {
	python := os.Getenv("OPTIMEM_PYTHON")
	if python == "" {
		t.Skip("OPTIMEM_PYTHON names no Python with PyTorch")
	}
	for name, o := range snapshotModes() {
		path := filepath.Join(t.TempDir(), "snapshot.pickle")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := memory.WriteSnapshot(f, planOf(t, o)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"trace", "stats", "memory", "segments", "trace_plot", "segment_plot"} {
			args := []string{"-m", "torch.cuda._memory_viz", kind, path}
			page := path + "." + kind
			if kind != "trace" && kind != "stats" {
				args = append(args, "-o", page)
			}
			out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
			if err != nil && kind != "memory" && kind != "segments" { // those two fetch a script from the network
				t.Errorf("%s: %s: %v\n%s", name, kind, err, out)
			}
			switch {
			case kind == "trace" && (!bytes.Contains(out, []byte(" = cudaMalloc(")) || bytes.Contains(out, []byte("MEM["))):
				t.Errorf("%s: %s", name, out)
			case kind == "stats" && !bytes.Contains(out, []byte("total_reserved")):
				t.Errorf("%s: %s", name, out)
			case strings.HasSuffix(kind, "_plot"):
				if text, err := os.ReadFile(page); err != nil || len(text) < 1000 {
					t.Errorf("%s: %s: a page of %d bytes, %v", name, kind, len(text), err)
				}
			}
		}
	}
}
