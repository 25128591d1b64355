package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A side being followed by hand: what each of its values is, as a text of the ops that made it.
type followed struct {
	g    *Graph
	text map[ValueID]string
	next int
}

// run goes on as far as what is known allows and reports whether it went on at all.
func (f *followed) run() bool {
	begun := f.next
	for ; f.next < len(f.g.Ops); f.next++ {
		op := &f.g.Ops[f.next]
		text := string(op.Kind) + op.Path + "("
		for _, o := range op.In {
			known, ok := f.text[o.Value]
			if o.Value != NoValue && !ok {
				return f.next > begun
			}
			text += fmt.Sprint(known, o.Layout, ",")
		}
		for _, c := range op.Guard {
			known, ok := f.text[c.Predicate.Value]
			if !ok {
				return f.next > begun
			}
			text += fmt.Sprint("if ", known, c.Want)
		}
		for k, id := range op.Out {
			f.text[id] = text + ")" + strconv.Itoa(k)
		}
	}
	return f.next > begun
}

// follow begins with what nobody computes, but the inputs for which given is false.
func follow(g *Graph, given func(id ValueID) bool) *followed {
	f := &followed{g: g, text: make(map[ValueID]string)}
	for id, v := range g.Values {
		if v.Role != Computed && (v.Role != Input || given(ValueID(id))) {
			f.text[ValueID(id)] = fmt.Sprint(v.Role, v.Name, v.Const)
		}
	}
	return f
}

// TestDivideComputesTheSame: two sides that give each other what crosses compute every output and every state of the whole
// graph, whatever is on which side. A value crosses once, and every side that reads a state updates its own.
func TestDivideComputesTheSame(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := &sketch{t: t}
		s.Modules = make(map[string]Operand)
		list := []Operand{s.input("x", 4), s.input("y", 4)}
		for i := range 2 {
			w := tensor.Weight{Name: "s" + strconv.Itoa(i), DType: tensor.Float32, Extent: storage.Extent{Bytes: 16}}
			list = append(list, s.Whole(s.AddWeight(w, State)))
			w.Name = "w" + strconv.Itoa(i)
			list = append(list, s.Whole(s.AddWeight(w, Weight)))
		}
		pick := func() Operand { return list[r.IntN(len(list))] }
		for i := range 3 + r.IntN(15) {
			s.path = strconv.Itoa(i)
			var made []Operand
			switch r.IntN(4) {
			case 0:
				yes := s.op("lt", nil, pick(), pick())
				yes.Layout = tensor.Layout{}
				made = append(made, s.op("relu", nil, pick()))
				s.Ops[len(s.Ops)-1].Guard = []Guard{{Predicate: yes, Want: r.IntN(2) == 0}}
			case 1:
				ids, err := s.Emit(Standard(), Op{Kind: "topk", Path: s.path, In: []Operand{pick()},
					Attrs: Attrs{"dim": 0, "k": 4, "largest": true}})
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, s.Whole(ids[0]))
			default:
				made = append(made, s.op("add", nil, pick(), pick()))
			}
			list = append(list, made...)
		}
		for i := range 1 + r.IntN(4) {
			s.give("o"+strconv.Itoa(i), pick())
		}
		for _, id := range []ValueID{list[2].Value, list[4].Value} {
			computed := list[6+r.IntN(len(list)-6)]
			s.Updates = append(s.Updates, StateUpdate{State: id, Operand: computed})
		}
		g := &s.Graph
		whole := follow(g, func(ValueID) bool { return true })
		whole.run()

		sides, crossings := Divide(g, func(int) bool { return r.IntN(2) == 0 })
		crossing := [2]map[ValueID]bool{{}, {}}
		for _, c := range crossings {
			crossing[1-c.From][c.Input] = true
		}
		var f [2]*followed
		for i, side := range sides {
			f[i] = follow(side.Graph, func(id ValueID) bool { return !crossing[i][id] })
		}
		for went := true; went; {
			went = f[0].run()
			went = f[1].run() || went
			for _, c := range crossings {
				from, to := f[c.From], f[1-c.From]
				if c.Output >= len(from.g.Outputs) || c.Output < len(sides[c.From].Outputs) {
					t.Fatalf("seed %d: output %d crosses, and the caller sees the first %d of %d", seed, c.Output,
						len(sides[c.From].Outputs), len(from.g.Outputs))
				}
				o := from.g.Outputs[c.Output].Operand
				if known, ok := from.text[o.Value]; ok && to.text[c.Input] == "" {
					to.text[c.Input], went = known, true
				}
			}
		}
		seen := make([]int, len(g.Outputs))
		ops := 0
		for i, side := range sides {
			ops += f[i].next
			if f[i].next < len(side.Graph.Ops) {
				t.Fatalf("seed %d: side %d waits for what nobody gives", seed, i)
			}
			for k, n := range side.Outputs {
				o, want := side.Graph.Outputs[k], g.Outputs[n]
				seen[n]++
				if got := f[i].text[o.Operand.Value]; o.Name != want.Name || got != whole.text[want.Operand.Value] {
					t.Fatalf("seed %d: output %s is %s, want %s", seed, want.Name, got, whole.text[want.Operand.Value])
				}
			}
			reads := make(map[string]bool)
			for _, op := range side.Graph.Ops {
				for _, o := range op.In {
					if v := side.Graph.Values[o.Value]; v.Role == State {
						reads[v.Name] = true
					}
				}
			}
			for _, u := range side.Graph.Updates {
				name := side.Graph.Values[u.State].Name
				delete(reads, name)
				n := slices.IndexFunc(g.Updates, func(w StateUpdate) bool { return g.Values[w.State].Name == name })
				if got, want := f[i].text[u.Operand.Value], whole.text[g.Updates[n].Operand.Value]; got != want {
					t.Fatalf("seed %d: state %s becomes %s, want %s", seed, name, got, want)
				}
			}
			if len(reads) > 0 {
				t.Fatalf("seed %d: side %d reads states %v and does not update them", seed, i, reads)
			}
		}
		if ops != len(g.Ops) || slices.ContainsFunc(seen, func(n int) bool { return n != 1 }) {
			t.Fatalf("seed %d: %d ops of %d, outputs seen %v", seed, ops, len(g.Ops), seen)
		}
		given := make(map[string]bool)
		for _, c := range crossings {
			key := fmt.Sprint(c.From, f[1-c.From].text[c.Input])
			if given[key] {
				t.Fatalf("seed %d: %s crosses twice", seed, key)
			}
			given[key] = true
		}
	}
}
