//go:build noserve || files

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// without is a command that this program was built without, by a tag.
func (c *commandLine) without(name, tag string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: c.enter(func(*cobra.Command, []string) error { return errWithout(name, tag) }),
	}
}

func errWithout(what, tag string) error {
	return usageError(nil, errors.New("this program was built without "+what), "build it without -tags "+tag)
}
