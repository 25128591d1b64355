//go:build !files

package main

import (
	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
)

// modelCommands are those that compute, and all others that need more than what reads files. A program that is built with
// -tags files is without them.
func modelCommands(c *command.Line) []*cobra.Command {
	return append(networkCommands(c), running.PlanCommand(c), running.RunCommand(c), running.BenchCommand(c), running.ProfileCommand(c),
		generateCommand(c), chatCommand(c), embedCommand(c), tokenizeCommand(c), running.CalibrateCommand(c), synthCommand(c),
		quantizeCommand(c), packCommand(c), unpackCommand(c), running.DevicesCommand(c), running.StageCommand(c), running.TopCommand(c))
}
