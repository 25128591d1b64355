//go:build !files

package running

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/planned"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A stepsFlags is what 'optimem plan' is told of texts that a model is to write: with any of it the model is planned as generate
// and serve run it, token by token.
type stepsFlags struct {
	context, sequences int
	kv                 string
	// trace is a file with routing that is played again.
	trace string
}

// stepsNames are the flags of it.
var stepsNames = []string{"context", "sequences", "kv", "trace"}

func (r *Run) stepsFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&r.steps.context, "context", 0, "plan writing text, with room for `N` tokens (default: what fits)")
	flags.IntVar(&r.steps.sequences, "sequences", 1, "plan writing `N` texts at once")
	flags.StringVar(&r.steps.kv, "kv", "", "plan writing text, with keys and values as a `TYPE`: "+KVNames)
	flags.StringVar(&r.steps.trace, "trace", "", "replay the routing of 'generate --routing' in `FILE`.jsonl: what it would read of experts")
	command.Grouped(flags, command.WritingGroup, stepsNames...)
	_ = cmd.RegisterFlagCompletionFunc("kv", cobra.FixedCompletions(KVList, cobra.ShellCompDirectiveNoFileComp))
}

// stepwise reports whether writing text is what is to be planned.
func (r *Run) stepwise() bool {
	for _, name := range stepsNames {
		if r.Cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// checkSteps looks at the flags alone.
func (r *Run) checkSteps() error {
	if !r.stepwise() {
		return nil
	}
	for _, name := range []string{"input", "shape", "batch", "batch-axis", "preprocess"} {
		if r.Cmd.Flags().Changed(name) {
			return r.Usage("", "--%s is for a run of the whole model, and --context, --sequences and --kv plan writing text", name)
		}
	}
	switch {
	case r.steps.context < 0 || r.steps.context == 0 && r.Cmd.Flags().Changed("context"):
		return r.Usage("", "--context takes a number of tokens, 1 or more")
	case r.steps.sequences < 1 || r.steps.sequences > maxPlanSequences:
		return r.Usage("", "--sequences takes a number of texts, 1 to %d", maxPlanSequences)
	}
	return r.CheckKV(r.steps.kv)
}

// maxPlanSequences bounds --sequences.
const maxPlanSequences = 4096

// A stepsPlan is what writing text takes.
type stepsPlan struct {
	engine    *generate.Engine
	kv        tensor.DType
	sequences int
	// largest is the plan of the largest pass, which says what memory is taken; one writes a token of one text, all one of each.
	largest, one, all *plan.Plan
	// first is one while texts are short and keys and values have not grown, nil where they do not.
	first *plan.Plan
	// source is the plan of reading the longest source, of a model that reads one before it writes; nil of others.
	source *plan.Plan
	// replay is what the trace takes; nil without one.
	replay *replay
}

// planSteps plans writing text.
func (r *Run) planSteps(ctx context.Context) (err error) {
	m, err := r.OpenModel(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	if longest := m.Model.Context(); longest > 0 && r.steps.context > longest {
		return r.Usage("", "--context %d: the model was made for %d tokens", r.steps.context, longest)
	}
	opts := r.Options(nil, 0)
	opts.Once = false
	if _, err = r.RecordRouting(m, &opts, ""); err != nil {
		return err
	}
	s := stepsPlan{kv: KVType(r.steps.kv, m.Ckpt), sequences: r.steps.sequences}
	if s.engine, err = generate.New(ctx, m.Model, generate.Options{
		Session: opts, Context: r.steps.context, Sequences: s.sequences, KV: s.kv,
	}); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, s.engine.Close()) }()
	rows := s.engine.Rows()
	if s.largest, err = s.engine.ForecastPass(ctx, rows, min(s.sequences, rows)); err != nil {
		return err
	}
	if s.one, err = s.engine.Forecast(ctx); err != nil {
		return err
	}
	if s.all, err = s.engine.ForecastPass(ctx, min(s.sequences, rows), min(s.sequences, rows)); err != nil {
		return err
	}
	if s.one.MovedBytes > 0 && s.one.Mode == plan.Auto {
		if s.first, err = s.engine.BeginningPass(ctx, 1, 1); err != nil {
			return err
		}
	}
	if n := s.engine.Source(); n > 0 {
		if s.source, err = s.engine.ForecastSource(ctx, n); err != nil {
			return err
		}
	}
	if r.steps.trace != "" {
		if s.replay, err = replayTrace(r.steps.trace, s.one); err != nil {
			return traceFailure(err)
		}
	}
	if err := r.checkPeak(s.peakBytes()); err != nil {
		return err
	}
	if r.AsJSON {
		return r.stepsJSON(&s)
	}
	at := &openModel{r: r, session: s.engine.Session(), plan: s.largest}
	return r.planText(at, s.largest.MinBytes, func(t *ascii.Table) { r.stepsRows(t, &s) })
}

// peakBytes is what writing takes of the device, and reading what is to be read.
func (s *stepsPlan) peakBytes() int64 {
	if s.source == nil {
		return s.largest.PeakBytes()
	}
	return max(s.largest.PeakBytes(), s.source.PeakBytes())
}

// perSecond is how many tokens come in a second, of all texts.
func (s *stepsPlan) perSecond() float64 {
	return float64(min(s.sequences, s.engine.Rows())) / s.all.Forecast.Seconds
}

// promptPerSecond is how many tokens of a prompt are read in a second.
func (s *stepsPlan) promptPerSecond() float64 {
	return float64(s.engine.Rows()) / s.largest.Forecast.Seconds
}

// keptOfTexts says what is kept of texts: keys and values, of which those in windows and states do not grow with them.
func keptOfTexts(p *plan.Plan, kv string) string {
	g := p.Lowered.Graph
	states, windows := int64(0), int64(0)
	for i := range g.Ops {
		op := &g.Ops[i]
		in, ok := op.Kind.StateOperand()
		windowed := op.Kind == "attend" && g.Values[op.In[6].Value].Name == models.StepWindowBlocks
		for _, c := range p.Caches {
			if ok && in < len(op.In) && c.Value == op.In[in].Value {
				states += c.Bytes
			}
			if windowed && (c.Value == op.In[3].Value || c.Value == op.In[4].Value) {
				windows += c.Bytes
			}
		}
	}
	keys := fmt.Sprintf("keys and values %s as %s", ascii.FormatSize(p.CacheBytes-states), kv)
	if windows > 0 {
		keys += fmt.Sprintf(", %s of them in windows, at any length", ascii.FormatSize(windows))
	}
	switch states {
	case 0:
		return keys
	case p.CacheBytes:
		return "states " + ascii.FormatSize(states) + " at any length"
	}
	return keys + " and states " + ascii.FormatSize(states)
}

// stepsRows says what texts take.
func (r *Run) stepsRows(t *ascii.Table, s *stepsPlan) {
	p := s.one
	t.Row("texts", fmt.Sprintf("%d of %s, their %s", s.sequences, Counted(s.engine.Context(), "token"), keptOfTexts(p, s.kv.String())))
	moved := "nothing"
	expertRows(t, p)
	if s.replay != nil {
		s.replay.rows(t)
	}
	if n := p.MovedBytes + p.Routed.ExpectedBytes; n > 0 {
		moved = ascii.FormatSize(n)
		if read := p.FileBytes(); read < p.MovedBytes {
			moved += ", of " + ascii.FormatSize(read+p.Routed.ExpectedBytes) + " in the file"
		}
		if s.sequences > 1 {
			moved += fmt.Sprintf(", or %s for a token of each text", ascii.FormatSize(s.all.MovedBytes+s.all.Routed.ExpectedBytes))
		}
	}
	if p.PastCache {
		moved += pastCache
	}
	t.Row("moved per token", moved)
	guess := ""
	if !p.Forecast.Measured && r.Device == "cpu" {
		guess = Guessed
	}
	t.Row("a token", fmt.Sprintf("in %s, bound by %s%s", SecondsText(p.Forecast.Seconds), p.Forecast.Bound, guess))
	rate := RateText(1/p.Forecast.Seconds) + " a second"
	if s.sequences > 1 {
		rate = fmt.Sprintf("%s a second of all %d texts, bound by %s; of one %s", RateText(s.perSecond()), s.sequences, s.all.Forecast.Bound, rate)
	}
	t.Row("tokens", rate)
	if f := s.first; f != nil {
		t.Row("while texts are short", planned.CachesBegin(f)+", "+RateText(1/f.Forecast.Seconds)+" tokens a second of one text")
	}
	if s.source != nil {
		t.Row("sources", fmt.Sprintf("%s each, read in %s, %s with that", Counted(s.engine.Source(), "position"),
			SecondsText(s.source.Forecast.Seconds), ascii.FormatSize(s.source.PeakBytes())))
	}
	t.Row("prompts", fmt.Sprintf("%s tokens a second, %d in a pass of %s", RateText(s.promptPerSecond()), s.engine.Rows(),
		SecondsText(s.largest.Forecast.Seconds)))
}

// RateText writes how many of something come in a second, to three digits.
func RateText(rate float64) string {
	return strconv.FormatFloat(rate, 'f', max(0, 2-int(math.Floor(math.Log10(rate)))), 64)
}

func (r *Run) stepsJSON(s *stepsPlan) error {
	p := s.largest
	o := jsonout.New(r.Stdout)
	o.Set("mode", r.Mode)
	o.Set("device", r.Device)
	o.Set("context", s.engine.Context())
	o.Set("sequences", s.sequences)
	o.Set("rows_per_pass", s.engine.Rows())
	jsonout.Array(o, "groups", planned.Groups(p, r.Device))
	o.Set("kv", s.kv.String())
	o.Set("kv_bytes", p.CacheBytes)
	o.Set("peak_device_bytes", s.peakBytes())
	o.Set("peak_host_bytes", p.HostBytes())
	o.Set("activation_bytes", p.ActivationBytes)
	o.Set("bytes_moved_per_pass", s.all.MovedBytes+s.all.Routed.ExpectedBytes)
	o.Set("bytes_moved_per_token", float64(s.all.MovedBytes+s.all.Routed.ExpectedBytes)/float64(min(s.sequences, s.engine.Rows())))
	o.Set("expected_seconds_per_token", s.one.Forecast.Seconds)
	o.Set("expected_tokens_per_second", s.perSecond())
	o.Set("expected_prompt_tokens_per_second", s.promptPerSecond())
	if s.source != nil {
		o.Set("source_positions", s.engine.Source())
		o.Set("expected_source_seconds", s.source.Forecast.Seconds)
		o.Set("bytes_moved_per_source", s.source.MovedBytes)
	}
	if f := s.first; f != nil {
		o.Set("first_kv_bytes", f.CacheBytes)
		o.Set("first_peak_device_bytes", f.PeakBytes())
		o.Set("first_bytes_moved_per_token", f.MovedBytes+f.Routed.ExpectedBytes)
	}
	o.Set("bound", s.all.Forecast.Bound)
	o.Set("measured", s.all.Forecast.Measured)
	least := p.MinBytes
	if s.source != nil {
		least = max(least, s.source.MinBytes)
	}
	o.Set("min_memory_bytes", least)
	setExperts(o, s.one)
	if s.replay != nil {
		s.replay.set(o)
	}
	return o.Close()
}
