package generate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// longEngine is an engine of the chat model, whose context has room for many blocks.
func longEngine(t testing.TB, folder string, opts generate.Options) *generate.Engine {
	t.Helper()
	e, err := generate.New(t.Context(), folderModel(t, folder), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// drawn is a prompt of so many tokens.
func drawn(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 3))
	list := make([]int, n)
	for i := range list {
		list[i] = 3 + rng.IntN(400)
	}
	return list
}

// savedOf writes a text with an engine and returns its keys and values.
func savedOf(t *testing.T, e *generate.Engine, prompt []int, tokens int) (all []int, saved []byte) {
	t.Helper()
	got, err := e.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: tokens}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all = append(slices.Clone(prompt), got.Tokens...)
	var file bytes.Buffer
	n, err := e.Save(t.Context(), &file, generate.Request{Prompt: all})
	if err != nil {
		t.Fatal(err)
	}
	// The last token was never read.
	if want := (len(all) - 1) / 16 * 16; n != want {
		t.Fatalf("saved %d tokens of %d, want %d", n, len(all), want)
	}
	return all, file.Bytes()
}

// TestSaved: a text goes on from a file as it does without, with the same bits, whatever mode, budget, context and rows the engines
// have; what was restored is not read again.
func TestSaved(t *testing.T) {
	for _, kv := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Int8} {
		first := longEngine(t, chatFolder, generate.Options{KV: kv, Context: 200})
		all, saved := savedOf(t, first, drawn(70, 1), 20)
		r := generate.Request{
			Prompt: append(slices.Clone(all), drawn(9, 2)...), MaxTokens: 30, Seed: 5, Logprobs: 3,
			Sampling: generate.Sampling{Temperature: 2},
		}
		want, err := first.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range map[string]generate.Options{
			"same":      {Context: 200},
			"page":      {Session: runtime.Options{Mode: plan.Page, Threads: 1}, Context: 180, Sequences: 3, Rows: 5},
			"chunk":     {Session: runtime.Options{Mode: plan.Chunk, Capacity: plan.Limit{N: 30000}}},
			"emulated":  {Session: runtime.Options{Device: "emu:memory=64MiB"}, Sequences: 2},
			"two sides": {Session: runtime.Options{Device: "emu:memory=64MiB", Mode: plan.Chunk, Capacity: plan.Limit{N: 30000}}},
		} {
			opts.KV = kv
			e := longEngine(t, chatFolder, opts)
			got, err := e.Restore(t.Context(), iotest.HalfReader(bytes.NewReader(saved)))
			if err != nil || !slices.Equal(got, all[:80]) {
				t.Fatalf("%s: restored %v: %v", name, got, err)
			}
			if strings.Contains(name, "emulated") {
				if err := e.Session().GiveBack(t.Context(), runtime.Everything); err != nil {
					t.Fatal(err)
				}
			}
			var again bytes.Buffer
			if n, err := e.Save(t.Context(), &again, generate.Request{Prompt: all}); err != nil || n != 80 || !bytes.Equal(again.Bytes(), saved) {
				t.Errorf("%s: what was restored is saved otherwise, %d tokens: %v", name, n, err)
			}
			after, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(after.Tokens, want.Tokens) || after.SharedTokens != 80 || fmt.Sprint(after.Likely) != fmt.Sprint(want.Likely) {
				t.Errorf("%s, %v: %v, want %v; %d tokens were there", name, kv, after.Tokens, want.Tokens, after.SharedTokens)
			}
			// What is there already is not written again.
			if got, err = e.Restore(t.Context(), bytes.NewReader(saved)); err != nil || len(got) != 80 {
				t.Errorf("%s: again: %v: %v", name, got, err)
			}
		}
	}
}

// TestSavedOfOthers: what another model, another way of computing or another dtype made is told from what is broken, and neither
// leaves anything behind.
func TestSavedOfOthers(t *testing.T) {
	e := longEngine(t, chatFolder, generate.Options{})
	all, saved := savedOf(t, e, drawn(40, 1), 5)
	fails := func(e *generate.Engine, name string, file []byte, other bool) {
		t.Helper()
		var bad *generate.SavedError
		got, err := e.Restore(t.Context(), bytes.NewReader(file))
		if !errors.As(err, &bad) || bad.Other != other || got != nil {
			t.Errorf("%s: %v: %v", name, got, err)
		}
		var none bytes.Buffer
		if n, err := e.Save(t.Context(), &none, generate.Request{Prompt: all}); err != nil || n != 0 {
			t.Errorf("%s: %d tokens are there after it: %v", name, n, err)
		}
	}
	fresh := longEngine(t, chatFolder, generate.Options{})
	for at := 0; at < len(saved); at += 1 + at/3 {
		broken := slices.Clone(saved)
		broken[at] ^= 4
		var bad *generate.SavedError
		if _, err := fresh.Restore(t.Context(), bytes.NewReader(broken)); !errors.As(err, &bad) {
			t.Fatalf("byte %d of %d changed: %v", at, len(saved), err)
		}
		if _, err := fresh.Restore(t.Context(), bytes.NewReader(saved[:at])); !errors.As(err, &bad) || bad.Other {
			t.Fatalf("cut off at byte %d: %v", at, err)
		}
	}
	last := slices.Clone(saved)
	last[len(last)-40] ^= 1
	fails(fresh, "a value that changed", last, false)
	fails(fresh, "no file of the kind", []byte("PK\x03\x04 and so on, for as long as it takes"), false)
	long := append([]byte("optimem keys and values, 1\n"), binary.LittleEndian.AppendUint32(nil, 1<<31)...)
	fails(fresh, "a long header", long, false)
	fails(fresh, "a header that is not there", append(long[:len(long)-4], 0, 0, 200, 0, '{'), false)
	fails(longEngine(t, chatFolder, generate.Options{KV: tensor.Float16}), "another dtype", saved, true)
	fails(longEngine(t, chatFolder, generate.Options{Session: runtime.Options{Exact: true}}), "another way to compute", saved, true)

	// An adapter that is not here, in a file that is whole.
	const head = len("optimem keys and values, 1\n")
	body := saved[head+4 : len(saved)-sha256.Size]
	size := binary.LittleEndian.Uint32(saved[head:])
	header := append(bytes.TrimSuffix(bytes.Clone(body[:size]), []byte("}")), `,"adapter":"legal"}`...)
	adapted := binary.LittleEndian.AppendUint32(bytes.Clone(saved[:head]), uint32(len(header)))
	adapted = append(append(adapted, header...), body[size:]...)
	sum := sha256.Sum256(adapted)
	fails(fresh, "another adapter", append(adapted, sum[:]...), true)
	if _, err := fresh.Save(t.Context(), io.Discard, generate.Request{Prompt: all, Adapter: "legal"}); err == nil {
		t.Error("saved for an adapter that is not here")
	}

	// Another model: one weight differs.
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(chatFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "model.safetensors" {
			for i := range 2000 {
				text[len(text)-20000+i] ^= 1
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fails(longEngine(t, dir, generate.Options{}), "another weight", saved, true)

	broken := errors.New("the disk is gone")
	if _, err := fresh.Restore(t.Context(), iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(saved)))); err == nil {
		t.Error("a reader failed, and the file was taken")
	}
	if _, err := e.Save(t.Context(), writerFunc(func([]byte) (int, error) { return 0, broken }), generate.Request{Prompt: all}); !errors.Is(err, broken) {
		t.Errorf("a writer failed: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSavedRoom: of what does not fit the beginning is restored; blocks of a request in flight are not touched; a file without a
// block is one.
func TestSavedRoom(t *testing.T) {
	first := longEngine(t, chatFolder, generate.Options{Context: 200})
	all, saved := savedOf(t, first, drawn(120, 1), 5)
	small := longEngine(t, chatFolder, generate.Options{Context: 64})
	got, err := small.Restore(t.Context(), bytes.NewReader(saved))
	if err != nil || !slices.Equal(got, all[:64]) {
		t.Fatalf("restored %d tokens: %v", len(got), err)
	}
	r := generate.Request{Prompt: all[:50], MaxTokens: 10}
	want, err := first.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := small.Generate(t.Context(), r, nil)
	if err != nil || !slices.Equal(after.Tokens, want.Tokens) || after.SharedTokens != 48 {
		t.Errorf("%+v, want %v: %v", after, want.Tokens, err)
	}
	var none bytes.Buffer
	if n, err := first.Save(t.Context(), &none, generate.Request{Prompt: drawn(40, 9)}); err != nil || n != 0 {
		t.Errorf("saved %d tokens: %v", n, err)
	}
	if got, err = small.Restore(t.Context(), &none); err != nil || len(got) != 0 {
		t.Errorf("restored %d tokens: %v", len(got), err)
	}
}

// TestSavedAtWork: saving and restoring beside requests changes none of them, and blocks are neither lost nor shared by mistake.
func TestSavedAtWork(t *testing.T) {
	alone := longEngine(t, chatFolder, generate.Options{Context: 128})
	var want [8][]int
	var saved [8][]byte
	for i := range want {
		_, saved[i] = savedOf(t, alone, drawn(60, uint64(i%4)), 4)
		got, err := alone.Generate(t.Context(), generate.Request{Prompt: drawn(60, uint64(i)), MaxTokens: 20}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	e := longEngine(t, chatFolder, generate.Options{Context: 128, Sequences: 2, Rows: 8})
	var wait sync.WaitGroup
	for i := range want {
		wait.Add(2)
		go func() {
			defer wait.Done()
			got, err := e.Generate(t.Context(), generate.Request{Prompt: drawn(60, uint64(i)), MaxTokens: 20}, nil)
			if err != nil || !slices.Equal(got.Tokens, want[i]) {
				t.Errorf("request %d: %+v, want %v: %v", i, got, want[i], err)
			}
		}()
		go func() {
			defer wait.Done()
			if _, err := e.Restore(t.Context(), bytes.NewReader(saved[i])); err != nil {
				t.Errorf("restoring %d: %v", i, err)
			}
			if _, err := e.Save(t.Context(), io.Discard, generate.Request{Prompt: drawn(60, uint64(i))}); err != nil {
				t.Errorf("saving %d: %v", i, err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := e.Restore(gone, bytes.NewReader(saved[i])); !errors.Is(err, context.Canceled) {
				t.Errorf("of a caller who went away: %v", err)
			}
		}()
	}
	wait.Wait()
	// All blocks can be had: the longest text there is room for, twice at once.
	for range 2 {
		if _, err := e.Generate(t.Context(), generate.Request{Prompt: drawn(100, 77), MaxTokens: 28}, nil); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Restore(t.Context(), bytes.NewReader(saved[0])); !errors.Is(err, generate.ErrClosed) {
		t.Errorf("of a closed engine: %v", err)
	}
}
