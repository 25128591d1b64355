//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
)

// A severalFlags is what 'optimem generate' is told of several answers to one prompt.
type severalFlags struct {
	answers, beams int
	lengthPenalty  float64
	early          string
}

// maxAnswers bounds -n.
const maxAnswers = 1000

func (s *severalFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVarP(&s.answers, "answers", "n", 1, "give `N` answers: drawn with N seeds from --seed on, or the best of --beams")
	flags.IntVar(&s.beams, "beams", 0, "look for the most likely answer as a whole, following `N` at once")
	flags.Float64Var(&s.lengthPenalty, "length-penalty", 1, "--beams: divide scores by the length to the power of `X`")
	flags.StringVar(&s.early, "early-stopping", "false", "--beams: `WHEN` there is enough: false, true, never, as transformers has it")
	command.Grouped(flags, command.SamplingGroup, "answers", "beams", "length-penalty", "early-stopping")
}

// earlies are the values of --early-stopping.
var earlies = map[string]generate.Early{"false": generate.EarlyLikely, "true": generate.EarlyFull, "never": generate.EarlyNever}

// checkSeveral looks at the flags alone.
func (g *generating) checkSeveral() error {
	s, changed := &g.several, g.Cmd.Flags().Changed
	_, known := earlies[s.early]
	switch {
	case s.answers < 1 || s.answers > maxAnswers:
		return g.Usage("", "-n takes a number of answers, 1 to %d", maxAnswers)
	case s.beams < 0 || changed("beams") && s.beams == 0:
		return g.Usage("", "--beams takes a number of texts, 1 or more")
	case s.beams == 0 && (changed("length-penalty") || changed("early-stopping")):
		return g.Usage("add --beams N", "--length-penalty and --early-stopping are for --beams")
	case !known:
		return g.Usage("there is: false, true, never", "unknown --early-stopping %q", s.early)
	case s.beams > 0 && s.answers > s.beams:
		return g.Usage("", "-n %d answers of --beams %d: there are no more than that", s.answers, s.beams)
	case (s.beams > 0 || s.answers > 1) && g.batchFile != "":
		return g.Usage("", "-n and --beams are for one prompt, and --batch has many")
	case (s.beams > 0 || s.answers > 1) && g.logprobs > 0:
		return g.Usage("", "--logprobs is for one answer")
	}
	if s.beams == 0 {
		return nil
	}
	for _, name := range []string{
		"temperature", "top-k", "top-p", "min-p", "repetition-penalty", "presence-penalty", "frequency-penalty", "seed", "stop", "schema", "grammar",
	} {
		if changed(name) {
			return g.Usage("", "--%s is about tokens one by one, and --beams looks for whole texts", name)
		}
	}
	return nil
}

// asked reports whether there is more than one answer to be looked at.
func (s *severalFlags) asked() bool { return s.beams > 0 || s.answers > 1 }

// A severalAnswer is one of several.
type severalAnswer struct {
	Text         string          `json:"text"`
	Tokens       int             `json:"tokens"`
	TokenIDs     []int           `json:"token_ids"`
	FinishReason generate.Finish `json:"finish_reason"`
	// Score is that of a beam search, Seed what an answer was drawn with.
	Score    *float64 `json:"score,omitempty"`
	Seed     *uint64  `json:"seed,omitempty"`
	Complete *bool    `json:"complete,omitempty"`
}

// answerSeveral writes several answers to a prompt.
func (g *generating) answerSeveral(ctx context.Context, e *openEngine, r generate.TextRequest, promptTokens int) error {
	begin := time.Now()
	find := g.drawn
	if g.several.beams > 0 {
		find = g.best
	}
	answers, err := find(ctx, e, r)
	e.watch.end()
	if err != nil {
		return textError(err)
	}
	stats := e.writer.Engine().Stats()
	m, peaks := e.metrics()
	if g.AsJSON {
		o := jsonout.New(g.Stdout)
		o.Set("prompt_tokens", promptTokens)
		o.Set("seconds", time.Since(begin).Seconds())
		o.Set("passes", stats.Passes)
		o.Set("peak_device_bytes", m.PeakBytes)
		o.Set("kv_bytes", e.kv)
		jsonout.Array(o, "answers", slices.Values(answers))
		return o.Close()
	}
	for i, a := range answers {
		text := a.Text
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if i > 0 {
			text = "---\n" + text
		}
		if _, err := io.WriteString(g.Stdout, text); err != nil {
			return err
		}
	}
	if !g.Quiet {
		g.Say("done", fmt.Sprintf("%s in %s, %s%s", running.Counted(len(answers), "answer"), passesText(stats.Passes),
			running.SecondsText(time.Since(begin).Seconds()), peakText(peaks)))
	}
	return nil
}

func passesText(n int64) string {
	if n == 1 {
		return "1 pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// best looks for the most likely answers.
func (g *generating) best(ctx context.Context, e *openEngine, r generate.TextRequest) ([]severalAnswer, error) {
	of := r.Request.Sampling
	r.Request.Sampling = generate.Sampling{ // the folder's, without what draws tokens
		NoRepeatNgram: of.NoRepeatNgram, BadWords: of.BadWords, MinTokens: of.MinTokens, Suppress: of.Suppress,
		ForceFirst: of.ForceFirst, SuppressFirst: of.SuppressFirst, ForceEnd: of.ForceEnd,
	}
	b := generate.Beams{Width: g.several.beams, LengthPenalty: cmp.Or(g.several.lengthPenalty, generate.NoLengthPenalty), Early: earlies[g.several.early]}
	found, err := e.writer.Beam(ctx, r, b)
	var answers []severalAnswer
	for _, x := range found[:min(len(found), g.several.answers)] {
		answers = append(answers, severalAnswer{Text: x.Text, Tokens: len(x.Tokens), TokenIDs: x.Tokens, FinishReason: x.Finish, Score: &x.Score})
	}
	return answers, err
}

// drawn draws answers, several at once, each with a seed of its own.
func (g *generating) drawn(ctx context.Context, e *openEngine, r generate.TextRequest) ([]severalAnswer, error) {
	if r.Request.Sampling.Temperature == 0 {
		return nil, g.Usage("add --temperature 0.8, or --beams N", "without a temperature all %d answers are the same", g.several.answers)
	}
	answers, errs := make([]severalAnswer, g.several.answers), make([]error, g.several.answers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	turns := make(chan struct{}, 2*mostSequences)
	var wait sync.WaitGroup
	for i := range answers {
		turns <- struct{}{}
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer func() { <-turns }()
			one := r
			one.Request.Seed = g.Seed + uint64(i)
			result, err := e.writer.Write(ctx, one, nil)
			if err != nil {
				errs[i] = err
				cancel()
				return
			}
			f := writingFacts{TextResult: *result, bounded: bounded(one)}
			answers[i] = severalAnswer{
				Text: result.Text, Tokens: len(result.Tokens), TokenIDs: append([]int{}, result.Tokens...), FinishReason: result.Finish,
				Seed: &one.Request.Seed, Complete: f.complete(),
			}
		}()
	}
	wait.Wait()
	for _, err := range errs { // the first is no cancellation by another
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return answers, cmp.Or(errs...)
}
