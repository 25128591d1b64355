package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// The drawings, in pixels. What is narrower than leastWidth is drawn together, so that the page stays small however many
// ops a program has, and what is deeper than maxRows is not drawn.
const (
	drawingWidth = 1000.0
	memoryHeight = 260.0
	rowHeight    = 20.0
	maxRows      = 12
	leastWidth   = 2.0
	letterWidth  = 6.6
)

// A span is what an op takes of the drawings' width, with the stall before it.
type span struct{ from, to float64 }

// spannedSeconds is what ops and stalls take together: the drawings' width.
func (d *profile) spannedSeconds() float64 { return d.modules[0].Seconds + d.modules[0].StallSeconds }

// spans lays ops out over time, one after the other. Where none took any, all are equally wide.
func (d *profile) spans() []span {
	list := make([]span, len(d.ops))
	total := d.spannedSeconds()
	if total <= 0 {
		for i := range list {
			list[i] = span{float64(i) / float64(len(list)) * drawingWidth, float64(i+1) / float64(len(list)) * drawingWidth}
		}
		return list
	}
	stall := make(map[int]float64, len(d.stalls))
	for _, s := range d.stalls {
		stall[s.op] += s.seconds
	}
	var at float64
	for i := range list {
		end := at + stall[i] + d.ops[i].Seconds
		list[i] = span{at / total * drawingWidth, min(end/total, 1) * drawingWidth}
		at = end
	}
	return list
}

// A step is ops, the first up to the last, that are drawn together. most is the one that finds most in use.
type step struct {
	span
	first, last, most int
}

// steps puts ops together that are too narrow to be seen, and within those keeps the one that finds most in use.
func (d *profile) steps(list []span) []step {
	var all []step
	for i, s := range list {
		n := len(all)
		if n == 0 || all[n-1].to-all[n-1].from >= leastWidth || s.to-s.from >= leastWidth {
			all = append(all, step{s, i, i, i})
			continue
		}
		last := &all[n-1]
		last.to, last.last = s.to, i
		if d.ops[i].HeldBytes > d.ops[last.most].HeldBytes {
			last.most = i
		}
	}
	return all
}

// purposesDrawn are the layers of the picture of memory, from below.
var purposesDrawn = []struct {
	class, name string
	bytes       func(h *plan.Holding) int64
}{
	{"fixed", "weights that stay", func(h *plan.Holding) int64 { return h.FixedBytes }},
	{"ring", "slots", func(h *plan.Holding) int64 { return h.RingBytes }},
	{"live", "activations", func(h *plan.Holding) int64 { return h.ActivationBytes }},
	{"work", "workspace", func(h *plan.Holding) int64 { return h.WorkBytes }},
}

// drawMemory draws the memory in use over time, purposes one on top of the other.
func (d *profile) drawMemory(p *profilePage, list []span) {
	var most int64
	for i := range d.ops {
		most = max(most, d.ops[i].HeldBytes)
	}
	height := func(n int64) float64 { return float64(n) / float64(max(most, 1)) * memoryHeight }
	all := d.steps(list)
	below := make([]int64, len(all))
	for _, purpose := range purposesDrawn {
		var there, back strings.Builder
		used := false
		for k := range all {
			n := purpose.bytes(&d.ops[all[k].most].held)
			used = used || n > 0
			y := memoryHeight - height(below[k]+n)
			fmt.Fprintf(&there, "L%.1f %.1fL%.1f %.1f", all[k].from, y, all[k].to, y)
		}
		for k := len(all) - 1; k >= 0; k-- {
			y := memoryHeight - height(below[k])
			fmt.Fprintf(&back, "L%.1f %.1fL%.1f %.1f", all[k].to, y, all[k].from, y)
			below[k] += purpose.bytes(&d.ops[all[k].most].held)
		}
		if used {
			path := "M" + strings.TrimPrefix(there.String(), "L") + back.String() + "Z"
			p.Layers = append(p.Layers, pageLayer{purpose.class, purpose.name, path})
		}
	}
	for k := range all {
		s := &all[k]
		op := &d.ops[s.most]
		title := fmt.Sprintf("%s (%s): %s in use", cmp.Or(op.Path, programName), op.Kind, ascii.FormatSize(op.HeldBytes))
		if n := s.last - s.first; n > 0 {
			title += fmt.Sprintf(", the most of %d ops", n+1)
		} else {
			title += ", " + secondsText(op.Seconds)
		}
		p.Steps = append(p.Steps, pageBox{X: s.from, W: s.to - s.from, H: memoryHeight, Title: shortened(title)})
	}
	at := list[d.peak.Op]
	p.PeakX, p.PeakY, p.Anchor = (at.from+at.to)/2, memoryHeight-height(d.peak.Bytes), "start"
	if p.PeakX > drawingWidth/2 {
		p.Anchor = "end"
	}
	for i := range 5 {
		part := float64(i) / 4
		p.Sizes = append(p.Sizes, pageTick{memoryHeight * (1 - part), ascii.FormatSize(int64(math.Round(part * float64(most))))})
	}
}

// drawModules draws a row for each level of modules: where in time one runs, under the one that it is in.
func (d *profile) drawModules(p *profilePage, list []span) {
	// path has, by op, the modules that it is in, the program first.
	path := make([][]int32, len(d.ops))
	rows := 0
	for i := range d.ops {
		for m := d.tree.at(calledPath(d.ops[i].Path)); m != noModule; m = d.tree.modules[m].parent {
			path[i] = append(path[i], m)
		}
		for a, b := 0, len(path[i])-1; a < b; a, b = a+1, b-1 {
			path[i][a], path[i][b] = path[i][b], path[i][a]
		}
		rows = max(rows, min(len(path[i]), maxRows))
	}
	p.RowsHeight = float64(rows) * rowHeight
	for row := range rows {
		for i := 0; i < len(list); {
			if len(path[i]) <= row {
				i++
				continue
			}
			m := path[i][row]
			box := pageBox{X: list[i].from, Y: float64(row) * rowHeight, H: rowHeight - 1}
			first := i
			for i++; i < len(list) && len(path[i]) > row && path[i][row] == m; i++ {
			}
			box.W = list[i-1].to - box.X
			n := len(p.Boxes)
			if box.W < leastWidth && n > 0 && p.Boxes[n-1].Y == box.Y && p.Boxes[n-1].W < leastWidth {
				p.Boxes[n-1].W = box.X + box.W - p.Boxes[n-1].X
				p.Boxes[n-1].Class, p.Boxes[n-1].Title = "several", "modules too short to be drawn apart"
				continue
			}
			box.Class = fmt.Sprintf("c%d", d.hue(path[first]))
			x := &d.modules[m]
			name := d.name(m)
			title := cmp.Or(d.tree.modules[m].path, programName)
			title += fmt.Sprintf(": %s, %s %% of the run, weights %s", secondsText(x.Seconds), d.percent(x.Seconds), ascii.FormatSize(x.WeightBytes))
			if x.MovedBytes > 0 {
				title += ", moved " + ascii.FormatSize(x.MovedBytes)
			}
			box.Title = shortened(title + ", makes " + ascii.FormatSize(x.ActivationBytes))
			if letters := int((box.W - 4) / letterWidth); letters > 2 && len(name) <= letters {
				box.Label = shortened(name)
			}
			p.Boxes = append(p.Boxes, box)
		}
	}
}

// hues is how many colours modules have.
const hues = 6

// hue chooses the colour of a module: that of the outermost one that it is in, so that neighbours differ.
func (d *profile) hue(path []int32) int {
	if len(path) < 2 {
		return 0
	}
	return 1 + int(path[1])%(hues-1)
}
