//go:build !files

package running

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/profiled"

	profiling "github.com/optimem/optimem/profile"
	"github.com/optimem/optimem/runtime"
)

const profileLong = `Say where a run's time and memory go: for each module what its ops take, how long they wait for weights, what of the
weights they read, what is brought for them, how much they make, and the most that was alive or scratch memory while one
of them ran. Then what occupied memory at the peak, op by op as it was planned, and which kinds of ops took
the time.

Every op is waited for before the next one begins, so that a run takes longer than 'optimem bench' says. Times are
medians of --runs runs after some that warm up. The rows (program), (waiting) for weights and (other), which is copies of
inputs and outputs and the rounds between ops, add up to the run. The table goes down to the depth that about 60 lines have room for;
--depth chooses. --html writes a picture: the memory in use over the time of a run, and the modules by their time.`

const profileExamples = `  optimem profile model.pt2
  optimem profile model.pt2 --html report.html
  optimem profile model.pt2 --mode page --memory 2GiB --batch 8 --depth 3
  optimem profile model.pt2 --json > profile.json`

// ProfileCommand is 'optimem profile', which says where a run's time goes.
func ProfileCommand(c *command.Line) *cobra.Command {
	p := profiler{Run: Run{Line: c, assume: true}}
	cmd := &cobra.Command{
		Use:     "profile MODEL [flags]",
		Short:   "Say where a run's time and memory go, module by module",
		Long:    profileLong,
		Example: profileExamples,
		Args:    OneModel(c),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			p.Cmd, p.Model = cmd, args[0]
			if err := p.check(); err != nil {
				return err
			}
			return p.Place(p.traced(cmd.Context(), p.profile))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&p.html, "html", "", "write the picture to `FILE`, a page that needs nothing else")
	flags.IntVar(&p.depth, "depth", profiled.AutoDepth, "list modules `N` levels deep, 0 for all of them, -1 for what has room")
	flags.StringSliceVar(&p.columns, "columns", nil, "list these `COLUMNS` of modules, such as time,stall,gflop/s")
	flags.StringVar(&p.sortBy, "sort", "", "list modules by a `COLUMN`, the largest first")
	flags.IntVar(&p.every, "every", 0, "say on standard error after each `N` runs where their time went")
	command.Grouped(flags, command.OutputGroup, "html", "depth", "columns", "sort", "every")
	const runs = 5
	p.shareFlags(cmd, runs)
	p.recordFlags(cmd)
	p.noOutputs(cmd)
	return cmd
}

// A profiler is one run of the command.
type profiler struct {
	Run
	html  string
	depth int
	// columns, sortBy and every are those flags, live is what they are about.
	columns []string
	sortBy  string
	every   int
	live    *profiling.Profile
}

// view is what --columns, --sort and --depth ask for.
func (p *profiler) view() profiling.View {
	v := profiling.View{Sort: profiling.Column(p.sortBy), Depth: max(p.depth, 0)}
	for _, c := range p.columns {
		v.Columns = append(v.Columns, profiling.Column(c))
	}
	return v
}

// check looks at the flags alone, and at where the picture is to go.
func (p *profiler) check() error {
	if p.depth < profiled.AutoDepth {
		return p.Usage("", "--depth takes a number of levels, 0 or more, or -1")
	}
	v := p.view()
	if err := v.Check(); err != nil {
		return p.Usage("", "%w", err)
	}
	if p.every < 0 {
		return p.Usage("", "--every takes a number of runs, 0 or more")
	}
	if p.Cmd.Flags().Changed("html") && p.html == "" {
		return p.Usage("for instance --html report.html", "--html names no file")
	}
	if err := p.CheckFlags(); err != nil || p.html == "" {
		return err
	}
	if sameFile(p.html, p.Model) {
		return p.Usage("", "%s is the model itself", p.html)
	}
	if _, err := os.Stat(filepath.Dir(p.html)); err != nil {
		return err
	}
	_, err := newfile.Path(p.html)
	return err
}

func (p *profiler) profile(ctx context.Context) (err error) {
	var seen profiled.Watch
	p.live = profiling.New(profiling.Options{Every: p.every, W: p.Stderr, View: p.view(), Rates: p.rates()})
	p.watchOps = runtime.TeeObserver(seen.Observe, p.live.Observe)
	m, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	measured, err := p.measure(ctx, m, &seen)
	if err != nil {
		return err
	}
	if err := p.reportAfter(ctx, m); err != nil {
		return err
	}
	about := profiled.About{Mode: m.r.Mode, Device: m.r.Device, Threads: m.r.Threads, Reports: m.r.reports}
	if len(p.columns) > 0 || p.sortBy != "" {
		about.Table = p.live.Report().Text(p.view())
	}
	d := profiled.New(m.plan, measured, about)
	if !p.Quiet {
		p.Say("note", fmt.Sprintf("a run took %s, with each op waited for; 'optimem bench' says what it takes otherwise",
			SecondsText(d.Seconds)))
	}
	if p.html != "" {
		// It is small, and what cannot be written as a whole is not begun.
		var page bytes.Buffer
		if err := d.WritePage(&page, filepath.Base(p.Model)); err != nil {
			return err
		}
		err := newfile.Write(p.html, func(f *os.File) error {
			_, err := arrays.Writer(ctx, f).Write(page.Bytes())
			return err
		})
		if err != nil {
			return err
		}
	}
	if p.AsJSON {
		return d.WriteJSON(p.Stdout)
	}
	return d.WriteText(p.Stdout, p.depth)
}

// measure runs the model as a benchmark does and returns what its ops took.
func (p *profiler) measure(ctx context.Context, m *openModel, seen *profiled.Watch) (*profiled.Measurement, error) {
	_, simulated := m.session.Clock()
	seen.Begin(m.plan, simulated)
	pass := func() (runFacts, error) {
		seen.BeginRun()
		_, facts, err := m.Pass(ctx)
		return facts, err
	}
	var spent float64
	for n := 0; n <= warmUpRuns && (n == 0 || spent < warmUpSeconds); n++ {
		facts, err := pass()
		if err != nil {
			return nil, err
		}
		spent += facts.Seconds - facts.LoadSeconds
	}
	p.live.Reset() // what warmed up does not count
	all := &profiled.Measurement{}
	for all.Runs() < p.Runs {
		if seen.Replanned() { // what was measured is of a plan that is no more
			if err := p.planInputs(ctx, m, m.In.Shapes); err != nil {
				return nil, err
			}
			seen.Begin(m.plan, simulated)
			*all = profiled.Measurement{}
			p.live.Reset()
		}
		facts, err := pass()
		if err != nil {
			return nil, err
		}
		if !seen.Replanned() {
			all.Add(seen, profiled.Facts{
				Seconds: facts.Seconds, Simulated: facts.Simulated, PeakDeviceBytes: facts.PeakDeviceBytes,
			})
		}
	}
	return all, nil
}
