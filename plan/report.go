package plan

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
)

// Placement says where a group computes and how its weights get there: "resident", "paged" or "cpu".
func (g *Group) Placement() string {
	if g.OnHost {
		return "cpu"
	}
	if g.Paged() {
		return "paged"
	}
	return "resident"
}

// String writes the plan for people: a line for each group, then the sums.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s", p.Mode, p.Target.Name)
	if p.Instances > 1 {
		fmt.Fprintf(&b, ", %d micro-batches", p.Instances)
	}
	b.WriteString("\n")
	for i := range p.Groups {
		g := &p.Groups[i]
		fmt.Fprintf(&b, "%4d  %-40s ops %d-%d  weights %s", i, orRoot(g.Path), g.First, g.End-1, ascii.FormatSize(g.WeightBytes))
		if g.Paged() && !g.OnHost {
			fmt.Fprintf(&b, "  paged, slot %d+%d", g.SlotOffset, g.SlotBytes)
			if g.After > 0 {
				fmt.Fprintf(&b, " after %d", g.After)
			}
			for _, s := range g.Spans {
				fmt.Fprintf(&b, "; %d at %d", s.Extent.Bytes, s.Extent.Offset)
			}
		} else if g.WeightBytes > 0 || g.OnHost {
			b.WriteString("  " + g.Placement())
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "fixed %d, constants %d, ring %d, activations %d, workspace %d: peak %d\n",
		p.Fixed.Bytes, p.ConstBytes, p.RingBytes, p.ActivationBytes, p.WorkBytes, p.PeakBytes())
	fmt.Fprintf(&b, "moved per pass %d, least budget %d\n", p.MovedBytes, p.MinBytes)
	return b.String()
}

func orRoot(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}
