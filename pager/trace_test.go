package pager

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/device/null"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

var rewrite = flag.Bool("rewrite", false, "write the traces in testdata from what was recorded")

// byStream sorts a trace by streams: within one the order of calls is fixed, between two only waits are. Events get the
// names of their streams and are counted there. The stream of copies ends with the last copy that another waited for:
// how far it is ahead then is chance.
func byStream(trace string) string {
	events := make(map[string]string)
	var streams []string
	lines := make(map[string][]string)
	counts := make(map[string]int)
	last := make(map[string]int) // the line of the last event that was waited for
	var first []string
	for _, line := range strings.Split(strings.TrimSpace(trace), "\n") {
		who, what, _ := strings.Cut(line, " ")
		if who[0] != 's' || strings.HasPrefix(line, "stream") {
			first = append(first, line)
			continue
		}
		if lines[who] == nil {
			streams = append(streams, who)
		}
		if event, ok := strings.CutPrefix(what, "record "); ok {
			counts[who]++
			events[event] = fmt.Sprintf("%s.%d", who, counts[who])
			what = "record " + events[event]
		}
		if event, ok := strings.CutPrefix(what, "wait "); ok {
			what = "wait " + events[event]
			by, _, _ := strings.Cut(events[event], ".")
			for i, l := range lines[by] {
				if l == "record "+events[event] {
					last[by] = max(last[by], i+1)
				}
			}
		}
		lines[who] = append(lines[who], what)
	}
	var b strings.Builder
	for _, line := range first {
		fmt.Fprintln(&b, line)
	}
	slices.Sort(streams)
	for _, who := range streams {
		list := lines[who]
		if who != "s0" { // s0 computes
			list = list[:last[who]]
		}
		fmt.Fprintf(&b, "\n%s:\n  %s\n", who, strings.Join(list, "\n  "))
	}
	return b.String()
}

// TestTraces holds two passes of a small network in several modes to recorded traces: which copies, waits and runs in
// which order, where in memory.
func TestTraces(t *testing.T) {
	l, _ := network(t, newCPU(t), 2, 20, 30, 10, 40, 30)
	target := plan.Target{Name: "null", AlignBytes: 256}
	params := func(n int64) plan.Limit { return plan.Limit{N: n, Unit: plan.Params} }
	for name, o := range map[string]search.Options{
		"resident":     {Mode: plan.Resident},
		"page":         {Mode: plan.Page},
		"one_slot":     {Mode: plan.Page, Slots: 1},
		"two_at_once":  {Mode: plan.Page, Slots: 2, Instances: 2},
		"little_host":  {Mode: plan.Page, Slots: 2, HostBytes: 30 << 10},
		"larger_group": {Mode: plan.Page, MaxGroup: params(100_000)},
		"prefix":       {Mode: plan.Chunk, Capacity: params(1500)},
		"packed":       {Mode: plan.Chunk, Capacity: params(1500)},
	} {
		t.Run(name, func(t *testing.T) {
			o.Target = target
			l := plainly(l)
			if name == "packed" {
				l = withPacks(l)
			}
			made := mustPlan(t, l, o)
			dev := null.New(null.Options{})
			p, err := New(dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := p.Pass(t.Context(), made, newTransfer(l.Graph, made.Instances)); err != nil {
					t.Fatal(err)
				}
			}
			if dev.PeakBytes() != made.PeakBytes() {
				t.Errorf("a peak of %d bytes, %d planned", dev.PeakBytes(), made.PeakBytes())
			}
			got := byStream(dev.Trace())
			if err := errors.Join(p.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "trace_"+name+".txt")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s, − is recorded:\n%s", path, diff)
			}
		})
	}
}

// plainly returns the graph lowered for a device whose ops take no scratch memory and no packed weights: what is recorded
// does not change with any real device's kernels.
func plainly(l *graph.Lowered) *graph.Lowered {
	return &graph.Lowered{Graph: l.Graph, Steps: make([]graph.Step, len(l.Steps))}
}
