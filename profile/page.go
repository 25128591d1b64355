package profile

import (
	_ "embed" // for the page
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
)

//go:embed page.html
var pageSource string

// A page is what the template shows.
type page struct {
	Title, Summary string
	Columns        []Column
	Ticks          []tick
	Top            *pageNode
	Rests          []pageRest
}

// A tick is a mark of the axis of time, in percent of its width.
type tick struct {
	At   float64
	Text string
}

// A pageNode is a module of the page: a fold where there are modules in it.
type pageNode struct {
	Name, Title string
	Cells       []string
	// Bar and Wait are how wide the time of ops and of waiting is, in percent.
	Bar, Wait float64
	Open      bool
	Children  []*pageNode
}

type pageRest struct {
	Name, Text string
	Bar        float64
}

// WriteHTML writes the report as one page, which needs no script and no network: modules fold, and repeats are in a fold of their
// own.
func (r *Report) WriteHTML(w io.Writer, title string, v View) error {
	if v.Columns == nil {
		v.Columns = DefaultColumns
	}
	p := page{Title: shown(title), Summary: r.Summary(), Columns: v.Columns}
	if top := r.tree(v); top != nil {
		p.Ticks = ticks(r.Seconds)
		p.Top = r.node(top, v, 0)
		for _, x := range r.rests() {
			p.Rests = append(p.Rests, pageRest{x.name, duration(x.seconds), share(x.seconds, r.Seconds)})
		}
	}
	// Names come from an untrusted file: the template escapes them where they stand.
	return template.Must(template.New("profile").Parse(pageSource)).Execute(w, &p)
}

func (r *Report) node(n *node, v View, depth int) *pageNode {
	x := &pageNode{
		Name: shown(n.name), Title: shown(n.Path), Bar: share(n.Seconds, r.Seconds),
		Wait: share(n.StallSeconds, r.Seconds),
		Open: depth < 2 && n.repeats == 0,
	}
	for _, c := range v.Columns {
		x.Cells = append(x.Cells, n.cell(c, r.Seconds))
	}
	if v.Depth == 0 || depth < v.Depth {
		for _, child := range n.children {
			x.Children = append(x.Children, r.node(child, v, depth+1))
		}
	}
	return x
}

func share(part, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return math.Round(min(part/total, 1)*1e4) / 100
}

// maxShown bounds names on the page.
const maxShown = 200

func shown(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return ascii.Printable(text)
}

// ticks marks round times of an axis, at most seven.
func ticks(total float64) []tick {
	if !(total > 0) {
		return nil
	}
	const most = 6
	step := math.Pow(10, math.Floor(math.Log10(total/most)))
	for _, f := range []float64{1, 2, 5, 10} {
		if total/(step*f) <= most {
			step *= f
			break
		}
	}
	var list []tick
	for i := 0; float64(i)*step <= total*(1+1e-9); i++ {
		at := float64(i) * step
		list = append(list, tick{share(at, total), duration(at)})
	}
	return list
}
