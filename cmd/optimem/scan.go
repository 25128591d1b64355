package main

import (
	"bufio"
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

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
)

const scanLong = `Say whether files are data only. Every opcode of every pickle in a file is looked at, none is
executed; so are the structure of archives, the headers of safetensors and GGUF files, graphs and code. No weight is read. What
scan accepts, the other commands open; what it refuses, they refuse.

The verdicts are:

  data only                 nothing but tensors and plain data
  data plus named classes   objects of the classes that are listed: they are inert here, but a program that unpickles
                            the file imports those classes and calls them; --strict refuses such files
  unsafe                    refused, for the reasons that are listed, each with its record and byte offset; what is
                            corrupt or truncated is refused too
  not read                  nothing unsafe was found, but optimem does not read files of this kind, or to read it takes
                            more than the limits allow

A folder stands for the checkpoints directly in it (` + scanExtensions + `, and shard
indexes), with -r also for those in the folders below.

The exit code is 0 where all files are accepted, 5 where one is refused, 1 where one could not be read.`

const scanExamples = `  optimem scan model.pt
  optimem scan --strict downloads/*.bin
  optimem scan -r ~/models --json | jq -r '.files[] | select(.verdict == "unsafe") | .path'`

const scanExtensions = ".pt .pth .pth.tar .bin .ckpt .pt2 .pkl .safetensors .gguf"

func scanCommand(c *command.Line) *cobra.Command {
	var (
		s         = scan{Line: c}
		maxMemory command.SizeFlag
	)
	cmd := &cobra.Command{
		Use:     "scan FILE... [flags]",
		Short:   "Say whether files are data only",
		Long:    scanLong,
		Example: scanExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no file given")
			}
			return nil
		}),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			s.options.Limits.MemoryBytes = int64(maxMemory)
			return s.run(cmd.Context(), args)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&s.asJSON, "json", false, "print one JSON object: a report, or files[] for several files")
	flags.BoolVar(&s.options.Strict, "strict", false, "refuse objects of named classes too")
	flags.BoolVarP(&s.recursive, "recursive", "r", false, "look into folders below a folder")
	flags.Var(
		&maxMemory, "open-memory", "memory that opening one file may take (default 12 × its size, from 32 to 256 MiB)",
	)
	return cmd
}

// A scan is one run of the command over its files.
type scan struct {
	*command.Line
	asJSON, recursive bool
	options           loader.Options
	// worst is the exit code so far.
	worst int
}

// The JSON of scan; keys may be added to, never renamed.
type (
	reportJSON struct {
		Path string `json:"path"`
		// Error is set, and all below empty, where the file could not be read.
		Error      string        `json:"error,omitempty"`
		Format     loader.Format `json:"format"`
		Verdict    string        `json:"verdict"`
		Problems   []problemJSON `json:"problems"`
		Classes    []string      `json:"classes"`
		Globals    []globalJSON  `json:"globals"`
		Unreadable []string      `json:"unreadable"`
	}
	problemJSON struct {
		Class  string `json:"class"`
		Record string `json:"record"`
		Offset int64  `json:"offset"` // −1 where none applies
		Text   string `json:"text"`
	}
	globalJSON struct {
		Record string `json:"record"`
		Name   string `json:"name"`
		Offset int64  `json:"offset"`
		Class  string `json:"class"`
	}
)

func (s *scan) run(ctx context.Context, args []string) error {
	paths, several, err := s.expand(args)
	if err != nil {
		return err
	}
	command.BoundHeap(s.options.Limits, paths...)
	switch {
	case !s.asJSON:
		for r := range s.results(ctx, paths) {
			if err := r.writeText(s.Stdout); err != nil {
				return err
			}
		}
	case several:
		o := jsonout.New(s.Stdout)
		jsonout.Array(o, "files", func(yield func(reportJSON) bool) {
			s.results(ctx, paths)(func(r result) bool { return yield(r.toJSON()) })
		})
		err = o.Close()
	default:
		for r := range s.results(ctx, paths) {
			e := json.NewEncoder(s.Stdout)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			err = e.Encode(r.toJSON())
		}
	}
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	if s.worst != command.ExitDone {
		return &command.Failure{Code: s.worst}
	}
	return nil
}

// expand replaces folders by the checkpoints in them. It reports whether the arguments stand for several files.
func (s *scan) expand(args []string) (paths []string, several bool, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.IsDir() {
			paths = append(paths, arg) // what is not there, or not a regular file, has its own error later
			continue
		}
		several = true
		before := len(paths)
		if paths, err = s.folder(paths, arg); err != nil {
			return nil, false, err
		}
		if len(paths) == before {
			f := &command.Failure{Err: fmt.Errorf("%s: no checkpoint in this folder", arg), Code: command.ExitFailed}
			if !s.recursive {
				f.Hints = []string{"-r looks into the folders below it too"}
			}
			return nil, false, f
		}
	}
	return paths, several || len(args) > 1, nil
}

func (s *scan) folder(paths []string, dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return paths, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir() && s.recursive:
			if paths, err = s.folder(paths, path); err != nil {
				return paths, err
			}
		case !e.IsDir() && checkpointName(path):
			if info, err := os.Stat(path); err != nil || !info.IsDir() { // a link to a folder may lead back up
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

func checkpointName(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	return slices.ContainsFunc(append(strings.Fields(scanExtensions), ".index.json"), func(ext string) bool {
		return strings.HasSuffix(name, ext)
	})
}

// A result is what scanning one file gave: a report, or why there is none.
type result struct {
	path   string
	report *loader.ScanReport
	err    error
}

// results scans the files one after the other, keeps the worst exit code, and stops when ctx is done.
func (s *scan) results(ctx context.Context, paths []string) iter.Seq[result] {
	return func(yield func(result) bool) {
		for _, path := range paths {
			report, err := loader.Scan(ctx, path, s.options)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				s.Say("error", err.Error())
				if s.worst == command.ExitDone {
					s.worst = command.ExitFailed
				}
			case report.Verdict.Refused():
				s.worst = command.ExitUnsafe
			}
			if !yield(result{path, report, err}) {
				return
			}
		}
	}
}

// maxClassLines bounds the classes printed for one file; --json has all.
const maxClassLines = 50

func (r result) writeText(w io.Writer) error {
	if r.err != nil {
		return nil // said on standard error
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s: %s", ascii.Printable(r.path), r.report.Verdict)
	if r.report.Verdict.Refused() {
		if class := loader.Class(r.report.Problems[0]); class != nil && class != loader.ErrUnsafe {
			fmt.Fprintf(b, " (%v)", class)
		}
	}
	fmt.Fprintln(b)
	for _, p := range r.report.Problems {
		fmt.Fprintf(b, "  %s\n", ascii.Printable(problemText(p)))
	}
	if r.report.Verdict == loader.VerdictClasses {
		for i, class := range r.report.Classes {
			if i == maxClassLines {
				fmt.Fprintf(b, "  … %d more (--json lists them)\n", len(r.report.Classes)-i)
				break
			}
			fmt.Fprintf(b, "  %s\n", ascii.Printable(class))
		}
	}
	for _, u := range r.report.Unreadable {
		fmt.Fprintf(b, "  unreadable: %s\n", ascii.Printable(problemText(u)))
	}
	return b.Flush()
}

// problemText is the error without the path, which stands in the line above.
func problemText(e *loader.Error) string {
	if e.Record == "" {
		return e.Err.Error()
	}
	return e.Record + ": " + e.Err.Error()
}

func (r result) toJSON() reportJSON {
	j := reportJSON{
		Path: r.path, Problems: []problemJSON{}, Classes: []string{}, Globals: []globalJSON{}, Unreadable: []string{},
	}
	if r.err != nil {
		j.Error = r.err.Error()
		return j
	}
	j.Format, j.Verdict = r.report.Format, string(r.report.Verdict)
	for _, p := range r.report.Problems {
		j.Problems = append(j.Problems, problemJSON{className(p), p.Record, p.Offset, p.Err.Error()})
	}
	j.Classes = append(j.Classes, r.report.Classes...)
	for _, g := range r.report.Globals {
		j.Globals = append(j.Globals, globalJSON(g))
	}
	for _, u := range r.report.Unreadable {
		j.Unreadable = append(j.Unreadable, problemText(u))
	}
	return j
}

// className is the class of a problem in one word.
func className(err error) string {
	switch loader.Class(err) {
	case loader.ErrUnsafe:
		return "unsafe"
	case loader.ErrLimit:
		return "limit"
	case loader.ErrUnsupported:
		return "unsupported"
	}
	return "format"
}
