//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/planned"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/text/template"
	"github.com/optimem/optimem/text/tokenizer"
)

const generateLong = `Continue a text, or answer. MODEL is the Hugging Face folder of a language model with its tokenizer, or a GGUF file.
If it has a chat template, PROMPT is a user's message; --raw continues PROMPT itself. An encoder-decoder model (T5, BART,
mBART, Pegasus, Marian) reads PROMPT as its source; for Whisper, and for wav2vec 2.0 and its like (CTC), PROMPT is a WAV
file, or --sound; for BLIP it is a picture, and LLaVA sees those of --image. Without PROMPT, standard input is the prompt. The text is streamed to standard output.

The same seed gives the same text in every mode, budget and number of threads, and beside any other prompts. Keys and
values, and the states of recurrent models, are in the budget. Sampling follows the folder's generation_config.json,
unless flags say otherwise.`

const generateExamples = `  optimem generate ./SmolLM2-135M-Instruct "Why is the sky blue?"
  optimem generate ./Qwen3-4B --memory 2GiB --max-tokens 100 --prompt question.txt
  optimem generate SmolLM2-135M-Instruct.Q4_1.gguf "List three fruits."
  optimem generate ./gpt2 --raw "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 7
  optimem generate ./Qwen3-4B "Describe Oslo." --schema city.json
  optimem generate ./gpt2 --raw "The meaning of life is" --beams 5 -n 3
  optimem generate ./flan-t5-small "translate English to German: The house is small."
  optimem generate ./whisper-tiny speech.wav --language en
  optimem generate ./llava-1.5-7b-hf --image cat.jpg "What is in this picture?"
  optimem generate ./Qwen3-4B --batch prompts.jsonl -o answers.jsonl`

func generateCommand(c *command.Line) *cobra.Command {
	g := generating{writing: writing{Run: running.Run{Line: c}}}
	cmd := &cobra.Command{
		Use:     "generate MODEL [PROMPT] [flags]",
		Short:   "Continue a text, or answer",
		Long:    generateLong,
		Example: generateExamples,
		Args: c.Arguments(func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("no model given")
			case len(args) > 2:
				return fmt.Errorf("%d arguments: the prompt is one, in quotes", len(args))
			}
			return nil
		}),
		RunE: c.Enter(func(cmd *cobra.Command, args []string) error {
			g.Cmd, g.Model, g.args = cmd, args[0], args[1:]
			return g.Place(g.generate(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&g.promptFile, "prompt", "", "read the prompt from a `FILE`, - for standard input")
	flags.BoolVar(&g.raw, "raw", false, "continue the prompt itself, without the chat template")
	flags.StringVar(&g.sound, "sound", "", "transcribe a WAV `FILE`, or features of WhisperFeatureExtractor (.npy)")
	flags.StringVar(&g.language, "language", "", "of a sound: the `CODE` of the language, such as en (default: detected)")
	flags.StringVar(&g.task, "task", "", "of a sound: `transcribe`, or translate into English (default: the folder's)")
	flags.StringVar(&g.batchFile, "batch", "", "answer the prompts of a `FILE` of JSON lines: id, prompt or messages, max_tokens, seed, …")
	flags.StringVarP(&g.output, "output", "o", "", "write the answers of --batch to a `FILE` of JSON lines, in the order of the prompts")
	command.Grouped(flags, command.WritingGroup, "prompt", "raw", "sound", "language", "task", "batch", "output")
	g.writingFlags(cmd)
	g.several.define(cmd)
	g.Stages.Define(cmd)
	g.Stages.DefineDevices(cmd)
	flags.IntVar(&g.logprobs, "logprobs", 0, "with --json: the `K` most likely tokens of each place")
	command.Grouped(flags, command.OutputGroup, "logprobs")
	return cmd
}

// A generating is one run of the command generate.
type generating struct {
	writing
	args       []string
	promptFile string
	raw        bool
	sound      string
	language   string
	task       string
	several    severalFlags
	batchFile  string
	output     string
}

// check looks at the flags alone.
func (g *generating) check() error {
	if err := g.checkWriting(); err != nil {
		return err
	}
	switch {
	case g.batchFile != "" && (len(g.args) > 0 || g.promptFile != ""):
		return g.Usage("", "--batch has the prompts: there is no place for another")
	case g.batchFile != "" && len(g.images) > 0:
		return g.Usage("", "--batch has the prompts: there is no place for an --image")
	case g.sound != "" && (len(g.args) > 0 || g.promptFile != "" || g.batchFile != ""):
		return g.Usage("", "--sound is what the model reads: there is no place for a prompt")
	case g.batchFile == "" && g.output != "":
		return g.Usage("", "-o is for --batch: an answer by itself goes to standard output")
	case len(g.args) > 0 && g.promptFile != "":
		return g.Usage("", "PROMPT and --prompt are both given")
	case g.logprobs > 0 && !g.AsJSON:
		return g.Usage("add --json", "--logprobs is for --json")
	case g.raw && g.system != "":
		return g.Usage("", "--system is part of a conversation, and --raw makes none")
	}
	return g.checkSeveral()
}

func (g *generating) generate(ctx context.Context) (err error) {
	if err := g.check(); err != nil {
		return err
	}
	if letters, err := generate.OpenLetters(g.Model); err != nil {
		return textError(err)
	} else if letters != nil {
		return g.spell(ctx, letters)
	}
	if err := g.settings(); err != nil {
		return err
	}
	if g.batchFile != "" {
		return g.answerFile(ctx)
	}
	if err := cmp.Or(g.look(), g.hear()); err != nil {
		return err
	}
	r, tokens, err := g.read(ctx)
	if err != nil {
		return err
	}
	context := g.context
	if context == 0 {
		context = g.text.Room(tokens, g.maxTokens)
	}
	e, err := g.startMany(ctx, context, min(max(g.several.beams, g.several.answers), mostSequences))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, e.close()) }()
	if err := e.expect(ctx, tokens); err != nil {
		return err
	}
	if n := g.text.Defaults().Beams; n > 1 && !g.several.asked() {
		g.Note("the folder's generation_config.json wants %d beams: --beams %d looks for the most likely text", n, n)
	}
	if g.several.asked() {
		return g.answerSeveral(ctx, e, r, tokens)
	}
	show := func(piece string) error {
		_, err := io.WriteString(g.Stdout, piece)
		return err
	}
	if g.AsJSON {
		show = nil
	}
	facts, err := e.write(ctx, r, show)
	if g.AsJSON {
		if facts == nil {
			return textError(err)
		}
		return cmp.Or(facts.print(g.Stdout, g.text), textError(err))
	}
	if facts != nil && facts.Text != "" && !strings.HasSuffix(facts.Text, "\n") {
		if _, newline := io.WriteString(g.Stdout, "\n"); newline != nil {
			return newline
		}
	}
	if err == nil && !g.Quiet {
		g.Say("done", facts.String())
	}
	return textError(err)
}

// read returns what is asked for and how many tokens it has to read.
func (g *generating) read(ctx context.Context) (generate.TextRequest, int, error) {
	if g.sound != "" {
		r := g.request("", nil)
		r.Language, r.Task = g.language, g.task
		source, err := g.source(ctx)
		r.Request.Source = source
		return r, 0, err
	}
	prompt, err := g.prompt()
	if err != nil {
		return generate.TextRequest{}, 0, err
	}
	r := g.requestOf(prompt, nil)
	tokens, err := g.text.Tokens(r)
	if err != nil {
		return r, 0, textError(err)
	}
	r.Request.Source, err = g.pictures(ctx)
	return r, len(tokens) + g.places(), err
}

// requestOf is a prompt, as a user's message where the model has a chat template.
func (g *generating) requestOf(prompt string, messages []generate.Message) generate.TextRequest {
	if messages == nil && g.text.HasChat() && !g.raw {
		messages, prompt = g.conversation(prompt), ""
	}
	return g.request(prompt, messages)
}

// maxPrompt bounds a prompt that is read.
const maxPrompt = 64 << 20

// prompt returns the text of the arguments, of a file, or of standard input.
func (g *generating) prompt() (string, error) {
	if len(g.args) > 0 {
		return g.args[0], nil
	}
	from := os.Stdin
	if g.promptFile != "" && g.promptFile != "-" {
		f, err := os.Open(g.promptFile)
		if err != nil {
			return "", err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxPrompt+1))
	if err == nil && len(text) > maxPrompt {
		err = fmt.Errorf("a prompt of more than %s", ascii.FormatSize(maxPrompt))
	}
	return string(text), err
}

// An openEngine is a model that writes, with what was opened for it.
type openEngine struct {
	w      *writing
	ckpt   *loader.Checkpoint
	draft  *loader.Checkpoint // nil without --draft
	writer *generate.Writer
	kv     int64
	watch  *writingWatch
	record *running.RoutingRecord
}

// start opens the model and starts an engine with room for sequences of a context; 0 is what the memory admits.
func (w *writing) start(ctx context.Context, context, sequences int) (_ *openEngine, err error) {
	m, err := w.OpenModel(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	longest := m.Model.Context()
	if longest == 0 {
		_, err := m.Model.Steps(models.StepOptions{}) // says why
		return nil, err
	}
	if w.context > longest {
		return nil, w.Usage("", "--context %d: the model was made for %d tokens", w.context, longest)
	}
	if err := w.ListenTop(); err != nil {
		return nil, err
	}
	draftCkpt, draft, err := w.openDraft(ctx, m.Model)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && draftCkpt != nil {
			draftCkpt.Close()
		}
	}()
	opts, watch := w.Options(nil, 0), newWritingWatch(w.Stderr, w.Quiet)
	opts.CachesAway = w.away
	opts.Observe = runtime.TeeObserver(watch.observe, w.ObserveTop())
	record, err := w.RecordRouting(m, &opts, w.routing)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = record.Close()
		}
	}()
	far, err := w.remote(sequences)
	if err != nil {
		return nil, err
	}
	engine, err := w.engine(ctx, m.Model, generate.Options{
		Session: opts, Context: min(context, longest), Sequences: sequences, KV: running.KVType(w.kv, m.Ckpt), Speculate: w.ahead, Branches: w.branches,
		Draft: draft, Remote: far, Pictures: len(w.images), Grammars: w.grammars.bytes(sequences), Grow: true,
	})
	if err != nil {
		return nil, w.StageFailure(err)
	}
	w.TellTop(engine.Session())
	e := &openEngine{w: w, ckpt: m.Ckpt, draft: draftCkpt, writer: generate.NewWriter(w.text, engine), watch: watch, record: record}
	p, err := engine.Forecast(ctx)
	if err != nil {
		return nil, cmp.Or(engine.Close(), err)
	}
	e.kv, watch.weights = planned.CacheBytes(p), p.Fixed.WeightBytes
	w.noteStart(engine, e, p)
	go command.DropGarbage() // while weights are read
	return e, nil
}

// engine starts one, in a session over GPUs where the model cannot go over stages: they compute one after the other then.
func (w *writing) engine(ctx context.Context, model *models.Model, opts generate.Options) (*generate.Engine, error) {
	engine, err := generate.New(ctx, model, opts)
	var unable *models.UnsupportedError
	if opts.Remote != nil && strings.HasPrefix(w.Device, "cuda") && errors.As(err, &unable) {
		opts.Remote, w.staged = nil, nil
		engine, err = generate.New(ctx, model, opts)
	}
	return engine, err
}

// noteStart says what was planned.
func (w *writing) noteStart(engine *generate.Engine, e *openEngine, p *plan.Plan) {
	switch {
	case w.Quiet:
	case w.staged != nil:
		w.noteGuesses(engine)
		w.noteStaged(engine.Context(), e.kv)
	default:
		w.noteGuesses(engine)
		w.Note("a context of %d tokens, %s of keys and values, %s in all", engine.Context(), ascii.FormatSize(e.kv), ascii.FormatSize(p.PeakBytes()))
		if p.CacheSlots > 0 {
			w.Say("note", planned.CachesWait(p, w.WaitFolder()))
		}
		if bytes := engine.DraftBytes(); bytes > 0 {
			w.Note("%s beside that for the model that guesses", ascii.FormatSize(bytes))
		}
		if moved := p.MovedBytes + p.Routed.ExpectedBytes; moved > 0 {
			guess := ""
			if !p.Forecast.Measured {
				guess = running.Guessed
			}
			w.Say("note", fmt.Sprintf("%s are brought for a token, in about %s%s", ascii.FormatSize(moved), running.SecondsText(p.Forecast.Seconds), guess))
		}
	}
}

// A staged is what is expected of a model that is divided over stages.
type staged struct {
	// peaks say what each takes at most.
	peaks []string
	// movedBytes are brought to all of them for a pass, which takes seconds; one ends every interval where all are busy.
	movedBytes        int64
	seconds, interval float64
}

// rate is how many tokens a second so many sequences are expected to get, which share as many passes as are under way at once: one
// more than there are stages.
func (s *staged) rate(sequences int) float64 {
	passes := len(s.peaks) + 1
	each := (sequences + passes - 1) / passes
	if sequences < passes { // each has a pass of its own, and not all stages are busy
		return float64(sequences) / max(s.seconds, float64(sequences)*s.interval)
	}
	return float64(each) / s.interval
}

// noteStaged says how the model is divided and what is expected of that.
func (w *writing) noteStaged(context int, kvBytes int64) {
	s := w.staged
	w.Note("a context of %d tokens, %s of keys and values, %s", context, ascii.FormatSize(kvBytes),
		strings.Join(s.peaks, ", "))
	w.Note("a pass is expected to take %s, and one to end every %s where all are busy; %s are brought for it",
		running.SecondsText(s.seconds),
		running.SecondsText(s.interval), ascii.FormatSize(s.movedBytes))
}

// metrics are those of the engine's sessions together: PeakBytes is the most that was held on one device.
func (e *openEngine) metrics() (sum runtime.Metrics, peaks []int64) {
	for _, m := range e.writer.Engine().Metrics() {
		sum.MovedBytes += m.MovedBytes
		sum.ExpertHits, sum.ExpertReads = sum.ExpertHits+m.ExpertHits, sum.ExpertReads+m.ExpertReads
		sum.PeakBytes = max(sum.PeakBytes, m.PeakBytes)
		peaks = append(peaks, m.PeakBytes)
	}
	return sum, peaks
}

func (e *openEngine) close() error {
	e.w.TellDisks(e.writer.Engine().Session())
	err := cmp.Or(e.record.End(e.writer.Engine().Session()), e.writer.Engine().Close(), e.ckpt.Close())
	if e.draft != nil {
		err = cmp.Or(err, e.draft.Close())
	}
	return e.w.CloseTop(cmp.Or(err, e.w.CloseCode()))
}

// expect says what reading a prompt takes, where it takes more than a pass and weights are brought for each.
func (e *openEngine) expect(ctx context.Context, tokens int) error {
	engine := e.writer.Engine()
	rows := engine.Rows()
	if tokens <= rows || e.w.Quiet {
		return nil
	}
	p, err := engine.ForecastPass(ctx, rows, 1)
	if err == nil && p.MovedBytes+p.Routed.ExpectedBytes > 0 {
		passes := (tokens + rows - 1) / rows
		e.w.Say("note", fmt.Sprintf("the prompt of %d tokens takes %d passes, about %s", tokens, passes, running.SecondsText(float64(passes)*p.Forecast.Seconds)))
	}
	return err
}

// write writes what a request asks for, with what it cost.
func (e *openEngine) write(ctx context.Context, r generate.TextRequest, show func(string) error) (*writingFacts, error) {
	engine := e.writer.Engine()
	defer e.watch.end()
	r.Request.Progress = e.watch.progress
	if text := show; text != nil {
		show = func(piece string) error {
			e.watch.end()
			return text(piece)
		}
	}
	rows := engine.Stats()
	before, _ := e.metrics()
	result, err := e.writer.Write(ctx, r, show)
	if result == nil {
		return nil, err
	}
	all := engine.Stats()
	after, peaks := e.metrics()
	f := &writingFacts{TextResult: *result, KVBytes: e.kv, Peaks: peaks,
		PeakBytes: after.PeakBytes + engine.DraftBytes(), bounded: bounded(r)}
	if len(peaks) == 1 {
		f.Peaks[0] = f.PeakBytes
	}
	f.Moved = after.MovedBytes - before.MovedBytes
	f.ExpertHits, f.ExpertReads = after.ExpertHits-before.ExpertHits, after.ExpertReads-before.ExpertReads
	f.PassRows, f.PassCount = all.Rows-rows.Rows, all.Passes-rows.Passes
	f.Guessed, f.Accepted = all.Guessed-rows.Guessed, all.Accepted-rows.Accepted
	if n := all.Declined - rows.Declined; n > 0 {
		e.w.Note("%d of %d passes guessed nothing: it was expected to cost more time than it saves", n, f.PassCount)
	}
	return f, err
}

// A writingFacts is an answer with what it cost.
type writingFacts struct {
	generate.TextResult
	KVBytes, PeakBytes, Moved int64
	// Peaks are what each device held at most, none where others hold it.
	Peaks                   []int64
	PassRows, PassCount     int64
	Guessed, Accepted       int64
	ExpertHits, ExpertReads int64
	// bounded says that there was a schema or a grammar.
	bounded bool
}

// bounded reports whether a schema or a grammar says what the answer to a request is.
func bounded(r generate.TextRequest) bool { return len(r.Schema) > 0 || r.Grammar != "" }

// complete says whether an answer is what its schema or grammar asks for; nil where there is none.
func (f *writingFacts) complete() *bool {
	if !f.bounded {
		return nil
	}
	complete := !f.Incomplete
	return &complete
}

// perSecond is how many tokens came in a second, from the first on.
func (f *writingFacts) perSecond() float64 {
	if n := len(f.Tokens) - 1; n > 0 && f.Seconds > f.FirstTokenSeconds {
		return float64(n) / (f.Seconds - f.FirstTokenSeconds)
	}
	return 0
}

// peakText says what memory was used at most on each device: nothing over stages, where others hold it.
func peakText(peaks []int64) string {
	var list []string
	for _, bytes := range peaks {
		list = append(list, ascii.FormatSize(bytes))
	}
	if len(list) == 0 {
		return ""
	}
	return ", peak " + strings.Join(list, " and ")
}

// incompleteText is said of an answer that is only the beginning of what it was to be.
const incompleteText = "; it is not yet what the schema or the grammar asks for"

// String is the line that ends a text.
func (f *writingFacts) String() string {
	text := fmt.Sprintf("%s after a prompt of %d, the first in %s", running.Counted(len(f.Tokens), "token"), f.PromptTokens, running.SecondsText(f.FirstTokenSeconds))
	if rate := f.perSecond(); rate > 0 {
		text += ", then " + strconv.FormatFloat(rate, 'f', max(0, 2-int(math.Log10(rate))), 64) + " a second"
	}
	text += peakText(f.Peaks)
	if f.Moved > 0 {
		text += ", moved " + ascii.FormatSize(f.Moved)
	}
	if n := f.ExpertHits + f.ExpertReads; n > 0 {
		text += fmt.Sprintf("; %d of %d experts there", f.ExpertHits, n)
	}
	if f.Accepted > 0 {
		text += fmt.Sprintf("; %d of %d guesses right", f.Accepted, f.Guessed)
	}
	if f.Finish == generate.FinishLength {
		text += "; cut off by --max-tokens or the context"
	}
	if f.Incomplete {
		text += incompleteText
	}
	return text
}

// fill sets the keys of an answer.
func (f *writingFacts) fill(o *jsonout.Object) {
	o.Set("text", f.Text)
	o.Set("prompt_tokens", f.PromptTokens)
	o.Set("tokens", len(f.Tokens))
	o.Set("token_ids", append([]int{}, f.Tokens...))
	o.Set("finish_reason", f.Finish)
	if complete := f.complete(); complete != nil {
		o.Set("complete", *complete)
	}
	o.Set("seconds", f.Seconds)
	o.Set("first_token_seconds", f.FirstTokenSeconds)
	o.Set("tokens_per_second", f.perSecond())
	o.Set("passes", f.Passes)
	o.Set("shared_tokens", f.SharedTokens)
}

// A likelyJSON is a token with how likely it was.
type likelyJSON struct {
	ID      int          `json:"id"`
	Token   string       `json:"token"`
	Logprob float64      `json:"logprob"`
	Top     []likelyJSON `json:"top,omitempty"`
}

// likely are the tokens of an answer and the most likely ones of each place.
func (f *writingFacts) likely(text *generate.Text) iter.Seq[likelyJSON] {
	one := func(id int, logprob float64) likelyJSON {
		name, _ := text.Tokenizer().Token(uint32(id))
		return likelyJSON{ID: id, Token: name, Logprob: logprob}
	}
	return func(yield func(likelyJSON) bool) {
		for _, t := range f.Likely {
			x := one(t.ID, t.Logprob)
			for _, c := range t.Top {
				x.Top = append(x.Top, one(c.ID, c.Logprob))
			}
			if !yield(x) {
				return
			}
		}
	}
}

// print writes the answer as one JSON object.
func (f *writingFacts) print(to io.Writer, text *generate.Text) error {
	o := jsonout.New(to)
	f.fill(o)
	o.Set("rows_per_pass", float64(f.PassRows)/float64(max(f.PassCount, 1)))
	o.Set("guessed_tokens", f.Guessed)
	o.Set("guessed_right", f.Accepted)
	o.Set("accepted_per_pass", float64(len(f.Tokens))/float64(max(f.Passes, 1)))
	o.Set("bytes_moved_per_token", float64(f.Moved)/float64(max(len(f.Tokens), 1)))
	o.Set("peak_device_bytes", f.PeakBytes)
	o.Set("kv_bytes", f.KVBytes)
	o.Set("expert_hits", f.ExpertHits)
	o.Set("expert_reads", f.ExpertReads)
	if f.Likely != nil {
		jsonout.Array(o, "logprobs", f.likely(text))
	}
	return o.Close()
}

// textError gives an error of a tokenizer, a template or a request its exit code.
func textError(err error) error {
	var request *generate.RequestError
	var config *generate.ConfigError
	var chat *template.Error
	var text *tokenizer.TextError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &request), errors.As(err, &text):
		return &command.Failure{Err: err, Code: command.ExitUsage}
	case errors.As(err, &config):
		return &command.Failure{Err: err, Code: command.ExitUnsafe}
	case errors.As(err, &chat):
		return &command.Failure{Err: fmt.Errorf("chat template: %w", err), Code: command.ExitUnsupported, Hints: []string{"--raw does without the template"}}
	case errors.Is(err, generate.ErrNoChat):
		return &command.Failure{Err: err, Code: command.ExitUsage, Hints: []string{"--raw goes on with the prompt itself"}}
	}
	return tokenizeError(err)
}
