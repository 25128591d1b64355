//go:build !files

package running

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
)

// A batchFlag is the value of --batch: a number of rows or, for plan, which numbers to look at.
type batchFlag struct {
	rows *int
	look *lookFor
}

// A lookFor says which numbers of rows 'optimem plan' looks at, "" for none.
type lookFor string

const (
	lookAll    lookFor = "auto"
	lookPowers lookFor = "powers"
)

// Set implements [pflag.Value].
func (b *batchFlag) Set(text string) error {
	switch lookFor(text) {
	case lookAll, lookPowers:
		*b.rows, *b.look = 1, lookFor(text)
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf(
			"%q is neither a number of rows nor %s or %s, which 'optimem plan' takes", text, lookAll, lookPowers,
		)
	}
	*b.rows, *b.look = n, ""
	return nil
}

// String implements [pflag.Value].
func (b *batchFlag) String() string {
	switch {
	case b.rows == nil || *b.rows == 0:
		return ""
	case *b.look != "":
		return string(*b.look)
	}
	return strconv.Itoa(*b.rows)
}

// Type implements [pflag.Value].
func (b *batchFlag) Type() string { return "N" }

// A jsonBatch is a number of rows in the answer of --json.
type jsonBatch struct {
	Rows          int     `json:"rows"`
	PeakBytes     int64   `json:"peak_device_bytes"`
	OpBytes       int64   `json:"op_bytes,omitempty"`
	MovedBytes    int64   `json:"bytes_moved"`
	Seconds       float64 `json:"expected_seconds"`
	SecondsPerRow float64 `json:"seconds_per_row"`
}

// planBatches lists the numbers of rows that go through one pass, and says which is the fastest.
func (r *Run) planBatches(ctx context.Context, m *openModel) error {
	list, err := m.session.Batches(ctx, m.In.Shapes, runtime.BatchGoal{PowerOfTwo: r.look == lookPowers})
	if err != nil {
		return err
	}
	fastest, largest := runtime.BatchGoal{}.Best(list), runtime.BatchGoal{Largest: true}.Best(list)
	if err := r.checkPeak(fastest.PeakBytes); err != nil {
		return err
	}
	if r.AsJSON {
		o := jsonout.New(r.Stdout)
		o.Set("mode", r.Mode)
		o.Set("device", r.Device)
		jsonout.Array(o, "batches", func(yield func(jsonBatch) bool) {
			for _, b := range list {
				if !yield(jsonBatch{b.Rows, b.PeakBytes, b.OpBytes, b.MovedBytes, b.Seconds, b.RowSeconds()}) {
					return
				}
			}
		})
		o.Set("fastest", fastest.Rows)
		o.Set("largest", largest.Rows)
		return o.Close()
	}
	w := bufio.NewWriter(r.Stdout)
	table := ascii.NewTable(
		ascii.Right("rows"), ascii.Right("peak"), ascii.Right("moved"), ascii.Right("a row in"), ascii.Left(""),
	)
	shown := slices.DeleteFunc(slices.Clone(list), func(b runtime.BatchSize) bool {
		return !r.Verbose && b.Rows&(b.Rows-1) != 0 && b != fastest && b != largest
	})
	for _, b := range shown {
		note := ""
		switch {
		case b == fastest && b == largest:
			note = "the fastest, and the largest of up to 128 that fits"
		case b == fastest:
			note = "the fastest"
		case b == largest:
			note = "the largest of up to 128 that fits"
		}
		table.Row(strconv.Itoa(b.Rows), ascii.FormatSize(b.PeakBytes+b.OpBytes), ascii.FormatSize(b.MovedBytes),
			SecondsText(b.RowSeconds()), note)
	}
	_, _ = fmt.Fprint(w, table)
	if n := len(list) - len(shown); n > 0 {
		_, _ = fmt.Fprintf(w, "and %d between: --verbose lists all\n", n)
	}
	sums := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	sums.Row("mode", fmt.Sprintf("%s on %s", r.Mode, r.Device))
	if budget, _ := m.session.Budget(); budget > 0 {
		sums.Row("budget", ascii.FormatSize(budget))
	}
	best := fmt.Sprintf("--batch %d", fastest.Rows)
	if r.Device == "cpu" && !r.rates().Measured {
		best += Guessed
	}
	sums.Row("fastest", best)
	_, _ = fmt.Fprintf(w, "\n%s", sums)
	return w.Flush()
}
