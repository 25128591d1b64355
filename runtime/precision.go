package runtime

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/plan"
)

// narrowed returns a graph in the precision that the options ask for, with half weights read as they are where the
// device's kernels can.
func (s *Session) narrowed(g *layers.Graph) (*layers.Graph, error) {
	if s.machine.halves {
		g = layers.Prune(layers.FoldCasts(g))
	}
	switch p := s.opts.Precision; {
	case p == "" || p == "fp32":
		return g, nil
	case p != "bf16":
		return nil, fmt.Errorf("no precision %q: there is fp32 and bf16", p)
	case s.machine.narrows && s.mode != plan.Resident && s.mode != plan.Page:
		// The CPU beside it may have no such products.
		return nil, fmt.Errorf("%w: precision %s on %s in mode %s", layers.ErrUnsupported, p, s.machine.name, s.mode)
	case !s.machine.arranges && !s.machine.narrows:
		return nil, fmt.Errorf("%w: precision %s on %s", layers.ErrUnsupported, p, s.machine.name)
	default:
		return layers.Narrow(g, p), nil
	}
}
