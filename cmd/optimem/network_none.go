//go:build noserve

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/generate"
)

// networkCommands say that this program was built without them: half of what compiling it takes is HTTP, gRPC and NATS.
func (c *commandLine) networkCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"serve", "worker", "submit"} {
		all = append(all, c.without(name))
	}
	return all
}

// without is a command that this program was built without.
func (c *commandLine) without(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: c.enter(func(*cobra.Command, []string) error { return errNoNetwork(name) }),
	}
}

func errNoNetwork(what string) error {
	return usageError(nil, errors.New("this program was built without "+what), "build it without -tags noserve")
}

// A stagesFlags would say which machines compute a model together: this program was built without what reaches them.
type stagesFlags struct{ list, machines string }

func (s *stagesFlags) define(*cobra.Command)         {}
func (s *stagesFlags) defineMachines(*cobra.Command) {}
func (s *stagesFlags) defineDevices(*cobra.Command)  {}

func (r *run) runOverStages(context.Context) error { return errNoNetwork("--stages") }
func (r *run) planMachines(context.Context) error  { return errNoNetwork("--machines") }
func (r *run) stageFailure(err error) error        { return err }

func (w *writing) remote() (func(context.Context, generate.RemoteModel) (generate.Remote, error), error) {
	return nil, nil
}

func (c *commandLine) stageCommand() *cobra.Command { return c.without("stage") }
