package profiled

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/internal/ascii"
)

// programName stands for what is in no module, inputName for what the caller gives. waitingName and otherName are what
// a run takes beside its ops: the wait for weights, and the rest, such as copies of inputs and outputs and the rounds
// of the pager.
const (
	programName = "(program)"
	inputName   = "(input)"
	waitingName = "(waiting)"
	otherName   = "(other)"
)

// AutoDepth has the table of modules go as deep as it has room for.
const AutoDepth = -1

const (
	// maxModuleLines is how many modules a table has that goes as deep as there is room, maxKindLines how many kinds of
	// ops.
	maxModuleLines = 60
	maxKindLines   = 10
)

// A moduleLine is a module in a table.
type moduleLine struct {
	module int32
	depth  int
}

// lines returns the modules to list, parents first, down to a depth: 0 is all of them, AutoDepth what there is room
// for. Where there is none for the first level, it is for the costliest of that. cut is how many are left out, down the
// depth down to which none is, 0 where it is the first level of which some are.
func (d *Profile) lines(depth int) (list []moduleLine, cut, down int) {
	var all []moduleLine
	var perDepth []int
	d.tree.Walk(0, func(m int32, depth int) {
		all = append(all, moduleLine{m, depth})
		for len(perDepth) <= depth {
			perDepth = append(perDepth, 0)
		}
		perDepth[depth]++
	})
	down = len(perDepth) - 1
	switch {
	case depth > 0:
		down = min(depth, down)
	case depth == AutoDepth:
		n := perDepth[0]
		for down = 0; down+1 < len(perDepth) && (down == 0 || n+perDepth[down+1] <= maxModuleLines); down++ {
			n += perDepth[down+1]
		}
	}
	list = slices.DeleteFunc(slices.Clone(all), func(l moduleLine) bool { return l.depth > down })
	if depth == AutoDepth && len(list) > maxModuleLines {
		list, down = d.costliest(list, maxModuleLines), down-1
	}
	return list, len(all) - len(list), down
}

// costliest returns the n of the modules that take most time, in their order. A module takes no less than those below
// it, so that no module is without the one that it is in.
func (d *Profile) costliest(list []moduleLine, n int) []moduleLine {
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b moduleLine) int {
		return cmp.Or(
			cmp.Compare(d.modules[b.module].Seconds, d.modules[a.module].Seconds), cmp.Compare(a.depth, b.depth),
		)
	})
	keep := make(map[int32]bool, n)
	for _, l := range order[:n] {
		keep[l.module] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(l moduleLine) bool { return !keep[l.module] })
}

// name is what a module is called below the one that it is in.
func (d *Profile) name(m int32) string {
	if m == 0 {
		return programName
	}
	path := d.tree.Path(m)
	return strings.TrimPrefix(path[len(d.tree.Path(d.tree.Parent(m))):], ".")
}

// A reportTable is a table of a report, which a terminal and a page show each in its way.
type reportTable struct {
	columns []ascii.Column
	rows    [][]string
}

// String returns the table for a terminal.
func (t *reportTable) String() string {
	all := ascii.NewTable(t.columns...)
	for _, row := range t.rows {
		all.Row(row...)
	}
	return all.String()
}

// WriteText writes the tables for a terminal, that of modules down to a depth: 0 is all of them, AutoDepth what there is room
// for.
func (d *Profile) WriteText(w io.Writer, depth int) error {
	b := bufio.NewWriter(w)
	list, cut, down := d.lines(depth)
	modules := d.moduleTable(list)
	for i, l := range list {
		modules.rows[i][0] = strings.Repeat("  ", l.depth) + modules.rows[i][0]
	}
	if d.Table != "" {
		_, _ = fmt.Fprint(b, d.Table)
	} else {
		_, _ = fmt.Fprint(b, modules)
	}
	if cut > 0 && d.Table == "" {
		which := "that take less time"
		if down > 0 {
			which = fmt.Sprintf("below depth %d", down)
		}
		_, _ = fmt.Fprintf(b, "… and %s %s: --depth 0 lists all\n", wording.Counted(cut, "more module"), which)
	}
	_, _ = fmt.Fprintf(b, "\n%s", d.sums())
	if len(d.ops) > 0 {
		_, _ = fmt.Fprintf(b, "\nmemory at its peak: %s, of %s taken\n  %s\n\n%s",
			d.peak.place(), ascii.FormatSize(d.TakenBytes), d.peak.purposes(), d.holderTable())
		if n := d.peak.held - len(d.peak.Holders); n > 0 {
			_, _ = fmt.Fprintf(b, "… and %s\n", wording.Counted(n, "smaller one"))
		}
		if d.peak.stay > 0 {
			_, _ = fmt.Fprintf(b, "\n%s", d.weightTable())
			if n := d.peak.stay - len(d.peak.Weights); n > 0 {
				_, _ = fmt.Fprintf(b, "… and %s\n", wording.Counted(n, "smaller one"))
			}
		}
		_, _ = fmt.Fprintf(b, "\n%s", d.kindTable(maxKindLines))
		if n := len(d.kinds) - maxKindLines; n > 0 {
			_, _ = fmt.Fprintf(b, "… and %s\n", wording.Counted(n, "more kind"))
		}
	}
	return b.Flush()
}

// moduleTable has a row for each module. Columns about what is brought are left out where nothing is.
func (d *Profile) moduleTable(list []moduleLine) *reportTable {
	brings := d.modules[0].MovedBytes > 0 || d.modules[0].StallSeconds > 0
	t := &reportTable{columns: []ascii.Column{
		ascii.Left("module"), ascii.Right("calls"), ascii.Right("time"), ascii.Right("%"), ascii.Right("self"),
		ascii.Right("weights"), ascii.Right("makes"), ascii.Right("peak"),
	}}
	if brings {
		t.columns = append(t.columns, ascii.Right("moved"), ascii.Right("stall"))
	}
	for _, l := range list {
		x := &d.modules[l.module]
		row := []string{
			d.name(l.module), strconv.Itoa(x.Calls), wording.Seconds(x.Seconds), d.percent(x.Seconds),
			timeCell(x.SelfSeconds),
			sizeCell(x.WeightBytes), sizeCell(x.ActivationBytes), sizeCell(x.PeakBytes),
		}
		if brings {
			row = append(row, sizeCell(x.MovedBytes), timeCell(x.StallSeconds))
		}
		t.rows = append(t.rows, row)
	}
	// With the first row, that of the program, these add up to the run.
	for _, x := range []struct {
		name    string
		seconds float64
	}{{waitingName, d.modules[0].StallSeconds}, {otherName, d.OtherSeconds}} {
		if x.seconds > 0 {
			row := make([]string, len(t.columns))
			row[0], row[2], row[3] = x.name, wording.Seconds(x.seconds), d.percent(x.seconds)
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// sizeCell is a number of bytes, timeCell a time; "" for none.
func sizeCell(n int64) string {
	if n == 0 {
		return ""
	}
	return ascii.FormatSize(n)
}

func timeCell(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return wording.Seconds(seconds)
}

// percent is what part of a run a time is.
func (d *Profile) percent(seconds float64) string {
	if d.Seconds <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", 100*seconds/d.Seconds)
}

// runText says what a run took.
func (d *Profile) runText() string {
	text := fmt.Sprintf("%s, of %s", wording.Seconds(d.Seconds), wording.Counted(d.Runs, "run"))
	if d.Simulated {
		text += ", simulated"
	}
	return text
}

// sums says what was measured.
func (d *Profile) sums() *ascii.Table {
	t := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	t.Row("mode", fmt.Sprintf("%s on %s, %s", d.Mode, d.Device, wording.Counted(d.Threads, "thread")))
	t.Row("run", d.runText())
	all := &d.modules[0]
	text := wording.Seconds(all.Seconds) + " in " + wording.Counted(len(d.ops), "op")
	if all.StallSeconds > 0 {
		text += fmt.Sprintf(", %s waiting for weights", wording.Seconds(all.StallSeconds))
	}
	if d.OtherSeconds > 0 {
		text += fmt.Sprintf(", %s other", wording.Seconds(d.OtherSeconds))
	}
	t.Row("of it", text)
	return t
}

// place says how much is in use at the peak, and during which op.
func (x *peakEntry) place() string {
	where := ""
	if x.onHost {
		where = " on the CPU"
	}
	return fmt.Sprintf("%s during %s (%s)%s", ascii.FormatSize(x.Bytes),
		ascii.Printable(cmp.Or(x.Path, programName)), ascii.Printable(x.Kind), where)
}

// purposes says what that is for.
func (x *peakEntry) purposes() string {
	return wording.Purposes(wording.For(x.FixedBytes, "weights that stay and constants"), wording.For(x.CacheBytes, "cache"),
		wording.For(x.RingBytes, "slots"), wording.For(x.ActivationBytes, "activations"), wording.For(x.WorkBytes, "workspace"))
}

func (d *Profile) holderTable() *reportTable {
	t := &reportTable{columns: []ascii.Column{ascii.Left("activation"), ascii.Left("made by"), ascii.Right("bytes")}}
	for _, h := range d.peak.Holders {
		maker := cmp.Or(h.Path, programName)
		if h.input {
			maker = inputName
		}
		t.rows = append(t.rows, []string{h.Name, maker, ascii.FormatSize(h.Bytes)})
	}
	return t
}

func (d *Profile) weightTable() *reportTable {
	t := &reportTable{columns: []ascii.Column{ascii.Left("weight that stays"), ascii.Right("bytes")}}
	for _, w := range d.peak.Weights {
		t.rows = append(t.rows, []string{w.Name, ascii.FormatSize(w.Bytes)})
	}
	return t
}

func (d *Profile) kindTable(most int) *reportTable {
	t := &reportTable{
		columns: []ascii.Column{ascii.Left("op"), ascii.Right("calls"), ascii.Right("time"), ascii.Right("%")},
	}
	for _, k := range d.kinds[:min(len(d.kinds), most)] {
		t.rows = append(t.rows, []string{k.Kind, strconv.Itoa(k.Calls), wording.Seconds(k.Seconds), d.percent(k.Seconds)})
	}
	return t
}

// A jsonModule is a module in the answer of --json.
type jsonModule struct {
	Path            string  `json:"path"`
	Calls           int     `json:"calls"`
	Seconds         float64 `json:"seconds"`
	SelfSeconds     float64 `json:"self_seconds"`
	StallSeconds    float64 `json:"stall_seconds"`
	WeightBytes     int64   `json:"weight_bytes"`
	MovedBytes      int64   `json:"moved_bytes"`
	ActivationBytes int64   `json:"activation_bytes"`
	PeakBytes       int64   `json:"peak_bytes"`
}

// jsonModules lists all modules, the program first under the path "".
func (d *Profile) jsonModules() iter.Seq[jsonModule] {
	return func(yield func(jsonModule) bool) {
		list, _, _ := d.lines(0)
		for _, l := range list {
			x := &d.modules[l.module]
			if !yield(jsonModule{
				d.tree.Path(l.module), x.Calls, x.Seconds, x.SelfSeconds, x.StallSeconds,
				x.WeightBytes, x.MovedBytes, x.ActivationBytes, x.PeakBytes,
			}) {
				return
			}
		}
	}
}

// WriteJSON writes all modules, ops and kinds of ops as one JSON object.
func (d *Profile) WriteJSON(w io.Writer) error {
	o := jsonout.New(w)
	o.Set("mode", d.Mode)
	o.Set("device", d.Device)
	o.Set("runs", d.Runs)
	o.Set("seconds_median", d.Seconds)
	o.Set("other_seconds", d.OtherSeconds)
	jsonout.Array(o, "modules", d.jsonModules())
	jsonout.Array(o, "ops", slices.Values(d.ops))
	jsonout.Array(o, "kinds", slices.Values(d.kinds))
	o.Set("peak", d.peak)
	if d.Reports != nil {
		jsonout.Array(o, "memory_reports", slices.Values(d.Reports))
	}
	return o.Close()
}
