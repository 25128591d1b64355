//go:build !files

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

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
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
	// hash is what its answer depends on, where answers are kept.
	hash string
}

const (
	maxBatchLines = 1 << 20
	maxBatchLine  = 16 << 20
	// mostSequences is how many prompts of a file are answered at once, or mostBatched where passes bring weights.
	mostSequences = 16
	mostBatched   = 256
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
	width, err := g.bestSequences(ctx, longest, len(lines))
	if err != nil {
		return err
	}
	g.away = width.away
	e, err := g.startMany(ctx, longest, width.sequences)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, e.close()) }()
	var kept *journal
	if g.output != "" {
		if kept, err = g.keepAnswers(ctx, e, lines); err != nil {
			return err
		}
		defer func() {
			if err != nil && kept.added > 0 && !g.Quiet {
				g.Say("note", fmt.Sprintf("%s in %s: the same command goes on from there", running.Counted(kept.added, "answer"), kept.path))
			}
			if closed := kept.close(err == nil); err == nil {
				err = closed
			}
		}()
	}
	if err = g.expectBatch(ctx, e.writer.Engine(), lines); err != nil {
		return err
	}
	answers, err := g.answerAll(ctx, e, lines, kept)
	if err != nil {
		return err
	}
	write := func(to io.Writer) error {
		w := bufio.NewWriter(to)
		for i, a := range answers {
			if err := a.write(w, lines[i].ID); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	if g.output == "" {
		return write(g.Stdout)
	}
	return placeAnswers(g.output, func(f *os.File) error { return write(f) })
}

// placeAnswers is how the file of answers gets its name, for tests of what is left where that fails.
var placeAnswers = newfile.Write

// expectBatch says what answering is expected to take at most: all prompts, and as many tokens as each answer may have.
func (g *generating) expectBatch(ctx context.Context, e *generate.Engine, lines []batchLine) error {
	if g.Quiet {
		return nil
	}
	n := min(e.Sequences(), len(lines), e.Rows())
	if s := g.staged; s != nil {
		g.Say("note", fmt.Sprintf("%d at once over %d stages, about %.3g tokens a second once prompts are read", n,
			len(s.peaks), s.rate(n)))
		return nil
	}
	writes, err := e.ForecastPass(ctx, n, n)
	if err != nil {
		return err
	}
	reads, err := e.ForecastPass(ctx, e.Rows(), 1)
	if err != nil {
		return err
	}
	prompts, tokens := 0, 0
	for i := range lines {
		most := e.Context() - lines[i].tokens
		if m := lines[i].request.Request.MaxTokens; m > 0 {
			most = min(most, m)
		}
		prompts, tokens = prompts+lines[i].tokens, tokens+max(most, 0)
	}
	guess := ""
	if !writes.Forecast.Measured {
		guess = running.Guessed
	}
	seconds := float64(tokens)/float64(n)*writes.Forecast.Seconds + float64(prompts)/float64(e.Rows())*reads.Forecast.Seconds
	g.Say("note", fmt.Sprintf("%d at once, about %.3g tokens a second; %s of prompts and at most %d of answers in about %s%s",
		n, float64(n)/writes.Forecast.Seconds, running.Counted(prompts, "token"), tokens, running.SecondsText(seconds), guess))
	return nil
}

// keepAnswers opens the journal of the file that answers go to, and says how many were there.
func (g *generating) keepAnswers(ctx context.Context, e *openEngine, lines []batchLine) (*journal, error) {
	engine := e.writer.Engine()
	model, err := engine.Fingerprint(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := openJournal(g.output)
	if err != nil {
		return nil, err
	}
	there := 0
	for i := range lines {
		l := &lines[i]
		ids, err := g.text.Tokens(l.request)
		if err != nil {
			return nil, errors.Join(err, kept.close(false))
		}
		l.hash = hashOf(version()+" "+model, engine.Context(), ids, &l.request)
		if kept.answers[l.hash] != nil {
			there++
		}
	}
	if there > 0 && !g.Quiet {
		g.Say("note", fmt.Sprintf("%d of %s were in %s, from a run that did not end", there, running.Counted(len(lines), "answer"), kept.path))
	}
	return kept, nil
}

// startMany starts an engine with room for as many sequences at once as are wanted, or as many as the budget has room for.
func (w *writing) startMany(ctx context.Context, context, sequences int) (*openEngine, error) {
	for n := max(sequences, 1); ; n /= 2 {
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
			return command.UsageError(g.Cmd, fmt.Errorf("%s:%d: %w", g.batchFile, number, err),
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
		case l.Lora != nil && *l.Lora != running.NoAdapter && !g.HasAdapter(*l.Lora):
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
			if err := g.grammars.add(g.text, l.request); err != nil {
				return nil, wrong(err)
			}
		}
		if l.Lora != nil {
			l.request.Request.Adapter = *l.Lora
			if *l.Lora == running.NoAdapter {
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
		return nil, g.Usage("", "%s has no prompt", g.batchFile)
	}
	return lines, nil
}

// answerAll answers all prompts, several at once, but those whose answers were kept, and keeps theirs. kept may be nil.
// The first error ends the others.
func (g *generating) answerAll(ctx context.Context, e *openEngine, lines []batchLine, kept *journal) ([]*batchAnswer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]*batchAnswer, len(lines))
	var wait sync.WaitGroup
	turns := make(chan struct{}, 2*max(mostSequences, e.writer.Engine().Sequences())) // those that wait have their prompts read
	for i := range lines {
		if kept != nil {
			if answers[i] = kept.answers[lines[i].hash]; answers[i] != nil {
				continue
			}
		}
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
			if err == nil {
				answers[i] = (&writingFacts{TextResult: *result, bounded: bounded(lines[i].request)}).answer()
				if kept != nil {
					err = kept.add(lines[i].hash, answers[i])
				}
			}
			if err != nil {
				cancel(fmt.Errorf("prompt %d: %w", i+1, err))
			}
			<-turns
		}()
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, textError(context.Cause(ctx))
	}
	if s := e.writer.Engine().Stats(); !g.Quiet {
		_, peaks := e.metrics()
		g.Say("done", fmt.Sprintf("%s of %s in %s of %.3g tokens each%s", running.Counted(int(s.Tokens), "token"),
			running.Counted(len(lines), "answer"), passesText(s.Passes), float64(s.Rows)/float64(max(s.Passes, 1)),
			peakText(peaks)))
	}
	return answers, nil
}

// A batchAnswer is an answer as a line of JSON.
type batchAnswer struct {
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
}

// answer returns the line of an answer, without whose it is.
func (f *writingFacts) answer() *batchAnswer {
	return &batchAnswer{nil, f.Text, f.PromptTokens, len(f.Tokens), append([]int{}, f.Tokens...), f.Finish, f.Seconds, f.FirstTokenSeconds,
		f.perSecond(), f.Passes, f.SharedTokens, f.complete()}
}

// write writes an answer to the prompt with that id.
func (a *batchAnswer) write(to io.Writer, id json.RawMessage) error {
	line := *a
	if line.ID = id; id == nil {
		line.ID = json.RawMessage("null")
	}
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(&line)
}
