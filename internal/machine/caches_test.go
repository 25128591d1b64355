package machine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A file is weights in memory, of which a read may fail.
type file struct {
	data  []byte
	fails bool
}

func (f *file) Size() int64 { return int64(len(f.data)) }

func (f *file) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.fails {
		return errDisk
	}
	if off < 0 || off > int64(len(f.data)) || copy(p, f.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

var errDisk = errors.New("the disk is gone")

// A decoder is a small model that looks at what earlier passes left in caches, its weights in a file.
type decoder struct {
	name                                            string
	layers, width, heads, groups, each, wide, words int
	weights, activations, cache                     tensor.DType
	window                                          int
	file                                            file
	extents                                         map[string]storage.Extent
	r                                               *rand.Rand
	precision                                       string
	blocks, spare                                   int
}

func (d *decoder) filled() *decoder {
	d.extents, d.r = make(map[string]storage.Extent), rand.New(rand.NewPCG(1, 9))
	if d.activations == tensor.Invalid {
		d.activations = tensor.Float32
	}
	if d.weights == tensor.Invalid {
		d.weights = d.activations
	}
	if d.cache == tensor.Invalid {
		d.cache = d.activations
	}
	if d.layers == 0 {
		d.layers = 2
	}
	d.words, d.blocks, d.spare = 71, 12, 2
	d.graph(1) // which draws the weights
	return d
}

// weight returns a weight, drawn when it is first asked for.
func (d *decoder) weight(g *graph.Graph, name string, dtype tensor.DType, scale float64, shape ...int) graph.Operand {
	l := tensor.Contiguous(shape...)
	n, _ := l.NumElements()
	e, ok := d.extents[name]
	if !ok {
		for range n {
			x := float32(d.r.NormFloat64() * scale)
			switch dtype {
			case tensor.Float32:
				d.file.data = binary.LittleEndian.AppendUint32(d.file.data, math.Float32bits(x))
			case tensor.BFloat16:
				d.file.data = binary.LittleEndian.AppendUint16(d.file.data, tensor.BFloat16FromFloat32(x))
			case tensor.Float16:
				d.file.data = binary.LittleEndian.AppendUint16(d.file.data, tensor.Float16FromFloat32(x))
			case tensor.Int8:
				d.file.data = append(d.file.data, byte(int8(d.r.IntN(255)-127)))
			}
		}
		bytes := n * int64(dtype.Size())
		e = storage.Extent{Source: &d.file, Offset: int64(len(d.file.data)) - bytes, Bytes: bytes}
		d.extents[name] = e
	}
	w := g.AddWeight(tensor.Weight{Name: name, DType: dtype, Layout: l, Extent: e}, graph.Weight)
	return graph.Operand{Value: w, Layout: l}
}

// graph returns the model for so many rows.
func (d *decoder) graph(rows int) *graph.Graph {
	g := &graph.Graph{}
	ids := g.Whole(g.AddInput("ids", tensor.Int64, tensor.Shape{rows}))
	at := g.Whole(g.AddInput("positions", tensor.Int64, tensor.Shape{rows}))
	tables := g.Whole(g.AddInput("blocks", tensor.Int64, tensor.Shape{rows, d.blocks}))
	path := ""
	emit := func(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) graph.Operand {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, Attrs: attrs, In: in})
		if err != nil {
			panic(err)
		}
		return g.Whole(out[0])
	}
	norm := func(x graph.Operand) graph.Operand {
		w := d.weight(g, path+".norm.weight", d.activations, 1, d.width)
		return emit("rms_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, x, w)
	}
	linear := func(name string, x graph.Operand, n int) graph.Operand {
		k := x.Layout.Shape[len(x.Layout.Shape)-1]
		scale := 1.5 / math.Sqrt(float64(k))
		w := d.weight(g, name+".weight", d.weights, scale, n, k)
		if d.weights != tensor.Int8 {
			return emit("linear", nil, x, w)
		}
		return emit("linear", nil, x, w, graph.Absent, graph.Absent, d.weight(g, name+".scales", d.activations, scale/70, n))
	}
	heads := func(x graph.Operand, n int) graph.Operand {
		x.Layout = tensor.Contiguous(rows, n, d.each)
		return x
	}
	path = "embed"
	x := emit("embedding", nil, d.weight(g, "embed.weight", d.activations, 1, d.words, d.width), ids)
	for i := range d.layers {
		path = fmt.Sprintf("layers.%d.attention", i)
		y := norm(x)
		q := heads(linear(path+".q", y, d.heads*d.each), d.heads)
		k := heads(linear(path+".k", y, d.groups*d.each), d.groups)
		v := heads(linear(path+".v", y, d.groups*d.each), d.groups)
		places := (3*d.blocks + d.spare) * graph.BlockRows
		keys := g.Whole(g.AddCache(path+".keys", d.cache, tensor.Shape{places, d.groups, graph.CacheWidth(d.cache, d.each)}))
		values := g.Whole(g.AddCache(path+".values", d.cache, tensor.Shape{places, d.groups, graph.CacheWidth(d.cache, d.each)}))
		y = emit("attend", graph.Attrs{"scale": 0.4, "window": d.window}, q, k, v, keys, values, at, tables)
		y.Layout = tensor.Contiguous(rows, d.heads*d.each)
		x = emit("add", nil, x, linear(path+".o", y, d.width))
		path = fmt.Sprintf("layers.%d.mlp", i)
		y = norm(x)
		up := emit("mul", nil, emit("silu", nil, linear(path+".gate", y, d.wide)), linear(path+".up", y, d.wide))
		x = emit("add", nil, x, linear(path+".down", up, d.width))
	}
	path = "head"
	g.Outputs = []graph.Output{{Name: "scores", Operand: linear("head", norm(x), d.words)}}
	return g
}

// A session is a decoder on a machine, with a plan for each number of rows.
type session struct {
	t       *testing.T
	d       *decoder
	m       machine.Machine
	o       search.Options
	plans   map[int]*plan.Plan
	ran     *plan.Plan
	passing bytesIO
}

func (d *decoder) open(t *testing.T, device string, threads int, mode plan.Mode, memory int64) *session {
	t.Helper()
	return d.openWith(t, mode, machine.Options{Device: device, Threads: threads, Ops: graph.Standard(), MemoryBytes: memory})
}

func (d *decoder) openWith(t *testing.T, mode plan.Mode, mo machine.Options) *session {
	t.Helper()
	m, err := machine.Open(mo)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, d: d, m: m, plans: make(map[int]*plan.Plan)}
	dev := m.Device()
	s.o = search.Options{
		Mode: mode, Target: dev.Target, MemoryBytes: mo.MemoryBytes, Rates: dev.Rates, Lower: dev.Lower, HostLower: dev.HostLower,
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plan returns the plan for so many rows.
func (s *session) plan(rows int) (*plan.Plan, error) {
	if p := s.plans[rows]; p != nil {
		return p, nil
	}
	c, err := s.m.Compile(s.t.Context(), s.d.graph(rows), machine.Compilation{
		Ops: graph.Standard(), Mode: s.o.Mode, Precision: s.d.precision,
	})
	if err != nil {
		return nil, err
	}
	o := s.o
	o.Like = s.ran
	p, err := search.Plan(c.Lowered, o)
	if err == nil {
		s.plans[rows] = p
	}
	return p, err
}

// A token is a word at a position of one of three sequences; a negative position is none.
type token struct{ sequence, position, word int }

// bytesIO has the inputs in their order, and takes the output.
type bytesIO struct {
	in  [][]byte
	ids []graph.ValueID
	out []byte
}

func (x *bytesIO) Input(_ int, id graph.ValueID) []byte {
	for i, known := range x.ids {
		if known == id {
			return x.in[i]
		}
	}
	return nil
}

func (x *bytesIO) Output(int, int, bool) []byte { return x.out }

// run runs a pass and returns each token's scores.
func (s *session) run(ctx context.Context, tokens []token) ([][]byte, error) {
	p, err := s.plan(len(tokens))
	if err != nil {
		return nil, err
	}
	x := &s.passing
	*x = bytesIO{in: make([][]byte, 3), ids: p.Lowered.Graph.Inputs}
	for _, k := range tokens {
		x.in[0] = binary.LittleEndian.AppendUint64(x.in[0], uint64(k.word))
		x.in[1] = binary.LittleEndian.AppendUint64(x.in[1], uint64(int64(k.position)))
		for b := range s.d.blocks { // the sequences' blocks lie between each other
			x.in[2] = binary.LittleEndian.AppendUint64(x.in[2], uint64(b*3+k.sequence+s.d.spare))
		}
	}
	each := s.d.words * s.d.activations.Size()
	x.out = make([]byte, each*len(tokens))
	if err := s.m.Pass(ctx, p, x); err != nil {
		return nil, err
	}
	s.ran = p
	rows := make([][]byte, len(tokens))
	for i := range rows {
		rows[i] = x.out[i*each:][:each]
	}
	return rows, nil
}

func (s *session) mustRun(tokens []token) [][]byte {
	s.t.Helper()
	rows, err := s.run(s.t.Context(), tokens)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// word is the word at a place of a sequence.
func word(sequence, position int) int { return (sequence*31 + position*position*7 + position) % 71 }

func tokensOf(sequence, from, to int) []token {
	var all []token
	for p := from; p < to; p++ {
		all = append(all, token{sequence, p, word(sequence, p)})
	}
	return all
}

// alone returns the scores of the first tokens of the three sequences, each computed by itself.
func (s *session) alone(length int) (want [3][][]byte) {
	s.t.Helper()
	for q := range want {
		for p := range length {
			want[q] = append(want[q], s.mustRun(tokensOf(q, p, p+1))[0])
		}
	}
	return want
}

var decoders = []decoder{
	{name: "float32", width: 64, heads: 4, groups: 2, each: 16, wide: 160},
	{name: "float32, odd widths", width: 37, heads: 3, groups: 1, each: 11, wide: 53, window: 20},
	{name: "bfloat16 weights", width: 64, heads: 4, groups: 4, each: 16, wide: 300, weights: tensor.BFloat16, cache: tensor.BFloat16},
	{name: "bfloat16", width: 96, heads: 4, groups: 2, each: 24, wide: 200, activations: tensor.BFloat16},
	{name: "bfloat16, odd widths", width: 33, heads: 3, groups: 3, each: 11, wide: 61, activations: tensor.BFloat16},
	{name: "float16 weights", width: 64, heads: 4, groups: 2, each: 16, wide: 160, weights: tensor.Float16, cache: tensor.Float16},
	{name: "float16", width: 64, heads: 4, groups: 2, each: 16, wide: 160, activations: tensor.Float16},
	{name: "rounded to bfloat16", width: 64, heads: 4, groups: 2, each: 16, wide: 160, precision: "bf16"},
	{name: "int8 weights", width: 64, heads: 4, groups: 2, each: 16, wide: 600, weights: tensor.Int8},
}

// TestRowsAreAlone: a token's scores are the same bits in a pass by itself and among any others, however its sequence is cut
// into passes, on any number of threads, whether weights stay, packed or not, or are paged.
func TestRowsAreAlone(t *testing.T) {
	for i := range decoders {
		d := decoders[i].filled()
		t.Run(d.name, func(t *testing.T) {
			if _, err := d.open(t, "cpu", 1, plan.Resident, 0).plan(1); d.precision != "" && errors.Is(err, graph.ErrUnsupported) {
				t.Skip(err)
			}
			length := 40
			if !testing.Short() && (i == 0 || i == 3) { // some with passes of 512 rows
				length = 170
			}
			want := d.open(t, "cpu", 1, plan.Resident, 0).alone(length)
			check := func(t *testing.T, s *session, tokens []token) {
				t.Helper()
				for k, got := range s.mustRun(tokens) {
					if x := tokens[k]; x.position >= 0 && !bytes.Equal(got, want[x.sequence][x.position]) {
						t.Fatalf("token %d of %d, at %d of sequence %d: other bits", k, len(tokens), x.position, x.sequence)
					}
				}
			}
			page := d.open(t, "cpu", 1, plan.Page, 0)
			p, err := page.plan(3*length + 2)
			if err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*session{
				"resident": d.open(t, "cpu", 2, plan.Resident, 0),
				"page":     page,
				"auto":     d.open(t, "cpu", 2, plan.Auto, p.MinBytes*8/7),
				"chunk":    d.open(t, "emu:memory=1GiB,bandwidth=1GB/s", 2, plan.Chunk, p.MinBytes*8/7),
			} {
				t.Run(name, func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), 3))
					s.t = t
					for round := range 4 {
						if round == 1 {
							if err := s.m.DropCaches(); err != nil {
								t.Fatal(err)
							}
						}
						for done := [3]int{}; done != [3]int{length, length, length}; {
							var tokens []token
							for q := range done {
								n := min(length-done[q], []int{1 + r.IntN(9), 1 + r.IntN(70), length, 1 + r.IntN(30)}[(round+r.IntN(2))%4])
								tokens = append(tokens, tokensOf(q, done[q], done[q]+n)...)
								done[q] += n
							}
							for range min(r.IntN(3), 512-len(tokens)) {
								tokens = append(tokens, token{0, -1, r.IntN(71)})
							}
							r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
							check(t, s, tokens)
						}
					}
				})
			}
		})
	}
}
