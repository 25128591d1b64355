package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// A planRow is what the table says of a module, or of parts of one that follow each other and have the same placement.
type planRow struct {
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

// planRows lists the rows of the table: with --verbose each part of a module, else those that are alike together.
func (r *run) planRows(p *plan.Plan) []planRow {
	var rows []planRow
	shares := p.Shares()
	for i := range p.Groups {
		g, share := &p.Groups[i], shares[i]
		for k, layer := range g.Layers() {
			row := planRow{layer: layer, first: share.Part, last: share.Part, parts: share.Parts}
			if layer.Params > 0 {
				row.placement = g.Placement()
			}
			if name := r.deviceOf(g); name != "" {
				row.placement = strings.TrimSpace(row.placement + " on " + name)
			}
			if row.within = g.Paged() && k > 0; g.Paged() && k == 0 {
				row.slotBytes, row.slotOffset, row.loads = g.SlotBytes, g.SlotOffset, g.LoadSeconds
			}
			if n := len(rows); n > 0 && !r.verbose && rows[n-1].joins(row) {
				rows[n-1].add(row)
				continue
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// joins reports whether the next row is the part behind this one's, and otherwise alike.
func (w *planRow) joins(next planRow) bool {
	return w.parts > 0 && w.parts == next.parts && next.first == w.last+1 && w.layer.Path == next.layer.Path &&
		w.placement == next.placement
}

func (w *planRow) add(next planRow) {
	w.last = next.last
	w.layer.Params += next.layer.Params
	w.layer.WeightBytes += next.layer.WeightBytes
	w.layer.Seconds += next.layer.Seconds
	w.slotBytes, w.loads = max(w.slotBytes, next.slotBytes), w.loads+next.loads
}

// name is the module with the parts of it: "fc 2/4", "fc 2-3/4", "fc in 4 parts".
func (w *planRow) name() string {
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
func (w *planRow) cells(instances int) []string {
	slot := []string{"", "", ""}
	switch {
	case w.slotBytes > 0:
		slot = []string{ascii.FormatSize(w.slotBytes), "", secondsText(w.loads)}
		if w.first == w.last { // parts lie in several slots, one after another
			slot[1] = ascii.FormatSize(w.slotOffset)
		}
	case w.within:
		slot[0] = "with it" // the one above, in its slot
	}
	return []string{
		w.name(), ascii.FormatCount(w.layer.Params), ascii.FormatSize(w.layer.WeightBytes), w.placement,
		slot[0], slot[1], slot[2], secondsText(w.layer.Seconds * float64(instances)),
	}
}
