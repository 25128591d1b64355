package aten_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// TestMutatedCalls changes one argument of each recorded call so that it mostly does not fit the others. Such a call is
// refused or built, and computed where that is little work: nothing panics.
func TestMutatedCalls(t *testing.T) {
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	each := 60
	if testing.Short() {
		each = 1
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	refused, computed := 0, 0
	for i, c := range cases {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for range each {
			args := mutated(rng, c.Args)
			if err := computeCall(t, pool, c.Target, args); err != nil {
				refused++
			} else {
				computed++
			}
		}
	}
	if refused < computed/4 || computed < refused/4 {
		t.Errorf("%d calls refused and %d computed: the changes are too hard or too soft", refused, computed)
	}
}

// affordable reports whether a graph takes little memory and work. A call may ask for much: what PyTorch would begin to
// compute is not refused here, and where memory ends a session refuses it.
func affordable(t *testing.T, g *graph.Graph) bool {
	t.Helper()
	const most = 1 << 24
	var bytes, work int64
	for _, v := range g.Values {
		if bytes += v.Bytes(); v.Bytes() > most || bytes > most {
			return false
		}
	}
	for _, op := range g.Ops {
		def, ok := graph.Standard().Lookup(op.Kind)
		if !ok {
			t.Errorf("no op %s", op.Kind)
			return false
		}
		var in, out []graph.Spec
		for _, o := range op.In {
			in = append(in, g.Spec(o))
		}
		for _, id := range op.Out {
			out = append(out, g.Spec(g.Whole(id)))
		}
		cost := def.Cost(in, out, op.Attrs)
		if work += cost.FLOPs + cost.Bytes; cost.FLOPs < 0 || cost.Bytes < 0 || work < 0 || work > 4*most {
			return false
		}
	}
	return true
}

// computeCall computes a call over tensors of zeros.
func computeCall(t *testing.T, pool *cpu.Pool, target string, args map[string]any) error {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s%v: %v\n%s", target, args, p, debug.Stack())
		}
	}()
	g, err := aten.BuildCall(graph.Standard(), target, args)
	if err != nil {
		return err
	}
	if !affordable(t, g) {
		return nil
	}
	inputs := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		inputs[v.Name] = &tensor.Tensor{
			DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: make([]byte, v.Bytes()),
		}
	}
	_, err = cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
	return err
}

// mutated returns the arguments with one of them changed.
func mutated(rng *rand.Rand, args map[string]any) map[string]any {
	out := maps.Clone(args)
	name := slices.Sorted(maps.Keys(args))[rng.IntN(len(args))]
	switch v := args[name].(type) {
	case aten.Given:
		out[name] = mutatedTensor(rng, v)
	case []aten.Given:
		list := slices.Clone(v)
		switch n := rng.IntN(4); {
		case len(list) > 0 && n > 0:
			k := rng.IntN(len(list))
			list[k] = mutatedTensor(rng, list[k])
		case len(list) > 0:
			list = list[1:]
		}
		out[name] = list
	case int:
		out[name] = []int{v + 1, v - 1, 0, -v, 1 << 40, math.MaxInt, math.MinInt}[rng.IntN(7)]
	case []int:
		list := slices.Clone(v)
		if len(list) > 0 && rng.IntN(3) > 0 {
			k := rng.IntN(len(list))
			n := list[k]
			list[k] = []int{n - 2, n - 1, n + 1, n + 2, -1, 1 << 40, math.MaxInt, math.MinInt}[rng.IntN(8)]
		} else {
			list = append(list, 1)
		}
		out[name] = list
	case bool:
		out[name] = !v
	case float64:
		out[name] = []float64{0, 1, -v, 2.5, 1e300, math.NaN(), math.Inf(-1)}[rng.IntN(7)]
	case string:
		at := rng.IntN(len(v) + 1)
		out[name] = v[:at] + []string{"i", ",", ".", "->", "Z"}[rng.IntN(5)] + v[at:]
	}
	return out
}

// mutatedTensor returns a tensor of another shape or dtype, with memory of its own.
func mutatedTensor(rng *rand.Rand, g aten.Given) aten.Given {
	shape := slices.Clone(g.Layout.Shape)
	dtypes := []tensor.DType{
		tensor.Float32, tensor.Float64, tensor.Float16, tensor.Int64, tensor.UInt8, tensor.Bool, tensor.Complex64,
	}
	switch n := rng.IntN(6); {
	case n == 0:
		g.DType = dtypes[rng.IntN(len(dtypes))]
	case n == 1:
		shape = slices.Insert(shape, rng.IntN(len(shape)+1), 1+rng.IntN(2))
	case len(shape) > 0 && n == 2:
		d := rng.IntN(len(shape))
		shape = slices.Delete(shape, d, d+1)
	case len(shape) > 0:
		d := rng.IntN(len(shape))
		n := shape[d]
		shape[d] = []int{0, 1, n + 1, n * 2, max(n-1, 0), 1 << 40, 1 << 58}[rng.IntN(7)]
	}
	n, err := shape.NumElements()
	if _, ok := tensor.MulBytes(n, int64(g.DType.Size())); err != nil || !ok {
		return g // no input has such a shape
	}
	g.Layout = tensor.Contiguous(shape...)
	g.Elements = int(n)
	g.Name = fmt.Sprint(g.Name, "′")
	return g
}
