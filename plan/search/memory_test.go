package search

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestHoldings: over plans of all kinds, what is alive at an op is the bytes that its holders cover in the arena, which
// is as long as they reach at some op; a plan takes for every purpose what the ops find in use.
func TestHoldings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		p, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		if p.MinBytes >= 2 && rapid.Bool().Draw(t, "least") {
			o.MemoryBytes = p.MinBytes
			if p, err = Plan(l, o); err != nil {
				t.Fatal(err)
			}
		}
		if s := p.Sides; s != nil {
			whole := p.Holdings()
			for side, q := range []*plan.Plan{s.Device, s.Host} {
				checkHoldings(t, q)
				for i, h := range q.Holdings() {
					op := s.Whole[side].Ops[i]
					h.OnHost = side == 1
					if whole[op] != h || !slices.Equal(p.Holders(op), q.Holders(i)) || !slices.Equal(p.HeldWeights(op), q.HeldWeights(i)) {
						t.Fatalf("op %d is op %d of side %d: %+v is %+v", op, i, side, whole[op], h)
					}
				}
			}
			return
		}
		checkHoldings(t, p)
	})
}

func checkHoldings(t failer, p *plan.Plan) {
	align := p.Target.AlignBytes
	if len(p.Lowered.Graph.Ops) > 0 {
		// Each weight that stays is there, with all of its bytes; what is left is between them.
		var taken int64
		residents := p.HeldWeights(0)
		for i, r := range residents {
			if taken += r.Bytes; r.Bytes <= 0 || i > 0 && r.Bytes > residents[i-1].Bytes {
				t.Fatalf("%+v, and before it %+v", r, residents[:i])
			}
		}
		pieces := len(p.Fixed.Parts) + len(p.Fixed.Packed)
		if gaps := p.Fixed.Bytes - taken; gaps < 0 || gaps > int64(pieces)*2*max(align, storage.AlignBytes) || len(residents) > pieces {
			t.Fatalf("%d weights of %d pieces take %d bytes of %d", len(residents), pieces, taken, p.Fixed.Bytes)
		}
	}
	reached, work := int64(0), int64(0)
	all := p.Holdings()
	for op, h := range all {
		var runs []storage.Extent
		for id := range p.Places {
			place := &p.Places[id]
			if op < place.First || op > place.Last || place.Bytes == 0 {
				continue
			}
			n := plan.AlignUp(place.Bytes, align)
			if place.Stride > 0 {
				n = place.Stride * int64(p.Instances)
			}
			runs = append(runs, storage.Extent{Offset: place.Offset, Bytes: n})
			reached = max(reached, place.Offset+n)
		}
		if n := plan.DistinctBytes(runs); n != h.ActivationBytes || n > p.ActivationBytes {
			t.Fatalf("op %d: %d bytes are alive, which cover %d of %d\n%v", op, h.ActivationBytes, n, p.ActivationBytes, p)
		}
		var held int64
		for i, x := range p.Holders(op) {
			held += x.Bytes
			if i > 0 && x.Bytes > p.Holders(op)[i-1].Bytes {
				t.Fatalf("op %d: the holders are not in order", op)
			}
		}
		if held != h.ActivationBytes {
			t.Fatalf("op %d: holders of %d bytes, where %d are alive", op, held, h.ActivationBytes)
		}
		if h.FixedBytes != p.Fixed.Bytes+p.ConstBytes || h.RingBytes != p.RingBytes || h.Total() > p.PassBytes() {
			t.Fatalf("op %d: %+v\n%v", op, h, p)
		}
		work = max(work, plan.AlignUp(h.WorkBytes, align))
	}
	if len(all) > 0 && (reached != p.ActivationBytes || work != p.WorkBytes) {
		t.Fatalf("ops reach to %d of %d bytes and need %d of %d of scratch memory\n%v",
			reached, p.ActivationBytes, work, p.WorkBytes, p)
	}
}

// TestHoldersNameWhoMadeThem: a skip's value is held beside what is made meanwhile, and a sum that is written over its
// operand is the only one of both.
func TestHoldersNameWhoMadeThem(t *testing.T) {
	b := newBuilder(t)
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{2, 32})
	first := b.emit("a", "linear", nil, b.g.Whole(x), b.weight("a.weight", 32, 32))
	wide := b.emit("b", "linear", nil, b.g.Whole(first), b.weight("b.weight", 320, 32))
	last := b.emit("c", "linear", nil, b.g.Whole(wide), b.weight("c.weight", 32, 320))
	sum := b.emit("", "add", nil, b.g.Whole(last), b.g.Whole(first))
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(sum)}}
	l, err := lower(b.g)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Plan(l, Options{Mode: plan.Resident, Target: plan.CPU, Lower: lower})
	if err != nil {
		t.Fatal(err)
	}
	for op, want := range [][]string{{"x", "a"}, {"b", "a"}, {"b", "a", "c"}, {"a", "add"}} {
		var got []string
		for _, h := range p.Holders(op) {
			got = append(got, cmp.Or(h.Path, h.Name, string(h.Kind)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("op %d: %v, want %v", op, got, want)
		}
	}
	if h := p.Holdings(); h[2].ActivationBytes != 2*(32+320+32)*4 || h[1].WorkBytes != 320*4 {
		t.Errorf("%+v", h)
	}
}

// TestReads: a weight that two ops read is one, a part of it is a part, and a table of which rows are brought counts.
func TestReads(t *testing.T) {
	b := newBuilder(t)
	x := b.g.AddInput("x", tensor.Float32, tensor.Shape{2, 32})
	w := b.weight("w", 32, 32)
	half := w
	half.Layout.Shape = tensor.Shape{16, 32}
	y := b.emit("a", "linear", nil, b.g.Whole(x), w)
	z := b.emit("b", "linear", nil, b.g.Whole(y), half)
	b.g.Outputs = []graph.Output{{Name: "y", Operand: b.g.Whole(z)}}
	l, _ := lower(b.g)
	p, err := Plan(l, Options{Mode: plan.Page, Target: plan.CPU, Lower: lower})
	if err != nil {
		t.Fatal(err)
	}
	reads := p.Reads()
	if len(reads) != 2 || plan.DistinctBytes(reads[0]) != 4096 || plan.DistinctBytes(reads[1]) != 2048 ||
		plan.DistinctBytes(slices.Concat(reads...)) != 4096 {
		t.Errorf("%v", reads)
	}
}
