package generate_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// deepModel is a tiny model with sixteen layers.
func deepModel(t *testing.T) *models.Model {
	t.Helper()
	dir := t.TempDir()
	if err := fixtures.Deeper(dir, "testdata/chat", 16); err != nil {
		t.Fatal(err)
	}
	return folderModel(t, dir)
}

// growingBudget is one in which some of the deep model's weights stay beside all keys and values of a text, and more do at first.
const growingBudget = 2200 << 10

// growingOptions are those of an engine for one text of a full context.
func growingOptions(grow bool, observe func(runtime.Event)) generate.Options {
	return generate.Options{
		Session: runtime.Options{Memory: growingBudget, Threads: 2, Observe: observe}, Context: 256, Rows: 32, Grow: grow, Speculate: generate.NoSpeculation,
	}
}

// longRequest is one whose text has nearly as many tokens as there is room for.
func longRequest(i int) generate.Request {
	r := generate.Request{MaxTokens: 170, Seed: uint64(i), Sampling: generate.Sampling{Temperature: 0.9}}
	for k := range 60 {
		r.Prompt = append(r.Prompt, (7*k+i)%250)
	}
	return r
}

// TestGrow: the memory of keys and values grows with a text, in a few steps, and weights give way: what is held is what the plan
// of each pass says and never more than the budget, the text is the same bits, and weights that go on staying are not read
// again.
func TestGrow(t *testing.T) {
	if !hostmem.CanResize {
		t.Skip("memory does not grow where it is")
	}
	model := deepModel(t)
	var want []*generate.Result
	for _, grow := range []bool{false, true} {
		var passes []*plan.Plan
		observe := func(e runtime.Event) {
			if e.Kind == runtime.PassDone {
				passes = append(passes, e.Plan)
			}
		}
		e, err := generate.New(t.Context(), model, growingOptions(grow, observe))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			got, err := e.Generate(t.Context(), longRequest(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !grow {
				want = append(want, got)
			} else if !slices.Equal(got.Tokens, want[i].Tokens) {
				t.Errorf("text %d: %v, want %v", i, got.Tokens, want[i].Tokens)
			}
		}
		m, stats := e.Session().Metrics(), e.Stats()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		checkGrowth(t, grow, passes, m, stats)
	}
}

// checkGrowth looks at the plans of passes.
func checkGrowth(t *testing.T, grow bool, passes []*plan.Plan, m runtime.Metrics, stats generate.Stats) {
	t.Helper()
	var steps, fewer, again, anew, most int64
	first, last := passes[0], passes[len(passes)-1]
	for _, p := range passes {
		most = max(most, p.CacheBytes)
	}
	for i, p := range passes {
		if p.PeakBytes() > growingBudget {
			t.Errorf("pass %d takes %d bytes of %d", i, p.PeakBytes(), growingBudget)
		}
		if i == 0 {
			continue
		}
		before := passes[i-1]
		if more := p.CacheBytes - before.CacheBytes; more < 0 {
			fewer++
		} else if more > 0 {
			keep := p.Keeps(before)
			again, anew = again+keep.MissingBytes, anew+p.Fixed.WeightBytes
			if steps++; more > most/2 {
				t.Errorf("pass %d: they grow by %d bytes of %d at once", i, more, most)
			}
		}
	}
	if m.PeakBytes > growingBudget || m.CacheBytes != last.CacheBytes {
		t.Errorf("%d bytes were held, %d of keys and values at last: %d of %d are planned", m.PeakBytes, m.CacheBytes, last.CacheBytes, growingBudget)
	}
	if steps != stats.Grown || fewer != stats.Shrunk || grow != (steps > 1) || steps > 8*(fewer+1) {
		t.Errorf("grows: %v, and there were %d steps, %d counted; %d back, %d counted", grow, steps, stats.Grown, fewer, stats.Shrunk)
	}
	if grow && (first.Fixed.WeightBytes <= last.Fixed.WeightBytes || m.KeptBytes == 0) {
		t.Errorf("%d bytes of weights stay at first, %d at last; %d stayed from plan to plan", first.Fixed.WeightBytes, last.Fixed.WeightBytes, m.KeptBytes)
	}
	if again > anew/2 {
		t.Errorf("of %d bytes that stay after steps %d are read for them", anew, again)
	}
}

// TestGrowIsForeseen: passes wait for as many plans as where keys and values do not grow, those of their shapes: what a step wants
// was planned before.
func TestGrowIsForeseen(t *testing.T) {
	if !hostmem.CanResize {
		t.Skip("memory does not grow where it is")
	}
	model := deepModel(t)
	var waited [2]int64
	for i := range waited {
		e, err := generate.New(t.Context(), model, growingOptions(i == 1, nil))
		if err != nil {
			t.Fatal(err)
		}
		for k := range 2 {
			if _, err := e.Generate(t.Context(), longRequest(k), nil); err != nil {
				t.Fatal(err)
			}
		}
		if waited[i] = e.Session().Metrics().PassPlans; (e.Stats().Grown > 2) != (i == 1) {
			t.Errorf("%d steps", e.Stats().Grown)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if waited[0] != waited[1] {
		t.Errorf("passes waited for %d plans, and for %d where nothing grows", waited[1], waited[0])
	}
}

// TestGrowShrinks: when texts are short again, weights get memory of keys and values back, within the budget at every pass, and
// what is written is the same bits before and after.
func TestGrowShrinks(t *testing.T) {
	if !hostmem.CanResize {
		t.Skip("memory does not grow where it is")
	}
	model := deepModel(t)
	short := func(i int) generate.Request {
		r := longRequest(i)
		r.Prompt, r.MaxTokens = r.Prompt[:5], 20
		return r
	}
	requests := []generate.Request{longRequest(0)}
	for i := range 6 {
		requests = append(requests, short(i))
	}
	requests = append(requests, longRequest(1))
	var want [][]int
	for _, grow := range []bool{false, true} {
		var passes []*plan.Plan
		e, err := generate.New(t.Context(), model, growingOptions(grow, func(event runtime.Event) {
			if event.Kind == runtime.PassDone {
				passes = append(passes, event.Plan)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		least, after := int64(1<<62), int64(0)
		for i, r := range requests {
			got, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !grow {
				want = append(want, got.Tokens)
			} else if !slices.Equal(got.Tokens, want[i]) {
				t.Errorf("text %d: %v, want %v", i, got.Tokens, want[i])
			}
			m, last := e.Session().Metrics(), passes[len(passes)-1]
			if held := m.CacheBytes; held != last.CacheBytes || m.WeightBytes != last.Fixed.WeightBytes {
				t.Errorf("after text %d keys and values hold %d bytes and weights %d, planned are %d and %d", i, held, m.WeightBytes, last.CacheBytes, last.Fixed.WeightBytes)
			}
			if i == 0 {
				after = last.Fixed.WeightBytes
			}
			least = min(least, last.CacheBytes)
		}
		stats, m := e.Stats(), e.Session().Metrics()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if m.PeakBytes > growingBudget {
			t.Errorf("%d bytes were held of %d", m.PeakBytes, growingBudget)
		}
		if !grow {
			continue
		}
		short := passes[len(passes)-180] // the last text has 170 tokens
		if stats.Shrunk == 0 || short.CacheBytes != least || short.Fixed.WeightBytes <= after {
			t.Errorf("keys and values shrank %d times, to %d bytes; %d of weights stayed then, and %d when the text was long", stats.Shrunk, short.CacheBytes, short.Fixed.WeightBytes, after)
		}
	}
}

// TestGrowTogether: texts that are written together get the blocks that they were promised, whatever others take, with guesses and
// branches too.
func TestGrowTogether(t *testing.T) {
	model := deepModel(t)
	var want [8][]int
	for i, o := range []generate.Options{
		{Speculate: generate.NoSpeculation}, {Grow: true}, {Grow: true, Speculate: 4, Branches: 3},
	} {
		o.Session = runtime.Options{Memory: 4 * growingBudget, Threads: 2}
		o.Context, o.Rows, o.Sequences = 256, 32, 4
		e, err := generate.New(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for k := range want {
			wait.Go(func() {
				got, err := e.Generate(t.Context(), longRequest(k), nil)
				switch {
				case err != nil:
					t.Error(err)
				case i == 0:
					want[k] = got.Tokens
				case !slices.Equal(got.Tokens, want[k]):
					t.Errorf("options %d, text %d: %v, want %v", i, k, got.Tokens, want[k])
				}
			})
		}
		wait.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGrowRestores: keys and values that were saved have a place in an engine where they were not to be yet.
func TestGrowRestores(t *testing.T) {
	model := deepModel(t)
	r := longRequest(1)
	r.Sampling = generate.Sampling{}
	var saved bytes.Buffer
	var want string
	for i := range 2 {
		e, err := generate.New(t.Context(), model, growingOptions(i == 1, nil))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := e.Restore(t.Context(), &saved); err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_, err = e.Save(t.Context(), &saved, generate.Request{Prompt: slices.Concat(r.Prompt, got.Tokens)})
			r.Prompt, r.MaxTokens = slices.Concat(r.Prompt, got.Tokens[:150]), 20
		}
		if text := fmt.Sprint(got.Tokens[len(got.Tokens)-20:]); i == 0 {
			want = text
		} else if text != want || got.SharedTokens < 200 {
			t.Errorf("%s, want %s; %d tokens were there", text, want, got.SharedTokens)
		}
		if err = errors.Join(err, e.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
