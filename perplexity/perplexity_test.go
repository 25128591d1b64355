package perplexity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/quantize"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/text/tokenizer"
)

const chat = "../generate/testdata/chat"

func build(t *testing.T, folder string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func int8Folder(t *testing.T) string {
	t.Helper()
	scheme, err := quantize.ParseScheme("int8")
	if err != nil {
		t.Fatal(err)
	}
	f, err := quantize.Open(t.Context(), chat, quantize.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := filepath.Join(t.TempDir(), "int8")
	if _, err := f.Write(t.Context(), to, nil); err != nil {
		t.Fatal(err)
	}
	return to
}

func tokens(t *testing.T) []uint32 {
	t.Helper()
	text, err := os.ReadFile("testdata/text.txt")
	if err != nil {
		t.Fatal(err)
	}
	writer, err := generate.OpenText(chat)
	if err != nil {
		t.Fatal(err)
	}
	// A checkout of Windows may have other ends of lines.
	encoded, err := writer.Tokenizer().Encode(string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))), tokenizer.Options{AddSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	return encoded.IDs
}

type recorded struct {
	Context, Tokens   int
	Perplexity, Guide float64
}

// TestGolden: the perplexity of a text is that of transformers' model of the same weights, before and after int8,
// whatever the windows, the mode and the memory.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		IDs           []uint32
		Before, After []recorded
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Before) != 3 || len(golden.After) != 3 {
		t.Fatalf("%+v: %v", golden, err)
	}
	ids := tokens(t)
	if len(ids) != len(golden.IDs) {
		t.Fatalf("%d tokens, want %d", len(ids), len(golden.IDs))
	}
	for i, id := range ids {
		if id != golden.IDs[i] {
			t.Fatalf("token %d is %d, want %d", i, id, golden.IDs[i])
		}
	}
	check := func(name string, model *models.Model, want []recorded) {
		for _, w := range want {
			told := 0
			opts := perplexity.Options{Context: w.Context, Done: func(n int) { told += n }}
			got, err := perplexity.Of(t.Context(), model, ids, opts)
			if err != nil {
				t.Fatal(err)
			}
			if got.Tokens != w.Tokens || math.Abs(got.Perplexity/w.Perplexity-1) > 1e-5 {
				t.Errorf("%s, windows of %d: %+v, want %+v", name, w.Context, got, w)
			}
			if told != len(ids) {
				t.Errorf("%s: %d tokens were told of, want %d", name, told, len(ids))
			}
			if w.Context == 256 && w.Guide != w.Perplexity {
				t.Errorf("one window: %v, and the guide's is %v", w.Perplexity, w.Guide)
			}
			opts.Session = optimem.Options{Mode: "page", Memory: 4 << 20, Threads: 1} // the kernels in plain Go take 3
			if paged, err := perplexity.Of(t.Context(), model, ids, opts); err != nil || paged != got {
				t.Errorf("%s, windows of %d, paged: %+v, want %+v: %v", name, w.Context, paged, got, err)
			}
		}
	}
	check("before", build(t, chat), golden.Before)
	check("after", build(t, int8Folder(t)), golden.After)
}

// TestDefaultContext: a window is what the model was made for where nobody says, and no longer.
func TestDefaultContext(t *testing.T) {
	model, ids := build(t, chat), tokens(t)
	ids = append(ids, ids...) // more than it was made for
	whole, err := perplexity.Of(t.Context(), model, ids, perplexity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same, err := perplexity.Of(t.Context(), model, ids, perplexity.Options{Context: 256})
	if err != nil || whole != same {
		t.Errorf("%+v, want %+v: %v", whole, same, err)
	}
	// A text that ends where a window does has no window more.
	if n, err := perplexity.Of(t.Context(), model, ids[:24], perplexity.Options{Context: 16}); err != nil || n.Tokens != 23 {
		t.Errorf("%+v: %v", n, err)
	}
	// Windows of two tokens see one token each.
	if n, err := perplexity.Of(t.Context(), model, ids[:3], perplexity.Options{Context: 2}); err != nil || n.Tokens != 2 {
		t.Errorf("%+v: %v", n, err)
	}
}

// TestRefused: what cannot be measured is an error that tells what is wrong, and no panic.
func TestRefused(t *testing.T) {
	model, ids := build(t, chat), tokens(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		tokens []uint32
		opts   perplexity.Options
		want   error
	}{
		{"no token", t.Context(), nil, perplexity.Options{}, perplexity.ErrShort},
		{"one token", t.Context(), ids[:1], perplexity.Options{}, perplexity.ErrShort},
		{"windows of one", t.Context(), ids, perplexity.Options{Context: 1}, perplexity.ErrContext},
		{"negative windows", t.Context(), ids, perplexity.Options{Context: -1}, perplexity.ErrContext},
		{"more than the model", t.Context(), ids, perplexity.Options{Context: 257}, perplexity.ErrContext},
		{"cancelled", cancelled, ids, perplexity.Options{}, context.Canceled},
	} {
		if _, err := perplexity.Of(c.ctx, model, c.tokens, c.opts); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := perplexity.Of(t.Context(), model, []uint32{1, 5000}, perplexity.Options{}); err == nil {
		t.Error("a token that the model does not have passes")
	}
	var full *optimem.CapacityError
	opts := perplexity.Options{Session: optimem.Options{Memory: 4 << 10}}
	if _, err := perplexity.Of(t.Context(), model, ids, opts); !errors.As(err, &full) {
		t.Errorf("4 KiB: %v, want a CapacityError", err)
	}
	other := build(t, "../examples/digits/digits.pt2")
	if _, err := perplexity.Of(t.Context(), other, ids, perplexity.Options{}); !errors.Is(err, perplexity.ErrModel) {
		t.Errorf("a model of pictures: %v, want %v", err, perplexity.ErrModel)
	}
}
