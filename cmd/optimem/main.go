// Command optimem runs PyTorch models that are larger than the memory they are given, and inspects checkpoints without
// PyTorch and without reading a weight.
//
// It parses flags, prints tables and JSON, draws the progress bar and maps errors to exit codes and hints. It knows no
// file format: everything that it prints about a file comes from package loader.
//
//	optimem inspect resnet50.pth
//	optimem scan -r downloads/
//	optimem run model.pt2 --input x.npy
//	optimem synth mlp --layers 24 --width 4096 -o big.pt
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

const about = `optimem runs PyTorch models that are larger than the memory they are given, without Python: each group of layers
is read from the file just before it computes. Nothing in a file is executed.

Everything that is not the answer goes to standard error. Exit codes: 0 done, 1 failed, 2 usage, 3 does not fit,
4 unsupported op, class or format, 5 unsafe or corrupt file, 130 interrupted.`

const aboutExamples = `  optimem inspect resnet50.pth          what is in a file, at once, however large it is
  optimem scan *.bin                    is it data only?
  optimem plan model.pt2 --memory 2GiB  how it would run in so much memory
  optimem run model.pt2 --input x.npy   what the model makes of an input
  optimem synth mlp -o mlp.pt           a checkpoint with random weights, to try sizes with`

// doMain runs the command line and returns the exit code. It prints the error, if any, with its hints.
func doMain(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal cancels; from then on a second one ends the process in the ordinary way.
	context.AfterFunc(ctx, stop)

	c := command.NewLine(stdout, stderr)
	root := root(c)
	root.SetArgs(append([]string{}, args...))
	err := root.ExecuteContext(ctx)
	if err != nil && !c.Entered {
		err = command.UsageError(c.Called, err)
	}
	if err == nil {
		err = c.Texts.Err
	}
	return c.Report(ctx, err)
}

func root(c *command.Line) *cobra.Command {
	root := &cobra.Command{
		Use:           "optimem",
		Short:         "Run PyTorch models larger than memory, without Python",
		Long:          about,
		Example:       aboutExamples,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(c.Stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return &command.Failure{Code: command.ExitUsage}
		},
	}
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "max-memory" { // its name before there was --memory
			name = "open-memory"
		}
		return pflag.NormalizedName(name)
	})
	root.SetOut(&c.Texts)
	root.SetErr(c.Stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(helpTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		c.Called = cmd
		return err
	})
	root.SetHelpCommand(helpCommand(c))
	root.AddCommand(inspectCommand(c), scanCommand(c), versionCommand(c))
	root.AddCommand(modelCommands(c)...)
	return root
}

// unknownCommand names the commands that were perhaps meant.
func unknownCommand(root *cobra.Command, name string) error {
	var hints []string
	root.SuggestionsMinimumDistance = 2
	for _, s := range root.SuggestionsFor(name) {
		hints = append(hints, fmt.Sprintf("did you mean '%s %s'?", root.Name(), s))
	}
	return command.UsageError(nil, fmt.Errorf("unknown command %q", name), hints...)
}

const helpTemplate = `{{with or .Long .Short}}{{. | trimTrailingWhitespaces}}

{{end}}Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND [ARGUMENTS]{{else}}{{.UseLine}}{{end}}
{{- if .HasExample}}

Examples:
{{.Example | trimTrailingWhitespaces}}
{{- end}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{- end}}
{{- range groupsOf .LocalFlags}}

{{.Heading}}:
{{.Flags.FlagUsages | trimTrailingWhitespaces}}
{{- end}}
{{- if not .HasParent}}

'{{.CommandPath}} help COMMAND' says more about one.
{{- end}}
`

func helpCommand(c *command.Line) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say more about a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if len(args) == 0 {
				for _, sub := range cmd.Root().Commands() {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), args[0])
			}
			topic.InitDefaultHelpFlag()
			topic.InitDefaultVersionFlag()
			return topic.Help()
		}),
	}
}
