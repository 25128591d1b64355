//go:build !noserve && !files

package main

import (
	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// networkCommands are those that others reach over a network, or that reach them.
func networkCommands(c *command.Line) []*cobra.Command {
	return []*cobra.Command{serveCommand(c), workerCommand(c), submitCommand(c)}
}
