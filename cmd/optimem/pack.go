//go:build !files

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"

	goruntime "runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/pack"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage/packed"
)

const packLong = `Write a copy of a model, a file or a folder, that takes fewer bytes and runs as the model does: every bit of every weight comes
back when it is read. bfloat16 weights take about 11 of their 16 bits, float32 weights about 27 of 32 (or 11, where they
were bfloat16 before), float16 weights about 14 of 16. What gains nothing, such as weights that are codes already, is
copied as it is.

Files keep their names and are read by optimem alone, which tells them by their first bytes; 'optimem unpack' makes the
original again, byte for byte. Reading is faster where the disk gives less than a processor decodes; what both give is
printed.

PATH must not exist; it is there once all is written and was decoded again and compared, and a run that fails or is
interrupted leaves nothing behind. With --resume it leaves what is done in .NAME.partial beside PATH, also where it is
killed, and the next run with --resume goes on from there.`

const unpackLong = `Write the original of what 'optimem pack' wrote, byte for byte. Files that are not packed are copied. A block that does not
come back ends it with exit code 5.`

// A packing is one run of the commands pack and unpack.
type packing struct {
	*command.Line
	cmd           *cobra.Command
	output        string
	threads       int
	asJSON, quiet bool
	resume        bool
}

func packCommand(c *command.Line) *cobra.Command {
	p := &packing{Line: c}
	cmd := &cobra.Command{
		Use: "pack MODEL -o PATH [flags]", Short: "Write a copy that takes fewer bytes, without loss", Long: packLong,
		Example: `  optimem pack ./Qwen3-4B -o ./Qwen3-4B-packed
  optimem pack model.safetensors -o model-packed.safetensors
  optimem generate ./Qwen3-4B-packed --memory 2GiB 'Why is the sky blue?'`,
	}
	p.complete(cmd)
	cmd.Flags().BoolVar(&p.resume, "resume", false, "go on where an earlier run ended, and keep what is done where this one ends early")
	cmd.RunE = c.Enter(func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		return p.pack(cmd.Context(), args[0])
	})
	return cmd
}

func unpackCommand(c *command.Line) *cobra.Command {
	p := &packing{Line: c}
	cmd := &cobra.Command{
		Use: "unpack PACKED -o PATH [flags]", Short: "Write the original of a packed copy", Long: unpackLong,
		Example: `  optimem unpack ./Qwen3-4B-packed -o ./Qwen3-4B`,
	}
	p.complete(cmd)
	cmd.RunE = c.Enter(func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		return p.unpack(cmd.Context(), args[0])
	})
	return cmd
}

// complete adds what both commands have.
func (p *packing) complete(cmd *cobra.Command) {
	cmd.Args = p.Arguments(func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("give one file or folder")
		}
		return nil
	})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&p.output, "output", "o", "", "write `PATH`, which must not exist (required)")
	flags.IntVar(&p.threads, "threads", 0, "use `N` threads (default: one for each processor)")
	flags.BoolVar(&p.asJSON, "json", false, "print one JSON object")
	flags.BoolVar(&p.quiet, "quiet", false, "draw no progress")
}

// begin checks the flags and the disk, and returns what shows progress. The copy takes needBytes at most.
func (p *packing) begin(model string) (*command.Progress, error) {
	switch {
	case p.output == "":
		return nil, command.UsageError(p.cmd, errors.New("no output given"), "name it with -o, for instance -o "+filepath.Base(model)+"-"+p.cmd.Name()+"ed")
	case p.threads < 0 || p.threads > runtime.MaxThreads:
		return nil, command.UsageError(p.cmd, fmt.Errorf("--threads takes a number of threads, 0 to %d", runtime.MaxThreads))
	}
	bytes, err := pack.Bytes(model)
	if err != nil {
		return nil, err
	}
	if err := newfile.CheckRoom(filepath.Clean(p.output), bytes); err != nil {
		return nil, err
	}
	if err := pack.CheckNew(p.output); err != nil {
		return nil, notNew(err)
	}
	if p.quiet {
		return &command.Progress{}, nil
	}
	return command.NewProgress(p.Stderr, filepath.Base(p.output), bytes), nil
}

func (p *packing) options(bar *command.Progress) pack.Options {
	return pack.Options{Threads: p.threads, Resume: p.resume, Progress: func(n int64) { bar.Add(int(n)) }}
}

func (p *packing) pack(ctx context.Context, model string) error {
	bar, err := p.begin(model)
	if err != nil {
		return err
	}
	report, err := pack.Write(ctx, model, p.output, p.options(bar))
	bar.Clear()
	if err != nil {
		return notNew(err)
	}
	decode, err := packed.DecodeRate(ctx, 50*time.Millisecond)
	if err != nil {
		return err
	}
	if p.asJSON {
		return p.printJSON(report, decode)
	}
	_, err = io.WriteString(p.Stdout, packTable(report)+pays(report, decode, diskRate()))
	return err
}

func (p *packing) unpack(ctx context.Context, model string) error {
	bar, err := p.begin(model)
	if err != nil {
		return err
	}
	report, err := pack.Restore(ctx, model, p.output, p.options(bar))
	bar.Clear()
	if err != nil {
		return notNew(err)
	}
	if p.asJSON {
		return p.printJSON(report, 0)
	}
	_, err = fmt.Fprintf(p.Stdout, "%s of weights: %s for %s\n", running.Counted(len(report.Files), "file"),
		ascii.FormatSize(report.Bytes), ascii.FormatSize(report.AfterBytes))
	return err
}

// diskRate returns what this host's disk was measured to give, 0 where it was not.
func diskRate() float64 {
	path, err := running.CalibrationPath()
	if err != nil {
		return 0
	}
	rates, _, err := calibrate.Load(path, calibrate.Host{CPU: running.HostName(sysmem.Read()), Threads: goruntime.GOMAXPROCS(0)})
	if err != nil {
		return 0 // as if nothing were measured: pack does not need it
	}
	return rates.DiskBytes
}

// packTable lists files.
func packTable(r *pack.Report) string {
	t := ascii.NewTable(ascii.Left("FILE"), ascii.Left("NUMBERS"), ascii.Right("BEFORE"), ascii.Right("AFTER"), ascii.Right("SHARE"))
	for _, f := range r.Files {
		t.Row(ascii.Printable(f.Name), numbersOf(&f), ascii.FormatSize(f.Bytes), ascii.FormatSize(f.PackedBytes), ascii.FormatShare(f.PackedBytes, f.Bytes))
	}
	if len(r.Files) > 1 {
		t.Row(running.Counted(len(r.Files), "file"), "", ascii.FormatSize(r.Bytes), ascii.FormatSize(r.AfterBytes), ascii.FormatShare(r.AfterBytes, r.Bytes))
	}
	return t.String()
}

// numbersOf says as what most of a file was packed.
func numbersOf(f *pack.File) string {
	if !f.Packed {
		return "copied as it is: it would gain nothing"
	}
	most, name := int64(0), ""
	for _, k := range []struct {
		bytes int64
		name  string
	}{{f.BFloat16Bytes, "bfloat16"}, {f.Float32Bytes, "float32"}, {f.Float16Bytes, "float16"}} {
		if k.bytes > most {
			most, name = k.bytes, k.name
		}
	}
	if f.AsIsBytes > 0 {
		name += fmt.Sprintf(", %s as it is", ascii.FormatShare(f.AsIsBytes, f.Bytes))
	}
	return name
}

// pays says where reading the copy takes less time than reading the original.
func pays(r *pack.Report, decode, disk float64) string {
	if r.AfterBytes >= r.Bytes {
		return "nothing is gained: the model as it is does as well\n"
	}
	size := func(rate float64) string { return ascii.FormatSize(int64(rate)) + "/s" }
	text := fmt.Sprintf("one processor decodes %s: reading is faster than that of the original from a disk that gives less, %.2f times up to %s\n",
		size(decode), float64(r.Bytes)/float64(r.AfterBytes), size(decode*float64(r.AfterBytes)/float64(r.Bytes)))
	if disk > 0 {
		share := float64(r.AfterBytes) / float64(r.Bytes)
		text += fmt.Sprintf("this host's disk gives %s: %.2f times\n", size(disk), 1/disk/max(share/disk, 1/decode))
	}
	return text
}

// packedFileJSON is a file; keys may be added to, never renamed.
type packedFileJSON struct {
	Name          string `json:"name"`
	Packed        bool   `json:"packed"`
	Bytes         int64  `json:"bytes_before"`
	AfterBytes    int64  `json:"bytes_after"`
	BFloat16Bytes int64  `json:"bfloat16_bytes"`
	Float16Bytes  int64  `json:"float16_bytes"`
	Float32Bytes  int64  `json:"float32_bytes"`
	AsIsBytes     int64  `json:"as_is_bytes"`
}

func (p *packing) printJSON(r *pack.Report, decode float64) error {
	files := make([]packedFileJSON, len(r.Files))
	for i, f := range r.Files {
		files[i] = packedFileJSON{
			f.Name, f.Packed, f.Bytes, f.PackedBytes, f.BFloat16Bytes, f.Float16Bytes, f.Float32Bytes, f.AsIsBytes,
		}
	}
	o := jsonout.New(p.Stdout)
	o.Set("output", p.output)
	o.Set("lossy", false)
	o.Set("bytes_before", r.Bytes)
	o.Set("bytes_after", r.AfterBytes)
	o.Set("files_copied", r.Copied)
	if decode > 0 {
		o.Set("decode_bytes_per_second", decode)
	}
	jsonout.Array(o, "files", slices.Values(files))
	return o.Close()
}
