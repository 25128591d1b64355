//go:build noserve && !files

package main

import (
	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/generate"
)

// noserve is the tag by which this program was built.
const noserve = "noserve"

// networkCommands say that this program was built without them: half of what compiling it takes is HTTP, gRPC and NATS.
func networkCommands(c *command.Line) []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"serve", "worker", "submit"} {
		all = append(all, c.Without(name, noserve))
	}
	return all
}

func (w *writing) remote(int) (generate.OpenRemote, error) {
	return nil, nil
}
