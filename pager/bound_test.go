package pager_test

import (
	"math"

	"github.com/optimem/optimem/layers"
)

// leastSeconds returns a time below which no schedule brings a pass, whatever it keeps and in whatever pieces it moves
// the rest, where weightBytes are the memory for weights. Ops that follow one another take what they compute. And of the
// bytes that they read no more than fit into the memory are there when they begin, so that the others are moved while
// they run. Over windows that do not overlap these times add up.
func (b *bench) leastSeconds(weightBytes int64) float64 {
	g := b.lowered.Graph
	seconds := make([]float64, len(g.Ops))
	for i := range g.Ops {
		op := &g.Ops[i]
		in, out := g.Specs(op, nil, nil)
		seconds[i] = b.options.Rates.Seconds(layers.Standard(), op, in, out) * float64(max(b.options.Instances, 1))
	}
	best := make([]float64, len(g.Ops)+1) // by the op before which the windows so far end
	for first := range g.Ops {
		seen := make(map[layers.ValueID]bool)
		var computed float64
		var bytes int64
		for end := first + 1; end <= len(g.Ops); end++ {
			computed += seconds[end-1]
			for _, o := range g.Ops[end-1].In {
				if g.Ops[end-1].Kind == "embedding" { // which reads a few rows
					break
				}
				if o.Value != layers.NoValue && g.Values[o.Value].Role == layers.Weight && !seen[o.Value] {
					seen[o.Value] = true
					bytes += g.Values[o.Value].Bytes()
				}
			}
			moved := float64(bytes-weightBytes) / b.options.Rates.CopyBytes
			best[end] = math.Max(best[end], best[first]+max(computed, moved))
		}
	}
	return best[len(g.Ops)]
}
