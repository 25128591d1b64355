// Package plan decides before anything is allocated where every byte of a pass will lie: it is a pure function from a
// lowered graph to offsets in an arena.
//
// It knows graphs and bytes. It does not know devices, clocks or goroutines. Today it plans the resident mode, in which
// everything is on the device at once; paged, chunked and mixed plans follow.
//
//	p, err := plan.Resident(lowered)
//	fmt.Println(p.WeightBytes, p.ActivationBytes, p.WorkBytes)
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// Align is what every offset in an arena is a multiple of: a cache line, and the width of the widest vector.
const Align = 64

// A Plan says where the values of a graph lie while it runs.
type Plan struct {
	Lowered *layers.Lowered
	// Places has one entry for each value of the graph.
	Places []Place
	// WeightBytes is the size of the arena of weights, states and constants; ActivationBytes that of inputs and results,
	// in which values that are not alive together share bytes; WorkBytes the largest scratch memory of an op.
	WeightBytes, ActivationBytes, WorkBytes int64
}

// An Arena is one allocation.
type Arena uint8

// The arenas.
const (
	Weights Arena = iota
	Activations
)

// A Place is where a value lies.
type Place struct {
	Arena  Arena
	Offset int64
	Bytes  int64
	// First and Last are the ops between which the value is alive: First writes it (−1: it is there from the start),
	// Last is the last to read it (len(Ops): the end of the pass).
	First, Last int
}

// Bytes returns all the memory that a pass takes.
func (p *Plan) Bytes() int64 { return p.WeightBytes + p.ActivationBytes + p.WorkBytes }

// Resident plans a pass with everything on the device.
func Resident(l *layers.Lowered) (*Plan, error) {
	g := l.Graph
	p := &Plan{Lowered: l, Places: lifetimes(g)}
	var ok bool
	var live []int
	for id, v := range g.Values {
		place := &p.Places[id]
		n, err := v.Shape.NumElements()
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", v.Name, err)
		}
		if place.Bytes, ok = tensor.MulBytes(n, int64(v.DType.Size())); !ok {
			return nil, fmt.Errorf("value %s: %v of %v takes more than 2^63 bytes", v.Name, v.Shape, v.DType)
		}
		switch v.Role {
		case layers.Weight, layers.State, layers.Const:
			place.Arena, place.Offset = Weights, p.WeightBytes
			if p.WeightBytes += alignUp(place.Bytes); p.WeightBytes < 0 {
				return nil, fmt.Errorf("weights take more than 2^63 bytes")
			}
		default:
			place.Arena = Activations
			if place.Bytes > 0 {
				live = append(live, id)
			}
		}
	}
	for _, s := range l.Steps {
		p.WorkBytes = max(p.WorkBytes, alignUp(s.WorkBytes))
	}
	p.ActivationBytes = pack(p.Places, live)
	return p, nil
}

func alignUp(n int64) int64 { return (n + Align - 1) &^ (Align - 1) }

// lifetimes finds the first and the last op that need each value.
func lifetimes(g *layers.Graph) []Place {
	places := make([]Place, len(g.Values))
	for i := range places {
		places[i].First, places[i].Last = -1, -1
	}
	for i, op := range g.Ops {
		for _, id := range op.Out {
			places[id].First, places[id].Last = i, i
		}
		for _, o := range op.In {
			if o.Value != layers.NoValue {
				places[o.Value].Last = i
			}
		}
		for _, c := range op.Guard {
			places[c.Predicate.Value].Last = i
		}
	}
	end := len(g.Ops)
	for _, o := range g.Outputs {
		places[o.Operand.Value].Last = end
	}
	for _, u := range g.Updates {
		places[u.Operand.Value].Last = end
	}
	return places
}

// pack gives the values offsets such that no two that are alive together overlap, the largest first, each at the lowest
// offset where it fits: within a few percent of the largest sum alive at once for real networks. It returns the size of
// the arena.
func pack(places []Place, ids []int) int64 {
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(places[b].Bytes, places[a].Bytes) })
	var size int64
	placed := make([]int, 0, len(ids)) // by offset
	for _, id := range ids {
		v := &places[id]
		need := alignUp(v.Bytes)
		var at int64
		best := int64(-1)
		var bestGap int64
		for _, other := range placed {
			o := &places[other]
			if o.Last < v.First || v.Last < o.First {
				continue
			}
			if gap := o.Offset - at; gap >= need && (best < 0 || gap < bestGap) {
				best, bestGap = at, gap
			}
			at = max(at, o.Offset+alignUp(o.Bytes))
		}
		if best < 0 {
			best = at
		}
		v.Offset = best
		size = max(size, best+need)
		i, _ := slices.BinarySearchFunc(placed, best, func(other int, off int64) int {
			return cmp.Compare(places[other].Offset, off)
		})
		placed = slices.Insert(placed, i, id)
	}
	return size
}
