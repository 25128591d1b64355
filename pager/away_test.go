package pager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

const (
	awayRows   = 4
	awayBlocks = 12
	awayWidth  = 4 // blocks of a row's table
	awayHeads  = 2
	awaySize   = 8
)

// attention is a graph of attentions one after the other, of which the last sees what the first has written.
func attention(t *testing.T, layers int) *graph.Graph {
	t.Helper()
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{awayRows, awayHeads, awaySize})
	at := g.AddInput("positions", tensor.Int64, tensor.Shape{awayRows})
	table := g.AddInput("tables", tensor.Int64, tensor.Shape{awayRows, awayWidth})
	var first []graph.Operand
	for k := range layers {
		shape := tensor.Shape{awayBlocks * graph.BlockRows, awayHeads, awaySize}
		in := []graph.Operand{g.Whole(x), g.Whole(x), g.Whole(x)}
		caches := first
		if k == layers-1 {
			in[1], in[2] = graph.Absent, graph.Absent
		} else {
			keys, values := g.AddCache(fmt.Sprintf("%d.keys", k), tensor.Float32, shape), g.AddCache(fmt.Sprintf("%d.values", k), tensor.Float32, shape)
			caches = []graph.Operand{g.Whole(keys), g.Whole(values)}
		}
		if k == 0 {
			first = caches
		}
		window := 0
		if k%2 == 1 {
			window = 19
		}
		in = append(append(in, caches...), g.Whole(at), g.Whole(table))
		out, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "attend", Path: fmt.Sprint(k), In: in, Attrs: graph.Attrs{"scale": 0.5, "softcap": 0.0, "window": window, "chunk": 0},
		})
		if err != nil {
			t.Fatal(err)
		}
		x = out[0]
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return g
}

// A textIO is a pass of attention.
type textIO struct {
	in  map[graph.ValueID][]byte
	out []byte
}

func (x *textIO) Input(_ int, id graph.ValueID) []byte { return x.in[id] }
func (x *textIO) Output(int, int, bool) []byte         { return x.out }

// textPass is a pass of rows of two sequences that lie in the blocks of tables, from positions on.
func textPass(g *graph.Graph, r *rand.Rand, tables [2][]int, from *[2]int) *textIO {
	x := &textIO{in: make(map[graph.ValueID][]byte), out: make([]byte, 4*awayRows*awayHeads*awaySize)}
	var rows, at, table []byte
	for range awayRows * awayHeads * awaySize {
		rows = binary.NativeEndian.AppendUint32(rows, math.Float32bits(r.Float32()-0.5))
	}
	for i := range awayRows {
		s, p := r.IntN(2), -1
		if i < awayRows-1 && from[s] < awayWidth*graph.BlockRows {
			p = from[s]
			from[s]++
		}
		at = binary.NativeEndian.AppendUint64(at, uint64(int64(p)))
		for _, b := range tables[s] {
			table = binary.NativeEndian.AppendUint64(table, uint64(b))
		}
	}
	for k, bytes := range [][]byte{rows, at, table} {
		x.in[g.Inputs[k]] = bytes
	}
	return x
}

// awayPlans returns the plans of a graph with its caches in memory and in a file.
func awayPlans(t *testing.T, l *graph.Lowered) (in, out *plan.Plan) {
	t.Helper()
	o := search.Options{Mode: plan.Page, Target: plan.CPU}
	in = mustPlan(t, l, o)
	o.CachesAway = true
	return in, mustPlan(t, l, o)
}

// TestCachesAway: caches that wait in a file hold what those in memory do, whatever passes write, and memory is that of the two
// layers that the plan says.
func TestCachesAway(t *testing.T) {
	host := newCPU(t)
	for _, layers := range []int{2, 3, 5} {
		g := attention(t, layers)
		l, err := host.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		in, out := awayPlans(t, l)
		each := int64(4 * 2 * awayBlocks * graph.BlockRows * awayHeads * awaySize)
		if out.CacheSlots != 2 || out.CacheBytes != 2*each || out.CacheAwayBytes != in.CacheBytes || in.CacheBytes != int64(layers-1)*each {
			t.Fatalf("%d layers: %d slots, %d bytes and a file of %d, %d without", layers, out.CacheSlots, out.CacheBytes, out.CacheAwayBytes, in.CacheBytes)
		}
		if out.Forecast.Seconds <= in.Forecast.Seconds || out.Forecast.CacheSeconds <= 0 {
			t.Errorf("caches come from a file in no time: %v", out.Forecast)
		}
		folder := t.TempDir()
		stay, away := newPager(t, host, Options{}), newPager(t, host, Options{SwapFolder: folder})
		r := rand.New(rand.NewPCG(uint64(layers), 1))
		tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
		for k := range 40 {
			x := textPass(g, r, tables, &from)
			y := &textIO{in: x.in, out: make([]byte, len(x.out))}
			if err := errors.Join(stay.Pass(t.Context(), in, x), away.Pass(t.Context(), out, y)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x.out, y.out) {
				t.Fatalf("%d layers, pass %d: other bits", layers, k)
			}
		}
		for _, name := range []string{"0.keys", fmt.Sprintf("%d.values", layers-2)} { // as who copies blocks sees them
			want, got := make([]byte, 400), make([]byte, 400)
			at := int64(10 * graph.BlockRows * awayHeads * awaySize * 4)
			if err := errors.Join(stay.ReadCache(t.Context(), name, want, at), away.ReadCache(t.Context(), name, got, at)); err != nil || !bytes.Equal(want, got) {
				t.Errorf("%s: other bytes, %v", name, err)
			}
		}
		if s := away.Stats(); s.CacheInBytes == 0 || s.CacheOutBytes == 0 || s.CacheOutBytes >= s.CacheInBytes {
			t.Errorf("%d bytes came, %d went", s.CacheInBytes, s.CacheOutBytes)
		}
		if x := away.Inventory(); away.Held().CacheBytes != out.CacheBytes || x.CacheFileBytes != out.CacheAwayBytes || away.Held().Total() > out.PeakBytes() {
			t.Errorf("%d bytes of caches are held and a file of %d: %d and %d are planned", away.Held().CacheBytes, x.CacheFileBytes, out.CacheBytes, out.CacheAwayBytes)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("in the folder: %v, %v", left, err)
		}
		if err := away.DropCaches(); err != nil || away.Held().CacheBytes != 0 || away.Inventory().CacheFileBytes != 0 {
			t.Errorf("what is dropped is there: %d bytes, %v", away.Held().CacheBytes, err)
		}
	}
}

// TestCachesAwayFail: where the file cannot be made, or fails amid a pass, the pass ends with an error that says where, and once it
// can be, passes go on.
func TestCachesAwayFail(t *testing.T) {
	host := newCPU(t)
	g := attention(t, 4)
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	_, out := awayPlans(t, l)
	folder := filepath.Join(t.TempDir(), "later")
	p := newPager(t, host, Options{SwapFolder: folder})
	r := rand.New(rand.NewPCG(1, 1))
	tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
	pass := func() error { return p.Pass(t.Context(), out, textPass(g, r, tables, &from)) }
	var failed *storage.ScratchError
	if err := pass(); !errors.As(err, &failed) || failed.Folder != folder {
		t.Fatalf("without a folder: %v", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if err := p.opts.Caches.file.Close(); err != nil {
		t.Fatal(err)
	}
	var op *OpError
	for range 2 {
		if err := pass(); !errors.Is(err, os.ErrClosed) || !errors.As(err, &op) || op.Kind != "attend" {
			t.Fatalf("with a file that fails: %v", err)
		}
	}
	if err := p.DropCaches(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	from = [2]int{}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
}

// TestCachesAwayInParts: with slots for fewer blocks than rows name an op runs for some of its rows at a time, and gives the same
// bits: memory is that of two slots, whatever the number of texts.
func TestCachesAwayInParts(t *testing.T) {
	host := newCPU(t)
	const each = 2 * 4 * graph.BlockRows * awayHeads * awaySize // of a block of keys and of values
	for _, layers := range []int{2, 3, 5} {
		for _, room := range []int{awayWidth, awayWidth + 1, awayBlocks - 1, awayBlocks} {
			g := attention(t, layers)
			l, err := host.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			o := search.Options{Mode: plan.Page, Target: plan.CPU}
			in := mustPlan(t, l, o)
			o.CachesAway, o.SlotBlocks = true, room
			out := mustPlan(t, l, o)
			blocks, tables := room, int64(8*awayRows*awayWidth)
			if room == awayBlocks {
				blocks, tables = 0, 0
			}
			if out.CacheSlotBlocks != blocks || out.CacheTableBytes != tables || out.CacheBytes != 2*(int64(room)*each+tables) {
				t.Fatalf("room for %d blocks: %d bytes of caches, with %d blocks and tables of %d", room, out.CacheBytes, out.CacheSlotBlocks, out.CacheTableBytes)
			}
			stay, away := newPager(t, host, Options{}), newPager(t, host, Options{SwapFolder: t.TempDir()})
			r := rand.New(rand.NewPCG(uint64(layers), uint64(room)))
			tables2, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
			for k := range 50 {
				x := textPass(g, r, tables2, &from)
				y := &textIO{in: x.in, out: make([]byte, len(x.out))}
				if err := errors.Join(stay.Pass(t.Context(), in, x), away.Pass(t.Context(), out, y)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x.out, y.out) {
					t.Fatalf("%d layers, room for %d blocks, pass %d: other bits", layers, room, k)
				}
				if held := away.Held(); held.CacheBytes != out.CacheBytes || held.Total() > out.PeakBytes() {
					t.Fatalf("%d bytes of caches are held, %d planned", held.CacheBytes, out.CacheBytes)
				}
			}
			for k := range layers - 1 {
				for _, of := range []string{"keys", "values"} {
					name := fmt.Sprintf("%d.%s", k, of)
					want, got := make([]byte, awayBlocks*each/2), make([]byte, awayBlocks*each/2)
					if err := errors.Join(stay.ReadCache(t.Context(), name, want, 0), away.ReadCache(t.Context(), name, got, 0)); err != nil || !bytes.Equal(want, got) {
						t.Errorf("%s: other bytes, %v", name, err)
					}
				}
			}
			bad := textPass(g, r, tables2, &from) // a block that is none
			bad.in[g.Inputs[2]] = slices.Clone(bad.in[g.Inputs[2]])
			for i := range awayRows {
				binary.NativeEndian.PutUint64(bad.in[g.Inputs[1]][8*i:], 0)
				binary.NativeEndian.PutUint64(bad.in[g.Inputs[2]][8*i*awayWidth:], awayBlocks)
			}
			var index *graph.IndexError
			if err := away.Pass(t.Context(), out, bad); !errors.As(err, &index) || index.Index != awayBlocks {
				t.Errorf("a block that there is not: %v", err)
			}
		}
	}
}
