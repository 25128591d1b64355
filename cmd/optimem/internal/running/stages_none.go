//go:build noserve && !files

package running

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// A stagesFlags would say which machines compute a model together: this program was built without what reaches them.
type stagesFlags struct{ List, machines string }

// Define defines nothing.
func (s *stagesFlags) Define(*cobra.Command)         {}
func (s *stagesFlags) defineMachines(*cobra.Command) {}

// DefineDevices defines nothing.
func (s *stagesFlags) DefineDevices(*cobra.Command) {}

func (r *Run) runOverStages(context.Context) error { return command.ErrWithout("--stages", "noserve") }
func (r *Run) planMachines(context.Context) error  { return command.ErrWithout("--machines", "noserve") }

// StageFailure returns err: no stage can have failed.
func (r *Run) StageFailure(err error) error { return err }

// StageCommand says that this program was built without it.
func StageCommand(c *command.Line) *cobra.Command { return c.Without("stage", "noserve") }
