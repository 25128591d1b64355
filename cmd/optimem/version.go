package main

import (
	"fmt"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// linkedVersion is set by release builds: -ldflags "-X main.linkedVersion=v1.2.3".
var linkedVersion string

// version describes this binary in one line, such as "optimem v1.2.3 (go1.26.8, linux/amd64, 0123456789ab)".
func version() string {
	name, commit := linkedVersion, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if name == "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				commit = ", " + s.Value[:12]
			}
		}
	}
	if name == "" {
		name = "(devel)"
	}
	return fmt.Sprintf("optimem %s (%s, %s/%s%s)", name, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH, commit)
}

func versionCommand(c *command.Line) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Long:  "Print the version of this binary, of the Go that built it, and what it was built for.",
		Args:  c.Arguments(cobra.NoArgs),
		RunE: c.Enter(func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(c.Stdout, version())
			return err
		}),
	}
}
