package search

import (
	"fmt"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// attentions is a graph of attentions of rows over caches of so many blocks, of which a row names width.
func attentions(t *testing.T, layers, rows, width, blocks int) *graph.Lowered {
	t.Helper()
	const heads, size = 8, 128
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, heads, size})
	at := g.AddInput("positions", tensor.Int64, tensor.Shape{rows})
	table := g.AddInput("tables", tensor.Int64, tensor.Shape{rows, width})
	for k := range layers {
		shape := tensor.Shape{blocks * graph.BlockRows, heads, size}
		keys, values := g.AddCache(fmt.Sprint(k, ".keys"), tensor.Float32, shape), g.AddCache(fmt.Sprint(k, ".values"), tensor.Float32, shape)
		out, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "attend", Path: fmt.Sprint(k), Attrs: graph.Attrs{"scale": 0.5, "softcap": 0.0, "window": 0, "chunk": 0},
			In: []graph.Operand{g.Whole(x), g.Whole(x), g.Whole(x), g.Whole(keys), g.Whole(values), g.Whole(at), g.Whole(table)},
		})
		if err != nil {
			t.Fatal(err)
		}
		x = out[0]
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
}

// TestSlotsOfParts: slots for caches that wait in a file have room for a part of the texts, if moving these by themselves costs
// little, so that memory does not grow with their number; and for all where each move costs much, or there is little to move.
func TestSlotsOfParts(t *testing.T) {
	const width, each = 16, 2 * 4 * graph.BlockRows * 8 * 128 // of a block
	o := Options{Mode: plan.Page, Target: plan.CPU, CachesAway: true, Rates: cost.Rates{DiskBytes: 2e9, ReadSeconds: 1e-4}}
	planned := func(texts int, o Options) *plan.Plan {
		p, err := Plan(attentions(t, 4, texts, width, texts*width), o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var before int64
	for _, texts := range []int{64, 128, 256} {
		p := planned(texts, o)
		tables := plan.AlignUp(int64(8*texts*width), plan.CPU.AlignBytes)
		if n := p.CacheSlotBlocks; n < width || n > texts*width/4 || p.CacheTableBytes != tables || p.CacheSlotBytes != int64(n)*each+tables {
			t.Fatalf("%d texts: slots of %d bytes with %d of %d blocks, tables of %d", texts, p.CacheSlotBytes, n, texts*width, p.CacheTableBytes)
		}
		if p.CacheSlots != 2 || p.CacheBytes != 2*p.CacheSlotBytes || p.CacheAwayBytes != 4*int64(texts)*width*each {
			t.Errorf("%d texts: %d bytes of caches, %d in a file", texts, p.CacheBytes, p.CacheAwayBytes)
		}
		if before > 0 && p.CacheBytes > before*5/4 {
			t.Errorf("%d texts take %d bytes, half as many %d", texts, p.CacheBytes, before)
		}
		before = p.CacheBytes
		all := o
		all.SlotBlocks = texts * width
		if q := planned(texts, all); q.CacheSlotBlocks != 0 || q.CacheTableBytes != 0 || p.Forecast.CacheSeconds > 1.03*q.Forecast.CacheSeconds {
			t.Errorf("%d texts: %v in parts, %v whole, with slots of %d blocks", texts, p.Forecast.CacheSeconds, q.Forecast.CacheSeconds, q.CacheSlotBlocks)
		}
	}
	slow := o
	slow.Rates.ReadSeconds = 1
	if p := planned(64, slow); p.CacheSlotBlocks != 0 {
		t.Errorf("a read costs a second, and slots have %d blocks", p.CacheSlotBlocks)
	}
	least := o
	least.SlotBlocks = 1
	if p := planned(64, least); p.CacheSlotBlocks != width {
		t.Errorf("slots have %d blocks, and a text has %d", p.CacheSlotBlocks, width)
	}
}
