package listing

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// TextOptions say how much of a long listing is printed: so many tensors, or all of everything.
type TextOptions struct {
	Tensors int
	All     bool
}

const (
	moduleLines = 30 // the tree is cut to the depth that fits
	shortList   = 8  // values, classes, unreadable tensors, shared storages
	// maxValueBytes is the length of a value that is still printed.
	maxValueBytes = 60
	tableRows     = 8192
)

var formatNames = map[loader.Format]string{
	loader.FormatTorchZip:    "torch.save, since 1.6",
	loader.FormatTorchLegacy: "torch.save, before 1.6",
	loader.FormatTorchScript: "torch.jit.save",
	loader.FormatExported:    "torch.export.save",
	loader.FormatExportedOld: "torch.export.save, before 2.8",
	loader.FormatSharded:     "an index and its shards",
	loader.FormatHuggingFace: "a Hugging Face folder",
	loader.FormatGGUF:        "llama.cpp's",
}

// WriteText writes what there is to know for people.
func (in *Listing) WriteText(w io.Writer, o TextOptions) error {
	b := bufio.NewWriter(w)
	in.writeHead(b, o)
	in.writePorts(b, o)
	in.writeModules(b, o)
	in.writeTensors(b, o)
	in.writeShared(b, o)
	in.writeUnreadable(b, o)
	return b.Flush()
}

func (in *Listing) writeHead(b *bufio.Writer, o TextOptions) {
	facts := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	format := string(in.Format)
	if name := formatNames[in.Format]; name != "" {
		format += " (" + name + ")"
	}
	if in.Module != nil {
		format += ", a whole module: " + in.Module.Class
	}
	facts.Row("format", format)
	if model := in.configModel(); model != "" {
		facts.Row("model", model)
	}
	if v := in.torchVersion(); v != "" {
		facts.Row("written by", "torch "+v)
	}
	facts.Row("file", ascii.FormatSize(in.fileBytes))
	if n, original := packedBytes(in.Checkpoint); n > 0 {
		facts.Row("packed", fmt.Sprintf(
			"in %s, %s of %s", ascii.FormatSize(n), ascii.FormatShare(n, original), ascii.FormatSize(original),
		))
	}
	facts.Row("tensors", fmt.Sprintf("%s: %s params, %s", ascii.FormatCount(int64(len(in.Weights))),
		ascii.FormatCount(in.tally.total.params), ascii.FormatSize(in.tally.total.bytes)))
	for i, d := range in.dtypes() {
		title := ""
		if i == 0 {
			title = "dtypes"
		}
		facts.Row(title, fmt.Sprintf("%s: %s, %s", d.dtype, tensorsText(d.tensors), ascii.FormatSize(d.count.bytes)))
	}
	for i, e := range in.encodings() {
		title := ""
		if i == 0 {
			title = "encodings"
		}
		facts.Row(title, fmt.Sprintf("%s: %s, %s", e.Encoding, tensorsText(e.Tensors), ascii.FormatSize(e.FileBytes)))
	}
	for _, d := range in.dicts {
		if d.Path == "" && d.Prefix == "" {
			continue
		}
		facts.Row("state dict", stateDictText(d))
	}
	if len(in.Values) > 0 {
		facts.Row("values", in.valuesText(o))
	}
	if len(in.Classes) > 0 {
		facts.Row("classes", cutList(in.Classes, o, func(c string) string { return c }))
	}
	fmt.Fprintln(b, ascii.Printable(in.Path))
	indent(b, facts.String())
}

func stateDictText(d loader.StateDict) string {
	text := "the whole file"
	if d.Path != "" {
		text = fmt.Sprintf("under %q", d.Path)
	}
	text += ", " + tensorsText(len(d.Weights))
	if d.Prefix != "" {
		text += fmt.Sprintf(", every name with prefix %q", d.Prefix)
	}
	return text
}

// valuesText lists the plain values beside the tensors. Those inside other things (the optimizer's settings, the state
// of callbacks) are many and rarely of interest.
func (in *Listing) valuesText(o TextOptions) string {
	if o.All {
		return cutList(in.Values, o, func(v loader.Value) string { return v.Name + "=" + v.Text })
	}
	var parts []string
	for _, v := range in.Values {
		if (in.Format == loader.FormatGGUF || !strings.Contains(v.Name, ".")) &&
			len(v.Name)+len(v.Text) <= maxValueBytes && len(parts) < shortList {
			parts = append(parts, v.Name+"="+v.Text)
		}
	}
	if n := len(in.Values) - len(parts); n > 0 {
		parts = append(parts, fmt.Sprintf("… %s more", ascii.FormatCount(int64(n))))
	}
	return strings.Join(parts, ", ")
}

// tensorsText writes a number of tensors.
func tensorsText(n int) string {
	if n == 1 {
		return "1 tensor"
	}
	return ascii.FormatCount(int64(n)) + " tensors"
}

// configModel names the model of a Hugging Face folder or a GGUF file.
func (in *Listing) configModel() string {
	var config struct {
		ModelType     string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if arch, ok := in.Metadata["general.architecture"].(string); ok {
		name, _ := in.Metadata["general.name"].(string)
		return strings.TrimSpace(ascii.Printable(arch) + " " + ascii.Printable(name))
	}
	if len(in.Config) == 0 || json.Unmarshal(in.Config, &config) != nil {
		return ""
	}
	return strings.TrimSpace(config.ModelType + " " + strings.Join(config.Architectures, " "))
}

// cutList joins the first of a list and says how many were left out.
func cutList[T any](list []T, o TextOptions, text func(T) string) string {
	shown := list
	if !o.All {
		shown = list[:min(len(list), shortList)]
	}
	var parts []string
	for _, v := range shown {
		parts = append(parts, text(v))
	}
	if n := len(list) - len(shown); n > 0 {
		parts = append(parts, fmt.Sprintf("… %s more", ascii.FormatCount(int64(n))))
	}
	return strings.Join(parts, ", ")
}

func rangeText(r symbolRange) string {
	switch {
	case r.Min != nil && r.Max != nil:
		return fmt.Sprintf("%d ≤ %s ≤ %d", *r.Min, r.Symbol, *r.Max)
	case r.Min != nil:
		return fmt.Sprintf("%d ≤ %s", *r.Min, r.Symbol)
	case r.Max != nil:
		return fmt.Sprintf("%s ≤ %d", r.Symbol, *r.Max)
	}
	return r.Symbol + " may be any size"
}

func (in *Listing) writePorts(b *bufio.Writer, o TextOptions) {
	ports := ascii.NewTable(ascii.Left("program"), ascii.Left("name"), ascii.Left("type"), ascii.Left("shape"))
	for _, side := range []struct {
		title string
		ports []port
	}{{"input", in.inputs()}, {"output", in.outputs()}} {
		for _, p := range side.ports {
			shape := ""
			if p.Shape != nil {
				shape = "[" + strings.Join(p.Shape, " ") + "]"
			}
			if p.optional {
				shape = strings.TrimSpace(shape + " (optional)")
			}
			ports.Row(side.title, p.Name, cmp.Or(p.DType, p.Type), shape)
		}
	}
	if ports.Len() == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s", ports)
	for i, r := range in.ranges() {
		if i == shortList && !o.All {
			fmt.Fprintf(b, "… %d more symbols (--all lists them)\n", len(in.ranges())-i)
			break
		}
		fmt.Fprintln(b, ascii.Printable(rangeText(r)))
	}
}

func (in *Listing) writeModules(b *bufio.Writer, o TextOptions) {
	if len(in.tree.modules) <= 1 {
		return
	}
	fmt.Fprintf(b, "\n%s", in.tree.text(o.All))
}

func (in *Listing) writeTensors(b *bufio.Writer, o TextOptions) {
	n := len(in.Weights)
	if !o.All {
		n = min(n, o.Tensors)
	}
	if n == 0 {
		return
	}
	fmt.Fprintln(b)
	// A table holds all its rows to align them; a listing of any length goes out in a few.
	for from := 0; from < n; from += tableRows {
		table := ascii.NewTable(ascii.Left("tensor"), ascii.Left("dtype"), ascii.Left("shape"), ascii.Right("bytes"),
			ascii.Left(""))
		for i := from; i < min(n, from+tableRows); i++ {
			w := in.Weights[i]
			table.Row(w.Name, w.DType.String(), w.Layout.Shape.String(), ascii.FormatSize(w.Bytes()), in.notes(i, w))
		}
		fmt.Fprint(b, table)
	}
	if rest := len(in.Weights) - n; rest > 0 {
		fmt.Fprintf(b, "… %s more (--all lists them)\n", ascii.FormatCount(int64(rest)))
	}
}

// notes says what is unusual about a tensor.
func (in *Listing) notes(i int, w tensor.Weight) string {
	var notes []string
	if first := in.tally.sharesWith[i]; first >= 0 {
		if sameView(w, in.Weights[first]) {
			notes = append(notes, "= "+in.Weights[first].Name)
		} else {
			notes = append(notes, "shares "+in.Weights[first].Name)
		}
	}
	if !w.Layout.IsContiguous() {
		notes = append(notes, fmt.Sprintf("strides %v", w.Layout.Strides))
	}
	if w.Layout.Offset != 0 {
		notes = append(notes, fmt.Sprintf("offset %d", w.Layout.Offset))
	}
	if e := encodingOf(w); e != nil {
		notes = append(notes, fmt.Sprintf("%s, %s in the file", e.Encoding, ascii.FormatSize(e.FileBytes)))
	}
	if w.BigEndian {
		notes = append(notes, "big-endian")
	}
	if w.Conj {
		notes = append(notes, "conjugate")
	}
	if w.Neg {
		notes = append(notes, "negated")
	}
	if q := w.Quant; q != nil {
		note := q.Scheme
		if q.Scales == nil {
			note = fmt.Sprintf("%s, scale %g, zero point %d", note, q.Scale, q.ZeroPoint)
		} else {
			note = fmt.Sprintf("%s along dimension %d", note, q.Axis)
		}
		notes = append(notes, note)
	}
	return strings.Join(notes, ", ")
}

func (in *Listing) writeShared(b *bufio.Writer, o TextOptions) {
	groups := in.shared()
	if len(groups) == 0 {
		return
	}
	fmt.Fprintln(b, "\nshared storage")
	shown := groups
	if !o.All {
		shown = groups[:min(len(groups), shortList)]
	}
	for _, g := range shown {
		names := cutList(g, o, func(i int32) string { return in.Weights[i].Name })
		fmt.Fprintf(b, "  %s: %s\n", ascii.FormatSize(in.storageBytes(g)), ascii.Printable(names))
	}
	if rest := len(groups) - len(shown); rest > 0 {
		fmt.Fprintf(b, "  … %s more (--all lists them)\n", ascii.FormatCount(int64(rest)))
	}
}

func (in *Listing) writeUnreadable(b *bufio.Writer, o TextOptions) {
	if len(in.Unreadable) == 0 {
		return
	}
	fmt.Fprintln(b, "\nunreadable")
	shown := in.Unreadable
	if !o.All {
		shown = shown[:min(len(shown), shortList)]
	}
	for _, e := range shown {
		fmt.Fprintf(b, "  %s: %s\n", ascii.Printable(e.Record), ascii.Printable(e.Err.Error()))
	}
	if rest := len(in.Unreadable) - len(shown); rest > 0 {
		fmt.Fprintf(b, "  … %s more (--all lists them)\n", ascii.FormatCount(int64(rest)))
	}
}

// text draws the tree. Unless all is asked for it is cut to the depth that fits, and runs of modules that are alike
// are one.
func (t *Tree) text(all bool) string {
	if all {
		return t.table(maxModuleDepth, nil, false)
	}
	likeness := t.likeness()
	depth := 1
	for depth < maxModuleDepth && t.lines(0, depth+1, likeness) <= moduleLines {
		depth++
	}
	return t.table(depth, likeness, true)
}

// lines counts the lines of the tree below m to the given depth, at most a few more than fit.
func (t *Tree) lines(m int32, depth int, likeness []uint64) int {
	n := 1
	if depth == 0 {
		return n
	}
	for run := range t.runs(m, likeness) {
		if n > moduleLines {
			break
		}
		n += t.lines(run[0], depth-1, likeness)
		if len(run) > 1 {
			n++
		}
	}
	return n
}

// runs yields the children of m, those elements of a list that follow each other and are alike together.
func (t *Tree) runs(m int32, likeness []uint64) func(yield func(run []int32) bool) {
	return func(yield func(run []int32) bool) {
		var run []int32
		for c := range t.Children(m) {
			alike := len(run) > 0 && likeness != nil && likeness[c] == likeness[run[0]] &&
				t.modules[c].numbered() && t.modules[run[0]].numbered()
			if len(run) > 0 && !alike {
				if !yield(run) {
					return
				}
				run = nil
			}
			run = append(run, c)
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

func (t *Tree) table(depth int, likeness []uint64, cut bool) string {
	hasClass := slices.ContainsFunc(t.modules, func(m module) bool { return m.class != "" })
	columns := []ascii.Column{ascii.Left("module"), ascii.Right("params"), ascii.Right("bytes")}
	if hasClass {
		columns = append(columns, ascii.Left("class"))
	}
	table := ascii.NewTable(columns...)
	row := func(name string, m *module) {
		cells := []string{name, ascii.FormatCount(m.count.params), ascii.FormatSize(m.count.bytes)}
		if hasClass {
			cells = append(cells, m.class)
		}
		table.Row(cells...)
	}
	var below func(m int32, level int)
	below = func(m int32, level int) {
		if level == depth {
			return
		}
		margin := strings.Repeat("  ", level)
		for run := range t.runs(m, likeness) {
			if cut && table.Len() > 2*moduleLines {
				table.Row(margin + "… more (--all lists them)")
				return
			}
			row(margin+t.modules[run[0]].name(), &t.modules[run[0]])
			below(run[0], level+1)
			switch last := t.modules[run[len(run)-1]].name(); len(run) {
			case 1:
			case 2:
				table.Row(fmt.Sprintf("%s%s alike", margin, last))
			default:
				second := t.modules[run[1]].name()
				table.Row(fmt.Sprintf("%s%s … %s alike", margin, second, last))
			}
		}
	}
	row("(all)", &t.modules[0])
	below(0, 0)
	return table.String()
}

// indent writes lines with a margin of two spaces.
func indent(b *bufio.Writer, lines string) {
	for line := range strings.Lines(lines) {
		b.WriteString("  " + line)
	}
}
