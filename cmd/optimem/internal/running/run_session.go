//go:build !files

package running

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/courtesy"
	"github.com/optimem/optimem/cmd/optimem/internal/listing"
	"github.com/optimem/optimem/cmd/optimem/internal/wording"
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// An OpenModel is a model with its inputs and what runs it. Its owner closes it.
type openModel struct {
	r     *Run
	Ckpt  *loader.Checkpoint
	Model *models.Model
	In    *RunInputs
	// files are what the outputs are written to.
	files []target
	// openSeconds is how long it took to open and understand the file.
	openSeconds float64

	session *runtime.Session
	plan    *plan.Plan
	// batch says how rows are cut into micro-batches, nil where they go through at once. movedBytes and seconds are what
	// a run is expected to bring and to take.
	batch      *runtime.BatchPlan
	movedBytes int64
	// fileBytes is what files give for movedBytes: less, where weights are encoded.
	fileBytes int64
	seconds   float64
	watch     passWatch
	courtesy  *courtesy.Courtesy
}

// Close ends the session and closes the files.
func (m *openModel) Close() error {
	var err error
	if m.courtesy != nil {
		m.courtesy.Close()
	}
	if m.In != nil {
		m.In.Free()
	}
	if m.session != nil {
		m.r.TellDisks(m.session)
		err = m.session.Close()
	}
	return m.r.CloseTop(cmp.Or(err, m.Ckpt.Close(), m.r.CloseCode()))
}

// Limits are those within which files are opened.
func (r *Run) Limits() loader.Limits { return loader.Limits{MemoryBytes: int64(r.MaxMemory)} }

// OpenModel opens the model and says how it was understood.
func (r *Run) OpenModel(ctx context.Context) (*openModel, error) {
	start := time.Now()
	ckpt, model, err := r.open(ctx, r.Limits())
	if err != nil {
		return nil, cmp.Or(err, r.CloseCode())
	}
	m := &openModel{r: r, Ckpt: ckpt, Model: model, openSeconds: time.Since(start).Seconds()}
	if arch := model.Arch(); arch != "" {
		r.Note("%s: the architecture is %s", r.Model, arch)
	}
	if !r.Quiet {
		for _, n := range model.Notes() {
			r.Say("note", n)
		}
	}
	r.Note("%s: %s, %s, opened and understood in %s", r.Model, ckpt.Format,
		ascii.FormatSize(listing.SourceBytes(ckpt)), SecondsText(m.openSeconds))
	return m, nil
}

// prepare opens the model, reads its inputs and starts the session that runs it, for the commands that plan or run.
func (r *Run) prepare(ctx context.Context) (_ *openModel, err error) {
	polite := courtesy.Listen()
	m, err := r.OpenModel(ctx)
	if err != nil {
		polite.Close()
		return nil, err
	}
	m.courtesy = polite
	defer func() {
		if err != nil {
			_ = m.Close() // what went wrong before says more
		}
	}()
	var dumped []string
	if m.files, dumped, err = r.targets(m.Model.Outputs()); err != nil {
		return nil, err
	}
	if err = r.findInputs(ctx, m); err != nil {
		return nil, err
	}
	if r.Verbose && !r.assume { // random inputs are for measuring
		if err := r.ScanWeights(ctx, m.Ckpt); err != nil {
			return nil, err
		}
	}
	if err := r.Begin(ctx, m, dumped, m.In.Shapes); err != nil {
		return nil, r.knowing(err, m.Model, m.In.Shapes)
	}
	if !r.dry {
		if err := r.makeRandom(m.In); err != nil {
			return nil, err
		}
		if err := r.reportBefore(ctx, m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Begin starts the session that the flags ask for, and plans for inputs of the given shapes.
func (r *Run) Begin(ctx context.Context, m *openModel, dumped []string, shapes map[string]tensor.Shape) (err error) {
	if err := r.ListenTop(); err != nil {
		return err
	}
	opts := r.Options(dumped, m.In.randomBytes)
	opts.Observe = runtime.TeeObserver(m.watch.observe, r.watchOps, r.ObserveTop())
	if r.trace != nil {
		opts.Observe = runtime.TeeObserver(opts.Observe, r.trace.Observe)
	}
	opts.ObserveOps, opts.ObserveLoads = r.watchOps != nil, r.trace != nil
	if m.session, err = runtime.Start(ctx, m.Model, opts); err != nil {
		return err
	}
	r.TellTop(m.session)
	if m.courtesy != nil {
		go m.courtesy.Serve(ctx, m.session, func(what, text string) {
			if !r.Quiet {
				r.Say(what, text)
			}
		})
	}
	return r.planInputs(ctx, m, shapes)
}

// planInputs asks the session what it does with inputs of the given shapes.
func (r *Run) planInputs(ctx context.Context, m *openModel, shapes map[string]tensor.Shape) (err error) {
	if r.look != "" {
		return nil
	}
	if r.batched {
		m.batch, err = m.session.PlanBatch(ctx, shapes)
	} else {
		m.plan, err = m.session.Plan(ctx, shapes)
	}
	switch {
	case err != nil && len(r.assumedNumbers) > 0:
		return &assumptionError{err, fmt.Sprintf(
			"--input %s=FILE gives another number than the one that was assumed", r.assumedNumbers[0])}
	case err != nil && r.assumed:
		return &assumptionError{err, "--shape gives other sizes than those that were assumed"}
	case err != nil:
		return err
	case m.batch != nil:
		m.plan, m.movedBytes, m.seconds = m.batch.Plan, m.batch.MovedBytes, m.batch.Seconds
		m.fileBytes = m.batch.FileBytes
	default:
		m.movedBytes, m.seconds = m.plan.MovedBytes, m.plan.Forecast.Seconds
		m.fileBytes = m.plan.FileBytes()
	}
	return r.checkPeak(m.plan.PeakBytes())
}

// checkPeak holds a peak against --assert-peak.
func (r *Run) checkPeak(peak int64) error {
	if most := int64(r.assertPeak); most > 0 && peak > most {
		err := fmt.Errorf(
			"the peak is %d bytes (%s), above the %d of --assert-peak", peak, ascii.FormatSize(peak), most,
		)
		return cmp.Or(r.DoesNotFitJSON(err, nil), error(&command.Failure{Err: err, Code: ExitDoesNotFit}))
	}
	return nil
}

// An assumptionError says that a model cannot be planned for inputs in sizes, or for numbers, that nobody gave.
type assumptionError struct {
	err  error
	hint string
}

func (e *assumptionError) Error() string { return e.err.Error() }
func (e *assumptionError) Unwrap() error { return e.err }

// Options returns what the flags say of a session. Random inputs will take inputBytes beside it.
func (r *Run) Options(dumped []string, inputBytes int64) runtime.Options {
	opts := runtime.Options{
		Mode: plan.Mode(r.Mode), BatchAxes: r.axes, Device: r.Device, Memory: r.Memory.Bytes,
		MemoryShare: r.Memory.Share, Reserve: inputBytes,
		HostMemory: int64(r.HostMemory), Swap: r.fileBytes(), SwapFolder: r.WaitFolder(),
		MaxGroup: r.maxLayer.Limit,
		Capacity: r.capacity.Limit, Threads: r.Threads, Dump: dumped, HostRates: r.rates(),
		CUDALibrary: os.Getenv(LibraryVariable), CUBLASLt: os.Getenv(blasVariable), CUDACache: assembledKernels(),
		CUDAEnvironment: os.Getenv, PlanOnly: r.dry, Exact: r.exact,
		Precision: r.Precision,
		Once:      r.once && r.Runs == 1 && !r.batched,
	}
	if r.Device == "cpu" {
		opts.Rates = opts.HostRates
		return opts
	}
	opts.Rates = cost.Rates{
		DiskBytes: opts.HostRates.DiskBytes, ReadSeconds: opts.HostRates.ReadSeconds,
		DecodeBytes: opts.HostRates.DecodeBytes, Disks: opts.HostRates.Disks,
	}
	return opts
}

// Pass runs the model once and says what that cost.
func (m *openModel) Pass(ctx context.Context) (runtime.Values, runFacts, error) {
	before := m.session.Metrics()
	loads := m.plan.Fixed.WeightBytes
	if before.Runs > 0 {
		loads = 0
	}
	m.watch.begin(m.r, loads+m.movedBytes)
	clock, simulated := m.session.Clock()
	start := time.Now()
	compute := m.session.Run
	if m.batch != nil {
		compute = m.session.RunBatch
	}
	out, err := compute(ctx, m.In.Values)
	took := time.Since(start)
	m.watch.end()
	if err != nil {
		return nil, runFacts{}, err
	}
	after := m.session.Metrics()
	facts := runFacts{
		Mode: m.r.Mode, Device: m.r.Device, Threads: m.r.Threads,
		Seconds: took.Seconds(), LoadSeconds: max(took-m.watch.groups, 0).Seconds(),
		ExpectedSeconds: m.seconds, Measured: m.plan.Forecast.Measured,
		PeakDeviceBytes: after.PeakBytes, WeightBytes: after.WeightBytes,
		PageableBytes:    after.PageableBytes,
		SwappedOutBytes:  after.SwappedOutBytes - before.SwappedOutBytes,
		SwappedInBytes:   after.SwappedInBytes - before.SwappedInBytes,
		RecomputedBytes:  after.RecomputedBytes - before.RecomputedBytes,
		SwapStallSeconds: (after.SwapStall - before.SwapStall).Seconds(),
		MovedBytes:       after.MovedBytes - before.MovedBytes, StallSeconds: (after.Stall - before.Stall).Seconds(),
	}
	if facts.Precision = m.r.Precision; facts.Precision != Precisions[0] {
		facts.Products, facts.Narrow = m.products()
	}
	if simulated {
		// Ops take on the device's clock what the plan says they do, so that all else is waiting.
		now, _ := m.session.Clock()
		facts.Simulated, facts.Seconds, facts.LoadSeconds = true, (now - clock).Seconds(), 0
		passes := 1
		if m.batch != nil {
			passes = m.batch.Passes
		}
		facts.StallSeconds = max(facts.Seconds-float64(passes)*m.plan.Forecast.ComputeSeconds, 0)
	}
	return out, facts, nil
}

// products counts the products of matrices and convolutions of the plan, and those whose factors are rounded as the
// precision allows.
func (m *openModel) products() (all, narrow int) {
	for i, op := range m.plan.Lowered.Graph.Ops {
		kernel := m.plan.Lowered.Steps[i].Kernel
		switch {
		case strings.HasSuffix(kernel, "_"+m.r.Precision):
			all, narrow = all+1, narrow+1
		case op.Kind == "linear" || op.Kind == "matmul" || strings.HasPrefix(string(op.Kind), "conv"):
			all++
		}
	}
	return all, narrow
}

// A passWatch follows a pass group by group, and draws how far it has come.
type passWatch struct {
	r *Run
	// groups is what the groups of the pass took so far, but for waiting for weights that stay.
	groups time.Duration
	bar    *command.Progress
}

func (w *passWatch) begin(r *Run, totalBytes int64) {
	w.r, w.groups, w.bar = r, 0, &command.Progress{}
	if totalBytes > 0 && !r.Quiet {
		w.bar = command.NewProgress(r.Stderr, r.Cmd.Name(), totalBytes)
	}
}

func (w *passWatch) observe(e runtime.Event) {
	switch e.Kind {
	case runtime.GroupDone:
		w.groups += e.Compute
		if e.LoadedBytes > 0 { // else it is weights that stay that were waited for
			w.groups += e.Stall
		}
		w.bar.Add(int(e.LoadedBytes))
	case runtime.WeightsLoaded:
		w.bar.Add(int(e.LoadedBytes))
	case runtime.Replanned:
		if !w.r.Quiet {
			w.r.Say("warning", fmt.Sprintf("planned anew, for %s: %v", ascii.FormatSize(e.PeakBytes), e.Err))
		}
	}
}

func (w *passWatch) end() { w.bar.Clear() }

// A runFacts is what a run cost.
type runFacts struct {
	Mode    string
	Device  string
	Threads int
	// Seconds is the whole run, LoadSeconds the part of it in which nothing was computed but weights that stay were brought.
	Seconds, LoadSeconds float64
	// Simulated says that the times are those of a device's own clock.
	Simulated bool
	// ExpectedSeconds is what the planner thought the groups would take, from rates that were Measured or guessed.
	ExpectedSeconds float64
	Measured        bool
	// WeightBytes are those of the weights that stay, MovedBytes what was brought for this run alone.
	PeakDeviceBytes, WeightBytes, MovedBytes int64
	StallSeconds                             float64
	// PageableBytes is host memory for copies that could not be page-locked.
	PageableBytes int64
	// SwappedOutBytes and SwappedInBytes are activations that went to wait and came back, SwapStallSeconds how long that was
	// waited for where it goes through a file.
	SwappedOutBytes, SwappedInBytes int64
	SwapStallSeconds                float64
	// RecomputedBytes are activations that were computed anew.
	RecomputedBytes int64
	// Narrow of all Products have factors that were rounded to Precision; they are counted if that is not the default.
	Precision        string
	Products, Narrow int
}

// String is the line that ends a run.
func (f runFacts) String() string {
	moved := "moved " + ascii.FormatSize(f.MovedBytes)
	if f.MovedBytes > 0 && f.Seconds > 0 {
		// Over all of the time, of which some goes by without a read: it is not what the disk gives.
		moved += fmt.Sprintf(", %s/s over the run", ascii.FormatSize(int64(float64(f.MovedBytes)/f.Seconds)))
	}
	took := SecondsText(f.Seconds)
	if f.Simulated {
		took += " (simulated)"
	}
	text := fmt.Sprintf("%s, peak %s, weights %s, %s, stall %.3g %%, %s", took,
		ascii.FormatSize(f.PeakDeviceBytes), ascii.FormatSize(f.WeightBytes), moved, 100*f.stallFraction(),
		Counted(f.Threads, "thread"))
	if f.PageableBytes > 0 {
		text += ", copies through " + ascii.FormatSize(f.PageableBytes) + " that are not page-locked"
	}
	if f.SwappedInBytes > 0 {
		text += fmt.Sprintf(
			", activations swapped: %s out, %s in", ascii.FormatSize(f.SwappedOutBytes),
			ascii.FormatSize(f.SwappedInBytes),
		)
		if f.SwapStallSeconds > 0 {
			text += ", " + SecondsText(f.SwapStallSeconds)
		}
	}
	if f.RecomputedBytes > 0 {
		text += ", activations computed anew: " + ascii.FormatSize(f.RecomputedBytes)
	}
	if f.Products > 0 {
		text += fmt.Sprintf(", %s in %d of %s", f.Precision, f.Narrow, Counted(f.Products, "product"))
	}
	return text
}

func (f runFacts) stallFraction() float64 {
	if f.Seconds == 0 {
		return 0
	}
	return min(f.StallSeconds/f.Seconds, 1)
}

// expectation compares a run with its plan.
func (f runFacts) expectation() string {
	text := fmt.Sprintf("expected %s", SecondsText(f.ExpectedSeconds))
	if !f.Measured && !f.Simulated {
		text += Guessed
	}
	text += ", took " + SecondsText(f.Seconds-f.LoadSeconds)
	if f.LoadSeconds > 0 && f.WeightBytes > 0 {
		text += fmt.Sprintf(" after %s of loading", SecondsText(f.LoadSeconds))
	}
	return text
}

// Guessed follows a time that no measurement stands behind.
const Guessed = " (a guess: 'optimem calibrate' measures this host)"

// SecondsText writes a time for people.
func SecondsText(s float64) string { return wording.Seconds(s) }

// findInputs finds the inputs that the flags name or that are assumed, and their shapes.
func (r *Run) findInputs(ctx context.Context, m *openModel) error {
	ports, err := r.ports(m.Ckpt, m.Model)
	if err != nil {
		return err
	}
	if m.In, err = r.readInputs(ctx, m.Ckpt, ports, r.Limits()); err != nil {
		return err
	}
	r.lookAgain(m.Model, m.In.Shapes)
	return nil
}
