package profiled

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
)

//go:embed page.html
var pageSource string

// maxPageModules and maxPageOps bound the tables, maxPageText the letters of a name.
const (
	maxPageModules = 300
	maxPageOps     = 40
	maxPageText    = 160
)

// A profilePage is what the template shows.
type profilePage struct {
	Model, Mode, Run, Peak, Taken, Purposes string
	Width, RowsHeight                       float64
	Stacks                                  []pageStack
	Boxes                                   []pageBox
	// Stalls says that the last row of boxes are stalls.
	Stalls bool
	Times  []pageTick
	Tables []pageTable
}

// A pageStack is a picture of memory over time: Layers are areas, from below, Steps what lies under the pointer, Sizes the
// marks on the axis.
type pageStack struct {
	ID, Heading string
	Height      float64
	Layers      []pageLayer
	Steps       []pageBox
	Sizes       []pageTick
	// PeakX and PeakY are where most is in use, Peak says how much, and Anchor is the side of the text beside it.
	PeakX, PeakY float64
	Peak, Anchor string
}

// A pageLayer is memory for a purpose over time, Path the outline of its area.
type pageLayer struct{ Class, Name, Path string }

// A pageBox is a rectangle with a text that appears over it.
type pageBox struct {
	X, Y, W, H          float64
	Class, Label, Title string
}

// A pageTick is a mark on an axis.
type pageTick struct {
	At   float64
	Text string
}

// A pageTable is a table with a heading. More says what was cut off.
type pageTable struct {
	Heading string
	Titles  []pageCell
	Rows    [][]pageCell
	More    string
}

// A pageCell is moved in by Indent steps.
type pageCell struct {
	Text   string
	Right  bool
	Indent int
}

// WritePage writes the picture as one page, which needs no network and no script, of a model that goes by a name.
func (d *Profile) WritePage(w io.Writer, model string) error {
	p := profilePage{
		Model: shortened(model),
		Mode:  shortened(fmt.Sprintf("%s on %s, %s", d.Mode, d.Device, wording.Counted(d.Threads, "thread"))),
		Run:   d.runText(), Taken: ascii.FormatSize(d.TakenBytes), Width: drawingWidth,
	}
	if len(d.ops) > 0 {
		p.Peak, p.Purposes = shortened(d.peak.place()), d.peak.purposes()
		list := d.spans()
		p.Stacks = d.drawMemory(list)
		d.drawModules(&p, list)
		for i := range 5 {
			part := float64(i) / 4
			p.Times = append(p.Times, pageTick{part * drawingWidth, wording.Seconds(part * d.Seconds)})
		}
	}
	lines, cut, _ := d.lines(0)
	if len(lines) > maxPageModules {
		lines, cut, _ = d.lines(AutoDepth)
	}
	modules := pageTableOf("Modules", d.moduleTable(lines), cut)
	for i, l := range lines {
		modules.Rows[i][0].Indent = l.depth
	}
	n := min(len(d.kinds), maxPageOps)
	p.Tables = []pageTable{
		pageTableOf("Activations at the peak", d.holderTable(), d.peak.held-len(d.peak.Holders)),
		pageTableOf("Weights that stay", d.weightTable(), d.peak.stay-len(d.peak.Weights)),
		modules,
		pageTableOf("Kinds of ops", d.kindTable(n), len(d.kinds)-n),
		pageTableOf("The costliest ops", d.opTable(maxPageOps), max(len(d.ops)-maxPageOps, 0)),
	}
	// Names come from an untrusted file: the template escapes them where they stand. It is read here, since every command would
	// do so at its start.
	return template.Must(template.New("profile").Parse(pageSource)).Execute(w, &p)
}

// opTable has the ops that take most time, with the lines of Python that made them.
func (d *Profile) opTable(most int) *reportTable {
	t := &reportTable{columns: []ascii.Column{
		ascii.Left("op"), ascii.Left("module"), ascii.Left("line"), ascii.Right("time"), ascii.Right("%"),
		ascii.Right("in use"),
	}}
	order := make([]int, len(d.ops))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(d.ops[b].Seconds, d.ops[a].Seconds) })
	for _, i := range order[:min(len(order), most)] {
		op := &d.ops[i]
		t.rows = append(t.rows, []string{
			op.Kind, cmp.Or(op.Path, programName), op.Source, wording.Seconds(op.Seconds), d.percent(op.Seconds),
			ascii.FormatSize(op.HeldBytes),
		})
	}
	return t
}

func pageTableOf(heading string, t *reportTable, cut int) pageTable {
	p := pageTable{Heading: heading}
	for _, c := range t.columns {
		p.Titles = append(p.Titles, pageCell{Text: c.Title, Right: c.Right})
	}
	for _, row := range t.rows {
		cells := make([]pageCell, len(row))
		for i, text := range row {
			cells[i] = pageCell{Text: shortened(text), Right: t.columns[i].Right}
		}
		p.Rows = append(p.Rows, cells)
	}
	if cut > 0 {
		p.More = fmt.Sprintf("… and %d more", cut)
	}
	return p
}

// shortened makes a text harmless and bounds it.
func shortened(text string) string {
	if len(text) > 4*maxPageText { // what follows would be cut off
		text = strings.ToValidUTF8(text[:4*maxPageText], "")
	}
	text = ascii.Printable(text)
	if runes := []rune(text); len(runes) > maxPageText {
		return string(runes[:maxPageText]) + "…"
	}
	return text
}
