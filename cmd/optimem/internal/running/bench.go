//go:build !files

package running

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/profiled"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/sysmem"
)

const benchLong = `Run a model many times and say how long a run takes: the median and the least of --runs runs after
some that warm up, what the first one took, and what all moved and held.

load_seconds is from opening the file until the weights that stay are in memory; the first run comes after that.
Inputs that are not given are random, in assumed sizes where the program leaves them open. For a time with a cold page
cache, empty that cache before: nothing is read past it that lies in it.`

const benchExamples = `  optimem bench model.pt2
  optimem bench model.pt2 --mode page --memory 2GiB --batch 8 --runs 5
  optimem bench model.pt2 --json > after.json`

// BenchCommand is 'optimem bench', which measures a model's run.
func BenchCommand(c *command.Line) *cobra.Command {
	r := Run{Line: c, assume: true}
	cmd := &cobra.Command{
		Use:     "bench MODEL [flags]",
		Short:   "Run a model many times and say how long a run takes",
		Long:    benchLong,
		Example: benchExamples,
		Args:    OneModel(c),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			r.Cmd, r.Model = cmd, args[0]
			if err := r.CheckFlags(); err != nil {
				return err
			}
			return r.Place(r.traced(cmd.Context(), r.bench))
		}),
	}
	const runs = 10
	r.shareFlags(cmd, runs)
	r.recordFlags(cmd)
	r.noOutputs(cmd)
	return cmd
}

// A benchmark is what was measured.
type benchmark struct {
	MedianSeconds, MinSeconds float64
	Runs                      int
	FirstSeconds, LoadSeconds float64
	PeakBytes, PeakRSSBytes   int64
	MovedBytes                int64
	MovedPerSecond            float64
	StallFraction             float64
	Simulated                 bool
}

// The first run is followed by others that are not counted, until caches and clock rates are what they stay.
const (
	warmUpRuns    = 3
	warmUpSeconds = 0.5
)

func (r *Run) bench(ctx context.Context) (err error) {
	start := time.Now()
	m, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	opened := time.Since(start).Seconds()
	_, first, err := m.Pass(ctx)
	if err != nil {
		return err
	}
	b := firstRun(first, opened, r.Runs)
	for spent, n := b.FirstSeconds, 0; n < warmUpRuns && spent < warmUpSeconds; n++ {
		_, facts, err := m.Pass(ctx)
		if err != nil {
			return err
		}
		spent += facts.Seconds
	}
	var all []runFacts
	for range r.Runs {
		_, facts, err := m.Pass(ctx)
		if err != nil {
			return err
		}
		all = append(all, facts)
	}
	if err := r.reportAfter(ctx, m); err != nil {
		return err
	}
	b.sum(all)
	b.PeakRSSBytes = sysmem.PeakRSS()
	if r.AsJSON {
		return r.benchJSON(b)
	}
	_, err = fmt.Fprint(r.Stdout, r.benchTable(b, m))
	return err
}

// firstRun begins a benchmark with what came before the runs that count: opening the file, and the first run, which brings the
// weights that stay.
func firstRun(first runFacts, openSeconds float64, runs int) benchmark {
	return benchmark{
		Runs: runs, LoadSeconds: openSeconds + first.LoadSeconds, FirstSeconds: first.Seconds - first.LoadSeconds,
		Simulated: first.Simulated,
	}
}

// sum takes the runs that count into account.
func (b *benchmark) sum(all []runFacts) {
	var times []float64
	var seconds, stall float64
	var moved int64
	for _, f := range all {
		times = append(times, f.Seconds)
		seconds += f.Seconds
		stall += f.StallSeconds
		moved += f.MovedBytes
		b.PeakBytes = max(b.PeakBytes, f.PeakDeviceBytes)
	}
	b.MedianSeconds, b.MinSeconds = profiled.Median(times), slices.Min(times)
	b.MovedBytes = moved / int64(len(times))
	if seconds > 0 {
		b.MovedPerSecond, b.StallFraction = float64(moved)/seconds, min(stall/seconds, 1)
	}
}

func (r *Run) benchJSON(b benchmark) error {
	o := jsonout.New(r.Stdout)
	o.Set("seconds_median", b.MedianSeconds)
	o.Set("seconds_min", b.MinSeconds)
	o.Set("runs", b.Runs)
	o.Set("first_run_seconds", b.FirstSeconds)
	o.Set("load_seconds", b.LoadSeconds)
	o.Set("peak_device_bytes", b.PeakBytes)
	o.Set("peak_rss_bytes", b.PeakRSSBytes)
	o.Set("bytes_moved_per_run", b.MovedBytes)
	o.Set("moved_bytes_per_second", b.MovedPerSecond)
	o.Set("stall_fraction", b.StallFraction)
	o.Set("threads", r.Threads)
	o.Set("mode", r.Mode)
	o.Set("device", r.Device)
	setReports(o, r.reports)
	return o.Close()
}

func (r *Run) benchTable(b benchmark, m *openModel) *ascii.Table {
	t := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	t.Row("mode", fmt.Sprintf("%s on %s, %s", r.Mode, r.Device, Counted(r.Threads, "thread")))
	run := fmt.Sprintf("%s, at least %s, of %s", SecondsText(b.MedianSeconds), SecondsText(b.MinSeconds),
		Counted(b.Runs, "run"))
	if b.Simulated {
		run += ", simulated"
	}
	t.Row("run", run)
	expected := SecondsText(m.seconds) + ", bound by " + m.plan.Forecast.Bound
	if !m.plan.Forecast.Measured && !b.Simulated {
		expected += Guessed
	}
	t.Row("expected", expected)
	t.Row("first run", SecondsText(b.FirstSeconds))
	t.Row("load", SecondsText(b.LoadSeconds))
	t.Row("moved per run", fmt.Sprintf("%s, %s/s",
		ascii.FormatSize(b.MovedBytes), ascii.FormatSize(int64(b.MovedPerSecond))))
	t.Row("stall", fmt.Sprintf("%.3g %%", 100*b.StallFraction))
	t.Row("peak", ascii.FormatSize(b.PeakBytes))
	t.Row("process", ascii.FormatSize(b.PeakRSSBytes))
	return t
}
