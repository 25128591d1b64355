package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/plan"
)

// allPrecisions are what Options.Precision may be, the default first.
var allPrecisions = []string{"fp32", "bf16", "tf32"}

// checkPrecision refuses what is no precision of any device.
func checkPrecision(p string) error {
	if p == "" || slices.Contains(allPrecisions, p) {
		return nil
	}
	return fmt.Errorf("no precision %q: there is %s", p, strings.Join(allPrecisions, ", "))
}

// narrowed returns a graph in the precision that the options ask for, with half weights read as they are where the
// device's kernels can.
func (s *Session) narrowed(g *graph.Graph) (*graph.Graph, error) {
	g = rewrite.Prune(rewrite.FoldCasts(g))
	m, p := s.machine, s.opts.Precision
	refused := func(why string) error {
		if why != "" {
			why = ": " + why
		}
		return fmt.Errorf("%w: precision %s on %s%s", graph.ErrUnsupported, p, m.name, why)
	}
	switch {
	case p == "" || p == allPrecisions[0]:
		return g, nil
	case m.arranges && p != "bf16":
		return nil, refused("it takes a GPU")
	case !m.arranges && !slices.Contains(m.precisions, p):
		return nil, refused(m.without)
	case !m.arranges && s.mode != plan.Resident && s.mode != plan.Page:
		// The CPU beside it may have no such products.
		return nil, refused("in mode " + string(s.mode))
	}
	return rewrite.Narrow(g, p), nil
}
