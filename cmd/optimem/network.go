//go:build !noserve

package main

import "github.com/spf13/cobra"

// networkCommands are those that others reach over a network, or that reach them.
func (c *commandLine) networkCommands() []*cobra.Command {
	return []*cobra.Command{c.serveCommand(), c.workerCommand(), c.submitCommand()}
}
