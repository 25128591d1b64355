package rewrite_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// results computes the outputs of a graph and what its states become.
func results(t *testing.T, pool *cpu.Pool, g *graph.Graph, yes byte) [][]byte {
	t.Helper()
	h := *g
	h.Outputs = nil
	for _, o := range g.Outputs {
		h.Outputs = append(h.Outputs, graph.Output{Name: "output " + o.Name, Operand: o.Operand})
	}
	for i, u := range g.Updates {
		h.Outputs = append(h.Outputs, graph.Output{Name: "state " + string(rune('a'+i)), Operand: u.Operand})
	}
	h.Updates = nil
	in := make(map[string]*tensor.Tensor)
	for k, id := range h.Inputs {
		v := h.Values[id]
		n, _ := v.Shape.NumElements()
		if v.DType == tensor.Bool {
			in[v.Name] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(), Data: []byte{yes}}
			continue
		}
		data := make([]byte, 0, 4*n)
		for i := range n {
			x := float32(int32(uint32(i+31*int64(k)+1)*2654435761)%2003)/1001 + 0.05
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		in[v.Name] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: data}
	}
	at := 0 // weights differ from each other
	out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), &h, func(v graph.Value) ([]byte, error) {
		data := numbers(v.DType, int(v.Bytes())/v.DType.Size())
		if v.DType == tensor.Float32 {
			for i := 0; i < len(data); i += 4 { // positive, for variances
				x := math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))
				x = 0.1 + float32(math.Abs(float64(x))) + float32(at%3)/8
				binary.LittleEndian.PutUint32(data[i:], math.Float32bits(x))
			}
		}
		return data, nil
	}, in)
	if err != nil {
		t.Fatal(err)
	}
	list := make([][]byte, len(h.Outputs))
	for i, o := range h.Outputs {
		list[i] = out[o.Name].Contiguous().Data
	}
	return list
}

// nearly reports whether floats differ by no more than a share of the largest, and are none at the same places.
func nearly(got, want []byte, share float64) bool {
	at := func(b []byte, i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	most := 1e-3
	for i := 0; i < len(want); i += 4 {
		if x := math.Abs(at(want, i)); x > most && !math.IsInf(x, 0) {
			most = x
		}
	}
	for i := 0; i < len(want); i += 4 {
		x, y := at(got, i), at(want, i)
		if x != y && !(math.Abs(x-y) <= share*most) && !(math.IsNaN(x) && math.IsNaN(y)) {
			return false
		}
	}
	return len(got) == len(want)
}

// TestPassesKeepResults: programs that are what a pass looks for, or nearly that, compute the same after it: the same bits
// where the pass rounds no other way, else the same within rounding. Programs are read in the middle, under guards, and
// have views that take one dimension for another of the same size.
func TestPassesKeepResults(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	exact := map[rewrite.Passes]bool{rewrite.ShareEqual: true, rewrite.FoldConstants: true, rewrite.FuseChains: true}
	every := rewrite.ShareEqual | rewrite.FoldConstants | rewrite.ScaleSums | rewrite.FindWhole | rewrite.FuseEpilogues |
		rewrite.FuseChains
	seeds := uint64(400)
	if testing.Short() {
		seeds = 150
	}
	for name, write := range map[string]func(p program) graph.Operand{
		"norm": program.norm, "activation": program.activation, "attention": program.attention,
		"repeated keys": program.repeated, "conv": program.conv2d, "dense": program.dense, "soup": program.soup,
		"rotary":              func(p program) graph.Operand { return p.rotary(tensor.Float32) },
		"rotary, half floats": func(p program) graph.Operand { return p.rotary(tensor.BFloat16) },
		"half floats":         program.narrow,
	} {
		t.Run(name, func(t *testing.T) {
			changed := 0
			for seed := range seeds {
				p := program{newSketch(t), rand.New(rand.NewPCG(seed, 7))}
				if p.often(4) { // two branches, which may compute the same
					yes := p.Whole(p.AddInput("yes", tensor.Bool, tensor.Shape{}))
					first := p.r.Uint64()
					second := first
					if p.often(2) {
						second++
					}
					p.guard = []graph.Guard{{Predicate: yes, Want: true}}
					p.r = rand.New(rand.NewPCG(first, 8))
					inputs := len(p.Inputs)
					a := write(p)
					given := p.Inputs[inputs:]
					p.guard = []graph.Guard{{Predicate: yes, Want: false}}
					p.r = rand.New(rand.NewPCG(second, 8))
					b := write(p)
					p.oneInput(given)
					p.guard = nil
					p.output(p.op("choose", nil, yes, a, b))
				} else {
					p.output(write(p))
				}
				for _, yes := range []byte{0, 1} {
					want := results(t, pool, p.Graph, yes)
					for pass := rewrite.Passes(0); pass <= rewrite.FuseChains; pass = max(1, 2*pass) {
						with := pass
						if pass == 0 {
							with = every
						}
						g := rewrite.Optimise(p.Graph, graph.Standard(), every&^with, evaluate)
						if len(g.Ops) < len(rewrite.Prune(p.Graph).Ops) {
							changed++
						}
						got := results(t, pool, g, yes)
						bits := exact[pass] || (name == "half floats" || name == "rotary, half floats" || name == "rotary")
						p.wellFormed(g)
						for k := range want {
							if bits && !bytes.Equal(got[k], want[k]) || !bits && !nearly(got[k], want[k], 1e-5) {
								t.Fatalf("seed %d, yes %d: passes %b: result %d changed: %s became %s", seed, yes, with, k,
									kindsOf(p.Graph), kindsOf(g))
							}
						}
					}
				}
			}
			if changed < int(seeds)/4 && name != "half floats" {
				t.Errorf("passes changed %d graphs only", changed)
			}
		})
	}
}

// wellFormed checks what every graph holds: results have the shapes that the rules of ops say, a choice is between what
// ops under its guards made, and what a state becomes is all of a value.
func (p program) wellFormed(g *graph.Graph) {
	p.t.Helper()
	from := make(map[graph.ValueID]*graph.Op)
	for i := range g.Ops {
		op := &g.Ops[i]
		for _, id := range op.Out {
			from[id] = op
		}
		def, _ := graph.Standard().Lookup(op.Kind)
		in, out := g.Specs(op, nil, nil)
		want, err := def.Shape(in, op.Attrs)
		if err != nil || len(want) != len(out) {
			p.t.Fatalf("%s of %v: %v", op.Kind, in, err)
		}
		for k := range out {
			if out[k].DType != want[k].DType || !out[k].Shape.Equal(want[k].Shape) {
				p.t.Fatalf("%s of %v gives %v, and its rule says %v", op.Kind, in, out[k], want[k])
			}
		}
		if op.Kind != "choose" {
			continue
		}
		for k, branch := range []bool{true, false} {
			made := from[op.In[1+k].Value]
			if len(made.Guard) != 1 || made.Guard[0].Want != branch {
				p.t.Fatalf("%s of the branch for %t is under guards %v", made.Kind, branch, made.Guard)
			}
		}
	}
	for _, u := range g.Updates {
		if s, v := g.Values[u.State], g.Values[u.Operand.Value]; s.Bytes() != v.Bytes() {
			p.t.Fatalf("a state of %d bytes becomes a value of %d", s.Bytes(), v.Bytes())
		}
	}
}

// oneInput makes ops read the inputs of the first branch where the second has its own.
func (p program) oneInput(first []graph.ValueID) {
	for k, id := range p.Inputs[1+len(first):] {
		if k >= len(first) || !p.Values[id].Shape.Equal(p.Values[first[k]].Shape) {
			return
		}
		for i := range p.Ops {
			for n := range p.Ops[i].In {
				if p.Ops[i].In[n].Value == id {
					p.Ops[i].In[n].Value = first[k]
				}
			}
		}
	}
}
