//go:build !files

package running

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/trace"
)

// recordFlags defines the flags of commands that run a model which record what it did.
func (r *Run) recordFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.traceFile, "trace", "", "write a timeline for ui.perfetto.dev to `FILE`.json")
	flags.StringVar(&r.snapshotFile, "snapshot", "", "write the plan's memory for PyTorch's viewer to `FILE`.pickle")
	flags.StringVar(&r.memoryReport, "memory-report", "", "say what memory is for: `brief` or verbose")
	flags.Lookup("memory-report").NoOptDefVal = briefReport
	flags.StringVar(&r.reportDevice, "report-device", "", "report the memory of `DEVICE` alone, such as cuda:0 or host")
	command.Grouped(flags, command.MeasureGroup, "trace", "snapshot", "memory-report", "report-device")
}

// The values of --memory-report.
const (
	briefReport   = "brief"
	verboseReport = "verbose"
)

// checkRecords looks at what recordFlags say, and at the files that they name.
func (r *Run) checkRecords() error {
	switch changed := r.Cmd.Flags().Changed; {
	case changed("memory-report") && r.memoryReport != briefReport && r.memoryReport != verboseReport:
		return r.Usage("there is: "+briefReport+", "+verboseReport, "unknown report %q", r.memoryReport)
	case changed("report-device") && r.memoryReport == "":
		return r.Usage("add --memory-report", "--report-device is for --memory-report")
	case r.traceFile != "" && r.traceFile == r.snapshotFile:
		return r.Usage("", "%s would be written twice", r.traceFile)
	}
	for _, f := range []struct{ flag, path, example string }{
		{"trace", r.traceFile, "trace.json"}, {"snapshot", r.snapshotFile, "snapshot.pickle"},
	} {
		switch changed := r.Cmd.Flags().Changed(f.flag); {
		case !changed || r.steps.trace != "": // which is read
			continue
		case f.path == "":
			return r.Usage("for instance --"+f.flag+" "+f.example, "--%s names no file", f.flag)
		case sameFile(f.path, r.Model):
			return r.Usage("", "%s is the model itself", f.path)
		}
		if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
			return err
		}
		if _, err := newfile.Path(f.path); err != nil {
			return err
		}
	}
	return nil
}

// traced does what a command does while it writes the timeline that --trace asks for. It grows with the run, and takes its name
// only if that ends well.
func (r *Run) traced(ctx context.Context, do func(ctx context.Context) error) error {
	if r.traceFile == "" {
		return do(ctx)
	}
	return newfile.Write(r.traceFile, func(f *os.File) error {
		r.trace = trace.New(arrays.Writer(ctx, f))
		err := do(ctx)
		return cmp.Or(err, r.trace.Close())
	})
}

// reportBefore says what memory is for before the first pass, where --memory-report asks for it.
func (r *Run) reportBefore(ctx context.Context, m *openModel) error {
	if r.memoryReport == "" {
		return nil
	}
	if planned := m.session.PlannedMemory(m.plan); r.reportDevice != "" &&
		len(planned.Of(r.reportDevice).Devices) == 0 {
		var names []string
		for _, d := range planned.Devices {
			names = append(names, d.Name)
		}
		return r.Usage("there is: "+strings.Join(names, ", "), "the plan takes no memory of %q", r.reportDevice)
	}
	return r.reportNow(ctx, m, "before the first run")
}

// reportAfter says what memory is for at the planned peak and now that all passes are over, and writes the snapshot of the plan
// that --snapshot asks for.
func (r *Run) reportAfter(ctx context.Context, m *openModel) error {
	if r.memoryReport != "" {
		if err := r.tellMemory(m.session.PlannedMemory(m.plan)); err != nil {
			return err
		}
		if err := r.reportNow(ctx, m, "after the last run"); err != nil {
			return err
		}
	}
	if r.snapshotFile == "" {
		return nil
	}
	return newfile.Write(r.snapshotFile, func(f *os.File) error {
		return memory.WriteSnapshot(arrays.Writer(ctx, f), m.plan)
	})
}

func (r *Run) reportNow(ctx context.Context, m *openModel, when string) error {
	now, err := m.session.Memory(ctx)
	if err != nil {
		return err
	}
	now.Moment = when
	return r.tellMemory(now)
}

// tellMemory prints a report, or keeps it for the answer of --json.
func (r *Run) tellMemory(all *memory.Report) error {
	if r.reportDevice != "" {
		all = all.Of(r.reportDevice)
	}
	if r.AsJSON {
		r.reports = append(r.reports, all)
		return nil
	}
	detail := memory.Brief
	if r.memoryReport == verboseReport {
		detail = memory.Verbose
	}
	_, err := fmt.Fprintln(r.Stderr, all.Text(detail))
	return err
}

// setReports writes the reports of memory into an answer, where there are any.
func setReports(o *jsonout.Object, reports []*memory.Report) {
	if reports != nil {
		jsonout.Array(o, "memory_reports", slices.Values(reports))
	}
}
