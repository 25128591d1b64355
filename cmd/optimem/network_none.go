//go:build noserve && !files

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/generate"
)

// noserve is the tag by which this program was built.
const noserve = "noserve"

// networkCommands say that this program was built without them: half of what compiling it takes is HTTP, gRPC and NATS.
func (c *commandLine) networkCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"serve", "worker", "submit"} {
		all = append(all, c.without(name, noserve))
	}
	return all
}

// A stagesFlags would say which machines compute a model together: this program was built without what reaches them.
type stagesFlags struct{ list, machines string }

func (s *stagesFlags) define(*cobra.Command)         {}
func (s *stagesFlags) defineMachines(*cobra.Command) {}
func (s *stagesFlags) defineDevices(*cobra.Command)  {}

func (r *run) runOverStages(context.Context) error { return errWithout("--stages", noserve) }
func (r *run) planMachines(context.Context) error  { return errWithout("--machines", noserve) }
func (r *run) stageFailure(err error) error        { return err }

func (w *writing) remote() (func(context.Context, generate.RemoteModel) (generate.Remote, error), error) {
	return nil, nil
}

func (c *commandLine) stageCommand() *cobra.Command { return c.without("stage", noserve) }
