package openai_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/serve/openai"
	"github.com/optimem/optimem/tensor"
)

const embeddings = "/v1/embeddings"

// staticEmbedder opens a folder of model2vec: a table of vectors for the tiny model's tokens.
func staticEmbedder(t testing.TB) *embed.Embedder {
	t.Helper()
	folder := t.TempDir()
	const rows, dim = 420, 8
	raw := make([]byte, 0, 4*rows*dim)
	for i := range rows * dim {
		raw = binary.NativeEndian.AppendUint32(raw, math.Float32bits(float32(i*7919%1009)/1009-0.5))
	}
	var b bytes.Buffer
	table := loader.TensorData{Name: "embeddings", DType: tensor.Float32, Shape: tensor.Shape{rows, dim},
		ReadAt: func(_ context.Context, p []byte, off int64) error { copy(p, raw[off:]); return nil }}
	if err := loader.WriteSafetensors(t.Context(), &b, []loader.TensorData{table}, nil); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(folder, "model.safetensors"), b.Bytes())
	put(t, filepath.Join(folder, "config.json"), []byte(`{"model_type": "model2vec", "normalize": true}`))
	copyFile(t, filepath.Join(chatFolder, "tokenizer.json"), filepath.Join(folder, "tokenizer.json"))
	f, err := embed.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	e, err := embed.New(t.Context(), f, nil, embed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); f.Close() })
	return e
}

// A vectors is an answer.
type vectors struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// vector reads a vector as clients do.
func vector(t *testing.T, raw json.RawMessage) []float32 {
	t.Helper()
	var list []float32
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data)%4 != 0 {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	for ; len(data) > 0; data = data[4:] {
		list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return list
}

// TestEmbeddings: vectors have the bits that the embedder gives, as numbers and in base64, cut and not.
func TestEmbeddings(t *testing.T) {
	e := staticEmbedder(t)
	s := serve(t, &registry{embedders: map[string]openai.Embedder{"vectors": e}}, openai.Options{})
	want, err := e.Embed(t.Context(), embed.Request{Texts: []string{"capital of France", "Rome"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"", `, "encoding_format": "float", "user": "u"`, `, "encoding_format": "base64"`} {
		var got vectors
		s.ok(t, embeddings, `{"model": "vectors", "input": ["capital of France", "Rome"]`+format+`}`, &got)
		if got.Object != "list" || got.Model != "vectors" || len(got.Data) != 2 || got.Usage.Prompt != want.Tokens[0]+want.Tokens[1] || got.Usage.Total != got.Usage.Prompt {
			t.Fatalf("%+v", got)
		}
		for i, d := range got.Data {
			if v := vector(t, d.Embedding); !slices.Equal(v, want.Vector(i)) || d.Index != i || d.Object != "embedding" {
				t.Errorf("vector %d is %v, want %v", i, v, want.Vector(i))
			}
		}
		var one vectors
		s.ok(t, embeddings, `{"model": "vectors", "input": "Rome", "dimensions": 3`+format+`}`, &one)
		v := vector(t, one.Data[0].Embedding)
		var norm, whole float64
		for i, x := range v {
			norm += float64(x) * float64(x)
			whole += float64(want.Vector(1)[i]) * float64(want.Vector(1)[i])
		}
		if len(v) != 3 || math.Abs(norm-1) > 1e-6 || math.Abs(float64(v[0])*math.Sqrt(whole)-float64(want.Vector(1)[0])) > 1e-6 {
			t.Errorf("a vector cut to three numbers is %v of %v", v, want.Vector(1))
		}
	}
	if need := s.registry.lent[0]; need.Sequences != 2 || need.Model != "vectors" {
		t.Errorf("%+v", need)
	}
}

// TestVectorsWithoutLength: those that have not the length 1 are cut and no more.
func TestVectorsWithoutLength(t *testing.T) {
	s := serve(t, &registry{embedders: map[string]openai.Embedder{"vectors": constant{}}}, openai.Options{})
	var got vectors
	s.ok(t, embeddings, `{"model": "vectors", "input": "four", "dimensions": 2, "prompt_name": "pp"}`, &got)
	if v := vector(t, got.Data[0].Embedding); !slices.Equal(v, []float32{6, -6}) {
		t.Errorf("%v", v)
	}
}

// TestBadEmbeddings are refused by the parameter that is wrong; tokens of strangers with a way out.
func TestBadEmbeddings(t *testing.T) {
	r := &registry{embedders: map[string]openai.Embedder{"vectors": constant{}, "cuts": constant{1}}}
	s := serve(t, r, openai.Options{MaxInputs: 2})
	for _, c := range []struct {
		body              string
		status            int
		param, code, says string
	}{
		{`{"model": "vectors"}`, 400, "input", "", "must provide"},
		{`{"input": "x"}`, 400, "model", "", "must provide"},
		{`{"model": "vectors", "input": []}`, 400, "input", "", "not empty"},
		{`{"model": "vectors", "input": 7}`, 400, "input", "", "must be"},
		{`{"model": "vectors", "input": ["a", "b", "c"]}`, 400, "input", "", "3 texts"},
		{`{"model": "vectors", "input": [[1, 2]]}`, 400, "input", "unsupported_parameter", "check_embedding_ctx_length=False"},
		{`{"model": "vectors", "input": [1, 2]}`, 400, "input", "unsupported_parameter", "check_embedding_ctx_length=False"},
		{`{"model": "vectors", "input": "x", "encoding_format": "int8"}`, 400, "encoding_format", "", "int8"},
		{`{"model": "vectors", "input": "x", "dimensions": 5}`, 400, "dimensions", "", "have 4"},
		{`{"model": "vectors", "input": "x", "dimensions": 0}`, 400, "dimensions", "", ""},
		{`{"model": "vectors", "input": "x", "input_type": "query"}`, 400, "input_type", "unsupported_parameter", ""},
		{`{"model": "none", "input": "x"}`, 404, "model", "model_not_found", "none"},
		{`{"model": "cuts", "input": "x"}`, 400, "input", "context_length_exceeded", "more tokens"},
	} {
		s.fails(t, embeddings, c.body, c.status, c.param, c.code, c.says)
	}
	var got vectors
	s.ok(t, embeddings, `{"model": "cuts", "input": "x", "truncate_prompt_tokens": -1}`, &got)
	s.fails(t, chats, ask("x", ""), 404, "model", "model_not_found", "")
	s.fails(t, chats, `{"model": "vectors", "messages": [{"role": "user", "content": "a"}]}`, 400, "model", "", "does not write text")
}
