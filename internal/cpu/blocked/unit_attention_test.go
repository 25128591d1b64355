package blocked

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// A headsProblem is attention over heads side by side in rows [batch·tokens, heads·width].
type headsProblem struct {
	batch, heads int
	UnitAttention
	q, k, v []float32
	mask    []float32 // [batch·heads, queries, keys], nil for none
}

// sides returns where heads lie in rows of some tokens.
func (p *headsProblem) sides(tokens, width int) UnitHeads {
	h := UnitHeads{Rows: p.batch * tokens, RowStep: 1}
	for m := range p.batch * p.heads {
		h.First = append(h.First, (m%p.heads*width/UnitLanes*h.Rows+m/p.heads*tokens)*UnitLanes)
	}
	return h
}

func newHeadsProblem(rng *rand.Rand, batch, heads, queries, keys, width, values int) *headsProblem {
	p := &headsProblem{batch: batch, heads: heads}
	p.Queries, p.Keys, p.Width, p.ValueWidth, p.Scale = queries, keys, width, values, 0.3
	p.Q, p.Y = p.sides(queries, width), p.sides(queries, values)
	p.K, p.V = p.sides(keys, width), p.sides(keys, values)
	p.q = rounded(random(rng, batch*queries*heads*width))
	p.k = rounded(random(rng, batch*keys*heads*width))
	p.v = rounded(random(rng, batch*keys*heads*values))
	return p
}

// want computes the problem in double precision, [batch·queries, heads·values].
func (p *headsProblem) want() []float64 {
	out := make([]float64, p.batch*p.Queries*p.heads*p.ValueWidth)
	scores := make([]float64, p.Keys)
	for m := range p.batch * p.heads {
		b, h := m/p.heads, m%p.heads
		for q := range p.Queries {
			top, sum := math.Inf(-1), 0.0
			for k := range scores {
				scores[k] = 0
				for d := range p.Width {
					x := p.q[((b*p.Queries+q)*p.heads+h)*p.Width+d]
					scores[k] += float64(p.Scale) * float64(x) * float64(p.k[((b*p.Keys+k)*p.heads+h)*p.Width+d])
				}
				if p.mask != nil {
					scores[k] = float64(float32(scores[k]) + p.mask[(m*p.Queries+q)*p.Keys+k])
				}
				if p.Causal && k > q {
					scores[k] = math.Inf(-1)
				}
				top = math.Max(top, scores[k])
			}
			for k, s := range scores {
				if scores[k] = math.Exp(s - top); math.IsInf(top, -1) {
					scores[k] = 0
				}
				sum += scores[k]
			}
			for k, e := range scores {
				weight := e / sum
				if sum == 0 {
					weight = float64(p.Unseen)
				}
				for d := range p.ValueWidth {
					v := float64(p.v[((b*p.Keys+k)*p.heads+h)*p.ValueWidth+d])
					out[((b*p.Queries+q)*p.heads+h)*p.ValueWidth+d] += weight * v
				}
			}
		}
	}
	return out
}

// run computes the problem on some threads.
func (p *headsProblem) run(t failer, set *kernel.UnitSet, threads int) []float32 {
	t.Helper()
	u, err := NewUnitAttention(p.UnitAttention, set)
	if err != nil {
		t.Fatal(err)
	}
	a := UnitAttentionArgs{
		Q: toRows(set, p.Q.Rows, p.heads*p.Width, p.q), K: toRows(set, p.K.Rows, p.heads*p.Width, p.k),
		V: toRows(set, p.V.Rows, p.heads*p.ValueWidth, p.v), Y: make([]uint16, p.Y.Rows*p.heads*p.ValueWidth),
		Work: dirty(int(u.WorkBytes(threads) / 4)),
	}
	if p.mask != nil {
		a.Mask = func(head, query int, to []float32) bool {
			row := p.mask[(head*p.Queries+query)*p.Keys:][:p.Keys]
			if !slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
				return false // and nothing is written
			}
			copy(to, row)
			return true
		}
	}
	if err := u.Run(context.Background(), threadCount(threads), a); err != nil {
		t.Fatal(err)
	}
	columns := p.heads * p.ValueWidth
	out := make([]float32, p.Y.Rows*columns)
	for i := range out {
		r, c := i/columns, i%columns
		out[i] = math.Float32frombits(uint32(a.Y[(c/UnitLanes*p.Y.Rows+r)*UnitLanes+c%UnitLanes]) << 16)
	}
	return out
}

// Weights are rounded, and so are results, each by 1/256 of itself at most; scores are exact but for float32.
func TestUnitAttention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		p := newHeadsProblem(rng, draw("batch", 1, 2), draw("heads", 1, 3), draw("queries", 1, 200), draw("keys", 1, 150),
			32*draw("width", 1, 3), 32*draw("values", 1, 2))
		p.Causal = rapid.Bool().Draw(t, "causal")
		if rapid.Bool().Draw(t, "unseen is NaN") {
			p.Unseen = float32(math.NaN())
		}
		if rapid.Bool().Draw(t, "mask") {
			p.mask = random(rng, p.batch*p.heads*p.Queries*p.Keys)
			for i := range p.mask {
				switch rng.IntN(4) {
				case 0:
					p.mask[i] = float32(math.Inf(-1))
				case 1:
					p.mask[i] = 0
				}
			}
			for _, row := range []int{0, p.Queries - 1} {
				for k := range p.Keys {
					p.mask[row*p.Keys+k] = float32(math.Inf(-1))
				}
			}
			for row := range p.batch * p.heads * p.Queries { // what a mask says nothing of
				if rng.IntN(3) == 0 {
					clear(p.mask[row*p.Keys:][:p.Keys])
				}
			}
		}
		want := p.want()
		largest := 0.0
		for _, v := range p.v {
			largest = max(largest, math.Abs(float64(v)))
		}
		for _, set := range kernel.UnitSets() {
			got := p.run(t, set, 1)
			for i, v := range got {
				if want[i] != want[i] && v != v {
					continue
				}
				if d := math.Abs(float64(v) - want[i]); !(d <= largest/128+1e-6) {
					t.Fatalf("%s: element %d is %v, want %v", set.Name, i, v, want[i])
				}
			}
			sameBits(t, set.Name+": three threads", p.run(t, set, 3), got)
		}
	})
}

// What a mask of the least number hides counts alike where nothing else is seen, as in PyTorch; NaN and infinities reach
// the queries that see them and no others.
func TestUnitAttentionOfSpecialNumbers(t *testing.T) {
	for _, set := range kernel.UnitSets() {
		p := newHeadsProblem(rand.New(rand.NewPCG(1, 2)), 1, 2, 70, 45, 32, 32)
		p.mask = make([]float32, 2*70*45)
		for k := range 45 {
			p.mask[(70+3)*45+k] = -math.MaxFloat32
		}
		want := p.want()
		for i, v := range p.run(t, set, 1) {
			if d := math.Abs(float64(v) - want[i]); !(d <= 0.05) {
				t.Fatalf("%s: element %d is %v, want %v", set.Name, i, v, want[i])
			}
		}
		p.mask = nil
		p.Causal = true
		p.q[(30*2+1)*32+5] = float32(math.NaN()) // query 30 of head 1
		p.k[40*2*32] = float32(math.Inf(1))      // key 40 of head 0
		for i, v := range p.run(t, set, 1) {
			head, query := i/32%2, i/64
			special := head == 1 && query == 30 || head == 0 && query >= 40
			if !special && v != v || head == 1 && query == 30 && v == v {
				t.Fatalf("%s: head %d, query %d is %v", set.Name, head, query, v)
			}
		}
	}
}

// TestUnitAttentionRefuses: what no unit computes is said.
func TestUnitAttentionRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, change := range map[string]func(p *headsProblem){
		"odd heads":         func(p *headsProblem) { p.Width = 40 },
		"very many keys":    func(p *headsProblem) { p.Keys = 5000 },
		"results apart":     func(p *headsProblem) { p.Y.RowStep = 2 },
		"other heads":       func(p *headsProblem) { p.K.First = p.K.First[1:] },
		"nothing to see":    func(p *headsProblem) { p.Keys = 0 },
		"values of nothing": func(p *headsProblem) { p.ValueWidth = 0 },
	} {
		p := newHeadsProblem(rng, 1, 2, 40, 40, 32, 32)
		change(p)
		if _, err := NewUnitAttention(p.UnitAttention, kernel.UnitSets()[0]); err == nil {
			t.Errorf("%s are taken", name)
		}
	}
}

func BenchmarkUnitAttention(b *testing.B) {
	for _, tokens := range []int{128, 512} {
		p := newHeadsProblem(rand.New(rand.NewPCG(1, 2)), 1, 12, tokens, tokens, 64, 64)
		set := kernel.UnitSets()[0]
		u, err := NewUnitAttention(p.UnitAttention, set)
		if err != nil {
			b.Fatal(err)
		}
		a := UnitAttentionArgs{
			Q: toRows(set, tokens, 768, p.q), K: toRows(set, tokens, 768, p.k), V: toRows(set, tokens, 768, p.v),
			Y: make([]uint16, tokens*768), Work: make([]float32, u.WorkBytes(1)/4),
		}
		b.Run(map[int]string{128: "12x128x64", 512: "12x512x64"}[tokens], func(b *testing.B) {
			for b.Loop() {
				if err := u.Run(b.Context(), threadCount(1), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Queries that are weighed in several calls see the keys that they should, of many keys.
func TestUnitAttentionOfManyKeys(t *testing.T) {
	p := newHeadsProblem(rand.New(rand.NewPCG(59, 60)), 1, 1, 530, 530, 32, 32)
	p.Causal = true
	want := p.want()
	for _, set := range kernel.UnitSets() {
		for i, v := range p.run(t, set, 2) {
			if d := math.Abs(float64(v) - want[i]); !(d <= 1.0/64) {
				t.Fatalf("%s: element %d is %v, want %v", set.Name, i, v, want[i])
			}
		}
	}
}
