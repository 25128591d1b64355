//go:build !files

package running

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// ExitDoesNotFit is the code of what needs more memory than there is.
const ExitDoesNotFit = 3

// batchAxisHint is for rows that were not found, or are not kept apart along the axis that was.
const batchAxisHint = "--batch-axis NAME=N names the axis of an input that counts its rows"

// Place gives an error of building or running a model its exit code and its hints.
func (r *Run) Place(err error) error {
	var (
		placed      *command.Failure
		unsupported *models.UnsupportedError
		input       *models.InputError
		option      *runtime.OptionError
		rows        *runtime.RowsError
		memory      *device.OutOfMemoryError
		mismatch    *layers.MismatchError
		ambiguous   *models.AmbiguousError
		unknown     *models.UnknownArchitectureError
		capacity    *plan.CapacityError
		noDevice    *runtime.DeviceError
		assumption  *assumptionError
		program     *models.ProgramError
		batch       *graph.NotBatchableError
	)
	switch {
	case err == nil || errors.As(err, &placed) || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unsupported):
		return r.unsupported(err, unsupported)
	case errors.As(err, &mismatch):
		return r.mismatch(err, mismatch)
	case errors.As(err, &ambiguous):
		return command.UsageError(r.Cmd, err, "say which: --arch "+ambiguous.Candidates[0])
	case errors.As(err, &unknown):
		return command.UsageError(r.Cmd, err, ArchitectureHint(unknown))
	case errors.As(err, &option):
		return command.UsageError(r.Cmd, err, r.optionHint(option))
	case errors.As(err, &rows) && errors.As(err, &input):
		return command.UsageError(r.Cmd, err, rowsHint(rows))
	case errors.As(err, &input):
		return command.UsageError(r.Cmd, err, r.inspectHint())
	case errors.As(err, &noDevice) && r.dry && !r.Memory.Given() && strings.HasPrefix(r.Device, "cuda"):
		return command.UsageError(
			r.Cmd, err, "with --memory, for instance --memory 8GiB, no GPU is needed to plan for one", deviceHint,
		)
	case errors.As(err, &noDevice):
		return command.UsageError(r.Cmd, err, deviceHint)
	case errors.As(err, &batch):
		return command.UsageError(r.Cmd, err, batchAxisHint)
	case errors.As(err, &capacity):
		return r.doesNotFit(err, capacity)
	case errors.As(err, &memory):
		return r.refusedMemory(err)
	case errors.Is(err, npy.ErrFormat):
		return &command.Failure{Err: err, Code: command.ExitUnsafe}
	case errors.Is(err, npy.ErrUnsupported), errors.Is(err, graph.ErrUnsupported):
		f := &command.Failure{Err: err, Code: command.ExitUnsupported}
		alone := r.Mode == string(plan.Resident) || r.Mode == string(plan.Page) // nothing is left to the CPU
		narrow := r.Precision != "" && r.Precision != Precisions[0]
		switch gpu := strings.HasPrefix(r.Device, "cuda"); {
		case gpu && narrow && !alone:
			f.Hints = append(
				f.Hints, fmt.Sprintf("on a GPU --precision %s takes --mode resident or --mode page", r.Precision),
			)
		case gpu && !narrow && r.Mode != string(plan.Auto):
			f.Hints = append(f.Hints, "--mode auto has the CPU compute what the GPU cannot")
		}
		return f
	case errors.As(err, &assumption):
		return command.UsageError(r.Cmd, err, assumption.hint)
	case errors.As(err, &program) && !program.Fixed:
		return command.UsageError(r.Cmd, err, r.inspectHint())
	}
	return err
}

// rowsHint names numbers of rows near the one that was asked for that micro-batches divide.
func rowsHint(e *runtime.RowsError) string {
	below := max(e.Rows/e.Micro, 1)
	if below > math.MaxInt/e.Micro-1 {
		return fmt.Sprintf("--batch %d would do", below*e.Micro)
	}
	return fmt.Sprintf("--batch %d or --batch %d would do", below*e.Micro, (below+1)*e.Micro)
}

// optionHint says what to do about an option that is wrong: of memory that nobody knows of, which flag gives it.
func (r *Run) optionHint(e *runtime.OptionError) string {
	switch {
	case e.Option == "Memory" && !r.Memory.Given():
		return "say how much, for instance --memory 4GiB"
	case r.Model == "": // there are many, or none
		return ""
	}
	return r.inspectHint()
}

// inspectHint names the command that lists a model's inputs.
func (r *Run) inspectHint() string {
	return fmt.Sprintf("'optimem inspect %s' shows what goes in", r.Model)
}

// doesNotFit says which budget would do; with --json on standard output, too.
func (r *Run) doesNotFit(err error, c *plan.CapacityError) error {
	f := &command.Failure{Err: err, Code: ExitDoesNotFit}
	if c.Host {
		f.Hints = append(
			f.Hints, fmt.Sprintf("--host-memory %d (%s) would do", c.NeedBytes, ascii.FormatSize(c.NeedBytes)),
		)
		return cmp.Or(r.DoesNotFitJSON(err, nil), error(f))
	}
	least := fmt.Sprintf("%d (%s)", c.MinBytes, ascii.FormatSize(c.MinBytes))
	switch has := emulatedBytes(r.Device); {
	case c.MinBytes == 0:
	case has > 0 && c.MinBytes > has:
		f.Hints = append(
			f.Hints, fmt.Sprintf("the least that a device needs to have with --mode %s: memory=%s", r.Mode, least),
		)
	default:
		f.Hints = append(f.Hints, fmt.Sprintf("the least that works with --mode %s: --memory %s", r.Mode, least))
	}
	if r.Mode == string(plan.Resident) || r.Mode == string(plan.Chunk) {
		f.Hints = append(f.Hints, "--mode auto keeps less in memory and brings the rest when it is needed")
	}
	return cmp.Or(r.DoesNotFitJSON(err, &c.MinBytes), error(f))
}

// emulatedBytes is the memory of an emulated device, 0 where it has no limit or is none.
func emulatedBytes(device string) int64 {
	settings, _ := strings.CutPrefix(device, "emu:")
	for _, s := range strings.Split(settings, ",") {
		if value, ok := strings.CutPrefix(s, "memory="); ok {
			n, _ := ascii.ParseSize(value) // the session was made with it
			return n
		}
	}
	return 0
}

// refusedMemory is for memory that the system does not give although the plan may take it.
func (r *Run) refusedMemory(err error) error {
	f := &command.Failure{Err: err, Code: ExitDoesNotFit, Hints: []string{"a smaller --memory leaves more to others"}}
	return cmp.Or(r.DoesNotFitJSON(err, nil), error(f))
}

// DoesNotFitJSON answers a program that asked for JSON; the least memory is null where it is not known.
func (r *Run) DoesNotFitJSON(err error, leastBytes *int64) error {
	if !r.AsJSON {
		return nil
	}
	o := jsonout.New(r.Stdout)
	o.Set("error", err.Error())
	o.Set("min_memory_bytes", leastBytes)
	return o.Close()
}

// unsupported lists everything that a model needs and optimem lacks, a line for each.
func (r *Run) unsupported(err error, u *models.UnsupportedError) error {
	f := &command.Failure{Err: err, Code: command.ExitUnsupported}
	if u.Hint != "" {
		f.Hints = strings.Split(u.Hint, "\n")
	}
	if len(u.Missing) > 0 {
		f.Err = nil
		// The text before the list says where: path, module.
		where, _, _ := strings.Cut(err.Error(), "unsupported: ")
		r.Say("error", fmt.Sprintf("%sunsupported: %s", where, countMissing(u.Missing)))
		for _, m := range u.Missing {
			one := models.UnsupportedError{Missing: []models.Missing{m}}
			r.Say("missing", strings.TrimPrefix(one.Error(), "unsupported: "))
		}
	}
	return f
}

// countMissing says how many ops or classes are lacking.
func countMissing(list []models.Missing) string {
	switch {
	case slices.ContainsFunc(list, func(m models.Missing) bool { return !m.Class }):
		return Counted(len(list), "op")
	case len(list) == 1:
		return "1 class"
	}
	return fmt.Sprintf("%d classes", len(list))
}

// knowing adds to the error of a run what would help with it.
func (r *Run) knowing(err error, model *models.Model, shapes map[string]tensor.Shape) error {
	var output *runtime.OutputError // of all outputs, those that are asked for by name
	if errors.As(err, &output) {
		return command.UsageError(r.Cmd, err, r.moduleHint(model, shapes))
	}
	return err
}
