//go:build !noserve && !files

package main

import (
	"log/slog"

	"github.com/spf13/cobra"
)

// networkCommands are those that others reach over a network, or that reach them.
func (c *commandLine) networkCommands() []*cobra.Command {
	return []*cobra.Command{c.serveCommand(), c.workerCommand(), c.submitCommand()}
}

// logger writes what happens, and who came and went, to standard error.
func (r *run) logger() *slog.Logger {
	level := slog.LevelWarn
	switch {
	case r.verbose:
		level = slog.LevelDebug
	case r.quiet:
		level = slog.LevelError
	}
	return slog.New(slog.NewTextHandler(r.stderr, &slog.HandlerOptions{Level: level}))
}
