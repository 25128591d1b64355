//go:build !noserve && !files

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/work"
)

const submitLong = `Put files into a queue for workers to run a model over, wait, and gather the outputs in a folder: one .safetensors file for each
item, and results.jsonl with a line for each, in the order of the files.

An item is a file: .npy, .npz, .safetensors, or a picture with --preprocess. For a model that writes it is a line of a .jsonl file, as
for 'optimem generate --batch', and answers.jsonl has a line for each, in their order. For a model that makes vectors a line has "text" or
"texts", and its output is a .safetensors file with a row for each. Outputs that are there already, in the folder or the
queue, are found: after an interruption the same command goes on where it was. What could not be run has its reason in
results.jsonl, and does not stop the others.`

const submitExamples = `  optimem submit --nats nats://127.0.0.1:4222 --stream pictures --model digits *.npy -o out/
  optimem submit --nats nats://127.0.0.1:4222 --stream pictures --model resnet50 *.jpg --preprocess imagenet -o out/
  optimem submit --nats nats://127.0.0.1:4222 --stream texts --model llama prompts.jsonl -o out/`

// A submitting is one run of 'optimem submit'.
type submitting struct {
	running.Run
	queueing
	name, out string
	files     []string
	inFlight  int
	again     bool
	// shared is the folder that workers share, "" for none, and root it when it is open.
	shared string
	root   *os.Root
	// buffer has what the last file had.
	buffer []byte

	queue *work.Queue
	ports []models.Port
	// prompts are those of .jsonl files, nil where the files are tensors.
	prompts *promptFiles
	// vectors says that they are texts of which the model makes vectors.
	vectors bool
	lines   []submitLine
	// bar has a step for each result, missing counts those without an output.
	bar     *command.Progress
	missing int
}

// noResult is what is said of an item after an interruption.
const noResult = "there is no result yet"

// A submitLine is a line of results.jsonl.
type submitLine struct {
	File   string `json:"file"`
	Output string `json:"output,omitempty"`
	Key    string `json:"key,omitempty"`
	Error  string `json:"error,omitempty"`
}

func submitCommand(c *command.Line) *cobra.Command {
	s := submitting{Run: running.Run{Line: c}}
	cmd := &cobra.Command{
		Use:     "submit --nats URL --stream NAME --model MODEL FILE... -o OUT [flags]",
		Short:   "Have workers run a model over files",
		Long:    submitLong,
		Example: submitExamples,
		Args:    c.Arguments(cobra.MinimumNArgs(1)),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			s.Cmd, s.files = cmd, args
			return s.submit(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.queueing.flags(cmd)
	flags.IntVar(&s.inFlight, "in-flight", 256, "at most `N` items are in the queue at a time")
	flags.BoolVar(&s.again, "again", false, "run again what was put aside before")
	flags.StringVar(&s.shared, "shared", "", "workers read .npy files and pictures in this `FOLDER` from their --shared; they are not stored in the queue")
	command.Grouped(flags, command.WorkGroup, "in-flight", "again", "shared")
	flags.StringVar(&s.name, "model", "", "the `NAME` of a model that workers have")
	command.Grouped(flags, command.ModelGroup, "model")
	flags.StringVar(&s.Preprocess, "preprocess", "", "say `HOW` pictures become numbers: "+preprocess.Names)
	flags.Var(&s.MaxMemory, "open-memory", "memory that opening a file may take (default 12 × its size)")
	command.Grouped(flags, command.InputGroup, "preprocess", "open-memory")
	flags.StringVarP(&s.out, "output", "o", "", "gather outputs in this `FOLDER`")
	flags.BoolVar(&s.Quiet, "quiet", false, "print no facts and no warnings")
	command.Grouped(flags, command.OutputGroup, "output", "quiet")
	return cmd
}

func (s *submitting) checkSubmitting() (err error) {
	for _, x := range []struct{ flag, value, hint string }{
		{"nats", s.url, "for instance --nats nats://127.0.0.1:4222"},
		{"stream", s.stream, "for instance --stream pictures"},
		{"model", s.name, "for instance --model digits, as workers call it"},
		{"output", s.out, "for instance -o out/"},
	} {
		if x.value == "" {
			return s.Usage(x.hint, "--%s is missing", x.flag)
		}
	}
	if s.inFlight < 1 {
		return s.Usage("", "--in-flight takes a number of 1 or more")
	}
	if s.Preprocess != "" {
		if s.Spec, err = preprocess.Parse(s.Preprocess); err != nil {
			return s.Usage("there is: "+preprocess.Names+"; options, after a colon: "+preprocess.Options, "%w", err)
		}
	}
	return nil
}

func (s *submitting) submit(ctx context.Context) (err error) {
	if err := s.checkSubmitting(); err != nil {
		return err
	}
	if err := s.openPrompts(); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, s.prompts.close()) }()
	if err := os.MkdirAll(s.out, 0o777); err != nil {
		return err
	}
	if s.queue, err = work.Connect(ctx, s.queueing.options()); err != nil {
		return err
	}
	defer s.queue.Close()
	err = s.findPorts(ctx)
	if errors.Is(err, work.ErrNoWorker) {
		return &command.Failure{
			Err: err, Code: command.ExitFailed,
			Hints: []string{"start one: optimem worker --nats URL --stream " + s.stream + " DIR"},
		}
	}
	if err != nil {
		return err
	}
	if s.shared != "" {
		if s.root, err = os.OpenRoot(s.shared); err != nil {
			return err
		}
		defer s.root.Close()
	}
	items := s.items(ctx)
	if s.prompts != nil {
		items = s.prompts.items()
		if !s.vectors {
			if err := s.prompts.begin(s.out); err != nil {
				return err
			}
		}
	} else {
		for _, f := range s.files {
			s.lines = append(s.lines, submitLine{File: f})
		}
	}
	s.bar = command.NewCounter(s.Stderr, "items", int64(len(s.lines)))
	err = s.queue.Submit(ctx, s.name, items, work.SubmitOptions{InFlight: s.inFlight, Again: s.again, Shared: s.root},
		func(r work.Result) error { return s.take(ctx, r) })
	s.bar.Clear()
	if err = cmp.Or(s.writeLines(), err); err != nil {
		return err
	}
	if !s.Quiet {
		s.Say("done", fmt.Sprintf("%d of %s in %s", len(s.lines)-s.missing, running.Counted(len(s.lines), "output"), s.out))
	}
	if s.missing > 0 {
		return &command.Failure{
			Err:  fmt.Errorf("%s could not be run", running.Counted(s.missing, "item")),
			Code: command.ExitFailed,
			Hints: []string{
				filepath.Join(s.out, "results.jsonl") + " says why; --again runs what was put aside once more",
			},
		}
	}
	return nil
}

// findPorts asks for the inputs of a model that takes tensors.
func (s *submitting) findPorts(ctx context.Context) (err error) {
	if s.prompts != nil {
		s.vectors, err = s.queue.Vectors(ctx, s.name)
		return err
	}
	ports, err := s.queue.Inputs(ctx, s.name)
	for _, p := range ports {
		d, _ := tensor.ParseDType(p.DType)
		s.ports = append(s.ports, models.Port{
			Name: p.Name, DType: d, Shape: p.Shape, Optional: p.Optional, Dims: make([]string, len(p.Shape)),
		})
	}
	return err
}

// items reads the files, one after another.
func (s *submitting) items(ctx context.Context) iter.Seq[work.Item] {
	return func(yield func(work.Item) bool) {
		for _, file := range s.files {
			if as := s.asFile(file); as != nil {
				if !yield(work.Item{Name: file, Files: as}) {
					return
				}
				continue
			}
			in := &running.RunInputs{Values: make(runtime.Values)}
			err := s.read(ctx, in, file)
			more := yield(work.Item{Name: file, Inputs: in.Values, Err: err})
			in.Free()
			if !more {
				return
			}
		}
	}
}

// Files beyond mostFile bytes are not given as they are, and neither are pictures beyond mostPicture, which become less
// by far as numbers.
const (
	mostFile    = 64 << 20
	mostPicture = 16 << 20
)

// asFile gives a file as it lies there, for workers to read: an array for the only input, or a picture. It returns nil
// for other files, and for those with which something is wrong, which whoever reads them says.
func (s *submitting) asFile(file string) map[string]work.File {
	port := running.OnlyNeeded(s.ports)
	if len(s.ports) == 1 {
		port = &s.ports[0]
	}
	if port == nil {
		return nil
	}
	how, most := "", int64(mostFile)
	switch {
	case running.IsPicture(file) && s.Preprocess != "" && port.DType == tensor.Float32 && len(running.PictureFiles(file)) == 1:
		how, most = s.Preprocess, mostPicture
	case !strings.EqualFold(filepath.Ext(file), ".npy"):
		return nil
	}
	f, size, err := arrays.OpenFile(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	if size > most || how == "" && !s.holds(f, size, *port) {
		return nil
	}
	if path := s.inShared(file); path != "" {
		return map[string]work.File{port.Name: {Path: path, Preprocess: how}}
	}
	s.buffer = slices.Grow(s.buffer[:0], int(size))[:size]
	if n, err := f.ReadAt(s.buffer, 0); n < len(s.buffer) && err != nil {
		return nil
	}
	return map[string]work.File{port.Name: {Data: s.buffer, Preprocess: how}}
}

// holds reports whether a file has an array for an input.
func (s *submitting) holds(f io.Reader, size int64, port models.Port) bool {
	a, err := npy.Open(f, size)
	return err == nil && s.Fits(port, a.DType, a.Layout.Shape) == nil
}

// inShared says where a file lies in the shared folder, "" where it lies elsewhere.
func (s *submitting) inShared(file string) string {
	if s.shared == "" {
		return ""
	}
	folder, err := filepath.Abs(s.shared)
	path, failed := filepath.Abs(file)
	if err != nil || failed != nil {
		return ""
	}
	within, err := filepath.Rel(folder, path)
	if err != nil || !filepath.IsLocal(within) {
		return ""
	}
	return filepath.ToSlash(within)
}

func (s *submitting) read(ctx context.Context, in *running.RunInputs, file string) error {
	if running.IsPicture(file) {
		return s.ReadPictures(ctx, in, s.ports, running.OnlyNeeded(s.ports), file)
	}
	return s.ReadFile(ctx, in, s.ports, nil, file, s.Limits())
}

// take gathers the result of an item.
func (s *submitting) take(ctx context.Context, r work.Result) error {
	s.bar.Add(1)
	line := &s.lines[r.Index]
	line.Key, line.Error = r.Key, r.Reason
	if r.Reason != "" {
		s.missing++
		return nil
	}
	err := s.gather(ctx, r, line)
	if errors.Is(err, work.ErrDamaged) {
		line.Output, line.Error = "", err.Error()+": submitted again, it is made anew"
		s.missing++
		return nil
	}
	return err
}

// gather has the output of an item in its place.
func (s *submitting) gather(ctx context.Context, r work.Result, line *submitLine) error {
	if s.prompts != nil && !s.vectors {
		line.Output = answersName
		return s.prompts.keep(
			r.Index, func(begin func() (io.Writer, error)) error { return s.queue.Output(ctx, r.Key, begin) },
		)
	}
	line.Output = fmt.Sprintf("%06d-%.16s.safetensors", r.Index, r.Key)
	path := filepath.Join(s.out, line.Output)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return nil // it took its name when it was whole
	}
	return newfile.Write(path, func(f *os.File) error {
		return s.queue.Output(ctx, r.Key, func() (io.Writer, error) {
			_, err := f.Seek(0, io.SeekStart)
			return f, errors.Join(err, f.Truncate(0))
		})
	})
}

// writeLines writes what is known, also after an interruption.
func (s *submitting) writeLines() error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for i := range s.lines {
		l := &s.lines[i]
		if l.Key == "" && l.Error == "" {
			l.Error = noResult
		}
		if err := encoder.Encode(l); err != nil {
			return err
		}
	}
	err := newfile.Write(filepath.Join(s.out, "results.jsonl"), func(f *os.File) error {
		_, err := f.Write(b.Bytes())
		return err
	})
	if err == nil && s.prompts != nil && !s.vectors {
		err = s.prompts.write(filepath.Join(s.out, answersName), s.lines)
	}
	return err
}
