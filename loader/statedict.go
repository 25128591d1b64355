package loader

import (
	"cmp"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A StateDict is a set of weights named as a module names them, found somewhere inside a checkpoint.
type StateDict struct {
	// Path is where it lies: "" when the file is nothing else, else "state_dict", "model", "ema", ….
	Path string
	// Prefix is what wrappers put before every name ("module.", "_orig_mod.", or both), without which a bare module's
	// names begin.
	Prefix string
	// Weights are the weights under their names in the module: Path and Prefix removed.
	Weights []tensor.Weight
}

// A dictNode is a dictionary that holds tensors directly, or a pickled module; its weights are
// Weights[first:end], those of nested dictionaries included.
type dictNode struct {
	path       string
	module     bool
	direct     int
	first, end int
}

// stateDictNames orders the keys under which training scripts keep a model's weights, best first.
var stateDictNames = []string{
	"", "state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params", "generator",
	"ema", "ema_state_dict", "state_dict_ema", "model_ema", "ema_model", "params_ema",
}

// trainingState are keys of tensors that belong to the training and not to a model.
var trainingState = map[string]bool{
	"optimizer": true, "optimizers": true, "optimizer_states": true, "optimizer_state_dict": true, "optim": true,
	"lr_scheduler": true, "lr_schedulers": true, "scheduler": true, "scheduler_state_dict": true, "callbacks": true,
	"loops": true, "scaler": true, "grad_scaler": true, "amp": true, "rng_state": true, "random_state": true,
}

// StateDicts returns the state dicts in the checkpoint, the most likely model first. Formats that hold nothing but
// named weights give one, with Path "".
func (c *Checkpoint) StateDicts() []StateDict {
	nodes := c.dicts
	if nodes == nil && len(c.Weights) > 0 {
		nodes = []dictNode{{direct: len(c.Weights), end: len(c.Weights)}}
	}
	var candidates []dictNode
	for _, n := range nodes {
		if n.end == n.first || inTrainingState(n.path) {
			continue
		}
		if n.path == "" && !n.module && 2*n.direct < n.end-n.first {
			continue // a training checkpoint with a stray tensor beside its state dict
		}
		candidates = append(candidates, n)
	}
	candidates = outermost(candidates)
	rank := func(n dictNode) int {
		if i := slices.Index(stateDictNames, n.path); i >= 0 {
			return i
		}
		return len(stateDictNames)
	}
	slices.SortStableFunc(candidates, func(a, b dictNode) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.end-b.first, a.end-a.first))
	})
	dicts := make([]StateDict, 0, len(candidates))
	for _, n := range candidates {
		dicts = append(dicts, c.stateDict(n))
	}
	return dicts
}

// outermost returns the nodes that lie inside no other, in their order. Of nodes with the same weights the last one is
// the outer: the walk notes a dictionary when it leaves it.
func outermost(nodes []dictNode) []dictNode {
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := nodes[i], nodes[j]
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.end, a.end), cmp.Compare(j, i))
	})
	end := 0
	order = slices.DeleteFunc(order, func(i int) bool {
		inside := nodes[i].end <= end
		end = max(end, nodes[i].end)
		return inside
	})
	slices.Sort(order)
	outer := make([]dictNode, len(order))
	for k, i := range order {
		outer[k] = nodes[i]
	}
	return outer
}

func inTrainingState(path string) bool {
	first, _, _ := strings.Cut(path, ".")
	return trainingState[first]
}

func (c *Checkpoint) stateDict(n dictNode) StateDict {
	d := StateDict{Path: n.path, Weights: slices.Clone(c.Weights[n.first:n.end])}
	for i := range d.Weights {
		if n.path != "" {
			d.Weights[i].Name = strings.TrimPrefix(d.Weights[i].Name, n.path+".")
		}
	}
	d.Prefix = wrapperPrefix(d.Weights)
	for i := range d.Weights {
		d.Weights[i].Name = d.Weights[i].Name[len(d.Prefix):]
	}
	return d
}

// wrapperPrefix returns what DataParallel, torch.compile and FSDP put before every name.
func wrapperPrefix(weights []tensor.Weight) string {
	prefix := ""
	for {
		grown := false
		for _, wrapper := range []string{"module.", "_orig_mod.", "_fsdp_wrapped_module."} {
			if len(weights) > 0 && !slices.ContainsFunc(weights, func(w tensor.Weight) bool {
				rest := w.Name[len(prefix):]
				return !strings.HasPrefix(rest, wrapper) || len(rest) == len(wrapper)
			}) {
				prefix, grown = weights[0].Name[:len(prefix)+len(wrapper)], true
				break
			}
		}
		if !grown {
			return prefix
		}
	}
}
