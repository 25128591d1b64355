package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/trace"
)

// recordFlags defines the flags of commands that run a model which record what it did.
func (r *run) recordFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.traceFile, "trace", "", "write a timeline for ui.perfetto.dev to `FILE`.json")
	grouped(flags, measureGroup, "trace")
}

// checkRecords looks at the files that recordFlags name.
func (r *run) checkRecords() error {
	for _, f := range []struct{ flag, path, example string }{{"trace", r.traceFile, "trace.json"}} {
		switch changed := r.cmd.Flags().Changed(f.flag); {
		case !changed:
			continue
		case f.path == "":
			return r.usage("for instance --"+f.flag+" "+f.example, "--%s names no file", f.flag)
		case sameFile(f.path, r.model):
			return r.usage("", "%s is the model itself", f.path)
		}
		if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
			return err
		}
		if _, err := outputPath(f.path); err != nil {
			return err
		}
	}
	return nil
}

// traced does what a command does while it writes the timeline that --trace asks for. It grows with the run, and takes its name
// only if that ends well.
func (r *run) traced(ctx context.Context, do func(ctx context.Context) error) error {
	if r.traceFile == "" {
		return do(ctx)
	}
	return writeFile(r.traceFile, func(f *os.File) error {
		r.trace = trace.New(contextWriter{ctx, f})
		err := do(ctx)
		return cmp.Or(err, r.trace.Close())
	})
}
