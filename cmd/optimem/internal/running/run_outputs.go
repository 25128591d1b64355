//go:build !files

package running

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A runOutput is an output with what is printed of it.
type runOutput struct {
	values.Summary
	tensor *tensor.Tensor
}

// runOutputs lists the outputs in the model's order. Outputs that are no tensors (None, text) are not among them.
func runOutputs(names []string, out runtime.Values) []runOutput {
	var results []runOutput
	for _, name := range names {
		if t, ok := out[name]; ok {
			results = append(results, runOutput{values.Summarize(name, t), t})
		}
	}
	return results
}

// A rowNames names rows of an output after those of the input file, "pictures.npy[0]", or after the input's files.
type rowNames struct {
	file  string
	files []string
	n     int
}

// name returns the name of row i of an output whose leading dimensions are dims.
func (r rowNames) name(dims tensor.Shape, i int) string {
	index := make([]string, len(dims))
	for k := len(dims) - 1; k >= 0; k-- {
		index[k] = strconv.Itoa(i % dims[k])
		i /= dims[k]
	}
	text := "[" + strings.Join(index, " ") + "]"
	if len(r.files) > 0 && len(dims) > 0 && dims[0] == len(r.files) {
		row, _ := strconv.Atoi(index[0])
		if len(dims) == 1 {
			return r.files[row]
		}
		return r.files[row] + "[" + strings.Join(index[1:], " ") + "]"
	}
	if r.file != "" && len(dims) > 0 && dims[0] == r.n {
		return r.file + text
	}
	return text
}

// maxLabelBytes bounds a file that is no list of labels.
const maxLabelBytes = 16 << 20

// readLabels reads the names of classes, one on a line. They may come from a pipe, which is not waited for longer than
// ctx lasts.
func readLabels(ctx context.Context, path string) ([]string, error) {
	return unlessDone(ctx, func() ([]string, error) { return readLines(path) })
}

// unlessDone returns what a function returns, or the error of a context that is done before, while the function goes
// on: it is for work that cannot be stopped, of a command that ends then.
func unlessDone[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func readLines(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLabelBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxLabelBytes {
		return nil, fmt.Errorf("%s: more than 16 MiB is no list of labels", path)
	}
	lines := strings.TrimSuffix(strings.TrimPrefix(string(text), "\ufeff"), "\n")
	var labels []string
	for line := range strings.SplitSeq(lines, "\n") {
		labels = append(labels, strings.TrimSpace(line))
	}
	return labels, nil
}

// A topEntry is one of the largest values of a row.
type topEntry struct {
	Index int             `json:"index"`
	Label string          `json:"label,omitempty"`
	Value json.RawMessage `json:"value"`
}

// ranked reports whether an output has rows of numbers to rank.
func (r *Run) ranked(s values.Summary) bool { return r.top > 0 && len(s.Shape) > 0 && s.All.Real }

// summaryRows returns how many rows an output has, and how long they are.
func summaryRows(s values.Summary) (n, length int) {
	length = s.Shape[len(s.Shape)-1]
	if length == 0 {
		return 0, 0
	}
	return s.N / length, length
}

// best returns the largest values of a row, the first of equal ones first.
func (r *Run) best(s values.Summary, row int) []topEntry {
	_, length := summaryRows(s)
	from := row * length
	before := func(i, j int) bool { return s.All.Less(j, i) || !s.All.Less(i, j) && i < j }
	var top []int // few: kept in order by insertion
	for i := from; i < from+length; i++ {
		if len(top) == r.top && !before(i, top[len(top)-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, i, func(have, i int) int {
			if before(have, i) {
				return -1
			}
			return 1
		})
		top = slices.Insert(top[:min(len(top), r.top-1)], min(at, r.top-1), i)
	}
	entries := make([]topEntry, len(top))
	for k, i := range top {
		entries[k] = topEntry{Index: i - from, Value: json.RawMessage(s.All.JSON(i))}
		if length == len(r.labels) {
			entries[k].Label = r.labels[i-from]
		}
	}
	return entries
}

// checkLabels makes sure that the labels are those of an output.
func (r *Run) checkLabels(results []runOutput) error {
	if r.labels == nil {
		return nil
	}
	var lengths []string
	for _, res := range results {
		if !r.ranked(res.Summary) {
			continue
		}
		_, length := summaryRows(res.Summary)
		if length == len(r.labels) {
			return nil
		}
		lengths = append(lengths, fmt.Sprintf("%s has rows of %d", res.Name, length))
	}
	return r.Usage("one label on each line", "%s holds %s: %s",
		r.labelsFile, Counted(len(r.labels), "label"), cmp.Or(strings.Join(lengths, ", "), "no output has rows"))
}

// print prints the results to standard output.
func (r *Run) print(facts runFacts, results []runOutput, rows rowNames) error {
	if r.AsJSON {
		return r.printJSON(facts, results)
	}
	w := bufio.NewWriter(r.Stdout)
	var plain []values.Summary
	for _, res := range results {
		if !r.ranked(res.Summary) {
			plain = append(plain, res.Summary)
		}
	}
	if len(plain) > 0 {
		_, _ = fmt.Fprint(w, summaryTable(plain))
	}
	several := len(results) > 1
	for i, res := range results {
		if !r.ranked(res.Summary) {
			continue
		}
		if several {
			if i > 0 || len(plain) > 0 {
				_, _ = fmt.Fprintln(w)
			}
			_, _ = fmt.Fprintf(w, "%s %v %v\n", ascii.Printable(res.Name), res.DType, res.Shape)
		}
		r.topTable(w, res.Summary, rows)
	}
	return w.Flush()
}

func summaryTable(list []values.Summary) *ascii.Table {
	anyNaN := slices.ContainsFunc(list, func(s values.Summary) bool { return s.NaN > 0 })
	columns := []ascii.Column{
		ascii.Left("output"), ascii.Left("dtype"), ascii.Left("shape"),
		ascii.Right("min"), ascii.Right("mean"), ascii.Right("max"),
	}
	if anyNaN {
		columns = append(columns, ascii.Right("nan"))
	}
	table := ascii.NewTable(append(columns, ascii.Left("first values"))...)
	for _, s := range list {
		mean := ""
		if s.Min != "" {
			mean = values.Short(strconv.FormatFloat(s.Mean, 'g', -1, 64))
		}
		cells := []string{s.Name, s.DType.String(), s.Shape.String(), values.Short(s.Min), mean, values.Short(s.Max)}
		if anyNaN {
			cells = append(cells, strconv.Itoa(s.NaN))
		}
		var first []string
		for _, v := range s.First {
			first = append(first, values.Short(v))
		}
		if s.N > len(first) {
			first = append(first, "…")
		}
		table.Row(append(cells, strings.Join(first, " "))...)
	}
	return table
}

// maxTopRows is how many rows are printed; a file can hold more.
const maxTopRows = 1000

func (r *Run) topTable(w io.Writer, s values.Summary, rows rowNames) {
	n, length := summaryRows(s)
	labelled := length == len(r.labels)
	columns := []ascii.Column{ascii.Left("row")}
	if r.top > 1 {
		columns = append(columns, ascii.Right("rank"))
	}
	columns = append(columns, ascii.Right("class"))
	if labelled {
		columns = append(columns, ascii.Left("label"))
	}
	table := ascii.NewTable(append(columns, ascii.Right("value"))...)
	for row := range min(n, maxTopRows) {
		for rank, e := range r.best(s, row) {
			cells := []string{""}
			if rank == 0 {
				cells[0] = rows.name(s.Shape[:len(s.Shape)-1], row)
			}
			if r.top > 1 {
				cells = append(cells, strconv.Itoa(rank+1))
			}
			cells = append(cells, strconv.Itoa(e.Index))
			if labelled {
				cells = append(cells, e.Label)
			}
			table.Row(append(cells, values.Short(strings.Trim(string(e.Value), `"`)))...)
		}
	}
	_, _ = fmt.Fprint(w, table)
	if n > maxTopRows {
		_, _ = fmt.Fprintf(w, "… and %d more rows: --json prints all\n", n-maxTopRows)
	}
}

// A jsonOutput is an output in the answer of --json.
type jsonOutput struct {
	Name  string            `json:"name"`
	DType string            `json:"dtype"`
	Shape tensor.Shape      `json:"shape"`
	Min   json.RawMessage   `json:"min"`
	Mean  json.RawMessage   `json:"mean"`
	Max   json.RawMessage   `json:"max"`
	NaN   int               `json:"nan"`
	First []json.RawMessage `json:"first_values"`
	Top   [][]topEntry      `json:"top,omitempty"`
}

func (r *Run) printJSON(facts runFacts, results []runOutput) error {
	o := jsonout.New(r.Stdout)
	o.Set("mode", facts.Mode)
	o.Set("device", facts.Device)
	o.Set("threads", facts.Threads)
	o.Set("seconds", facts.Seconds)
	o.Set("expected_seconds", facts.ExpectedSeconds)
	o.Set("peak_device_bytes", facts.PeakDeviceBytes)
	o.Set("weight_bytes", facts.WeightBytes)
	o.Set("bytes_moved", facts.MovedBytes)
	o.Set("stall_fraction", facts.stallFraction())
	if facts.SwappedInBytes > 0 {
		o.Set("bytes_swapped_out", facts.SwappedOutBytes)
		o.Set("bytes_swapped_in", facts.SwappedInBytes)
		o.Set("swap_stall_seconds", facts.SwapStallSeconds)
	}
	if facts.RecomputedBytes > 0 {
		o.Set("bytes_recomputed", facts.RecomputedBytes)
	}
	if facts.PageableBytes > 0 {
		o.Set("pageable_bytes", facts.PageableBytes)
	}
	jsonout.Array(o, "outputs", func(yield func(jsonOutput) bool) {
		for _, res := range results {
			if !yield(r.jsonOutput(res.Summary)) {
				return
			}
		}
	})
	setReports(o, r.reports)
	return o.Close()
}

func (r *Run) jsonOutput(s values.Summary) jsonOutput {
	j := jsonOutput{
		Name: s.Name, DType: s.DType.String(), Shape: s.Shape, NaN: s.NaN, First: []json.RawMessage{},
		Min: json.RawMessage("null"), Mean: json.RawMessage("null"), Max: json.RawMessage("null"),
	}
	if s.Shape == nil {
		j.Shape = tensor.Shape{}
	}
	if s.Min != "" {
		j.Min, j.Max = json.RawMessage(values.JSONNumber(s.Min)), json.RawMessage(values.JSONNumber(s.Max))
		j.Mean = json.RawMessage(values.JSONNumber(strconv.FormatFloat(s.Mean, 'g', -1, 64)))
	}
	for _, v := range s.First {
		j.First = append(j.First, json.RawMessage(values.JSONNumber(v)))
	}
	if r.ranked(s) {
		n, _ := summaryRows(s)
		for row := range n {
			j.Top = append(j.Top, r.best(s, row))
		}
	}
	return j
}
