//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// The sizes of what attends in a test: the positions of a text are in two spans.
const (
	waitingRows, waitingHeads, waitingSize = 8, 2, 4
	waitingTexts, waitingWidth             = 4, 17 // texts, and blocks of one
)

// attentions is a graph of attentions with caches for all texts.
func attentions(t *testing.T, layers int) *graph.Graph {
	t.Helper()
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{waitingRows, waitingHeads, waitingSize})
	at := g.AddInput("positions", tensor.Int64, tensor.Shape{waitingRows})
	table := g.AddInput("tables", tensor.Int64, tensor.Shape{waitingRows, waitingWidth})
	for k := range layers {
		shape := tensor.Shape{waitingTexts * waitingWidth * graph.BlockRows, waitingHeads, waitingSize}
		in := []graph.Operand{g.Whole(x), g.Whole(x), g.Whole(x)}
		for _, name := range []string{"keys", "values"} {
			in = append(in, g.Whole(g.AddCache(fmt.Sprint(k, ".", name), tensor.Float32, shape)))
		}
		out, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "attend", Path: fmt.Sprint(k), In: append(in, g.Whole(at), g.Whole(table)),
			Attrs: graph.Attrs{"scale": 0.5, "softcap": 0.0, "window": 0, "chunk": 0},
		})
		if err != nil {
			t.Fatal(err)
		}
		x = out[0]
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return g
}

// A waitingIO is a pass of rows of texts.
type waitingIO struct {
	in  map[graph.ValueID][]byte
	out []byte
}

func (x *waitingIO) Input(_ int, id graph.ValueID) []byte { return x.in[id] }
func (x *waitingIO) Output(int, int, bool) []byte         { return x.out }

// waitingPass goes on with each of the texts in two rows, whose blocks lie between those of the others.
func waitingPass(g *graph.Graph, r *rand.Rand, from *[waitingTexts]int) *waitingIO {
	x := &waitingIO{in: make(map[graph.ValueID][]byte), out: make([]byte, 4*waitingRows*waitingHeads*waitingSize)}
	var rows, at, table []byte
	for range waitingRows * waitingHeads * waitingSize {
		rows = binary.NativeEndian.AppendUint32(rows, math.Float32bits(r.Float32()-0.5))
	}
	for i := range waitingRows {
		text := i * waitingTexts / waitingRows
		at = binary.NativeEndian.AppendUint64(at, uint64(from[text]))
		from[text]++
		for b := range waitingWidth {
			table = binary.NativeEndian.AppendUint64(table, uint64((waitingWidth-1-b)*waitingTexts+text))
		}
	}
	for k, data := range [][]byte{rows, at, table} {
		x.in[g.Inputs[k]] = data
	}
	return x
}

// TestCachesWaitInHostMemory: keys and values that wait in the host's memory give a GPU the bits of those that stay, in parts of few
// rows, too, for which an op of many has no scratch memory; nothing races.
func TestCachesWaitInHostMemory(t *testing.T) {
	defer cuda.AttendingFrom(waitingRows * waitingHeads)()
	for i, room := range []int{waitingWidth, 2 * waitingWidth, waitingTexts * waitingWidth} {
		lib := sim.New(t, fmt.Sprintf("memory=64M order=lazy:%d", i))
		dev, err := cuda.New(cuda.Options{Library: lib.Path})
		if err != nil {
			t.Fatal(err)
		}
		g := attentions(t, 3)
		l, err := dev.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		in, err := search.Plan(l, search.Options{Mode: plan.Resident, Target: target})
		if err != nil {
			t.Fatal(err)
		}
		out, err := search.Plan(l, search.Options{Mode: plan.Resident, Target: target, CachesAway: true, SlotBlocks: room})
		if err != nil {
			t.Fatal(err)
		}
		if out.CacheSlots != 2 || out.CacheBytes >= in.CacheBytes || out.WorkBytes != 0 {
			t.Fatalf("%d slots, %d bytes of caches of %d, scratch memory of %d", out.CacheSlots, out.CacheBytes, in.CacheBytes, out.WorkBytes)
		}
		stay, err := pager.New(dev, pager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		away, err := pager.New(dev, pager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, from := rand.New(rand.NewPCG(1, uint64(i))), [waitingTexts]int{0, 13, 30, 253}
		for k := range 6 {
			x := waitingPass(g, r, &from)
			y := &waitingIO{x.in, make([]byte, len(x.out))}
			if err := errors.Join(stay.Pass(t.Context(), in, x), away.Pass(t.Context(), out, y)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x.out, y.out) {
				t.Fatalf("room for %d blocks, pass %d: other bits", room, k)
			}
			if held := away.Held(); held.Total() > out.PeakBytes() || held.CacheBytes != out.CacheBytes || away.HostBytes() != out.HostBytes() {
				t.Fatalf("%d and %d bytes are held of %d and %d", held.Total(), away.HostBytes(), out.PeakBytes(), out.HostBytes())
			}
		}
		if s := away.Stats(); s.PageableBytes != 0 || s.CacheInBytes == 0 {
			t.Errorf("%d bytes came, %d are not page-locked", s.CacheInBytes, s.PageableBytes)
		}
		if err := errors.Join(stay.Close(), away.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		lib.Check(t)
	}
}
