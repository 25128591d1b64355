//go:build !files

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
)

// A writing is one run of a command that writes text.
type writing struct {
	running.Run
	system    string
	maxTokens int
	context   int
	kv        string
	speculate string
	draft     string
	routing   string
	ahead     int // what speculate says, as [generate.Options.Speculate]
	branches  int
	away      bool // says that keys and values wait away
	// staged is how the model is divided over stages, nil where it is not.
	staged *staged
	stops  []string
	// images are files of pictures that the model sees before the prompt, or the first message.
	images   []string
	logprobs int
	// schemaFile and grammarFile are files that say what an answer is; schema and grammar are what they hold.
	schemaFile, grammarFile string
	schema, grammar         string
	grammars                grammarMemory

	temperature, topP, minP, repetition, presence, frequency float64
	topK                                                     int

	text     *generate.Text
	sampling generate.Sampling
}

// writingPrecisions are those of [precisions] in which a row's bits do not depend on how many rows there are, the
// default first.
var writingPrecisions = []string{"fp32", "bf16", "int8"}

// writingFlags defines the flags of all commands that write.
func (w *writing) writingFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	w.Runs = 1
	w.precisionFlag(cmd)
	flags.StringVar(&w.system, "system", "", "begin the conversation with this `TEXT` of the system's")
	flags.IntVar(&w.maxTokens, "max-tokens", 0, fmt.Sprintf("write `N` tokens at most (default: as the folder says, else %d)", generate.DefaultTokens))
	flags.StringArrayVar(&w.images, "image", nil, "show the model a picture, a `FILE`, before what is said first (repeatable)")
	flags.StringArrayVar(&w.stops, "stop", nil, "end before this `TEXT` (repeatable)")
	flags.StringVar(&w.schemaFile, "schema", "", "write JSON that fits the JSON schema in a `FILE`")
	flags.StringVar(&w.grammarFile, "grammar", "", "write what follows the grammar in a `FILE` of GBNF")
	flags.IntVar(&w.context, "context", 0, "room for `N` tokens, prompt and answer (default: what the model and the memory admit)")
	flags.StringVar(&w.kv, "kv", "", "keep keys and values as `TYPE`: "+running.KVNames+" (lossy; default: as the weights)")
	flags.StringVar(&w.speculate, "speculate", "auto", "guess up to `N` tokens ahead, which changes no text; auto, ngram, off")
	flags.IntVar(&w.branches, "branches", 1, "verify up to `N` guesses of what follows in a pass, which changes no text")
	flags.StringVar(&w.draft, "draft", "", "guess with a smaller `MODEL` of the same vocabulary, or an EAGLE head")
	flags.StringVar(&w.routing, "routing", "", "write which experts rows went to, a line a layer and pass, to `FILE`.jsonl: for 'plan --trace'")
	command.Grouped(flags, command.MeasureGroup, "routing")
	command.Grouped(flags, command.WritingGroup, "system", "image", "max-tokens", "stop", "schema", "grammar", "context", "kv", "speculate", "branches", "draft")

	w.samplingFlags(cmd)
	w.SessionFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("kv", cobra.FixedCompletions(running.KVList, cobra.ShellCompDirectiveNoFileComp))
}

// samplingFlags defines the flags of how tokens are chosen.
func (w *writing) samplingFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&w.temperature, "temperature", 0, "draw tokens at temperature `X`; 0 takes the most likely (default: as the folder says, else 0)")
	flags.IntVar(&w.topK, "top-k", 0, "draw from the `K` most likely tokens")
	flags.Float64Var(&w.topP, "top-p", 0, "draw from the most likely tokens that have the probability `P` together")
	flags.Float64Var(&w.minP, "min-p", 0, "draw from tokens with `P` times the probability of the most likely one")
	flags.Float64Var(&w.repetition, "repetition-penalty", 0, "make tokens of the text so far less likely by a factor `X`")
	flags.Float64Var(&w.presence, "presence-penalty", 0, "subtract `X` from the logits of tokens that were written")
	flags.Float64Var(&w.frequency, "frequency-penalty", 0, "subtract `X` as often as they were written")
	flags.Uint64Var(&w.Seed, "seed", 0, "seed of what is drawn, a number `N`")
	command.Grouped(flags, command.SamplingGroup, "temperature", "top-k", "top-p", "min-p", "repetition-penalty", "presence-penalty",
		"frequency-penalty", "seed")
}

// checkPrecision refuses a precision that products of models that write do not have.
func (w *writing) checkPrecision() error {
	if !slices.Contains(writingPrecisions, w.Precision) {
		return w.Usage("there is: "+strings.Join(writingPrecisions, ", "), "unknown precision %q", w.Precision)
	}
	return nil
}

// precisionFlag defines the flag of what products round.
func (w *writing) precisionFlag(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.Precision, "precision", writingPrecisions[0],
		"round factors of products to a `PRECISION`: fp32, none; bf16; int8, inputs alone, where weights are blocks of integers")
	command.Grouped(flags, command.DeviceGroup, "precision")
	_ = cmd.RegisterFlagCompletionFunc("precision", cobra.FixedCompletions(writingPrecisions, cobra.ShellCompDirectiveNoFileComp))
}

// checkWriting looks at the flags alone.
func (w *writing) checkWriting() error {
	changed := w.Cmd.Flags().Changed
	for name, n := range map[string]int{"max-tokens": w.maxTokens, "context": w.context, "top-k": w.topK} {
		if n < 0 || changed(name) && n == 0 && name != "top-k" {
			return w.Usage("", "--%s takes a number of tokens, 1 or more", name)
		}
	}
	for name, x := range map[string]float64{"top-p": w.topP, "min-p": w.minP} {
		if !(x >= 0 && x <= 1) {
			return w.Usage("", "--%s takes a probability, 0 to 1", name)
		}
	}
	for name, x := range map[string]float64{"temperature": w.temperature, "repetition-penalty": w.repetition} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return w.Usage("", "--%s takes a number that is not negative", name)
		}
	}
	if err := w.checkPrecision(); err != nil {
		return err
	}
	if err := w.CheckKV(w.kv); err != nil {
		return err
	}
	if err := w.checkSpeculate(); err != nil {
		return err
	}
	if slices.Contains(w.stops, "") {
		return w.Usage("", "--stop takes a text that is not empty")
	}
	if w.schemaFile != "" && w.grammarFile != "" {
		return w.Usage("", "--schema and --grammar are both given")
	}
	return w.CheckFlags()
}

// checkSpeculate reads --speculate and --branches.
func (w *writing) checkSpeculate() error {
	if w.branches < 1 || w.branches > generate.MostBranches {
		return w.Usage("", "--branches takes a number of guesses, 1 to %d", generate.MostBranches)
	}
	switch w.speculate {
	case "auto":
		return nil
	case "off":
		w.ahead = generate.NoSpeculation
		return nil
	case "ngram":
		w.ahead = guessedAhead
		return nil
	}
	n, err := strconv.Atoi(w.speculate)
	if err != nil || n < 1 || n > generate.MostSpeculation {
		return w.Usage("", "--speculate takes auto, ngram, off, or a number of tokens, 1 to %d", generate.MostSpeculation)
	}
	w.ahead = n
	return nil
}

// guessedAhead is how many tokens --speculate ngram guesses.
const guessedAhead = 7

// readGrammar reads what --schema or --grammar names and looks whether it can be followed.
func (w *writing) readGrammar() error {
	for path, to := range map[string]*string{w.schemaFile: &w.schema, w.grammarFile: &w.grammar} {
		if path == "" {
			continue
		}
		if err := w.readGrammarFile(path, to); err != nil {
			return err
		}
		if err := w.grammars.add(w.text, w.request("", nil)); err != nil {
			return w.Usage("docs/text.md says what schemas and grammars may have", "%s: %s", path, grammarText(err))
		}
	}
	return nil
}

// A grammarMemory is what the schemas and grammars of requests take.
type grammarMemory struct {
	shared, largest int64
	distinct        map[string]bool
}

// add parses that of a request, which has one, to count it.
func (m *grammarMemory) add(text *generate.Text, r generate.TextRequest) error {
	shared, own, err := text.GrammarBytes(r)
	if err != nil {
		return err
	}
	if m.distinct == nil {
		m.distinct = make(map[string]bool)
	}
	m.shared, m.largest = shared, max(m.largest, own)
	m.distinct[string(r.Schema)+"\x00"+r.Grammar] = true
	return nil
}

// bytes is what they take where so many texts are written at once.
func (m *grammarMemory) bytes(sequences int) int64 {
	return m.shared + m.largest*int64(min(len(m.distinct), max(sequences, 1)+generate.KeptGrammars))
}

// readGrammarFile reads a schema or a grammar.
func (w *writing) readGrammarFile(path string, to *string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxGrammar+1))
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	switch {
	case len(text) > maxGrammar:
		return w.Usage("", "%s has more than %s", path, ascii.FormatSize(maxGrammar))
	case len(bytes.TrimSpace(text)) == 0:
		return w.Usage("", "%s is empty", path)
	}
	*to = string(text)
	return nil
}

// maxGrammar bounds a schema or a grammar.
const maxGrammar = 1 << 20

// grammarText is what is wrong with a schema or a grammar, without the name of the request's field.
func grammarText(err error) string {
	var request *generate.RequestError
	if errors.As(err, &request) {
		return request.Msg
	}
	return err.Error()
}

// settings reads the folder's, which hold where no flag says otherwise.
func (w *writing) settings() error {
	var err error
	w.text, err = generate.OpenText(w.Model)
	if errors.Is(err, generate.ErrNoText) {
		return command.UsageError(w.Cmd, err)
	}
	if err != nil {
		return textError(err)
	}
	d := w.text.Defaults()
	w.sampling = d.Sampling
	if w.maxTokens == 0 {
		w.maxTokens = d.MaxTokens
	}
	if w.maxTokens == 0 {
		w.maxTokens = generate.DefaultTokens
	}
	w.override(&w.sampling)
	return w.readGrammar()
}

// override sets what flags say of how tokens are chosen.
func (w *writing) override(s *generate.Sampling) {
	for name, set := range map[string]func(){
		"temperature":        func() { s.Temperature = w.temperature },
		"top-k":              func() { s.TopK = w.topK },
		"top-p":              func() { s.TopP = w.topP },
		"min-p":              func() { s.MinP = w.minP },
		"repetition-penalty": func() { s.RepetitionPenalty = w.repetition },
		"presence-penalty":   func() { s.PresencePenalty = w.presence },
		"frequency-penalty":  func() { s.FrequencyPenalty = w.frequency },
	} {
		if w.Cmd.Flags().Changed(name) {
			set()
		}
	}
}

// request is what the flags ask to be written.
func (w *writing) request(prompt string, messages []generate.Message) generate.TextRequest {
	return generate.TextRequest{
		Prompt: prompt, Messages: messages, Stop: w.stops, Schema: json.RawMessage(w.schema), Grammar: w.grammar,
		Request: generate.Request{MaxTokens: w.maxTokens, Sampling: w.sampling, Seed: w.Seed, Logprobs: w.logprobs, Adapter: w.Adapter},
	}
}

// conversation is the beginning of one with a user's message.
func (w *writing) conversation(content string) []generate.Message {
	var list []generate.Message
	if w.system != "" {
		list = append(list, generate.Message{Role: "system", Content: w.system})
	}
	return append(list, generate.Message{Role: "user", Content: content, Pictures: len(w.images)})
}

// words makes a text one line that is not too long.
func words(text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if r := []rune(line); len(r) > 60 {
		line = string(r[:60]) + "…"
	}
	return line
}
