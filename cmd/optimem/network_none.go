//go:build noserve

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// networkCommands say that this program was built without them: half of what compiling it takes is HTTP, gRPC and NATS.
func (c *commandLine) networkCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"serve", "worker", "submit"} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: c.enter(func(cmd *cobra.Command, _ []string) error {
				return usageError(
					nil, errors.New("this program was built without "+name), "build it without -tags noserve",
				)
			}),
		})
	}
	return all
}
