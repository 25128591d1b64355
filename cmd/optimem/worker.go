//go:build !noserve && !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/serve"
	"github.com/optimem/optimem/work"
)

const workerLong = `Take items from a queue of NATS JetStream and run the models of a directory over them, until it is interrupted. DIR is as
'optimem serve' has it, and --memory is for all models together; those that take tensors, write text or make vectors are offered.

Any number of workers share a queue. An item is acknowledged after its output is stored, and goes to another worker where this
one dies or its pass gets stuck. With --embedded the queue is in a folder, and the server of it in this process, for this host.`

const workerExamples = `  optimem worker --embedded queue/ --stream pictures models/
  optimem worker --nats tls://nats.example:4222 --nats-creds worker.creds --stream pictures models/ --memory 4GiB`

// A queueing says where a queue is.
type queueing struct {
	url, stream, creds, ca, inbox string
	replicas                      int
}

func (q *queueing) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(
		&q.url, "nats", "", "the `URL` of a server, or several with commas: nats://HOST:PORT, tls://HOST:PORT",
	)
	flags.StringVar(&q.stream, "stream", "", "the `NAME` of the queue, which is made if it is not there")
	flags.StringVar(
		&q.creds, "nats-creds", "", "a `FILE` of NATS credentials, or with the seed of an nkey, which say who asks",
	)
	flags.StringVar(&q.inbox, "nats-inbox", "", "answers come to subjects that begin with `PREFIX` (default _INBOX)")
	flags.StringVar(&q.ca, "tls-ca", "", "trust servers with certificates by an authority of this `FILE`")
	flags.IntVar(&q.replicas, "replicas", 1, "a queue that is made lies on `N` servers of a cluster")
	command.Grouped(flags, command.WorkGroup, "nats", "stream", "nats-creds", "nats-inbox", "tls-ca", "replicas")
}

func (q *queueing) options() work.Options {
	return work.Options{
		URL: q.url, Stream: q.stream, Credentials: q.creds, CA: q.ca, Inbox: q.inbox, Replicas: q.replicas,
	}
}

// A working is one run of 'optimem worker'.
type working struct {
	serving
	queueing
	embedded          string
	ackWait, patience time.Duration
	stay              time.Duration
	attempts          int64
	bytes             command.SizeFlag
	shared            string
}

func workerCommand(c *command.Line) *cobra.Command {
	w := working{serving: serving{writing: writing{Run: running.Run{Line: c}}}, bytes: 256 << 20}
	cmd := &cobra.Command{
		Use:     "worker (--nats URL | --embedded QUEUE) --stream NAME DIR [flags]",
		Short:   "Take work from a queue and run models over it",
		Long:    workerLong,
		Example: workerExamples,
		Args:    c.Arguments(cobra.ExactArgs(1)),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			w.Cmd, w.dir = cmd, args[0]
			return w.Place(w.work(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	w.Mode, w.Precision, w.Runs = running.Modes[0], running.Precisions[0], 1
	w.queueing.flags(cmd)
	flags.StringVar(&w.embedded, "embedded", "", "run a server in this process, with the queue in this `FOLDER`")
	flags.StringVar(&w.listen, "listen", "127.0.0.1:4222", "where that server listens, an `ADDRESS` of this host")
	flags.DurationVar(
		&w.ackWait, "ack-wait", 30*time.Second, "after this `TIME` without a sign of a worker its items go to others",
	)
	flags.DurationVar(&w.patience, "patience", 5*time.Minute, "a pass that does no step for this `TIME` is stuck")
	flags.DurationVar(
		&w.stay, "stay", time.Minute,
		"turn to a model whose items nobody takes for this `TIME`; else stay with one while it has items",
	)
	flags.Int64Var(&w.attempts, "attempts", 5, "begin an item `N` times before it is put aside")
	flags.Var(&w.bytes, "max-bytes", "most bytes that inputs under way take, beside --memory")
	flags.StringVar(&w.shared, "shared", "", "read inputs of 'optimem submit --shared' from this `FOLDER`")
	command.Grouped(flags, command.WorkGroup, "shared", "embedded", "listen", "ack-wait", "patience", "stay", "attempts", "max-bytes")
	w.PoolFlags(cmd)
	return cmd
}

func (w *working) checkWorking() error {
	switch {
	case (w.url == "") == (w.embedded == ""):
		return w.Usage(
			"for instance --nats nats://127.0.0.1:4222, or --embedded queue/",
			"one of --nats and --embedded says where the queue is",
		)
	case w.stream == "":
		return w.Usage("for instance --stream pictures", "--stream names the queue")
	case w.Memory.Share > 0:
		return w.Usage("for instance --memory 2GiB", "--memory takes a size here, and no share")
	case w.ackWait < time.Second || w.patience < time.Second || w.stay < time.Second:
		return w.Usage("", "--ack-wait, --patience and --stay take times of a second or more")
	case w.attempts < 1:
		return w.Usage("", "--attempts takes a number of 1 or more")
	case w.bytes < 1:
		return w.Usage("for instance --max-bytes 256MiB", "--max-bytes takes a size of 1 byte or more")
	}
	return w.CheckFlags()
}

func (w *working) work(ctx context.Context) (err error) {
	if err := w.checkWorking(); err != nil {
		return err
	}
	at := w.queueing.options()
	if w.embedded != "" {
		if at.Server, err = work.Embed(w.embedded, w.listen); err != nil {
			return err
		}
		defer at.Server.Close()
		w.url = at.Server.URL()
	}
	queue, err := work.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer queue.Close()
	var shared *os.Root
	if w.shared != "" {
		if shared, err = os.OpenRoot(w.shared); err != nil {
			return err
		}
		defer shared.Close()
	}
	progress := new(work.Progress)
	opts := w.registryOptions(nil)
	opts.Session.Observe, opts.MaxQueue = progress.Observe, 1<<16
	registry, err := serve.Open(ctx, w.dir, opts)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, registry.Close()) }()
	if !w.Quiet {
		for _, m := range registry.Models() {
			if m.Reason != "" && m.State != serve.Ready {
				w.Say("warning", fmt.Sprintf("%s: %s", m.Name, m.Reason))
			}
		}
		if w.embedded != "" {
			w.Say("note", "the server within listens on "+strings.TrimPrefix(w.url, "nats://"))
		}
	}
	err = queue.Work(ctx, registry, work.WorkerOptions{
		Device: w.Device, Progress: progress, AckWait: w.ackWait, Patience: w.patience, Stay: w.stay, Attempts: uint64(w.attempts),
		MaxBytes: int64(w.bytes), Shared: shared, Log: opts.Log.With(slog.String("stream", w.stream)),
		Ready: func() {
			if !w.Quiet {
				w.Say("note", fmt.Sprintf(
					"takes work of %s, %s of memory for all models", w.stream, ascii.FormatSize(registry.Memory()),
				))
			}
		},
	})
	if err == nil && !w.Quiet {
		w.Say("done", "what was under way is left to others")
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}
