package generate_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// otherModel is the tiny model with every so many weights turned round.
func otherModel(t *testing.T, every int) *models.Model {
	t.Helper()
	folder := t.TempDir()
	files, err := os.ReadDir(tiny)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(tiny, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name(), ".safetensors") {
			begin := 8 + int(binary.LittleEndian.Uint64(data))
			for i := begin + 3; i < len(data); i += 4 * every {
				data[i] ^= 0x80 // the sign of a float32
			}
		}
		if err := os.WriteFile(filepath.Join(folder, f.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folderModel(t, folder)
}

// TestDraft: a second model's guesses change no text, whatever they are; a model guesses what itself would choose, at any
// temperature.
func TestDraft(t *testing.T) {
	const requests = 30
	var want [requests][]int
	plain := engine(t, generate.Options{Speculate: generate.NoSpeculation})
	for i := range want {
		got, err := plain.Generate(t.Context(), request(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	same, near, far := tinyModel(t), otherModel(t, 501), otherModel(t, 2)
	for name, opts := range map[string]generate.Options{
		"the same":  {Draft: same, Speculate: 4},
		"near":      {Draft: near, Speculate: 4},
		"far":       {Draft: far, Speculate: 3, Session: runtime.Options{Mode: plan.Page}},
		"auto":      {Draft: near},
		"together":  {Draft: near, Speculate: 2, Sequences: 5},
		"few rows":  {Draft: near, Speculate: 4, Rows: 4},
		"emulated":  {Draft: near, Speculate: 4, Session: runtime.Options{Device: "emu:memory=64MiB,bandwidth=12GB/s"}},
		"none, off": {Draft: near, Speculate: generate.NoSpeculation},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, opts)
			var group sync.WaitGroup
			for i := range requests {
				each := func() {
					got, err := e.Generate(t.Context(), request(i), nil)
					if err != nil || !slices.Equal(got.Tokens, want[i]) {
						t.Errorf("request %d: %v, want %v: %v", i, got.Tokens, want[i], err)
					}
				}
				if opts.Sequences < 2 {
					each()
				} else {
					group.Go(each)
				}
			}
			group.Wait()
			s := e.Stats()
			switch name {
			case "the same":
				if s.Guessed < 100 || s.Accepted < s.Guessed*95/100 {
					t.Errorf("%d of %d guesses were right", s.Accepted, s.Guessed)
				}
			case "near", "together":
				if s.Accepted == 0 || s.Accepted >= s.Guessed {
					t.Errorf("%d of %d guesses were right: some are, and some are not", s.Accepted, s.Guessed)
				}
			case "none, off":
				if s.Guessed > 0 {
					t.Errorf("%d guesses", s.Guessed)
				}
			}
		})
	}
}

// TestDraftBudget: what the second model takes is part of the budget, and what cannot guess is refused.
func TestDraftBudget(t *testing.T) {
	opts := generate.Options{Draft: tinyModel(t), Context: 32, Rows: 4, Session: runtime.Options{Memory: 1 << 20}}
	e := engine(t, opts)
	budget, _ := e.Session().Budget()
	if budget >= 1<<20 || budget < 1<<19 {
		t.Errorf("%d bytes are left of %d", budget, 1<<20)
	}
	opts.Session.Memory = 1 << 14
	_, err := generate.New(t.Context(), tinyModel(t), opts)
	var full *runtime.CapacityError
	if !errors.As(err, &full) {
		t.Errorf("in %d bytes: %v", opts.Session.Memory, err)
	}
	if opts.Session.Memory = full.MinBytes; full.MinBytes < 1<<15 {
		t.Errorf("%d bytes are said to do for two models", full.MinBytes)
	}
	engine(t, opts)
	_, err = generate.New(t.Context(), tinyModel(t), generate.Options{Draft: folderModel(t, chatFolder), Context: 32})
	var request *generate.RequestError
	if !errors.As(err, &request) || request.Field != "Draft" || !strings.Contains(request.Msg, "and the other has 32") {
		t.Errorf("of another vocabulary: %v", err)
	}
}
