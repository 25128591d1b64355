package models_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// TestMutatedCalls changes one argument of each recorded call so that it mostly does not fit the others. Such a call is
// refused or computed: nothing panics.
func TestMutatedCalls(t *testing.T) {
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	each := 6
	if testing.Short() {
		each = 1
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	refused, computed := 0, 0
	for i, c := range cases {
		family, _, _ := strings.Cut(c.Name, "/")
		if !slices.Contains([]string{"linear", "attention", "recurrent", "einsum", "reduction", "norm", "index"}, family) {
			continue
		}
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

// computeCall computes a call over tensors of zeros.
func computeCall(t *testing.T, pool *cpu.Pool, target string, args map[string]any) error {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s%v: %v\n%s", target, args, p, debug.Stack())
		}
	}()
	g, err := models.BuildCall(layers.Standard(), target, args)
	if err != nil {
		return err
	}
	var bytes int64
	for _, v := range g.Values {
		if bytes += v.Bytes(); v.Bytes() > 1<<24 || bytes > 1<<24 {
			return nil // a call may ask for much: a session's budget refuses it
		}
	}
	inputs := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		inputs[v.Name] = &tensor.Tensor{
			DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: make([]byte, v.Bytes()),
		}
	}
	_, err = cpu.Interpret(t.Context(), pool, layers.Standard(), g, nil, inputs)
	return err
}

// mutated returns the arguments with one of them changed.
func mutated(rng *rand.Rand, args map[string]any) map[string]any {
	out := maps.Clone(args)
	name := slices.Sorted(maps.Keys(args))[rng.IntN(len(args))]
	switch v := args[name].(type) {
	case models.Given:
		out[name] = mutatedTensor(rng, v)
	case []models.Given:
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
		out[name] = []int{v + 1, v - 1, 0, -v, 1 << 40}[rng.IntN(5)]
	case []int:
		list := slices.Clone(v)
		if len(list) > 0 && rng.IntN(3) > 0 {
			list[rng.IntN(len(list))] += rng.IntN(5) - 2
		} else {
			list = append(list, 1)
		}
		out[name] = list
	case bool:
		out[name] = !v
	case float64:
		out[name] = []float64{0, 1, -v, 2.5}[rng.IntN(4)]
	case string:
		at := rng.IntN(len(v) + 1)
		out[name] = v[:at] + []string{"i", ",", ".", "->", "Z"}[rng.IntN(5)] + v[at:]
	}
	return out
}

// mutatedTensor returns a tensor of another shape or dtype, with memory of its own.
func mutatedTensor(rng *rand.Rand, g models.Given) models.Given {
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
		shape[d] = []int{0, 1, shape[d] + 1, shape[d] * 2, max(shape[d]-1, 0)}[rng.IntN(5)]
	}
	g.Layout = tensor.Contiguous(shape...)
	n, _ := shape.NumElements()
	g.Elements = int(n)
	g.Name = fmt.Sprint(g.Name, "′")
	return g
}
