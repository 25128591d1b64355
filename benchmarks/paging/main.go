// Command paging runs a model in one mode and prints the time of each pass, for the comparison scripts.
//
// It does not know who it is compared with.
//
//	paging -mode page -memory 1500000000 -rows 1 -runs 5 model.pt
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A report is what is printed.
type report struct {
	// Rows are those of a pass. What is said of opening is of the first of several numbers of rows.
	Rows        int     `json:"rows"`
	OpenSeconds float64 `json:"open_seconds"`
	// First is the pass before those that count; it brings the weights that stay.
	First   float64   `json:"first_seconds"`
	Seconds []float64 `json:"seconds"`
	// Simulated says that the times are those of the device's own clock.
	Simulated bool `json:"simulated,omitempty"`
	// Peak is what was held on the device.
	Peak    int64   `json:"peak_device_bytes"`
	Planned int64   `json:"planned_bytes"`
	Moved   int64   `json:"bytes_moved_per_run"`
	Stall   float64 `json:"stall_seconds_per_run"`
	// Given is what giving the ops to the device took; on the CPU they are computed then.
	Given float64 `json:"given_seconds_per_run"`
	// The plan's forecast, and what its ops and its loads take by themselves.
	Expected float64 `json:"expected_seconds"`
	Compute  float64 `json:"expected_compute_seconds"`
	Load     float64 `json:"expected_load_seconds"`
	Groups   int     `json:"groups"`
	Passes   int     `json:"passes_per_run"`
	// Output is the mean of the absolute values of the first output.
	Output float64 `json:"output"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "paging:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	mode := flag.String("mode", "page", "resident, page, chunk or auto")
	device := flag.String("device", "cpu", "device")
	memory := flag.Int64("memory", 0, "budget in bytes")
	library := flag.String("library", "", "path of a GPU's driver, instead of the system's")
	blas := flag.String("cublaslt", "", "path of cuBLASLt, auto for the first one found, to compute all products on a GPU; none for no products")
	precision := flag.String("precision", "", "bf16, tf32: what factors of products may be rounded to")
	hostMemory := flag.Int64("host-memory", 0, "budget of host memory beside a GPU in bytes")
	capacity := flag.Int64("capacity", 0, "chunk: parameters to pin")
	maxGroup := flag.Int64("max-layer-size", -1, "page: parameters below which a module is one group")
	rows := flag.String("rows", "1", "rows of a run; several numbers, with commas between, are run one after the other")
	size := flag.Int("size", 224, "height and width of pictures, or length of sequences")
	batch := flag.Bool("batch", false, "give the rows to RunBatch, which may cut them into micro-batches")
	runs := flag.Int("runs", 5, "passes to time, after one warm-up")
	most := flag.Duration("most", 0, "time no more passes of a number of rows after so long, but three; 0 is no bound")
	threads := flag.Int("threads", 2, "threads")
	hostRates := flag.String("rates", "", "what 'optimem calibrate --json' printed")
	deviceRates := flag.String("device-rates", "", "the same of an emulated device")
	wait := flag.Bool("wait", false, "before the passes, print a line to standard error and read one from standard input")
	flag.Parse()
	counts, err := numbers(*rows)
	if err != nil {
		return err
	}
	begin := time.Now()
	ckpt, err := loader.Open(flag.Arg(0))
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	opts := optimem.Options{
		Mode: plan.Mode(*mode), Device: *device, CUDALibrary: *library, CUBLASLt: *blas, Precision: *precision,
		Memory: *memory, HostMemory: *hostMemory, Threads: *threads,
	}
	if *mode != string(plan.Resident) {
		opts.MaxGroup = plan.Limit{N: *maxGroup, Unit: plan.Params}
	}
	if *mode == string(plan.Chunk) {
		opts.Capacity = plan.Limit{N: *capacity, Unit: plan.Params}
	}
	if opts.HostRates, err = readRates(*hostRates); err != nil {
		return err
	}
	if opts.Rates = opts.HostRates; *device != "cpu" {
		if opts.Rates, err = readRates(*deviceRates); err != nil {
			return err
		}
	}
	ctx := context.Background()
	session, err := optimem.Start(ctx, model, opts)
	if err != nil {
		return err
	}
	defer session.Close()
	m := measure{model, session, begin, *size, *runs, *most, *batch, *wait}
	for i, n := range counts {
		if err := m.rows(ctx, n, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// A measure is what is measured with each number of rows. begin is when the model began to be opened.
type measure struct {
	model       *models.Model
	session     *optimem.Session
	begin       time.Time
	size, runs  int
	most        time.Duration
	batch, wait bool
}

// rows times passes of so many rows and prints what they took.
func (m *measure) rows(ctx context.Context, n int, opens bool) error {
	in, shapes, err := inputs(m.model, n, m.size)
	if err != nil {
		return err
	}
	r := report{Rows: n}
	pass, p, err := r.plan(ctx, m.session, shapes, m.batch)
	if err != nil {
		return err
	}
	if opens {
		r.OpenSeconds = time.Since(m.begin).Seconds()
	}
	r.Planned, r.Groups = p.PeakBytes(), len(p.Groups)
	r.Compute, r.Load = p.Forecast.ComputeSeconds, p.Forecast.LoadSeconds
	if m.wait {
		fmt.Fprintln(os.Stderr, "ready")
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	one := func() (*tensor.Tensor, error) {
		out, err := pass(ctx, in)
		return out[m.model.Outputs()[0]], err
	}
	if err := r.time(m.session, m.runs, m.most, one); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// numbers reads numbers of rows with commas between.
func numbers(text string) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of rows", word)
		}
		list = append(list, n)
	}
	return list, nil
}

// leastRuns is how many passes are timed, however long they take.
const leastRuns = 3

// A runner computes passes over given inputs.
type runner func(ctx context.Context, in optimem.Values) (optimem.Values, error)

// plan plans a pass, or passes of a batch, and returns what runs it.
func (r *report) plan(
	ctx context.Context, session *optimem.Session, shapes map[string]tensor.Shape, batch bool,
) (runner, *plan.Plan, error) {
	if batch {
		b, err := session.PlanBatch(ctx, shapes)
		if err != nil {
			return nil, nil, err
		}
		r.Passes, r.Expected = b.Passes, b.Seconds
		return session.RunBatch, b.Plan, nil
	}
	p, err := session.Plan(ctx, shapes)
	if err != nil {
		return nil, nil, err
	}
	r.Passes, r.Expected = 1, p.Forecast.Seconds
	return session.Run, p, nil
}

// time measures passes, the first of which does not count. pass returns the first output.
func (r *report) time(
	session *optimem.Session, runs int, most time.Duration, pass func() (*tensor.Tensor, error),
) error {
	var spent time.Duration
	for i := range runs + 1 {
		if most > 0 && spent > most && i > leastRuns {
			break
		}
		before := session.Metrics()
		clock, simulated := session.Clock()
		begin := time.Now()
		out, err := pass()
		took := time.Since(begin)
		spent += took
		if err != nil {
			return err
		}
		if simulated {
			now, _ := session.Clock()
			took = now - clock
		}
		r.Simulated = simulated
		if i == 0 {
			r.First = took.Seconds()
			r.Output, err = mean(out)
			if err != nil {
				return err
			}
			continue
		}
		m := session.Metrics()
		r.Seconds = append(r.Seconds, took.Seconds())
		r.Peak, r.Moved, r.Stall = m.PeakBytes, m.MovedBytes-before.MovedBytes, (m.Stall - before.Stall).Seconds()
		r.Given = (m.Compute - before.Compute).Seconds()
	}
	return nil
}

// readRates reads what a calibration printed; no file stands for guesses.
func readRates(path string) (cost.Rates, error) {
	if path == "" {
		return cost.Rates{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return cost.Rates{}, err
	}
	var record calibrate.Record
	if err := json.Unmarshal(text, &record); err != nil {
		return cost.Rates{}, fmt.Errorf("%s: %w", path, err)
	}
	return record.Rates(), nil
}

// inputs makes the tensors that the peers make, too: element i is i × 7919 mod 1009, as a token, or over 1009 and less a
// half. Sizes that the model leaves open are rows in front and size elsewhere.
func inputs(model *models.Model, rows, size int) (optimem.Values, map[string]tensor.Shape, error) {
	in, shapes := make(optimem.Values), make(map[string]tensor.Shape)
	for _, port := range model.Inputs() {
		if port.Optional {
			continue
		}
		shape := append(tensor.Shape{}, port.Shape...)
		for i, d := range shape {
			switch {
			case d >= 0:
			case i == 0:
				shape[i] = rows
			default:
				shape[i] = size
			}
		}
		n, err := shape.NumElements()
		if err != nil {
			return nil, nil, err
		}
		const factor, modulus = 7919, 1009
		switch port.DType {
		case tensor.Float32:
			values := make([]float32, n)
			for i := range values {
				values[i] = float32(i*factor%modulus)/modulus - 0.5
			}
			in[port.Name] = tensor.Of(values, shape...)
		case tensor.Int64:
			values := make([]int64, n)
			for i := range values {
				values[i] = int64(i * factor % modulus)
			}
			in[port.Name] = tensor.Of(values, shape...)
		default:
			return nil, nil, fmt.Errorf("input %s is of %s", port.Name, port.DType)
		}
		shapes[port.Name] = shape
	}
	return in, shapes, nil
}

// mean returns the mean of the absolute values of a tensor.
func mean(t *tensor.Tensor) (float64, error) {
	values, err := tensor.Slice[float32](t)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, v := range values {
		sum += max(float64(v), -float64(v))
	}
	return sum / float64(max(len(values), 1)), nil
}
