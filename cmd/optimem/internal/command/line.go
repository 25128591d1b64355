// Package command is what the commands of optimem share: where their answers, errors and hints go, exit codes, flags for
// sizes and budgets, the headings of flags, and progress on a terminal. It knows of no command, and neither models nor
// sessions.
//
//	line := command.NewLine(os.Stdout, os.Stderr)
//	root := &cobra.Command{Use: "optimem", RunE: line.Enter(body)}
//	os.Exit(line.Report(ctx, root.ExecuteContext(ctx)))
package command

import (
	"io"

	"github.com/spf13/cobra"
)

// A Line is what the commands share.
type Line struct {
	// Stdout is for answers, Stderr for all else.
	Stdout, Stderr io.Writer
	// Texts is where cobra writes help, the version and completions to standard output.
	Texts keeper
	// Entered is set once flags and arguments have been accepted: what fails before is the user's usage.
	Entered bool
	// Called is the command whose usage is at fault, if one was recognized.
	Called *cobra.Command
}

// NewLine returns what the commands of one process share.
func NewLine(stdout, stderr io.Writer) *Line {
	return &Line{Stdout: stdout, Stderr: stderr, Texts: keeper{w: stdout}}
}

// A keeper keeps the first error of a writer for whoever asks afterwards: cobra prints one in a way of its own, or takes it
// for a mistake in the usage.
type keeper struct {
	w   io.Writer
	Err error
}

// Write implements [io.Writer]. It always succeeds.
func (k *keeper) Write(p []byte) (int, error) {
	if k.Err == nil {
		_, k.Err = k.w.Write(p)
	}
	return len(p), nil
}

// Enter wraps the body of a command.
func (c *Line) Enter(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.Entered = true
		return run(cmd, args)
	}
}

// Arguments wraps a check of positional arguments so that its error is put down to the right command.
func (c *Line) Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		c.Called = cmd
		return check(cmd, args)
	}
}
