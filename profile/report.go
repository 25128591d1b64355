package profile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/ascii"
)

// A Report is where the time of some passes went. Numbers are those of an average pass.
type Report struct {
	Device string `json:"device"`
	// Passes is how many there were, Instances how many micro-batches went through them.
	Passes    int64 `json:"passes"`
	Instances int64 `json:"instances"`
	// Seconds is what a pass takes: in ops, waiting for weights, loading those that stay, and the rest, which is what lies between
	// groups and around them.
	Seconds        float64 `json:"seconds"`
	ComputeSeconds float64 `json:"compute_seconds"`
	StallSeconds   float64 `json:"stall_seconds"`
	LoadSeconds    float64 `json:"load_seconds"`
	OtherSeconds   float64 `json:"other_seconds"`
	// Exact says that each op was timed; otherwise modules of one group share its time as the plan expects.
	Exact bool `json:"exact"`
	// PeakBytes is the memory that the plan takes, MovedBytes what a pass brings.
	PeakBytes  int64 `json:"peak_bytes"`
	MovedBytes int64 `json:"moved_bytes"`
	// Modules are in the order in which they first run, each after the module that it is in; the first is the program.
	Modules []Module `json:"modules"`
}

// A Module is what a module and those in it take of a pass.
type Module struct {
	Path  string  `json:"path"`
	Depth int     `json:"depth"`
	Calls float64 `json:"calls"`
	// Seconds is the time of all ops, SelfSeconds that of the module's own, StallSeconds what they waited for weights.
	Seconds      float64 `json:"seconds"`
	SelfSeconds  float64 `json:"self_seconds"`
	StallSeconds float64 `json:"stall_seconds"`
	MovedBytes   int64   `json:"moved_bytes"`
	// FLOPs is the arithmetic, OpBytes what ops read and write. PeakBytes is the most that is alive or scratch memory during one.
	FLOPs          float64 `json:"flops"`
	FLOPsPerSecond float64 `json:"flops_per_second"`
	OpBytes        float64 `json:"op_bytes"`
	PeakBytes      int64   `json:"peak_bytes"`
	// Bound is what bounds its time: "disk" or "transfer", where ops wait longer for weights than they compute, else "compute" or
	// "memory", whichever takes longer by the device's rates.
	Bound string `json:"bound"`

	direct bool
	parent int
}

// newReport sums modules up over those in them.
func newReport(c *counts, rates cost.Rates) *Report {
	r := &Report{
		Device: c.device, Passes: c.passes, Instances: c.instances, Exact: c.exact, PeakBytes: c.takenBytes,
		Modules: []Module{},
	}
	if c.passes == 0 {
		return r
	}
	n := float64(c.passes)
	r.Seconds, r.ComputeSeconds, r.StallSeconds, r.LoadSeconds = c.seconds/n, c.computing/n, c.stall/n, c.loading/n
	r.MovedBytes = int64(float64(c.movedBytes) / n)
	r.OtherSeconds = max(r.Seconds-r.ComputeSeconds-r.StallSeconds-r.LoadSeconds, 0)
	r.Modules = append(r.Modules, Module{parent: -1})
	at := map[string]int{"": 0}
	var find func(path string) int
	find = func(path string) int {
		if k, known := at[path]; known {
			return k
		}
		parent := find(path[:max(strings.LastIndexByte(path, '.'), 0)])
		k := len(r.Modules)
		at[path] = k
		r.Modules = append(r.Modules, Module{Path: path, Depth: r.Modules[parent].Depth + 1, parent: parent})
		return k
	}
	for _, path := range c.order {
		s, m := c.modules[path], &r.Modules[find(path)]
		m.Calls, m.SelfSeconds, m.Seconds, m.StallSeconds = s.calls/n, s.seconds/n, s.seconds/n, s.stall/n
		m.MovedBytes, m.FLOPs, m.OpBytes = int64(s.moved/n), s.flops/n, s.bytes/n
		m.PeakBytes, m.direct = s.peak, s.direct
	}
	for k := len(r.Modules) - 1; k > 0; k-- { // a module comes after the one that it is in
		r.Modules[r.Modules[k].parent].sum(&r.Modules[k])
	}
	r.Modules[0].Calls = 1
	for k := range r.Modules {
		r.Modules[k].bound(rates.WithGuesses())
	}
	r.Modules = inTree(r.Modules)
	return r
}

// sum adds a module that is in this one.
func (m *Module) sum(x *Module) {
	m.Seconds, m.StallSeconds, m.MovedBytes = m.Seconds+x.Seconds, m.StallSeconds+x.StallSeconds,
		m.MovedBytes+x.MovedBytes
	m.FLOPs, m.OpBytes, m.PeakBytes = m.FLOPs+x.FLOPs, m.OpBytes+x.OpBytes, max(m.PeakBytes, x.PeakBytes)
	m.direct = m.direct || x.direct
	if m.Calls == 0 || m.SelfSeconds == 0 && x.Calls < m.Calls { // what has no ops of its own calls each of those in it
		m.Calls = x.Calls
	}
}

// bound says what bounds the time.
func (m *Module) bound(r cost.Rates) {
	if m.Seconds > 0 {
		m.FLOPsPerSecond = m.FLOPs / m.Seconds
	}
	switch {
	case m.StallSeconds > m.Seconds && m.direct:
		m.Bound = "disk"
	case m.StallSeconds > m.Seconds:
		m.Bound = "transfer"
	case m.FLOPs/r.FLOPs >= m.OpBytes/r.MemoryBytes:
		m.Bound = "compute"
	default:
		m.Bound = "memory"
	}
}

// inTree puts modules in order, each with those in it behind it.
func inTree(list []Module) []Module {
	children := make([][]int, len(list))
	for k := 1; k < len(list); k++ {
		children[list[k].parent] = append(children[list[k].parent], k)
	}
	ordered := make([]Module, 0, len(list))
	var walk func(k, parent int)
	walk = func(k, parent int) {
		m := list[k]
		m.parent = parent
		at := len(ordered)
		ordered = append(ordered, m)
		for _, child := range children[k] {
			walk(child, at)
		}
	}
	walk(0, -1)
	return ordered
}

// A Column is one of a table, by its title.
type Column string

// The columns.
const (
	Calls   Column = "calls"
	Time    Column = "time"
	Percent Column = "%"
	Self    Column = "self"
	Stall   Column = "stall"
	Moved   Column = "moved"
	FLOPs   Column = "flops"
	GFLOPs  Column = "gflop/s"
	Bound   Column = "bound"
	Peak    Column = "peak"
)

// Columns are all of them, DefaultColumns those of a view that names none.
var (
	Columns        = []Column{Calls, Time, Percent, Self, Stall, Moved, FLOPs, GFLOPs, Bound, Peak}
	DefaultColumns = []Column{Calls, Time, Percent, Self, Stall, Moved, GFLOPs, Bound, Peak}
)

// A View is what is shown of a report. The zero value shows all modules in the order in which they run, repeats merged.
type View struct {
	// Columns are those of the table; nil is DefaultColumns.
	Columns []Column
	// Depth is how many levels of modules are shown, 0 for all.
	Depth int
	// Sort is the column by which modules are sorted within the one that they are in, the largest first; "" is the order of a pass.
	Sort Column
	// Apart shows each of modules that are numbered, such as the layers of a list, and not all of them in one row.
	Apart bool
}

// Check returns an error where a column is none.
func (v *View) Check() error {
	for _, c := range append(slices.Clone(v.Columns), cmp.Or(v.Sort, Time)) {
		if !slices.Contains(Columns, c) {
			return fmt.Errorf("there is no column %q: there are %v", string(c), Columns)
		}
	}
	if v.Depth < 0 {
		return fmt.Errorf("a depth of %d", v.Depth)
	}
	return nil
}

// A node is a module as it is shown: with those in it, and how many it stands for.
type node struct {
	Module
	name     string
	repeats  int
	children []*node
}

// tree returns what a view shows.
func (r *Report) tree(v View) *node {
	if len(r.Modules) == 0 {
		return nil
	}
	nodes := make([]*node, len(r.Modules))
	for k := range r.Modules {
		m := &r.Modules[k]
		nodes[k] = &node{Module: *m, name: "(program)"}
		if k > 0 {
			above := nodes[m.parent]
			nodes[k].name = strings.TrimPrefix(m.Path[len(above.Path):], ".")
			above.children = append(above.children, nodes[k])
		}
	}
	nodes[0].arrange(v)
	return nodes[0]
}

// leastRepeats is from how many numbered modules on they are merged.
const leastRepeats = 3

// arrange merges repeats and sorts, at every level.
func (n *node) arrange(v View) {
	var kept []*node
	var all *node // numbered ones, at the place of the first
	for _, child := range n.children {
		if strings.Trim(child.name, "0123456789") != "" {
			kept = append(kept, child)
			continue
		}
		if all == nil {
			all = &node{Module: Module{Path: child.Path, Depth: child.Depth}, name: child.name}
			kept = append(kept, all)
		}
		all.children = append(all.children, child)
	}
	if n.repeats == 0 && all != nil && len(all.children) >= leastRepeats {
		var calls float64
		for _, child := range all.children {
			calls += child.Calls
			all.SelfSeconds += child.SelfSeconds
			all.sum(&child.Module)
		}
		all.Calls = calls
		all.repeats = len(all.children)
		all.name = fmt.Sprintf("%s … %s (%d)", all.children[0].name, all.children[all.repeats-1].name, all.repeats)
		all.Bound, all.FLOPsPerSecond = boundOfMost(all.children), 0
		if all.Seconds > 0 {
			all.FLOPsPerSecond = all.FLOPs / all.Seconds
		}
		n.children = kept
	}
	for _, child := range n.children {
		child.arrange(v)
	}
	if v.Sort != "" {
		slices.SortStableFunc(n.children, func(a, b *node) int { return cmp.Compare(b.by(v.Sort), a.by(v.Sort)) })
	}
}

// boundOfMost is what bounds those of some modules that take most of their time.
func boundOfMost(list []*node) string {
	seconds := make(map[string]float64)
	best := ""
	for _, n := range list {
		seconds[n.Bound] += n.Seconds + n.StallSeconds
		if best == "" || seconds[n.Bound] > seconds[best] {
			best = n.Bound
		}
	}
	return best
}

// by is what a column sorts by.
func (n *node) by(c Column) float64 {
	switch c {
	case Calls:
		return n.Calls
	case Self:
		return n.SelfSeconds
	case Stall:
		return n.StallSeconds
	case Moved:
		return float64(n.MovedBytes)
	case FLOPs:
		return n.FLOPs
	case GFLOPs:
		return n.FLOPsPerSecond
	case Peak:
		return float64(n.PeakBytes)
	}
	return n.Seconds
}

// cell is what a column shows, "" for nothing.
func (n *node) cell(c Column, total float64) string {
	time := func(s float64) string {
		if s == 0 {
			return ""
		}
		return duration(s)
	}
	size := func(b int64) string {
		if b == 0 {
			return ""
		}
		return ascii.FormatSize(b)
	}
	switch c {
	case Calls:
		return fmt.Sprintf("%.4g", n.Calls)
	case Time:
		return time(n.Seconds)
	case Percent:
		return percent(n.Seconds, total)
	case Self:
		return time(n.SelfSeconds)
	case Stall:
		return time(n.StallSeconds)
	case Moved:
		return size(n.MovedBytes)
	case FLOPs:
		return fmt.Sprintf("%.4g", n.FLOPs)
	case GFLOPs:
		return fmt.Sprintf("%.4g", n.FLOPsPerSecond/1e9)
	case Bound:
		return n.Bound
	}
	return size(n.PeakBytes)
}

func percent(part, total float64) string {
	if total <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", 100*part/total)
}

// duration writes a time to four digits.
func duration(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.4g µs", s*1e6)
	case d < time.Second:
		return fmt.Sprintf("%.4g ms", s*1e3)
	}
	return fmt.Sprintf("%.4g s", s)
}

// Summary is the report in a line.
func (r *Report) Summary() string {
	if r.Passes == 0 {
		return "no pass so far"
	}
	text := fmt.Sprintf(
		"%d passes on %s, %s each, %s moved", r.Passes, r.Device, duration(r.Seconds), ascii.FormatSize(r.MovedBytes),
	)
	if !r.Exact {
		text += "; modules of one group share its time as planned"
	}
	return text
}

// A rest is a part of a pass that is no module's.
type rest struct {
	name    string
	seconds float64
}

func (r *Report) rests() []rest {
	var list []rest
	for _, x := range []rest{{"(waiting)", r.StallSeconds}, {"(loading)", r.LoadSeconds}, {"(other)", r.OtherSeconds}} {
		if x.seconds > 0 {
			list = append(list, x)
		}
	}
	return list
}

// Text writes the report as a table for a terminal.
func (r *Report) Text(v View) string {
	if v.Columns == nil {
		v.Columns = DefaultColumns
	}
	top := r.tree(v)
	if top == nil {
		return r.Summary() + "\n"
	}
	columns := []ascii.Column{ascii.Left("module")}
	for _, c := range v.Columns {
		if c == Bound {
			columns = append(columns, ascii.Left(string(c)))
		} else {
			columns = append(columns, ascii.Right(string(c)))
		}
	}
	t := ascii.NewTable(columns...)
	var show func(n *node, depth int)
	show = func(n *node, depth int) {
		row := []string{strings.Repeat("  ", depth) + n.name}
		for _, c := range v.Columns {
			row = append(row, n.cell(c, r.Seconds))
		}
		t.Row(row...)
		if v.Depth > 0 && depth >= v.Depth || n.repeats > 0 && !v.Apart {
			return
		}
		for _, child := range n.children {
			show(child, depth+1)
		}
	}
	show(top, 0)
	for _, x := range r.rests() {
		row := []string{x.name}
		for _, c := range v.Columns {
			switch c {
			case Time:
				row = append(row, duration(x.seconds))
			case Percent:
				row = append(row, percent(x.seconds, r.Seconds))
			default:
				row = append(row, "")
			}
		}
		t.Row(row...)
	}
	return r.Summary() + "\n" + t.String()
}

// WriteJSON writes the report as an object of JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
