package transformers_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// seenRows are the texts of a case, each with the pixels of its pictures.
func seenRows(t *testing.T, in optimem.Values, token int) (prompts [][]int, sources []*generate.Source) {
	t.Helper()
	ids, err := tensor.Slice[int64](in["input_ids"].Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := tensor.Slice[float32](in["pixel_values"].Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, id := range ids {
		if int(id) == token {
			all++
		}
	}
	part := len(pixels) / all
	width := in["input_ids"].Layout.Shape[1]
	for row := range in["input_ids"].Layout.Shape[0] {
		var prompt []int
		n := 0
		for _, id := range ids[row*width:][:width] {
			if prompt = append(prompt, int(id)); int(id) == token {
				n++
			}
		}
		n *= part
		prompts, sources, pixels = append(prompts, prompt), append(sources, &generate.Source{Features: pixels[:n]}), pixels[n:]
	}
	return prompts, sources
}

// filled are the inputs of a case.
func filled(t *testing.T, in map[string]zoo.Filled) optimem.Values {
	t.Helper()
	values := make(optimem.Values)
	for name, f := range in {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values[name] = x
	}
	return values
}

// TestLlavaWrites: texts with pictures are gone on with as transformers does, in every mode, written together or alone,
// whatever rows a pass has; the same pictures are read once.
func TestLlavaWrites(t *testing.T) {
	const token = 7
	for _, r := range recordedOf(t, "llava") {
		model, err := models.Build(r.folder(t), models.Options{Arch: r.Arch})
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range map[string]generate.Options{
			"resident": {Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Speculate: 4, Branches: 2},
			"page":     {Session: optimem.Options{Mode: plan.Page, Threads: 2}, Rows: 7, Speculate: generate.NoSpeculation},
			"chunk":    {Session: optimem.Options{Mode: plan.Chunk, Device: "emu:memory=16MiB", Capacity: plan.Limit{N: 20000, Unit: plan.Params}}},
			"rounded":  {Session: optimem.Options{Mode: plan.Resident, Threads: 1}, KV: tensor.BFloat16},
		} {
			opts.Context, opts.Sequences, opts.Pictures = 128, 2, 2
			e, err := generate.New(t.Context(), model, opts)
			if err != nil {
				t.Fatalf("%s, %s: %v", r.Name, name, err)
			}
			var wait sync.WaitGroup
			for i, lists := range r.Written {
				prompts, sources := seenRows(t, filled(t, r.Reference.Cases[i].Inputs), token)
				for k, want := range lists {
					wait.Go(func() {
						got, err := e.Generate(t.Context(), generate.Request{Prompt: prompts[k], Source: sources[k], MaxTokens: len(want)}, nil)
						if err != nil || name != "rounded" && !slices.Equal(got.Tokens, want) {
							t.Errorf("%s, %s, text %d of case %d: %v, want %v: %v", r.Name, name, k, i, got, want, err)
						}
					})
				}
			}
			wait.Wait()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLlavaPrompts: a prompt has a place for each part of its pictures, or one token for each picture; other prompts and
// pictures are refused. Without pictures the model writes as its text part does. What was read is shared.
func TestLlavaPrompts(t *testing.T) {
	r := named(t, "llava", "clip")
	start := func(arch string, opts generate.Options) *generate.Engine {
		model, err := models.Build(r.folder(t), models.Options{Arch: arch})
		if err != nil {
			t.Fatal(err)
		}
		opts.Context = 128
		e, err := generate.New(t.Context(), model, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	e := start(r.Arch, generate.Options{})
	prompts, sources := seenRows(t, filled(t, r.Reference.Cases[0].Inputs), 7)
	ask := func(e *generate.Engine, prompt []int, s *generate.Source) (*generate.Result, error) {
		return e.Generate(t.Context(), generate.Request{Prompt: prompt, Source: s, MaxTokens: 12}, nil)
	}
	short := slices.Concat(prompts[0][:3], []int{7}, prompts[0][28:])
	if whole := e.WithPlaces(short, sources[0]); !slices.Equal(whole, prompts[0]) {
		t.Errorf("%v becomes %v, want %v", short, whole, prompts[0])
	}
	for again := range 2 {
		got, err := ask(e, prompts[0], sources[0])
		if err != nil || !slices.Equal(got.Tokens, r.Written[0][0]) || got.SharedTokens != 48*again {
			t.Errorf("%+v: %v", got, err)
		}
	}
	if n := e.Stats().Passes; n > 2*13+1 {
		t.Errorf("%d passes: the picture was read again", n)
	}
	two := &generate.Source{Features: slices.Concat(sources[0].Features, sources[0].Features)}
	for name, err := range map[string]error{
		"too few places":    second(ask(e, prompts[0][4:], sources[0])),
		"no place":          second(ask(e, []int{20, 21}, sources[0])),
		"a part of one":     second(ask(e, prompts[0], &generate.Source{Features: sources[0].Features[1:]})),
		"none of a picture": second(ask(e, prompts[0], &generate.Source{})),
		"more than may be":  second(ask(e, slices.Concat(prompts[0], prompts[0]), two)),
		"a text":            second(ask(e, prompts[0], &generate.Source{Tokens: []int{1}})),
	} {
		var refused *generate.RequestError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := []int{20, 7, 21, 22}
	got, err := ask(e, plain, nil)
	want, wrong := ask(start("", generate.Options{}), plain, nil)
	if err != nil || wrong != nil || !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("without a picture %+v: %v; the text part %+v: %v", got, err, want, wrong)
	}
}

func second[T any](_ T, err error) error { return err }

// TestLlavaMemory: what stands for pictures is in the plan, for as many as there may be: 25 places of 48 numbers and a
// key each, in whole blocks.
func TestLlavaMemory(t *testing.T) {
	r := named(t, "llava", "clip")
	model, err := models.Build(r.folder(t), models.Options{Arch: r.Arch})
	if err != nil {
		t.Fatal(err)
	}
	caches := func(pictures int) int64 {
		e, err := generate.New(t.Context(), model, generate.Options{Context: 64, Pictures: pictures})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		writes, err := e.Forecast(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reads, err := e.ForecastSource(t.Context(), 25)
		if err != nil || reads.CacheBytes != writes.CacheBytes {
			t.Errorf("reading plans %d bytes of caches, writing %d: %v", reads.CacheBytes, writes.CacheBytes, err)
		}
		return writes.CacheBytes
	}
	// 25 places are 2 blocks, 75 are 5.
	if one, three := caches(0), caches(3); three-one != (5-2)*16*(48+1)*4 {
		t.Errorf("three pictures take %d bytes, one %d", three, one)
	}
}
