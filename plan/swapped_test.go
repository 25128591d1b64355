package plan_test

import (
	"maps"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// TestOrigins: each activation has bytes that were nobody's, others', its operand's, or comes back.
func TestOrigins(t *testing.T) {
	p := plan.Plan{
		Instances: 2, Lowered: &graph.Lowered{Graph: &graph.Graph{Ops: []graph.Op{{Out: []graph.ValueID{10}}}}},
		Places: []plan.Place{
			{First: -1, Last: -1},                                              // a weight
			{Offset: 0, Bytes: 64, First: 0, Last: 1},                          // new
			{Offset: 64, Bytes: 60, Stride: 64, First: 1, Last: 9},             // new, up to 188
			{Offset: 0, Bytes: 128, First: 2, Last: 3},                         // all of it was others'
			{Offset: 0, Bytes: 128, First: 3, Last: 4, Over: true, Operand: 3}, // written over
			{Offset: 128, Bytes: 61, First: 4, Last: 5},                        // a byte of it is new
			{Offset: 0, Bytes: 64, First: 6, Last: 6},                          // comes back
			{Offset: 256, Bytes: 64, First: 6, Last: 7},                        // comes back to bytes that were nobody's
			{Offset: 256, Bytes: 64, First: 8, Last: 8},                        // which are others' from then on
			{Offset: 512, Bytes: 0, First: 8, Last: 8},                         // nothing
			{Offset: 300, Bytes: 20, First: 5, Last: 5},                        // computed anew, before all of 256
		},
		Groups: []plan.Group{
			{SwapOut: []plan.Swap{{Value: 1, Bytes: 64}}},
			{SwapIn: []plan.Swap{{Value: 6, Bytes: 64}, {Value: 7, Bytes: 64}}, SwapOut: []plan.Swap{{Value: 5, Bytes: 61}},
				Again: []plan.Again{{Op: 0, Value: 1, Bytes: 20}}},
		},
	}
	want := map[graph.ValueID]plan.Origin{
		1: plan.New, 2: plan.New, 3: plan.Reused, 4: plan.Overlaid, 5: plan.New, 6: plan.Swapped, 7: plan.Swapped, 8: plan.Reused,
		10: plan.Recomputed,
	}
	if got := p.Origins(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if out, in := p.SwappedBytes(); out != 2*(64+61) || in != 2*128 {
		t.Errorf("%d bytes leave, %d come back", out, in)
	}
	both := plan.Plan{Groups: p.Groups, Places: p.Places, Sides: &plan.Sides{Device: &p, Host: &p}}
	if out, in := both.SwappedBytes(); out != 4*(64+61) || in != 4*128 || len(both.Origins()) != 0 {
		t.Errorf("of two sides %d bytes leave, %d come back: %v", out, in, both.Origins())
	}
	if p.AgainBytes() != 2*20 || both.AgainBytes() != 4*20 || plan.Recomputed.String() != "recomputed" {
		t.Errorf("%d bytes computed anew, of two sides %d", p.AgainBytes(), both.AgainBytes())
	}
	if plan.Swapped.String() != "swapped" || plan.New.String() != "new" {
		t.Errorf("%v, %v", plan.Swapped, plan.New)
	}
}
