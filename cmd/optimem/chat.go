//go:build !files

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
)

const chatLong = `Talk to a model. MODEL is a Hugging Face folder or a GGUF file of a model with a chat template. Each line of standard
input is a message; a line that ends in \ goes on with the next. What was said is kept as keys and values, so that an
answer reads only what is new.

/reset forgets the conversation, /save FILE writes it as JSON, and its keys and values to FILE.kv, /exit or the end of the
input ends. Ctrl-C ends an answer, and not the program. --history FILE goes on with what /save wrote, and reads only what is
new where FILE.kv is there. The pictures of --image come with the first message.`

const chatExamples = `  optimem chat ./SmolLM2-135M-Instruct
  optimem chat ./Qwen3-4B --memory 2GiB --system "Answer in one sentence."
  optimem chat ./Qwen3-4B --history talk.json`

func chatCommand(c *command.Line) *cobra.Command {
	t := &chatting{writing: writing{Run: running.Run{Line: c}}, stdin: os.Stdin}
	return t.command()
}

// command is the command that runs t.
func (t *chatting) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "chat MODEL [flags]",
		Short:   "Talk to a model",
		Long:    chatLong,
		Example: chatExamples,
		Args:    running.OneModel(t.writing.Run.Line),
		RunE: t.Enter(func(cmd *cobra.Command, args []string) error {
			t.Cmd, t.Model = cmd, args[0]
			return t.Place(t.chat(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&t.history, "history", "", "go on with a conversation that /save wrote to a `FILE`")
	command.Grouped(flags, command.WritingGroup, "history")
	t.writingFlags(cmd)
	return cmd
}

// A chatting is one run of the command chat.
type chatting struct {
	writing
	stdin   io.Reader
	history string
	said    []generate.Message
	// seen are the pictures of --image, which the first message comes with.
	seen *generate.Source
}

// maxMessage bounds a message.
const maxMessage = 16 << 20

func (t *chatting) chat(ctx context.Context) (err error) {
	if err := t.checkWriting(); err != nil {
		return err
	}
	if t.AsJSON {
		return t.Usage("'optimem generate --json' gives one answer", "a conversation has no --json")
	}
	if err := t.settings(); err != nil {
		return err
	}
	if !t.text.HasChat() {
		return &command.Failure{
			Err: generate.ErrNoChat, Code: command.ExitUsage, Hints: []string{"'optimem generate' goes on with a text"},
		}
	}
	if err := cmp.Or(t.look(), t.begin()); err != nil {
		return err
	}
	if t.seen, err = t.pictures(ctx); err != nil {
		return err
	}
	e, err := t.start(ctx, t.context, 1)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, e.close()) }()
	if err := t.restore(ctx, e); err != nil {
		return err
	}

	// An interrupt ends an answer. The command's own context ends at the first, so that it cannot be what answers run under.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	defer signal.Stop(terminate)
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go func() {
		select {
		case <-terminate:
			end()
		case <-live.Done():
		}
	}()
	lines := t.lines(live)
	for {
		t.prompt()
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if done, err := t.take(live, e, line, interrupts); done || err != nil {
				return err
			}
		case <-interrupts:
			t.Say("note", "Ctrl-D or /exit ends the conversation")
		case <-live.Done():
			return context.Canceled
		}
	}
}

// begin makes the conversation what --history and --system say.
func (t *chatting) begin() error {
	t.said = nil
	if t.history != "" {
		text, err := os.ReadFile(t.history)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &t.said); err != nil {
			return &command.Failure{Err: fmt.Errorf("%s is no conversation: %w", t.history, err), Code: command.ExitUnsafe}
		}
	}
	if len(t.images) > 0 && t.history != "" {
		return t.Usage("", "--history goes on with what was said, and --image is for the first message")
	}
	for _, m := range t.said {
		if m.Pictures > 0 {
			return t.Usage("begin anew with --image", "%s is of pictures, which it does not have", t.history)
		}
	}
	if t.system != "" {
		if len(t.said) > 0 && t.said[0].Role == "system" {
			t.said = t.said[1:]
		}
		t.said = append([]generate.Message{{Role: "system", Content: t.system}}, t.said...)
	}
	return nil
}

// lines reads messages from standard input until it ends.
func (t *chatting) lines(ctx context.Context) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		scan := bufio.NewScanner(t.stdin)
		scan.Buffer(nil, maxMessage)
		var message strings.Builder
		give := func() bool {
			text := message.String()
			message.Reset()
			select {
			case out <- text:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for scan.Scan() {
			line, more := strings.CutSuffix(scan.Text(), `\`)
			message.WriteString(line)
			if more {
				message.WriteByte('\n')
			} else if !give() {
				return
			}
		}
		if message.Len() > 0 {
			give()
		}
	}()
	return out
}

// prompt shows that it is the user's turn, on a terminal.
func (t *chatting) prompt() {
	if command.IsTerminal(t.Stdout) && !t.Quiet {
		_, _ = io.WriteString(t.Stdout, "> ")
	}
}

// take does what a line asks for. It reports whether the conversation is over.
func (t *chatting) take(
	ctx context.Context, e *openEngine, line string, interrupts <-chan os.Signal,
) (done bool, err error) {
	command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch command {
	case "":
		return false, nil
	case "/exit", "/quit", "/bye":
		return true, nil
	case "/reset":
		t.history = ""
		return false, t.begin()
	case "/save":
		t.save(ctx, e, strings.TrimSpace(rest))
		return false, nil
	}
	if strings.HasPrefix(command, "/") {
		t.Say("error", fmt.Sprintf("there is no %s: /reset, /save FILE and /exit are commands", words(command)))
		return false, nil
	}
	return false, t.answer(ctx, e, line, interrupts)
}

// savedKV is added to the name of a conversation's file for that of its keys and values.
const savedKV = ".kv"

// restore has the keys and values that were saved with the conversation. Without them it is read anew, with the same answers.
func (t *chatting) restore(ctx context.Context, e *openEngine) error {
	if t.history == "" {
		return nil
	}
	path := t.history + savedKV
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	tokens, err := e.writer.Engine().Restore(ctx, bufio.NewReaderSize(f, 1<<20))
	var saved *generate.SavedError
	switch {
	case errors.As(err, &saved) && saved.Other:
		t.Say("note", fmt.Sprintf("%s: %v: the conversation is read anew", path, err))
		return nil
	case saved != nil:
		return &command.Failure{
			Err: fmt.Errorf("%s: %w", path, err), Code: command.ExitUnsafe,
			Hints: []string{"without that file the conversation is read anew"},
		}
	case err == nil && !t.Quiet:
		t.Say("note", fmt.Sprintf("%s: %s of the conversation need not be read", path, running.Counted(len(tokens), "token")))
	}
	return err
}

// saveKV writes the keys and values of the conversation, as far as they are there, and says how many.
func (t *chatting) saveKV(ctx context.Context, e *openEngine, path string) (string, error) {
	r := t.request("", t.said)
	tokens, err := t.text.Tokens(r)
	if err != nil {
		return "", err
	}
	r.Request.Prompt = tokens
	n := 0
	var size int64
	err = newfile.Write(path, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if n, err = e.writer.Engine().Save(ctx, w, r.Request); err == nil {
			err = w.Flush()
		}
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		return err
	})
	return fmt.Sprintf("%s: keys and values of %s, %s", path, running.Counted(n, "token"), ascii.FormatSize(size)), err
}

// save writes the conversation, and its keys and values beside it.
func (t *chatting) save(ctx context.Context, e *openEngine, path string) {
	if path == "" {
		t.Say("error", "/save takes the name of a file")
		return
	}
	messages, err := json.MarshalIndent(t.said, "", "  ")
	if err == nil {
		err = newfile.Write(path, func(f *os.File) error {
			_, err := f.Write(append(messages, '\n'))
			return err
		})
	}
	if err != nil {
		t.Say("error", err.Error())
		return
	}
	t.Say("note", fmt.Sprintf("%s: %s", path, running.Counted(len(t.said), "message")))
	if len(t.said) == 0 {
		return
	}
	text, err := t.saveKV(ctx, e, path+savedKV)
	if err != nil {
		t.Say("error", err.Error())
		return
	}
	t.Say("note", text)
}

// unseen is how many pictures come with the next message: all with the first.
func (t *chatting) unseen() int {
	for _, m := range t.said {
		if m.Role == "user" {
			return 0
		}
	}
	return len(t.images)
}

// answer has the model answer a message. What cannot be answered is said, and the conversation stays as it was.
func (t *chatting) answer(ctx context.Context, e *openEngine, message string, interrupts <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-interrupts:
			cancel()
		case <-done:
		}
	}()
	said := append(t.said[:len(t.said):len(t.said)], generate.Message{Role: "user", Content: message, Pictures: t.unseen()})
	r := t.request("", said)
	r.Request.Source = t.seen
	facts, err := e.write(ctx, r, func(piece string) error {
		_, err := io.WriteString(t.Stdout, piece)
		return err
	})
	interrupted := ctx.Err() != nil
	if facts != nil && facts.Text != "" {
		if _, err := io.WriteString(t.Stdout, "\n"); err != nil {
			return err
		}
	}
	var request *generate.RequestError
	switch {
	case errors.As(err, &request) && request.Field == "Prompt":
		t.Say("error", err.Error())
		t.Say(
			"hint",
			"/reset begins anew; --context N gives a conversation more room, where the model and the memory admit it",
		)
		return nil
	case err != nil && !interrupted:
		return textError(err)
	case interrupted:
		t.Say("note", "interrupted")
	case t.Verbose:
		t.Say("done", facts.String())
	case facts.Incomplete:
		t.Say("note", "the answer was cut off"+incompleteText)
	case facts.Finish == generate.FinishLength:
		t.Say("note", "the answer was cut off by --max-tokens or the context")
	}
	if facts != nil {
		t.said = append(said, generate.Message{Role: "assistant", Content: facts.Text})
	}
	return nil
}
