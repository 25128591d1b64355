//go:build !files

package main

import "github.com/spf13/cobra"

// modelCommands are those that compute, and all others that need more than what reads files. A program that is built with
// -tags files is without them.
func (c *commandLine) modelCommands() []*cobra.Command {
	return append(c.networkCommands(), c.planCommand(), c.runCommand(), c.benchCommand(), c.profileCommand(),
		c.generateCommand(), c.chatCommand(), c.embedCommand(), c.tokenizeCommand(), c.calibrateCommand(), c.synthCommand(),
		c.quantizeCommand(), c.packCommand(), c.unpackCommand(), c.devicesCommand(), c.stageCommand(), c.topCommand())
}
