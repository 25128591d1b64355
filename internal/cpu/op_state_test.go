package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// A walkCase is an op with a state and the sizes of its operands.
type walkCase struct {
	kind graph.Kind
	// channels and taps are a convolution's; heads, groups, rows and columns the others'; own is set where each number
	// of a state has a rate of its own, bare where a convolution has no bias.
	channels, taps               int
	heads, groups, rows, columns int
	own, bare                    bool
}

var walkCases = []walkCase{
	{kind: "causal_conv", channels: 5, taps: 2},
	{kind: "causal_conv", channels: 600, taps: 4, bare: true},
	{kind: "selective_scan", heads: 37, groups: 1, rows: 16, columns: 1, own: true},
	{kind: "selective_scan", heads: 96, groups: 3, rows: 5, columns: 1, own: true},
	{kind: "selective_scan", heads: 6, groups: 2, rows: 7, columns: 1},
	{kind: "selective_scan", heads: 80, groups: 2, rows: 5, columns: 1},
	{kind: "selective_scan", heads: 4, groups: 2, rows: 24, columns: 33},
	{kind: "selective_scan", heads: 3, groups: 1, rows: 128, columns: 64},
	{kind: "delta_rule", heads: 4, groups: 2, rows: 9, columns: 7},
	{kind: "delta_rule", heads: 3, groups: 3, rows: 64, columns: 48},
	{kind: "delta_rule", heads: 4, groups: 2, rows: 9, columns: 7, own: true},
	{kind: "delta_rule", heads: 3, groups: 3, rows: 32, columns: 40, own: true},
}

func (c walkCase) String() string {
	return fmt.Sprint(c.kind, c.channels, "-", c.heads, "-", c.rows, "-", c.columns)
}

// A walked is a case with operands for some sequences of tokens.
type walked struct {
	walkCase
	tokens int
	// fixed are the operands that are no tokens', nil where an operand is; of each sequence there are the others.
	fixed     []*tensor.Tensor
	sequences [][]*tensor.Tensor
}

func newWalked(c walkCase, sequences, tokens int, r *rand.Rand) *walked {
	w := &walked{walkCase: c, tokens: tokens}
	draw := func(low, high float64, shape ...int) *tensor.Tensor {
		x := newTensor(tensor.Float32, shape...)
		for i := range ops.Elements[float32](ops.View{Data: x.Data}) {
			ops.Elements[float32](ops.View{Data: x.Data})[i] = float32(low + (high-low)*r.Float64())
		}
		return x
	}
	rates := 1
	if c.own {
		rates = c.rows
	}
	switch c.kind {
	case "causal_conv":
		w.fixed = []*tensor.Tensor{nil, draw(-1, 1, c.channels, c.taps), draw(-1, 1, c.channels)}
	case "selective_scan":
		w.fixed = []*tensor.Tensor{nil, nil, draw(-2, -0.1, c.heads, rates), nil, nil}
	case "delta_rule":
		w.fixed = make([]*tensor.Tensor, 5)
	}
	for range sequences {
		var in []*tensor.Tensor
		switch c.kind {
		case "causal_conv":
			in = []*tensor.Tensor{draw(-1, 1, tokens, c.channels), nil, nil}
		case "selective_scan":
			in = []*tensor.Tensor{
				draw(-1, 1, tokens, c.heads, c.columns), draw(0, 1, tokens, c.heads), nil, draw(-1, 1, tokens, c.groups, c.rows),
				draw(-1, 1, tokens, c.groups, c.rows),
			}
		case "delta_rule":
			s := 1 / math.Sqrt(float64(c.rows))
			in = []*tensor.Tensor{
				draw(-s, s, tokens, c.groups, c.rows), draw(-s, s, tokens, c.groups, c.rows), draw(-1, 1, tokens, c.heads, c.columns),
				draw(-1, 0, tokens, c.heads), draw(0, 1, tokens, c.heads),
			}
			if c.own {
				in[3] = draw(-1, 0, tokens, c.heads, c.rows)
			}
		}
		w.sequences = append(w.sequences, in)
	}
	return w
}

// cache returns so many places for states, with rubbish in them.
func (w *walked) cache(places int) *tensor.Tensor {
	shape := []int{places, w.heads, w.rows, w.columns}
	if w.kind == "causal_conv" {
		shape = []int{places, w.taps - 1, w.channels}
	}
	x := newTensor(tensor.Float32, shape...)
	for i := range x.Data {
		x.Data[i] = 0x3f
	}
	return x
}

// A step is a row of a pass: a token of a sequence, where its state is and where it goes; a negative token is none.
type step struct {
	sequence, token int
	from, to        int64
}

// run computes a pass and returns the bytes of each row. Operands lie within wider memory, so that rows are not one
// behind the other.
func (w *walked) run(t *testing.T, pool *ops.Pool, cache *tensor.Tensor, steps []step) [][]byte {
	t.Helper()
	in := make([]*tensor.Tensor, len(w.fixed), len(w.fixed)+2)
	for i, x := range w.fixed {
		if x != nil {
			if in[i] = x; i == 2 && w.bare {
				in[i] = nil
			}
			continue
		}
		one := w.sequences[0][i].Layout.Shape[1:]
		n := ops.Volume(one)
		wide := newTensor(tensor.Float32, 1, len(steps), n+3)
		for k, s := range steps {
			if s.token >= 0 {
				copy(wide.Data[k*(n+3)*4:][:n*4], w.sequences[s.sequence][i].Data[s.token*n*4:])
			}
		}
		l := tensor.Contiguous(append([]int{1, len(steps)}, one...)...)
		l.Strides[0], l.Strides[1] = len(steps)*(n+3), n+3
		in[i] = &tensor.Tensor{DType: tensor.Float32, Layout: l, Data: wide.Data}
	}
	if cache != nil {
		places := newTensor(tensor.Int64, len(steps), 2)
		for k, s := range steps {
			ops.Elements[int64](ops.View{Data: places.Data})[2*k], ops.Elements[int64](ops.View{Data: places.Data})[2*k+1] = s.from, s.to
		}
		in = append(in, cache, places)
	}
	out, err := Compute(t.Context(), pool, graph.Standard(), w.kind, nil, in...)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]byte, len(steps))
	each := len(out[0].Data) / len(steps)
	for k := range rows {
		rows[k] = out[0].Data[k*each:][:each]
	}
	return rows
}

func floatsAt(x *tensor.Tensor, from, n int) []float32 {
	return ops.Elements[float32](ops.View{Data: x.Data})[from:][:n]
}

// want computes a sequence in float64 from the definition.
func (w *walked) want(sequence int) [][]float64 {
	in := w.sequences[sequence]
	var out [][]float64
	state := make([]float64, max(w.heads, 1)*max(w.rows, 1)*max(w.columns, 1))
	for t := range w.tokens {
		var y []float64
		if w.kind == "causal_conv" {
			for c := range w.channels {
				sum := float64(floatsAt(w.fixed[2], c, 1)[0])
				if w.bare {
					sum = 0
				}
				for k := range w.taps {
					if at := t - w.taps + 1 + k; at >= 0 {
						sum += float64(floatsAt(w.fixed[1], c*w.taps+k, 1)[0]) * float64(floatsAt(in[0], at*w.channels+c, 1)[0])
					}
				}
				y = append(y, sum)
			}
			out = append(out, y)
			continue
		}
		for h := range w.heads {
			g := h / (w.heads / w.groups)
			s := state[h*w.rows*w.columns:][:w.rows*w.columns]
			if w.kind == "selective_scan" {
				x, dt := floatsAt(in[0], (t*w.heads+h)*w.columns, w.columns), float64(floatsAt(in[1], t*w.heads+h, 1)[0])
				b, c := floatsAt(in[3], (t*w.groups+g)*w.rows, w.rows), floatsAt(in[4], (t*w.groups+g)*w.rows, w.rows)
				for p := range w.columns {
					sum := 0.0
					for n := range w.rows {
						rate := float64(floatsAt(w.fixed[2], h, 1)[0])
						if w.own {
							rate = float64(floatsAt(w.fixed[2], h*w.rows+n, 1)[0])
						}
						s[n*w.columns+p] = math.Exp(dt*rate)*s[n*w.columns+p] + float64(b[n])*dt*float64(x[p])
						sum += float64(c[n]) * s[n*w.columns+p]
					}
					y = append(y, sum)
				}
				continue
			}
			q, k := floatsAt(in[0], (t*w.groups+g)*w.rows, w.rows), floatsAt(in[1], (t*w.groups+g)*w.rows, w.rows)
			v := floatsAt(in[2], (t*w.heads+h)*w.columns, w.columns)
			share := float64(floatsAt(in[4], t*w.heads+h, 1)[0])
			decay := func(d int) float64 {
				at := t*w.heads + h
				if w.own {
					at = at*w.rows + d
				}
				return math.Exp(float64(floatsAt(in[3], at, 1)[0]))
			}
			for e := range w.columns {
				seen, sum := 0.0, 0.0
				for d := range w.rows {
					s[d*w.columns+e] *= decay(d)
					seen += float64(k[d]) * s[d*w.columns+e]
				}
				for d := range w.rows {
					s[d*w.columns+e] += float64(k[d]) * share * (float64(v[e]) - seen)
					sum += float64(q[d]) * s[d*w.columns+e]
				}
				y = append(y, sum)
			}
		}
		out = append(out, y)
	}
	return out
}

// all are the steps of a sequence from its beginning.
func (w *walked) all(sequence int, to int64) []step {
	var steps []step
	for t := range w.tokens {
		steps = append(steps, step{sequence, t, graph.StateBefore, graph.StateNone})
	}
	steps[0].from, steps[len(steps)-1].to = graph.StateNone, to
	return steps
}

// TestWalksAsDefined: numbers are those of the definition, computed in float64.
func TestWalksAsDefined(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	for k, c := range walkCases {
		t.Run(c.String(), func(t *testing.T) {
			w := newWalked(c, 1, 60, rand.New(rand.NewPCG(1, uint64(k))))
			want := w.want(0)
			for i, row := range w.run(t, pool, nil, w.all(0, 0)) {
				for j, y := range want[i] {
					if got := float64(ops.Elements[float32](ops.View{Data: row})[j]); !(math.Abs(got-y) <= 2e-6*(1+math.Abs(y))*4) {
						t.Fatalf("token %d: element %d is %v, want %v", i, j, got, y)
					}
				}
			}
		})
	}
}

// TestWalksInAnyParts: a token's bits, and those of the state that it leaves, are the same however its sequence is cut
// into passes, whatever sequences and rows that are no tokens are beside it, in whatever places states are and on any
// number of threads.
func TestWalksInAnyParts(t *testing.T) {
	one, several := ops.NewPool(1), ops.NewPool(3)
	defer one.Close()
	defer several.Close()
	const sequences, length, places = 3, 40, 9
	for k, c := range walkCases {
		t.Run(c.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(2, uint64(k)))
			w := newWalked(c, sequences, length, r)
			var want [sequences][][]byte
			ends := w.cache(sequences)
			for s := range want {
				want[s] = w.run(t, one, ends, w.all(s, int64(s)))
			}
			size := len(ends.Data) / sequences
			for round := range 6 {
				cache := w.cache(places)
				var done [sequences]int
				at := [sequences]int64{graph.StateNone, graph.StateNone, graph.StateNone}
				free := r.Perm(places)
				for done != [sequences]int{length, length, length} {
					var steps []step
					for _, s := range r.Perm(sequences) {
						n := min(length-done[s], []int{0, 1, r.IntN(4), r.IntN(20), length}[r.IntN(5)])
						for i := range n {
							x := step{s, done[s] + i, graph.StateBefore, graph.StateNone}
							if i == 0 {
								x.from = at[s]
							}
							if i == n-1 { // in its place, or in another
								if x.to = at[s]; x.to < 0 || r.IntN(2) == 0 {
									x.to, free = int64(free[0]), free[1:]
									if at[s] >= 0 {
										free = append(free, int(at[s]))
									}
								}
								at[s] = x.to
							} else if i == 0 && at[s] >= 0 && r.IntN(2) == 0 { // where it was, though the next row goes on with it
								x.to = at[s]
							} else if r.IntN(4) == 0 { // a state on the way, of which nobody hears
								x.to = int64(free[r.IntN(len(free))])
							}
							steps = append(steps, x)
						}
						done[s] += n
						steps = append(steps, step{0, -1, graph.StateAbsent, graph.StateNone})
					}
					for i, got := range w.run(t, []*ops.Pool{one, several}[round%2], cache, steps) {
						x := steps[i]
						if x.token < 0 && bytes.Count(got, []byte{0}) != len(got) {
							t.Fatal("a row that is no token gives something")
						}
						if x.token >= 0 && !bytes.Equal(got, want[x.sequence][x.token]) {
							t.Fatalf("token %d of %d gives other bits", x.token, x.sequence)
						}
					}
				}
				for s := range at {
					if !bytes.Equal(cache.Data[int(at[s])*size:][:size], ends.Data[s*size:][:size]) {
						t.Fatalf("sequence %d leaves another state", s)
					}
				}
			}
		})
	}
}

// TestWalksBesideEachOther: several sequences of one pass, without a cache, give what each gives alone.
func TestWalksBesideEachOther(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	const sequences, length = 3, 5
	for k, c := range walkCases {
		w := newWalked(c, sequences, length, rand.New(rand.NewPCG(4, uint64(k))))
		in := make([]*tensor.Tensor, len(w.fixed))
		for i, x := range w.fixed {
			if in[i] = x; i == 2 && w.bare {
				in[i] = nil
			}
			if x != nil {
				continue
			}
			in[i] = newTensor(tensor.Float32, append([]int{sequences}, w.sequences[0][i].Layout.Shape...)...)
			for s, own := range w.sequences {
				copy(in[i].Data[s*len(in[i].Data)/sequences:], own[i].Data)
			}
		}
		out, err := Compute(t.Context(), pool, graph.Standard(), c.kind, nil, in...)
		if err != nil {
			t.Fatal(err)
		}
		for s := range sequences {
			alone := bytes.Join(w.run(t, pool, nil, w.all(s, 0)), nil)
			if !bytes.Equal(alone, out[0].Data[s*len(alone):][:len(alone)]) {
				t.Errorf("%v: sequence %d has other bits beside others", c, s)
			}
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := Compute(stopped, pool, graph.Standard(), c.kind, nil, in...); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: stopped, it gives %v", c, err)
		}
	}
}

// TestWalksFail: a row whose state is nowhere is an error that says which number is wrong, and nothing is written.
func TestWalksFail(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	for k, c := range walkCases {
		w := newWalked(c, 1, 2, rand.New(rand.NewPCG(3, uint64(k))))
		for _, states := range [][4]int64{
			{graph.StateBefore, -1, graph.StateBefore, 0}, {3, 0, graph.StateBefore, 0}, {0, 3, graph.StateBefore, 0}, {-4, 0, 0, 0},
			{graph.StateAbsent, -1, graph.StateBefore, 0}, {0, 1, math.MaxInt64, 0},
		} {
			cache := w.cache(3)
			before := bytes.Clone(cache.Data)
			places := newTensor(tensor.Int64, 2, 2)
			copy(ops.Elements[int64](ops.View{Data: places.Data}), states[:])
			in := make([]*tensor.Tensor, len(w.fixed))
			for i, x := range w.fixed {
				if in[i] = x; x == nil {
					own := w.sequences[0][i]
					in[i] = &tensor.Tensor{DType: own.DType, Layout: tensor.Contiguous(append([]int{1}, own.Layout.Shape...)...), Data: own.Data}
				}
			}
			_, err := Compute(t.Context(), pool, graph.Standard(), c.kind, nil, append(in, cache, places)...)
			var index *graph.IndexError
			if operand, _ := c.kind.StateOperand(); !errors.As(err, &index) || index.Operand != operand+1 || !bytes.Equal(cache.Data, before) {
				t.Errorf("%v: %v: %v", c, states, err)
			}
		}
	}
}

// BenchmarkWalks: a token and a prompt of Mamba 1 and 2 and of a gated delta rule, in the sizes of models of 2 to 4
// billion parameters.
func BenchmarkWalks(b *testing.B) {
	pool := ops.NewPool(0)
	defer pool.Close()
	for _, c := range []walkCase{
		{kind: "causal_conv", channels: 5120, taps: 4},
		{kind: "selective_scan", heads: 5120, groups: 1, rows: 16, columns: 1, own: true},
		{kind: "selective_scan", heads: 80, groups: 1, rows: 128, columns: 64},
		{kind: "delta_rule", heads: 32, groups: 16, rows: 128, columns: 128},
	} {
		for _, tokens := range []int{1, 64} {
			w := newWalked(c, 1, tokens, rand.New(rand.NewPCG(3, 4)))
			in := make([]*tensor.Tensor, len(w.fixed))
			for i, x := range w.fixed {
				if in[i] = x; x == nil {
					own := w.sequences[0][i]
					in[i] = &tensor.Tensor{DType: own.DType, Layout: tensor.Contiguous(append([]int{1}, own.Layout.Shape...)...), Data: own.Data}
				}
			}
			b.Run(fmt.Sprintf("%v/%d", c, tokens), func(b *testing.B) {
				for b.Loop() {
					if _, err := Compute(b.Context(), pool, graph.Standard(), c.kind, nil, in...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
