//go:build files

package main

import (
	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// modelCommands say that this program was built for files alone: to compile what computes takes twice as long as all else.
func modelCommands(c *command.Line) []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{
		"plan", "run", "bench", "profile", "generate", "chat", "embed", "tokenize", "calibrate", "synth", "quantize", "pack",
		"unpack", "devices", "stage", "top", "serve", "worker", "submit",
	} {
		all = append(all, c.Without(name, "files"))
	}
	return all
}
