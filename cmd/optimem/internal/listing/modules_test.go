package listing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// matrices returns float32 weights of 10 elements with the given names, each in its own storage; "b = a" is tied to a.
func matrices(names ...string) []tensor.Weight {
	file := &unread{1 << 30}
	at := make(map[string]int64)
	var weights []tensor.Weight
	for i, name := range names {
		name, tied, _ := strings.Cut(name, " = ")
		at[name] = int64(i) * 64
		if tied != "" {
			at[name] = at[tied]
		}
		weights = append(weights, in(file, at[name], 40, name, tensor.Float32, tensor.Contiguous(2, 5)))
	}
	return weights
}

func treeOf(dicts []loader.StateDict, names ...string) *Tree {
	ckpt := &loader.Checkpoint{Weights: matrices(names...)}
	return modulesOf(ckpt, dicts, newTally(ckpt.Weights))
}

func paramsByPath(tree *Tree) []string {
	var got []string
	tree.Walk(0, func(i int32, depth int) {
		m := &tree.modules[i]
		got = append(got, fmt.Sprintf("%d %s %d", depth, m.path, m.count.params))
	})
	return got
}

func TestModulesFromNames(t *testing.T) {
	tests := []struct {
		name  string
		dicts []loader.StateDict
		names []string
		want  []string
	}{{
		name:  "in order of first mention, parents first",
		names: []string{"conv.weight", "layer.0.weight", "fc.weight", "layer.0.bias", "layer.1.weight", "scale"},
		want: []string{
			"0  60", "1 conv 10", "1 layer 30", "2 layer.0 20", "2 layer.1 10", "1 fc 10",
		},
	}, {
		name:  "a tied weight counts in both modules and once above them",
		names: []string{"wte.weight", "h.0.weight", "h.lm.weight = h.0.weight", "lm_head.weight = wte.weight"},
		want:  []string{"0  20", "1 wte 10", "1 h 10", "2 h.0 10", "2 h.lm 10", "1 lm_head 10"},
	}, {
		name:  "the state dict of a training checkpoint",
		dicts: []loader.StateDict{{Path: "state_dict", Prefix: "module."}},
		names: []string{"state_dict.module.fc.weight", "optimizer.state.0.exp_avg"},
		want:  []string{"0  10", "1 fc 10"},
	}, {
		name:  "two state dicts",
		dicts: []loader.StateDict{{Path: "model"}, {Path: "ema"}},
		names: []string{"model.fc.weight", "ema.fc.weight", "optimizer.state.0.exp_avg"},
		want:  []string{"0  20", "1 model 10", "2 model.fc 10", "1 ema 10", "2 ema.fc 10"},
	}, {
		name:  "names with empty parts",
		names: []string{".weight", "a..weight", "weight."},
		want:  []string{"0  30", "1 a 10", "1 weight 10"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, paramsByPath(treeOf(tt.dicts, tt.names...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Nothing that names say may cost more than the bounds of the tree.
func TestModulesFromHostileNames(t *testing.T) {
	deep := strings.Repeat("a.", 200_000) + "weight"
	long := strings.Repeat("x", 1<<20) + ".y.weight"
	names := []string{deep, long}
	for i := range 2 * maxModules / maxModuleDepth {
		names = append(names, fmt.Sprintf("%d%s.weight", i, strings.Repeat(".m", maxModuleDepth)))
	}
	tree := treeOf(nil, names...)
	if len(tree.modules) != maxModules {
		t.Errorf("%d modules, want %d", len(tree.modules), maxModules)
	}
	if want := int64(10 * len(names)); tree.modules[0].count.params != want {
		t.Errorf("%d params, want %d: what is not kept counts above", tree.modules[0].count.params, want)
	}
	tree.Walk(0, func(_ int32, depth int) {
		if depth > maxModuleDepth {
			t.Fatalf("depth %d", depth)
		}
	})
	if lines := strings.Count(tree.text(false), "\n"); lines > 3*moduleLines {
		t.Errorf("%d lines", lines)
	}
}

func TestPickledModules(t *testing.T) {
	ckpt := &loader.Checkpoint{
		Weights: matrices("fc.weight", "fc.bias", "stray"),
		Module: &loader.Module{
			Class: "__main__.Net",
			Children: []*loader.Module{
				{Class: "torch.nn.modules.linear.Linear", Path: "fc", Params: []loader.Member{
					{Name: "weight", Weight: "fc.weight"}, {Name: "bias", Weight: "fc.bias"},
				}},
				{Class: "torch.nn.modules.activation.ReLU", Path: "act"},
			},
		},
	}
	tree := modulesOf(ckpt, nil, newTally(ckpt.Weights))
	want := `module  params  bytes  class
(all)       20   80 B  __main__.Net
fc          20   80 B  torch.nn.modules.linear.Linear
act          0    0 B  torch.nn.modules.activation.ReLU
`
	if diff := cmp.Diff(want, tree.text(false)); diff != "" {
		t.Error(diff)
	}
}

func TestModuleText(t *testing.T) {
	var names []string
	for i := range 12 {
		for _, leaf := range []string{"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"} {
			names = append(names, fmt.Sprintf("h.%d.%s.weight", i, leaf))
		}
	}
	names = append(names, "ln.0.weight", "ln.1.weight", "head.weight")
	tree := treeOf(nil, names...)
	want := `module          params     bytes
(all)              510  1.99 KiB
h                  480  1.88 KiB
  0                 40     160 B
    attn            20      80 B
      c_attn        10      40 B
      c_proj        10      40 B
    mlp             20      80 B
      c_fc          10      40 B
      c_proj        10      40 B
  1 … 11 alike
ln                  20      80 B
  0                 10      40 B
  1 alike
head                10      40 B
`
	if diff := cmp.Diff(want, tree.text(false)); diff != "" {
		t.Error(diff)
	}
	if all := tree.text(true); strings.Count(all, "c_attn") != 12 {
		t.Errorf("not all modules are printed:\n%s", all)
	}
}

// Layers are alike only if what is in them has the same sizes.
func TestModuleTextOfOtherSizes(t *testing.T) {
	text := treeOf(nil, "h.0.fc.weight", "h.0.fc.bias", "h.1.fc.weight").text(false)
	if strings.Contains(text, "alike") || strings.Count(text, "fc") != 2 {
		t.Errorf("layers of other sizes are folded:\n%s", text)
	}
}
