package planned

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// A row is what the table says of a module, or of parts of one that follow each other and have the same placement.
type row struct {
	layer     plan.Layer
	placement string
	// first and last of parts are those of the module; parts is 0 where it is not cut.
	first, last, parts int
	// slotBytes is the largest slot, slotOffset where it lies if it is one only, loads what bringing all takes.
	slotBytes, slotOffset int64
	loads                 float64
	// within says that the module lies in the slot of the row above.
	within bool
}

// rowsOf lists the rows of the table: with all set each part of a module, else those that are alike together.
func rowsOf(p *plan.Plan, devices string, all bool) []row {
	var rows []row
	shares := p.Shares()
	for i := range p.Groups {
		g, share := &p.Groups[i], shares[i]
		for k, layer := range g.Layers() {
			next := row{layer: layer, first: share.Part, last: share.Part, parts: share.Parts}
			if layer.Params > 0 {
				next.placement = g.Placement()
			}
			if name := deviceOf(devices, g); name != "" {
				next.placement = strings.TrimSpace(next.placement + " on " + name)
			}
			if next.within = g.Paged() && k > 0; g.Paged() && k == 0 {
				next.slotBytes, next.slotOffset, next.loads = g.SlotBytes, g.SlotOffset, g.LoadSeconds
			}
			if n := len(rows); n > 0 && !all && rows[n-1].joins(next) {
				rows[n-1].add(next)
				continue
			}
			rows = append(rows, next)
		}
	}
	return rows
}

// joins reports whether the next row is the part behind this one's, and otherwise alike.
func (w *row) joins(next row) bool {
	return w.parts > 0 && w.parts == next.parts && next.first == w.last+1 && w.layer.Path == next.layer.Path &&
		w.placement == next.placement
}

func (w *row) add(next row) {
	w.last = next.last
	w.layer.Params += next.layer.Params
	w.layer.WeightBytes += next.layer.WeightBytes
	w.layer.Seconds += next.layer.Seconds
	w.slotBytes, w.loads = max(w.slotBytes, next.slotBytes), w.loads+next.loads
}

// name is the module with the parts of it: "fc 2/4", "fc 2-3/4", "fc in 4 parts".
func (w *row) name() string {
	name := cmp.Or(w.layer.Path, "(all)")
	switch {
	case w.parts == 0:
		return name
	case w.first == w.last:
		return fmt.Sprintf("%s %d/%d", name, w.first, w.parts)
	case w.last-w.first+1 == w.parts:
		return fmt.Sprintf("%s in %d parts", name, w.parts)
	}
	return fmt.Sprintf("%s %d-%d/%d", name, w.first, w.last, w.parts)
}

// cells are the row's, for a pass of so many instances.
func (w *row) cells(instances int) []string {
	slot := []string{"", "", ""}
	switch {
	case w.slotBytes > 0:
		slot = []string{ascii.FormatSize(w.slotBytes), "", wording.Seconds(w.loads)}
		if w.first == w.last { // parts lie in several slots, one after another
			slot[1] = ascii.FormatSize(w.slotOffset)
		}
	case w.within:
		slot[0] = "with it" // the one above, in its slot
	}
	return []string{
		w.name(), ascii.FormatCount(w.layer.Params), ascii.FormatSize(w.layer.WeightBytes), w.placement,
		slot[0], slot[1], slot[2], wording.Seconds(w.layer.Seconds * float64(instances)),
	}
}
