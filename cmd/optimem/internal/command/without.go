package command

import (
	"errors"

	"github.com/spf13/cobra"
)

// Without is a command that this program was built without, by a tag.
func (c *Line) Without(name, tag string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: c.Enter(func(*cobra.Command, []string) error { return ErrWithout(name, tag) }),
	}
}

// ErrWithout says that this program lacks something, and the tag by which it does.
func ErrWithout(what, tag string) error {
	return UsageError(nil, errors.New("this program was built without "+what), "build it without -tags "+tag)
}
