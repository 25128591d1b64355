// Package planned tells what a plan says, as text and JSON: the groups, and where their weights and activations are.
//
//	planned.WriteGroups(w, p, "cpu", false) // a table, modules in parts on one row
//	jsonout.Array(o, "groups", planned.Groups(p, "cpu"))
//
// It does not know flags, sessions or how a plan was found.
package planned

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// A Group is a group in JSON.
type Group struct {
	// Path is the module, Params and Bytes are its weights, Placement is where they are.
	Path      string `json:"path"`
	Params    int64  `json:"params"`
	Bytes     int64  `json:"bytes"`
	Placement string `json:"placement"`
	// Device is the GPU, where there are several.
	Device string `json:"device,omitempty"`
	// Part of Parts says which share of a module it is that is cut by rows.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
}

// An Encoded says in JSON how many weights are blocks of codes in memory.
type Encoded struct {
	// Encoding is what the codes stand for.
	Encoding string `json:"encoding"`
	Weights  int    `json:"weights"`
	Bytes    int64  `json:"bytes"`
}

// deviceOf names the GPU of a group where a plan is for several, "" else.
func deviceOf(devices string, g *plan.Group) string {
	names := strings.Split(devices, ",")
	if len(names) < 2 || !strings.HasPrefix(devices, "cuda") || g.Device >= len(names) {
		return ""
	}
	return names[g.Device]
}

// Groups lists the groups of a plan for devices, as flags name those.
func Groups(p *plan.Plan, devices string) iter.Seq[Group] {
	return func(yield func(Group) bool) {
		shares := p.Shares()
		for i := range p.Groups {
			g, share := &p.Groups[i], shares[i]
			for _, l := range g.Layers() {
				if !yield(Group{l.Path, l.Params, l.WeightBytes, g.Placement(), deviceOf(devices, g), share.Part, share.Parts}) {
					return
				}
			}
		}
	}
}

// Origins counts activations by whose bytes they have.
type Origins struct {
	// New ones have memory of their own, Reused and Overlaid that of others.
	New      int `json:"new"`
	Reused   int `json:"reused"`
	Overlaid int `json:"overlaid"`
	Swapped  int `json:"swapped"`
	// Recomputed are computed anew.
	Recomputed int `json:"recomputed"`
}

// Waits reports whether a pass does not keep an activation that it needs again.
func Waits(p *plan.Plan) bool {
	_, in := p.SwappedBytes()
	return in > 0 || p.AgainBytes() > 0
}

// OriginsOf counts the activations of a pass.
func OriginsOf(p *plan.Plan) (n Origins) {
	if p.Sides != nil {
		a, b := OriginsOf(p.Sides.Device), OriginsOf(p.Sides.Host)
		return Origins{a.New + b.New, a.Reused + b.Reused, a.Overlaid + b.Overlaid, a.Swapped + b.Swapped,
			a.Recomputed + b.Recomputed}
	}
	of := map[plan.Origin]*int{
		plan.New: &n.New, plan.Reused: &n.Reused, plan.Overlaid: &n.Overlaid, plan.Swapped: &n.Swapped, plan.Recomputed: &n.Recomputed,
	}
	for _, origin := range p.Origins() {
		*of[origin]++
	}
	return n
}

// maxRows is how many rows are printed; a large model has many that are alike.
const maxRows = 100

// WriteGroups prints the groups as a table; with all set each part of a module, and as many as there are.
func WriteGroups(w io.Writer, p *plan.Plan, devices string, all bool) {
	table := ascii.NewTable(
		ascii.Left("group"), ascii.Right("params"), ascii.Right("bytes"), ascii.Left("placement"), ascii.Right("slot"),
		ascii.Right("at"), ascii.Right("loads in"), ascii.Right("computes in"),
	)
	rows := rowsOf(p, devices, all)
	listed := rows
	if !all {
		listed = rows[:min(len(rows), maxRows)]
	}
	for i := range listed {
		table.Row(listed[i].cells(max(p.Instances, 1))...)
	}
	_, _ = fmt.Fprint(w, table)
	n := 0
	for _, row := range rows[len(listed):] {
		n += row.last - row.first + 1
	}
	if n > 0 {
		_, _ = fmt.Fprintf(w, "… and %d more groups: --verbose lists all\n", n)
	}
}
