package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
)

// A batchLine is a line of the file of --batch.
type batchLine struct {
	ID        json.RawMessage    `json:"id"`
	Prompt    *string            `json:"prompt"`
	Messages  []generate.Message `json:"messages"`
	MaxTokens int                `json:"max_tokens"`
	Seed      *uint64            `json:"seed"`
	Schema    json.RawMessage    `json:"schema"`
	Grammar   string             `json:"grammar"`
	Lora      *string            `json:"lora"`

	request generate.TextRequest
	tokens  int
}

const (
	maxBatchLines = 1 << 20
	maxBatchLine  = 16 << 20
	// mostSequences is how many prompts of a file are answered at once.
	mostSequences = 16
)

// answerFile answers the prompts of a file, as many at once as the budget has room for.
func (g *generating) answerFile(ctx context.Context) (err error) {
	lines, err := g.readBatch()
	if err != nil {
		return err
	}
	longest := g.context
	for i := range lines {
		longest = max(longest, g.text.Room(lines[i].tokens, lines[i].request.Request.MaxTokens))
	}
	if g.context > 0 {
		longest = g.context
	}
	e, err := g.startMany(ctx, longest, len(lines))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, e.close()) }()
	answers, err := g.answerAll(ctx, e, lines)
	if err != nil {
		return err
	}
	write := func(to io.Writer) error {
		w := bufio.NewWriter(to)
		for i, a := range answers {
			if err := a.line(w, lines[i].ID); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	if g.output == "" {
		return write(g.stdout)
	}
	return newfile.Write(g.output, func(f *os.File) error { return write(f) })
}

// startMany starts an engine with room for as many sequences at once as are wanted, or as many as the budget has room for.
func (w *writing) startMany(ctx context.Context, context, sequences int) (*openEngine, error) {
	for n := max(min(sequences, mostSequences), 1); ; n /= 2 {
		e, err := w.start(ctx, context, n)
		var full *runtime.CapacityError
		if err == nil || n == 1 || !errors.As(err, &full) {
			return e, err
		}
	}
}

// readBatch reads the prompts and checks them, all before one is answered.
func (g *generating) readBatch() ([]batchLine, error) {
	f, err := os.Open(g.batchFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []batchLine
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, maxBatchLine)
	for number := 1; scan.Scan(); number++ {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		wrong := func(err error) error {
			return usageError(g.cmd, fmt.Errorf("%s:%d: %w", g.batchFile, number, err),
				`a line is {"id": 1, "prompt": "…"}, or has "messages"; max_tokens, seed, schema, grammar and lora may be there`)
		}
		if len(lines) == maxBatchLines {
			return nil, wrong(fmt.Errorf("more than %d prompts", maxBatchLines))
		}
		var l batchLine
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return nil, wrong(err)
		}
		switch {
		case l.Prompt == nil && len(l.Messages) == 0:
			return nil, wrong(errors.New("neither a prompt nor messages"))
		case l.Prompt != nil && len(l.Messages) > 0:
			return nil, wrong(errors.New("a prompt and messages"))
		case l.MaxTokens < 0:
			return nil, wrong(fmt.Errorf("max_tokens is %d", l.MaxTokens))
		case l.Lora != nil && *l.Lora != noAdapter && !g.hasAdapter(*l.Lora):
			return nil, wrong(fmt.Errorf("lora is %q, and --lora names no such adapter", *l.Lora))
		case l.Prompt != nil:
			l.request = g.requestOf(*l.Prompt, nil)
		default:
			l.request = g.requestOf("", l.Messages)
		}
		if l.MaxTokens > 0 {
			l.request.Request.MaxTokens = l.MaxTokens
		}
		if l.Seed != nil {
			l.request.Request.Seed = *l.Seed
		}
		if string(l.Schema) == "null" {
			l.Schema = nil
		}
		if len(l.Schema) > 0 || l.Grammar != "" { // in the place of what flags say
			l.request.Schema, l.request.Grammar = l.Schema, l.Grammar
			if _, err := g.text.Constraint(l.request); err != nil {
				return nil, wrong(err)
			}
		}
		if l.Lora != nil {
			l.request.Request.Adapter = *l.Lora
			if *l.Lora == noAdapter {
				l.request.Request.Adapter = ""
			}
		}
		ids, err := g.text.Tokens(l.request)
		if err == nil && len(ids) == 0 {
			err = errors.New("the prompt has no token")
		}
		if err != nil {
			return nil, wrong(err)
		}
		l.tokens = len(ids)
		lines = append(lines, l)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", g.batchFile, err)
	}
	if len(lines) == 0 {
		return nil, g.usage("", "%s has no prompt", g.batchFile)
	}
	return lines, nil
}

// answerAll answers all prompts, several at once. The first error ends the others.
func (g *generating) answerAll(ctx context.Context, e *openEngine, lines []batchLine) ([]*writingFacts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]*writingFacts, len(lines))
	var wait sync.WaitGroup
	turns := make(chan struct{}, 2*mostSequences) // those that wait have their prompts read
	for i := range lines {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			result, err := e.writer.Write(ctx, lines[i].request, nil)
			if err != nil {
				cancel(fmt.Errorf("prompt %d: %w", i+1, err))
			} else {
				answers[i] = &writingFacts{TextResult: *result, bounded: bounded(lines[i].request)}
			}
			<-turns
		}()
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, textError(context.Cause(ctx))
	}
	if s := e.writer.Engine().Stats(); !g.quiet {
		m := e.writer.Engine().Session().Metrics()
		g.say("done", fmt.Sprintf("%s of %s in %s of %.3g tokens each, peak %s", counted(int(s.Tokens), "token"),
			counted(len(lines), "answer"), passesText(s.Passes), float64(s.Rows)/float64(max(s.Passes, 1)), ascii.FormatSize(m.PeakBytes)))
	}
	return answers, nil
}

// line writes an answer as one line of JSON.
func (f *writingFacts) line(to io.Writer, id json.RawMessage) error {
	if id == nil {
		id = json.RawMessage("null")
	}
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		ID           json.RawMessage `json:"id"`
		Text         string          `json:"text"`
		PromptTokens int             `json:"prompt_tokens"`
		Tokens       int             `json:"tokens"`
		TokenIDs     []int           `json:"token_ids"`
		FinishReason generate.Finish `json:"finish_reason"`
		Seconds      float64         `json:"seconds"`
		First        float64         `json:"first_token_seconds"`
		Rate         float64         `json:"tokens_per_second"`
		Passes       int             `json:"passes"`
		Shared       int             `json:"shared_tokens"`
		Complete     *bool           `json:"complete,omitempty"`
	}{id, f.Text, f.PromptTokens, len(f.Tokens), append([]int{}, f.Tokens...), f.Finish, f.Seconds, f.FirstTokenSeconds,
		f.perSecond(), f.Passes, f.SharedTokens, f.complete()})
}
