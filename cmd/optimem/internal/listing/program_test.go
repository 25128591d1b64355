package listing

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/script"
)

func programTree(p *loader.Program, names ...string) string {
	ckpt := &loader.Checkpoint{Weights: matrices(names...), Program: p}
	return modulesOf(ckpt, nil, newTally(ckpt.Weights)).text(false)
}

func TestExportedModules(t *testing.T) {
	root := exported.Frame{Path: "", Class: "__main__.Net"}
	fc := exported.Frame{Path: "fc", Class: "torch.nn.modules.linear.Linear"}
	again := exported.Frame{Path: "fc@1", Class: "torch.nn.modules.linear.Linear"}
	act := exported.Frame{Path: "act", Class: "torch.nn.modules.activation.ReLU"}
	graph := &exported.Graph{Nodes: []exported.Node{
		{Modules: []exported.Frame{root, act}},
		{Modules: []exported.Frame{root, fc}},
		{},
		{Modules: []exported.Frame{root, again}},
	}}
	want := `module  params  bytes  class
(all)       20   80 B  __main__.Net
act          0    0 B  torch.nn.modules.activation.ReLU
fc          10   40 B  torch.nn.modules.linear.Linear
head        10   40 B
`
	got := programTree(&loader.Program{Exported: &exported.Program{Graph: graph}}, "fc.weight", "head.weight")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestScriptModules(t *testing.T) {
	fc := &script.Object{Class: "__torch__.torch.nn.modules.linear.___torch_mangle_12.Linear"}
	block := &script.Object{Class: "__torch__.Block", Attributes: []script.Field{{Name: "fc", Value: fc}}}
	root := &script.Object{Class: "__torch__.Net", Attributes: []script.Field{
		{Name: "training", Value: true},
		{Name: "block", Value: block},
		{Name: "head", Value: fc},
	}}
	// A hostile archive may hold an object that contains itself.
	block.Attributes = append(block.Attributes, script.Field{Name: "up", Value: root})
	want := `module  params  bytes  class
(all)       20   80 B  Net
block       10   40 B  Block
  fc        10   40 B  torch.nn.modules.linear.Linear
head        10   40 B
`
	got := programTree(&loader.Program{Script: &script.Program{Root: root}}, "block.fc.weight", "head.weight")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRanges(t *testing.T) {
	program := &loader.Program{Exported: &exported.Program{TorchVersion: "2.15.0", Ranges: []exported.Range{
		{Symbol: "s0", Min: 2, Max: 64},
		{Symbol: "s1", Min: 1, Max: math.MaxInt64},
		{Symbol: "s2", Min: math.MinInt64, Max: 9},
		{Symbol: "s3", Min: math.MinInt64, Max: math.MaxInt64},
	}}}
	in := New(&loader.Checkpoint{Program: program})
	var got []string
	for _, r := range in.ranges() {
		got = append(got, rangeText(r))
	}
	want := []string{"2 ≤ s0 ≤ 64", "1 ≤ s1", "s2 ≤ 9", "s3 may be any size"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	o := jsonout.New(&b)
	jsonout.Array(o, "ranges", func(yield func(symbolRange) bool) { yield(in.ranges()[1]) })
	if err := o.Close(); err != nil || !strings.Contains(b.String(), `{"symbol":"s1","min":1,"max":null}`) {
		t.Errorf("%s, %v", b.String(), err)
	}
}
