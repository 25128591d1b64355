//go:build files

package main

import "github.com/spf13/cobra"

// modelCommands say that this program was built for files alone: to compile what computes takes twice as long as all else.
func (c *commandLine) modelCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{
		"plan", "run", "bench", "profile", "generate", "chat", "embed", "tokenize", "calibrate", "synth", "quantize", "pack",
		"unpack", "devices", "stage", "top", "serve", "worker", "submit",
	} {
		all = append(all, c.without(name, "files"))
	}
	return all
}
