package work

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// words writes a folder of a model that makes vectors: a table of vectors for the tokens of chat.
func words(t *testing.T, folder string) {
	t.Helper()
	const rows, dim = 420, 8
	var raw []byte
	for i := range rows * dim {
		raw = binary.NativeEndian.AppendUint32(raw, math.Float32bits(float32(i*7919%1009)/1009-0.5))
	}
	var b bytes.Buffer
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = loader.WriteSafetensors(t.Context(), &b, []loader.TensorData{{
			Name: "embeddings", DType: tensor.Float32, Shape: tensor.Shape{rows, dim},
			ReadAt: func(_ context.Context, p []byte, off int64) error { copy(p, raw[off:]); return nil },
		}}, nil)
	}
	tokenizer, readErr := os.ReadFile(filepath.Join(chat, "tokenizer.json"))
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	for name, data := range map[string][]byte{
		"model.safetensors": b.Bytes(), "config.json": []byte(`{"model_type": "model2vec", "normalize": true}`), "tokenizer.json": tokenizer,
		"model.json": []byte(`{"kind": "embeddings"}`),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Texts have the vectors that an embedder by itself makes of them, to the bit; what is no text has the reason.
func TestVectors(t *testing.T) {
	dir := t.TempDir()
	words(t, filepath.Join(dir, "words"))
	server := embedded(t)
	hireFor(t, Options{URL: server.URL(), Stream: "pictures"}, dir, "words", WorkerOptions{}, nil)
	q := connect(t, server)
	if vectors, err := q.Vectors(t.Context(), "words"); err != nil || !vectors {
		t.Errorf("it makes vectors: %v, %v", vectors, err)
	}
	if _, err := q.Inputs(t.Context(), "words"); err == nil {
		t.Error("a model that makes vectors takes tensors")
	}
	folder, err := embed.Open(filepath.Join(dir, "words"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	e, err := embed.New(t.Context(), folder, nil, embed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cases := []struct {
		line, reason string
		texts        []string
	}{
		{`{"id": 1, "text": "capital of France"}`, "", []string{"capital of France"}},
		{`{"texts": ["capital of France"]}`, "", []string{"capital of France"}},
		{`{"texts": ["Rome", "Hello", "capital of Italy"], "prompt": "x: "}`, "", []string{"x: Rome", "x: Hello", "x: capital of Italy"}},
		{`{"text": "a"`, "no texts", nil},
		{`{"text": "a"} 1`, "something follows", nil},
		{`{"text": "a", "seed": 1}`, "seed", nil},
		{`{"text": "a", "texts": ["b"]}`, "a text and texts", nil},
		{`{"id": 1}`, "neither a text nor texts", nil},
		{`{"texts": [` + strings.Repeat(`"a",`, maxTexts) + `"a"]}`, "are the most", nil},
	}
	var lines []string
	for _, c := range cases {
		lines = append(lines, c.line)
	}
	keys := make(map[string]bool)
	err = q.Submit(t.Context(), "words", prompts(lines), SubmitOptions{}, func(r Result) error {
		c := cases[r.Index]
		if (r.Reason == "") != (c.reason == "") || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%.60s: %q, want …%s…", c.line, r.Reason, c.reason)
		}
		if c.reason != "" {
			return nil
		}
		keys[r.Key] = true
		want, err := e.Embed(t.Context(), embed.Request{Texts: c.texts})
		if err == nil {
			check(t, q, r, runtime.Values{VectorOutput: tensor.Of(want.Data, len(c.texts), want.Dim)})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 {
		t.Errorf("%d keys: one text is the same however it is written", len(keys))
	}
	err = q.Submit(t.Context(), "words", pictures(0, 1), SubmitOptions{}, func(r Result) error {
		if !strings.Contains(r.Reason, "it takes texts") {
			t.Errorf("a picture: %q", r.Reason)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if classOf("f", "cpu") == vectorClassOf("f", "cpu") {
		t.Error("vectors and tensors are of one class")
	}
}
