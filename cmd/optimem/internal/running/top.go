//go:build !files

package running

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/top"
)

const topLong = `Show what the sessions and pools of a running process do: budgets, what is held, rates, stalls, and who waits.
The process listens on a Unix socket: 'optimem run --top-socket SOCKET' does, and programs with package top do.
'optimem serve' always does: without SOCKET it is the server that runs.

On a terminal the table is drawn anew every --interval until it is interrupted or the process ends. Elsewhere it is printed
once. Rates are those since the table before; in the first one, those of all passes so far.`

// A topping is one run of the command.
type topping struct {
	*command.Line
	socket       string
	asJSON, once bool
	interval     time.Duration
}

// TopCommand is 'optimem top', which shows what running processes hold.
func TopCommand(c *command.Line) *cobra.Command {
	t := &topping{Line: c}
	cmd := &cobra.Command{
		Use:   "top [SOCKET]",
		Short: "Show what a running process does with its memory",
		Long:  topLong,
		Example: `  optimem bench big.pt --runs 100 --top-socket /tmp/big.sock &
  optimem top /tmp/big.sock`,
		Args: c.Arguments(cobra.MaximumNArgs(1)),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			if t.interval < 10*time.Millisecond {
				return command.UsageError(cmd, fmt.Errorf("--interval takes a time, 10ms or more"))
			}
			if len(args) == 1 {
				t.socket = args[0]
			} else if err := t.find(cmd.Context()); err != nil {
				return err
			}
			return t.run(cmd.Context(), cmd.Flags().Changed("interval"))
		}),
	}
	cmd.Flags().BoolVar(&t.asJSON, "json", false, "print one JSON object; with --interval one on a line each time")
	cmd.Flags().BoolVar(&t.once, "once", false, "print the table once, also on a terminal")
	cmd.Flags().DurationVar(&t.interval, "interval", time.Second, "ask again after this `TIME`")
	return cmd
}

// TopSocketName is that of the sockets that servers make in folders of their own.
const TopSocketName = "top.sock"

// find takes the socket of the only server that is there.
func (t *topping) find(ctx context.Context) error {
	all, _ := filepath.Glob(filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()), "optimem-*", TopSocketName))
	var there []string
	for _, socket := range all {
		if info, err := os.Lstat(filepath.Dir(socket)); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			continue // not one that a server made
		}
		if _, err := top.Read(ctx, socket); err == nil { // else what a server that was killed has left, or another user's
			there = append(there, socket)
		}
	}
	switch len(there) {
	case 0:
		return &command.Failure{Err: errors.New("no server is there"), Code: command.ExitFailed, Hints: []string{"say on which SOCKET a process listens: --top-socket"}}
	case 1:
		t.socket = there[0]
		return nil
	}
	return &command.Failure{Err: fmt.Errorf("%d servers are there", len(there)), Code: command.ExitFailed, Hints: []string{"say which: " + strings.Join(there, ", ")}}
}

func (t *topping) run(ctx context.Context, again bool) error {
	report, err := top.Read(ctx, t.socket)
	if err != nil {
		return topError(err)
	}
	live := !t.asJSON && command.IsTerminal(t.Stdout)
	var before *top.Report
	for {
		if err := t.show(report, before, live && !t.once); err != nil {
			return err
		}
		if t.once || !live && !again {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // which is how one ends it
		case <-time.After(t.interval):
		}
		before = report
		switch report, err = top.Read(ctx, t.socket); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, fs.ErrNotExist):
			c := t.Line
			c.Say("note", fmt.Sprintf("process %d has ended", before.PID))
			return nil
		case err != nil:
			return topError(err)
		}
	}
}

// topError says what would help.
func topError(err error) error {
	var bad *top.Error
	if errors.As(err, &bad) && errors.Is(err, fs.ErrNotExist) {
		return &command.Failure{
			Err: err, Code: command.ExitFailed,
			Hints: []string{"'optimem run --top-socket SOCKET' listens on one while it runs"},
		}
	}
	return err
}

func (t *topping) show(r, before *top.Report, live bool) error {
	if t.asJSON {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.Stdout, "%s\n", text)
		return err
	}
	text := topText(r, before)
	if live { // from the upper left corner, without what was there
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
		if before == nil {
			text = "\x1b[2J" + text
		}
	}
	_, err := fmt.Fprint(t.Stdout, text)
	return err
}

// topText is the table, with rates since a report before.
func topText(r, before *top.Report) string {
	table := ascii.NewTable(
		ascii.Left("name"), ascii.Right("budget"), ascii.Right("held"), ascii.Right("weights"), ascii.Right("calls"),
		ascii.Right("waiting"),
		ascii.Right("passes/s"), ascii.Right("read/s"), ascii.Right("stall"), ascii.Left("now"),
	)
	for i := range r.Rows {
		x := &r.Rows[i]
		name := x.Name
		if x.Kind == "member" {
			name = "  " + name
		}
		d, over := since(r, before, x)
		perSecond := func(n float64) float64 {
			if over <= 0 {
				return 0
			}
			return n / over
		}
		stall := ""
		if d.PassingSeconds > 0 {
			stall = fmt.Sprintf("%.0f %%", 100*min(d.StallSeconds/d.PassingSeconds, 1))
		}
		table.Row(name, sizeOrNone(x.BudgetBytes), ascii.FormatSize(x.HeldBytes), ascii.FormatSize(x.WeightBytes), ascii.FormatCount(x.Calls),
			ascii.FormatCount(int64(x.Waiting)), fmt.Sprintf("%.3g", perSecond(float64(d.Passes))),
			ascii.FormatSize(int64(perSecond(float64(d.LoadedBytes)))), stall, nowText(x))
	}
	return fmt.Sprintf(
		"%s, process %d, %s\n\n%s", ascii.Printable(r.Program), r.PID, r.At.Local().Format(time.TimeOnly), table,
	)
}

// since is what a row counted since a report before, and in how many seconds: where that had no such row, since its
// beginning, in its passes' own time.
func since(r, before *top.Report, x *top.Row) (top.Row, float64) {
	if before != nil && before.PID == r.PID {
		for i := range before.Rows {
			b := &before.Rows[i]
			if b.Name != x.Name || b.Kind != x.Kind || b.Passes > x.Passes {
				continue
			}
			return top.Row{
				Passes: x.Passes - b.Passes, LoadedBytes: max(x.LoadedBytes-b.LoadedBytes, 0),
				PassingSeconds: x.PassingSeconds - b.PassingSeconds, StallSeconds: x.StallSeconds - b.StallSeconds,
			}, r.At.Sub(before.At).Seconds()
		}
	}
	return *x, x.PassingSeconds
}

func sizeOrNone(n int64) string {
	if n == 0 {
		return ""
	}
	return ascii.FormatSize(n)
}

// nowText says what a row does at the moment.
func nowText(x *top.Row) string {
	switch {
	case x.Pass != nil:
		return fmt.Sprintf("%d/%d %s", x.Pass.Group, x.Pass.Groups, x.Pass.Path)
	case x.Running:
		return "runs"
	}
	return "idle"
}

// ListenTop begins to tell of the command's session, if --top-socket asks for it.
func (r *Run) ListenTop() (err error) {
	if r.TopSocket == "" || r.dry || r.topEntry != nil {
		return nil
	}
	if r.topServer, err = top.Listen(r.TopSocket); err != nil {
		return err
	}
	r.topEntry = r.topServer.Enter(filepath.Base(filepath.Clean(r.Model)))
	return nil
}

// ObserveTop is the observer that follows passes, nil where nobody asks.
func (r *Run) ObserveTop() func(runtime.Event) {
	if r.topEntry == nil {
		return nil
	}
	return r.topEntry.Observe
}

// TellTop says which session it is.
func (r *Run) TellTop(s *runtime.Session) {
	if r.topEntry != nil {
		r.topEntry.Session(s)
	}
}

// CloseTop ends that.
func (r *Run) CloseTop(err error) error {
	if r.topServer == nil {
		return err
	}
	return cmp.Or(err, r.topServer.Close())
}
