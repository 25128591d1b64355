//go:build !files

package running

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

const calibrateLong = `Measure this host once, in some seconds: how fast checkpoints are read past the page cache, how
fast memory is copied and streamed, and how fast each kind of op is computed. 'optimem plan', 'run' and 'bench' expect
times by these numbers from then on; without them they guess.

FILE is a large checkpoint on the disk that models are read from, or a folder or an index of shards, of which each disk is
measured that they lie on; without one, a temporary file is written for it. The
numbers are kept for this processor and number of threads in optimem/calibration.json in the user's folder for
configurations, or in the file that OPTIMEM_CALIBRATION names. Measure on a host that does nothing else.`

const calibrateExamples = `  optimem calibrate
  optimem calibrate llama/model-00001-of-00004.safetensors
  optimem calibrate --threads 4 --seconds 20`

// A calibration is one run of the command.
type calibration struct {
	*command.Line
	threads int
	seconds float64
	folder  string
	asJSON  bool
}

// CalibrateCommand is 'optimem calibrate', which measures this host.
func CalibrateCommand(c *command.Line) *cobra.Command {
	k := calibration{Line: c}
	cmd := &cobra.Command{
		Use:     "calibrate [FILE] [flags]",
		Short:   "Measure this host once, for the planner",
		Long:    calibrateLong,
		Example: calibrateExamples,
		Args:    c.Arguments(cobra.MaximumNArgs(1)),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			switch {
			case k.threads < 0 || k.threads > runtime.MaxThreads:
				return command.UsageError(cmd, fmt.Errorf("--threads takes a number of threads, 0 to %d", runtime.MaxThreads))
			case !(k.seconds > 0) || k.seconds > 3600:
				return command.UsageError(cmd, errors.New("--seconds takes a number of seconds, more than 0"))
			}
			return k.run(cmd.Context(), slices.Concat(args, []string{""})[0])
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&k.threads, "threads", 0, "compute with `N` threads (default: one for each processor)")
	flags.Float64Var(&k.seconds, "seconds", 10, "take `N` seconds, roughly")
	flags.StringVar(&k.folder, "dir", "", "write the temporary file in `DIR` (default: the user's cache folder)")
	flags.BoolVar(&k.asJSON, "json", false, "print one JSON object")
	return cmd
}

// The shares of the time that are given to the disk and to ops.
const (
	diskShare = 0.3
	opShare   = 0.6
)

func share(seconds, part float64) time.Duration {
	return time.Duration(seconds * part * float64(time.Second))
}

func (k *calibration) run(ctx context.Context, model string) error {
	path, err := CalibrationPath()
	if err != nil {
		return err
	}
	if k.threads == 0 {
		k.threads = goruntime.GOMAXPROCS(0)
	}
	disks, err := k.disks(ctx, model)
	if err != nil {
		return err
	}
	var bar *command.Progress
	shown := 0
	rates, err := calibrate.CPU(ctx, calibrate.Options{
		Threads: k.threads, Time: share(k.seconds, opShare),
		Observe: func(done, of int) {
			if bar == nil {
				bar = command.NewCounter(k.Stderr, "calibrate", int64(of))
			}
			bar.Add(done - shown)
			shown = done
		},
	})
	if bar != nil {
		bar.Clear()
	}
	if err != nil {
		return err
	}
	rates.DiskBytes, rates.ReadSeconds = disks[0].BytesPerSecond, disks[0].ReadSeconds
	rates.CachedBytes = disks[0].CachedBytesPerSecond
	rates.Disks = make(map[storage.Disk]cost.Disk)
	for _, d := range disks {
		rates.Disks[d.Disk] = cost.Disk{Bytes: d.BytesPerSecond, ReadSeconds: d.ReadSeconds}
	}
	host := calibrate.Host{CPU: HostName(sysmem.Read()), Threads: k.threads}
	if err := calibrate.Save(path, host, rates); err != nil {
		return err
	}
	if k.asJSON {
		return k.printJSON(path, host, rates)
	}
	_, err = fmt.Fprint(k.Stdout, calibrationTable(path, host, rates))
	return err
}

// disks measures the disks of a file or a folder, or the disk of a file that it writes.
func (k *calibration) disks(ctx context.Context, model string) ([]calibrate.DiskRate, error) {
	limit := share(k.seconds, diskShare)
	if model != "" {
		rates, err := k.read(ctx, model, limit)
		if !errors.Is(err, calibrate.ErrTooSmall) {
			return rates, err
		}
		k.Say(
			"warning", fmt.Sprintf("%s is too small to tell how fast the disk is: a temporary file is written", model),
		)
		k.folder = cmp.Or(k.folder, filepath.Dir(model))
	}
	folder := k.folder
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err == nil {
			folder = filepath.Join(cache, "optimem")
			err = os.MkdirAll(folder, 0o777)
		}
		if err != nil {
			folder = os.TempDir()
		}
	}
	path := filepath.Join(folder, fmt.Sprintf("calibrate-%d.safetensors", os.Getpid()))
	defer os.Remove(path) // where it was not written there is nothing to remove
	if err := k.writeTemporary(ctx, path); err != nil {
		return nil, err
	}
	return k.read(ctx, path, limit)
}

// The size of the temporary file: enough for a rate, more for those who wait longer.
const (
	leastFileBytes  = 64 << 20
	mostFileBytes   = 512 << 20
	bytesPerSecond  = 50 << 20
	temporaryTensor = "calibration"
)

func (k *calibration) writeTemporary(ctx context.Context, path string) error {
	bytes := int64(min(max(k.seconds*bytesPerSecond, leastFileBytes), mostFileBytes)) / 4 * 4
	if err := newfile.CheckRoom(path, bytes); err != nil {
		return err
	}
	bar := command.NewProgress(k.Stderr, filepath.Base(path), bytes)
	defer bar.Clear()
	random := rand.NewChaCha8([32]byte{})
	return newfile.Write(path, func(f *os.File) error {
		b := bufio.NewWriterSize(command.CountingWriter{W: f, Tick: bar.Add}, 1<<20)
		err := loader.WriteSafetensors(ctx, b, []loader.TensorData{{
			Name: temporaryTensor, DType: tensor.Float32, Shape: tensor.Shape{int(bytes / 4)},
			ReadAt: func(ctx context.Context, p []byte, _ int64) error {
				_, err := io.ReadFull(random, p) // never fails
				return errors.Join(err, ctx.Err())
			},
		}}, nil)
		return errors.Join(err, b.Flush())
	})
}

// read measures how fast the weights of a file are read. The file must not lie in the page cache for that, so it is
// dropped from there.
func (k *calibration) read(ctx context.Context, path string, limit time.Duration) (rates []calibrate.DiskRate, err error) {
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, ckpt.Close()) }()
	for _, path := range filesOf(path) {
		if err := dropCached(path); err != nil {
			k.Say("warning", fmt.Sprintf("%s may be read from the page cache and not from the disk: %v", path, err))
		}
	}
	var extents []storage.Extent
	for _, w := range ckpt.Weights {
		if !slices.Contains(extents, w.Extent) {
			extents = append(extents, w.Extent)
		}
	}
	return calibrate.Disks(ctx, extents, limit)
}

// filesOf lists the files that a path stands for: itself, and of a folder or an index the files beside it.
func filesOf(path string) (list []string) {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	folder := path
	if !info.IsDir() {
		if filepath.Ext(path) != ".json" && info.Mode().IsRegular() {
			return []string{path}
		}
		folder = filepath.Dir(path)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		file := filepath.Join(folder, e.Name())
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			list = append(list, file)
		}
	}
	return list
}

// CalibrationPath is where calibrations are kept.
func CalibrationPath() (string, error) {
	if path := os.Getenv("OPTIMEM_CALIBRATION"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("%w: name a file in OPTIMEM_CALIBRATION", err)
	}
	return filepath.Join(dir, "optimem", "calibration.json"), nil
}

// rates returns what was measured of this host with so many threads, guesses where nothing was.
func (r *Run) rates() cost.Rates {
	path, err := CalibrationPath()
	if err != nil {
		return cost.Rates{} // a user without a home has measured nothing
	}
	rates, _, err := calibrate.Load(path, calibrate.Host{CPU: HostName(sysmem.Read()), Threads: r.Threads})
	if err != nil && !r.Quiet {
		r.Say("warning", fmt.Sprintf("the calibration is not used: %v", err))
	}
	return rates
}

func (k *calibration) printJSON(path string, host calibrate.Host, rates cost.Rates) error {
	record := calibrate.RecordOf(rates)
	o := jsonout.New(k.Stdout)
	o.Set("cpu", host.CPU)
	o.Set("threads", host.Threads)
	o.Set("path", path)
	o.Set("flops_per_second", record.FLOPsPerSecond)
	o.Set("kind_flops_per_second", record.KindFLOPsPerSecond)
	o.Set("product_flops_per_second", record.Products)
	o.Set("memory_bytes_per_second", record.MemoryBytesPerSecond)
	o.Set("op_seconds", record.OpSeconds)
	o.Set("copy_bytes_per_second", record.CopyBytesPerSecond)
	o.Set("disk_bytes_per_second", record.DiskBytesPerSecond)
	o.Set("disks", record.Disks)
	o.Set("decode_bytes_per_second", record.DecodeBytesPerSecond)
	o.Set("read_seconds", record.ReadSeconds)
	o.Set("cached_bytes_per_second", record.CachedBytesPerSecond)
	return o.Close()
}

func calibrationTable(path string, host calibrate.Host, rates cost.Rates) *ascii.Table {
	t := ascii.NewTable(ascii.Left(""), ascii.Left(""))
	t.Row("host", fmt.Sprintf("%s, %s", host.CPU, Counted(host.Threads, "thread")))
	t.Row(
		"disk",
		fmt.Sprintf("%s/s, %s a read", ascii.FormatSize(int64(rates.DiskBytes)), SecondsText(rates.ReadSeconds)),
	)
	if len(rates.Disks) > 1 {
		for _, disk := range slices.Sorted(maps.Keys(rates.Disks)) {
			d := rates.Disks[disk]
			t.Row("disk "+disk.String(), fmt.Sprintf("%s/s, %s a read", ascii.FormatSize(int64(d.Bytes)), SecondsText(d.ReadSeconds)))
		}
	}
	t.Row("packed files", fmt.Sprintf("%s/s decoded by one processor", ascii.FormatSize(int64(rates.DecodeBytes))))
	t.Row("cached files", ascii.FormatSize(int64(rates.CachedBytes))+"/s")
	t.Row("memory", fmt.Sprintf("%s/s read by ops, %s/s copied", ascii.FormatSize(int64(rates.MemoryBytes)),
		ascii.FormatSize(int64(rates.CopyBytes))))
	t.Row("an op", SecondsText(rates.OpSeconds))
	for _, kind := range calibrate.Kinds() {
		t.Row(string(kind), fmt.Sprintf("%.3g GFLOP/s", rates.KindFLOPs[kind]/1e9))
	}
	t.Row("kept in", path)
	return t
}
