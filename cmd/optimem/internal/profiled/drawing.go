package profiled

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/listing"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// The drawings, in pixels. What is narrower than leastWidth is drawn together, so that the page stays small however
// many ops a program has, and what is deeper than maxRows is not drawn.
const (
	drawingWidth = 1000.0
	memoryHeight = 240.0
	rowHeight    = 20.0
	maxRows      = 12
	leastWidth   = 2.0
	// leastStallWidth is what stalls have that are drawn.
	leastStallWidth = 0.5
	letterWidth     = 6.6
)

// A span is what an op takes of the drawings' width: from there its weights are waited for, up to where it begins.
type span struct{ from, begin, to float64 }

// spans lays ops out over the time of a run, which is the drawings' width, one after the other: what no op takes is
// behind them. Where none took any, all are equally wide.
func (d *Profile) spans() []span {
	list := make([]span, len(d.ops))
	total := d.Seconds
	if d.OtherSeconds >= total {
		for i := range list {
			from, to := float64(i)/float64(len(list))*drawingWidth, float64(i+1)/float64(len(list))*drawingWidth
			list[i] = span{from, from, to}
		}
		return list
	}
	stall := make(map[int]float64, len(d.stalls))
	for _, s := range d.stalls {
		stall[s.op] += s.seconds
	}
	var at float64
	for i := range list {
		begin := at + stall[i]
		end := begin + d.ops[i].Seconds
		list[i] = span{at / total * drawingWidth, begin / total * drawingWidth, min(end/total, 1) * drawingWidth}
		at = end
	}
	return list
}

// A layer is memory for a purpose.
type layer struct {
	class, name string
	bytes       func(h *plan.Holding) int64
}

// layersDrawn are the purposes, from below: first those that take the same all the time.
var layersDrawn = []layer{
	{"fixed", "weights that stay", func(h *plan.Holding) int64 { return h.FixedBytes }},
	{"cache", "cache", func(h *plan.Holding) int64 { return h.CacheBytes }},
	{"ring", "slots", func(h *plan.Holding) int64 { return h.RingBytes }},
	{"live", "activations", func(h *plan.Holding) int64 { return h.ActivationBytes }},
	{"work", "workspace", func(h *plan.Holding) int64 { return h.WorkBytes }},
}

// steady is how many of them take the same all the time.
const steady = 3

// drawMemory draws the memory in use over time, and what changes of it once more where most of it does not.
func (d *Profile) drawMemory(list []span) []pageStack {
	all := []pageStack{d.drawStack("memory", "Memory in use", layersDrawn, list)}
	if x := &d.peak; 2*(x.FixedBytes+x.CacheBytes+x.RingBytes) > x.Bytes {
		all = append(all, d.drawStack("changing", "Without what stays and slots", layersDrawn[steady:], list))
	}
	return all
}

// A step is ops, the first up to the last, that are drawn together. most is the one that finds most in use.
type step struct {
	span
	first, last, most int
}

// steps puts ops together that are too narrow to be seen, and within those keeps the one with most bytes.
func steps(list []span, bytes []int64) []step {
	var all []step
	for i, s := range list {
		n := len(all)
		if n == 0 || all[n-1].to-all[n-1].from >= leastWidth || s.to-s.from >= leastWidth {
			all = append(all, step{s, i, i, i})
			continue
		}
		last := &all[n-1]
		last.to, last.last = s.to, i
		if bytes[i] > bytes[last.most] {
			last.most = i
		}
	}
	return all
}

// drawStack draws memory over time, purposes one on top of the other.
func (d *Profile) drawStack(id, heading string, drawn []layer, list []span) pageStack {
	p := pageStack{ID: id, Heading: heading, Height: memoryHeight, Anchor: "start"}
	bytes := make([]int64, len(d.ops)) // in use, of what is drawn
	peak := 0
	for i := range d.ops {
		for _, l := range drawn {
			bytes[i] += l.bytes(&d.ops[i].held)
		}
		if d.ops[i].held.OnHost == d.peak.onHost &&
			(bytes[i] > bytes[peak] || d.ops[peak].held.OnHost != d.peak.onHost) {
			peak = i
		}
	}
	most := max(slices.Max(bytes), 1)
	height := func(n int64) float64 { return float64(n) / float64(most) * memoryHeight }
	all := steps(list, bytes)
	below := make([]int64, len(all))
	for _, l := range drawn {
		var there, back strings.Builder
		used := false
		for k := range all {
			n := l.bytes(&d.ops[all[k].most].held)
			used = used || n > 0
			y := memoryHeight - height(below[k]+n)
			fmt.Fprintf(&there, "L%.1f %.1fL%.1f %.1f", all[k].from, y, all[k].to, y)
		}
		for k := len(all) - 1; k >= 0; k-- {
			y := memoryHeight - height(below[k])
			fmt.Fprintf(&back, "L%.1f %.1fL%.1f %.1f", all[k].to, y, all[k].from, y)
			below[k] += l.bytes(&d.ops[all[k].most].held)
		}
		if used {
			path := "M" + strings.TrimPrefix(there.String(), "L") + back.String() + "Z"
			p.Layers = append(p.Layers, pageLayer{l.class, l.name, path})
		}
	}
	for k := range all {
		s := &all[k]
		op := &d.ops[s.most]
		title := fmt.Sprintf(
			"%s (%s): %s in use", cmp.Or(op.Path, programName), op.Kind, ascii.FormatSize(bytes[s.most]),
		)
		if n := s.last - s.first; n > 0 {
			title += fmt.Sprintf(", the most of %d ops", n+1)
		} else {
			title += ", " + wording.Seconds(op.Seconds)
		}
		p.Steps = append(p.Steps, pageBox{X: s.from, W: s.to - s.from, H: memoryHeight, Title: shortened(title)})
	}
	p.PeakX, p.PeakY = (list[peak].from+list[peak].to)/2, memoryHeight-height(bytes[peak])
	p.Peak = ascii.FormatSize(bytes[peak])
	if p.PeakX > drawingWidth/2 {
		p.Anchor = "end"
	}
	for i := range 5 {
		part := float64(i) / 4
		p.Sizes = append(
			p.Sizes, pageTick{memoryHeight * (1 - part), ascii.FormatSize(int64(math.Round(part * float64(most))))},
		)
	}
	return p
}

// drawModules draws a row for each level of modules: where in time one runs, under the one that it is in. The last row
// is where weights are waited for, as far as that can be seen.
func (d *Profile) drawModules(p *profilePage, list []span) {
	// path has, by op, the modules that it is in, the program first.
	path := make([][]int32, len(d.ops))
	rows := 0
	for i := range d.ops {
		for m := d.tree.At(calledPath(d.ops[i].Path)); m != listing.NoModule; m = d.tree.Parent(m) {
			path[i] = append(path[i], m)
		}
		slices.Reverse(path[i])
		rows = max(rows, min(len(path[i]), maxRows))
	}
	p.RowsHeight = float64(rows) * rowHeight
	hue := d.hues()
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
			box.Class, box.Title = fmt.Sprintf("c%d", hue[path[first][min(row, 1)]]), d.moduleTitle(m)
			if name := d.name(m); float64(len(name))*letterWidth+4 <= box.W {
				box.Label = shortened(name)
			}
			p.Boxes = append(p.Boxes, box)
		}
	}
	if end := list[len(list)-1].to; drawingWidth-end >= leastWidth {
		p.Boxes = append(p.Boxes, pageBox{
			X: end, W: drawingWidth - end, H: rowHeight - 1, Class: "other",
			Title: fmt.Sprintf(
				"%s: %s, %s %% of the run", otherName, wording.Seconds(d.OtherSeconds), d.percent(d.OtherSeconds),
			),
		})
	}
	d.drawStalls(p, list)
}

// moduleTitle says of a module what its line in the table does.
func (d *Profile) moduleTitle(m int32) string {
	x := &d.modules[m]
	title := fmt.Sprintf("%s: %s, %s %% of the run, weights %s", cmp.Or(d.tree.Path(m), programName),
		wording.Seconds(x.Seconds), d.percent(x.Seconds), ascii.FormatSize(x.WeightBytes))
	if x.MovedBytes > 0 {
		title += ", moved " + ascii.FormatSize(x.MovedBytes)
	}
	return shortened(title + ", makes " + ascii.FormatSize(x.ActivationBytes))
}

// drawStalls draws the row of stalls.
func (d *Profile) drawStalls(p *profilePage, list []span) {
	n := len(p.Boxes)
	for _, s := range d.stalls {
		if s.op >= len(list) || list[s.op].begin-list[s.op].from < leastStallWidth {
			continue
		}
		at := list[s.op]
		title := fmt.Sprintf(
			"%s: weights waited for, %s", cmp.Or(d.ops[s.op].Path, programName), wording.Seconds(s.seconds),
		)
		p.Boxes = append(p.Boxes, pageBox{
			X: at.from, Y: p.RowsHeight, W: at.begin - at.from, H: rowHeight - 1, Class: "stall",
			Title: shortened(title),
		})
	}
	if p.Stalls = len(p.Boxes) > n; p.Stalls {
		p.RowsHeight += rowHeight
	}
}

// moduleHues is how many colours modules have, beside that of the program.
const moduleHues = 5

// hues gives the outermost modules colours in turns: those in them have the same.
func (d *Profile) hues() map[int32]int {
	hue := make(map[int32]int)
	n := 0
	for m := range d.tree.Children(0) {
		hue[m] = 1 + n%moduleHues
		n++
	}
	return hue
}
