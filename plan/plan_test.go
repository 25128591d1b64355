package plan

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// chain returns a graph of relus over n elements, each reading an earlier value.
func chain(t interface{ Fatal(...any) }, n int, sources []int) *layers.Lowered {
	g := &layers.Graph{}
	ids := []layers.ValueID{g.AddInput("x", tensor.Float32, tensor.Shape{n})}
	for _, from := range sources {
		out, err := g.Emit(layers.Standard(), layers.Op{Kind: "relu", In: []layers.Operand{g.Whole(ids[from])}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, out[0])
	}
	g.Outputs = []layers.Output{{Name: "y", Operand: g.Whole(ids[len(ids)-1])}}
	return &layers.Lowered{Graph: g, Steps: make([]layers.Step, len(g.Ops))}
}

// TestResidentReuses holds a chain to two buffers: what an op reads and what it writes.
func TestResidentReuses(t *testing.T) {
	p, err := Resident(chain(t, 1024, []int{0, 1, 2, 3, 4, 5}))
	if err != nil {
		t.Fatal(err)
	}
	if p.ActivationBytes != 2*4096 {
		t.Errorf("a chain takes %d bytes, want two buffers of 4096", p.ActivationBytes)
	}
}

// TestResidentKeepsWhatIsRead keeps a value that the last op reads.
func TestResidentKeepsWhatIsRead(t *testing.T) {
	p, err := Resident(chain(t, 1024, []int{0, 1, 2, 1}))
	if err != nil {
		t.Fatal(err)
	}
	if p.ActivationBytes != 3*4096 {
		t.Errorf("takes %d bytes, want three buffers of 4096", p.ActivationBytes)
	}
}

// TestResidentKeepsPredicates keeps what decides whether an op runs until the last op that asks.
func TestResidentKeepsPredicates(t *testing.T) {
	l := chain(t, 64, []int{0, 1, 2, 3})
	g := l.Graph
	flag := g.AddInput("flag", tensor.Bool, tensor.Shape{})
	for _, i := range []int{0, 2} {
		g.Ops[i].Guard = []layers.Guard{{Predicate: g.Whole(flag), Want: true}}
	}
	p, err := Resident(l)
	if err != nil {
		t.Fatal(err)
	}
	if place := p.Places[flag]; place.First != -1 || place.Last != 2 {
		t.Errorf("the predicate is alive from %d to %d, want -1 to 2", place.First, place.Last)
	}
}

// TestPackNeverOverlaps: no two values that are alive together share a byte, and the arena is no larger than their sum.
func TestPackNeverOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "values")
		places := make([]Place, n)
		ids := make([]int, n)
		var sum int64
		for i := range places {
			first := rapid.IntRange(-1, 40).Draw(t, "first")
			places[i] = Place{
				First: first, Last: rapid.IntRange(first, 41).Draw(t, "last"),
				Bytes: rapid.Int64Range(1, 5000).Draw(t, "bytes"),
			}
			ids[i] = i
			sum += alignUp(places[i].Bytes)
		}
		size := pack(places, ids)
		if size > sum {
			t.Fatalf("%d bytes for values of %d", size, sum)
		}
		for i, a := range places {
			if a.Offset%Align != 0 || a.Offset < 0 || a.Offset+a.Bytes > size {
				t.Fatalf("value %d lies at %d of %d", i, a.Offset, size)
			}
			for j, b := range places[:i] {
				together := a.First <= b.Last && b.First <= a.Last
				if together && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes {
					t.Fatalf("values %d and %d overlap", i, j)
				}
			}
		}
	})
}
