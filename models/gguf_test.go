package models_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// ggufCases are models as GGUF files have them, with transformers' logits; testdata/make_gguf.py and make_gguf_more.py recorded them.
type ggufCases struct {
	IDs   []int64
	Masks map[uint32][][3]int
	Cases []ggufCase
}

type ggufCase struct {
	Name    string
	Keys    map[string]any
	Tensors []ggufTensor
	// Extra are tensors of float32 that are not the model's.
	Extra  map[string][]float32
	Logits [][]float32
}

// A ggufTensor is a name, a shape and an encoding.
type ggufTensor struct {
	name  string
	shape []int
	kind  uint32
}

func (t *ggufTensor) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&t.name, &t.shape, &t.kind})
}

func readGGUFCases(t *testing.T) ggufCases {
	t.Helper()
	all := ggufCases{Masks: make(map[uint32][][3]int)}
	for _, name := range []string{"testdata/gguf.json.gz", "testdata/gguf_more.json.gz"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var some ggufCases
		z, err := gzip.NewReader(f)
		if err == nil {
			err = json.NewDecoder(z).Decode(&some)
		}
		if err != nil {
			t.Fatal(err)
		}
		all.IDs, all.Cases = some.IDs, append(all.Cases, some.Cases...)
		maps.Copy(all.Masks, some.Masks)
	}
	return all
}

// file writes the case as a GGUF file, with the tensors that make_gguf.py makes.
func (c *ggufCase) file(t *testing.T, masks map[uint32][][3]int) string {
	t.Helper()
	var head, data bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				_ = binary.Write(&head, binary.LittleEndian, uint64(len(s)))
				head.WriteString(s)
			} else if err := binary.Write(&head, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	head.WriteString("GGUF")
	put(uint32(3), uint64(len(c.Tensors)+len(c.Extra)), uint64(len(c.Keys)))
	for _, key := range slices.Sorted(maps.Keys(c.Keys)) {
		put(key)
		switch v := c.Keys[key].(type) {
		case string:
			put(uint32(8), v)
		case []uint32:
			put(uint32(9), uint32(4), uint64(len(v)), v)
		case bool:
			put(uint32(7), v)
		case []any:
			kind := uint32(4)
			if _, isBool := v[0].(bool); isBool {
				kind = 7
			} else if strings.Contains(key, "scale") {
				kind = 6
			}
			put(uint32(9), kind, uint64(len(v)))
			for _, x := range v {
				switch kind {
				case 4:
					put(uint32(x.(float64)))
				case 6:
					put(float32(x.(float64)))
				default:
					put(x)
				}
			}
		case float64:
			if v == math.Trunc(v) && !strings.Contains(key, "rope.freq") && !strings.Contains(key, "factor") &&
				!strings.Contains(key, "softcap") {
				put(uint32(4), uint32(v))
			} else {
				put(uint32(6), float32(v))
			}
		}
	}
	place := func(name string, shape []int, kind uint32, raw []byte) {
		data.Write(make([]byte, -data.Len()&31))
		put(name, uint32(len(shape)))
		for _, n := range slices.Backward(shape) {
			put(uint64(n))
		}
		put(kind, uint64(data.Len()))
		data.Write(raw)
	}
	for i, x := range c.Tensors {
		place(x.name, x.shape, x.kind, x.raw(uint32(i), masks[x.kind]))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		var raw []byte
		for _, x := range c.Extra[name] {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		place(name, []int{len(c.Extra[name])}, 0, raw)
	}
	head.Write(make([]byte, -head.Len()&31))
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, append(head.Bytes(), data.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// raw is make_gguf.py's raw_tensor.
func (x *ggufTensor) raw(seed uint32, masks [][3]int) []byte {
	n := 1
	for _, d := range x.shape {
		n *= d
	}
	e, _ := encoded.ByID(x.kind)
	size := n / int(e.Elements) * int(e.Bytes)
	if x.kind == 0 {
		size = n
	}
	bytes := make([]byte, size)
	for i := range bytes {
		seed = seed*1664525 + 1013904223
		bytes[i] = byte(seed >> 24)
	}
	if x.kind == 0 {
		var raw []byte
		for _, b := range bytes {
			v := float32(b)/512 + 0.75
			if strings.HasSuffix(x.name, "bias") {
				v = (float32(b) - 128) / 1024
			} else if strings.HasSuffix(x.name, "ssm_a") {
				v = -v
			}
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		return raw
	}
	for at := 0; at < size; at += int(e.Bytes) {
		for _, m := range masks {
			bytes[at+m[0]] = bytes[at+m[0]]&byte(m[1]) | byte(m[2])
		}
	}
	return bytes
}

// TestGGUFModelsComputeWhatTransformersDoes: the architecture, the sizes and what converters change are read off the file, and the
// logits are transformers', also where weights are paged, and step by step.
func TestGGUFModelsComputeWhatTransformersDoes(t *testing.T) {
	all := readGGUFCases(t)
	for _, c := range all.Cases {
		t.Run(c.Name, func(t *testing.T) {
			ckpt, err := loader.Open(c.file(t, all.Masks))
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			inputs := optimem.Values{"input_ids": tensor.Of(all.IDs, 1, len(all.IDs))}
			var first []byte
			for _, page := range []bool{false, true} {
				logits := ggufLogits(t, model, inputs, page)
				if page && !bytes.Equal(first, logits.Data) {
					t.Error("other bits where weights are paged")
				}
				first = logits.Data
				vocabulary := logits.Layout.Shape[2]
				for k, row := range []int{0, 4, len(all.IDs) - 1} {
					for i, want := range c.Logits[k] {
						bits := binary.NativeEndian.Uint32(logits.Data[4*(row*vocabulary+i):])
						if got := math.Float32frombits(bits); math.Abs(float64(got-want)) > 2e-5*max(1, math.Abs(float64(want))) {
							t.Errorf("row %d, logit %d: %v, want %v", row, i, got, want)
						}
					}
				}
			}
			if model.Context() != 128 {
				t.Errorf("a context of %d", model.Context())
			}
			for _, w := range model.Weights() {
				if strings.HasPrefix(w.Name, "blk.") || strings.HasPrefix(w.Name, "rope") {
					t.Errorf("%s is called so in the model", w.Name)
				}
			}
		})
	}
}

// TestGGUFWeightsStayEncoded: blocks of codes lie in memory as they lie in the file, with the same bits for any number of rows as
// where they are decoded before; and what a plan takes for weights that stay is what the file takes for them.
func TestGGUFWeightsStayEncoded(t *testing.T) {
	all := readGGUFCases(t)
	for _, c := range all.Cases {
		t.Run(c.Name, func(t *testing.T) {
			ckpt, err := loader.Open(c.file(t, all.Masks))
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var stored, decoded int64
			for _, w := range model.Weights() {
				decoded += w.Bytes()
				split := strings.HasSuffix(w.Name, ".k_b_proj") || strings.HasSuffix(w.Name, ".v_b_proj") // of no linear layer
				if stored += w.Span().StoredBytes(); split || strings.Contains(w.Name, ".altup_") {       // cut from one tensor, and decoded
					stored += w.Bytes() - w.Span().StoredBytes()
				}
			}
			var outs [2][]*tensor.Tensor
			var least [2]int64
			for k, without := range []rewrite.Passes{0, rewrite.KeepEncodings} {
				session, err := optimem.Page(t.Context(), model, optimem.PageOptions{Without: without})
				if err != nil {
					t.Fatal(err)
				}
				for _, rows := range []int{1, 3, len(all.IDs)} {
					inputs := optimem.Values{"input_ids": tensor.Of(all.IDs[:rows], 1, rows)}
					p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, rows}})
					if err != nil {
						t.Fatal(err)
					}
					if rows == 1 {
						least[k] = p.MinBytes
						checkEncodings(t, p, without == 0)
					}
					out, err := session.Run(t.Context(), inputs)
					if err != nil {
						t.Fatal(err)
					}
					outs[k] = append(outs[k], out["logits"])
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
				resident, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Without: without})
				if err != nil {
					t.Fatal(err)
				}
				p, err := resident.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 1}})
				if err != nil {
					t.Fatal(err)
				}
				if want := []int64{stored, decoded}[k]; p.Fixed.WeightBytes != want {
					t.Errorf("weights that stay take %d bytes, want %d", p.Fixed.WeightBytes, want)
				}
				if err := resident.Close(); err != nil {
					t.Error(err)
				}
			}
			for i := range outs[0] {
				if !bytes.Equal(outs[0][i].Data, outs[1][i].Data) {
					t.Errorf("run %d: other bits than those of decoded weights", i)
				}
			}
			if least[0] >= least[1] {
				t.Errorf("at least %d bytes, and %d where weights are decoded", least[0], least[1])
			}
		})
	}
}

// checkEncodings compares what a plan says of encodings with the graph's values.
func checkEncodings(t *testing.T, p *plan.Plan, kept bool) {
	t.Helper()
	all := p.Encodings()
	if (len(all) > 0) != kept {
		t.Errorf("encodings in memory: %+v, want some: %v", all, kept)
	}
	for _, e := range all {
		known, ok := encoded.ByName(e.Name)
		if !ok || e.Weights < 1 || e.Bytes%known.Bytes != 0 || e.Bytes == 0 {
			t.Errorf("%+v", e)
		}
	}
}

// ggufLogits runs a model in memory or with its weights paged.
func ggufLogits(t *testing.T, model *models.Model, inputs optimem.Values, page bool) *tensor.Tensor {
	t.Helper()
	var session *optimem.Session
	var err error
	if page {
		session, err = optimem.Page(t.Context(), model, optimem.PageOptions{})
	} else {
		session, err = optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out["logits"]
}

// TestGGUFModelsThatDoNotRun: what a file asks for that is not known is refused by its name, and sizes that are not there are
// the file's fault.
func TestGGUFModelsThatDoNotRun(t *testing.T) {
	all := readGGUFCases(t)
	build := func(c ggufCase) error {
		ckpt, err := loader.Open(c.file(t, all.Masks))
		if err != nil {
			return err
		}
		defer ckpt.Close()
		_, err = models.Build(ckpt, models.Options{})
		return err
	}
	changed := func(change func(c *ggufCase)) ggufCase {
		c := all.Cases[0]
		c.Keys, c.Tensors, c.Extra = maps.Clone(c.Keys), slices.Clone(c.Tensors), maps.Clone(c.Extra)
		if c.Extra == nil {
			c.Extra = make(map[string][]float32)
		}
		change(&c)
		return c
	}
	set := func(key string, v any) func(c *ggufCase) {
		return func(c *ggufCase) {
			if c.Keys[key] = v; v == nil {
				delete(c.Keys, key)
			}
		}
	}
	for want, change := range map[string]func(c *ggufCase){
		`a GGUF file of the architecture "rwkv7"; those that run are llama, qwen2`: set("general.architecture", "rwkv7"),
		`the architecture "qwen2" with 8 experts`: func(c *ggufCase) {
			c.Keys["general.architecture"], c.Keys["qwen2.expert_count"] = "qwen2", 8.0
		},
		"rotary embeddings of 4 of 8 elements":               set("llama.rope.dimension_count", 4.0),
		"values of 4 elements where keys have 8":             set("llama.attention.value_length", 4.0),
		`rotary embeddings of the type "strange"`:            set("llama.rope.scaling.type", "strange"),
		"a []uint32 as attention.head_count":                 set("llama.attention.head_count", []uint32{4, 4}),
		"token_embd.weight: a tensor of the type Q1_0":       func(c *ggufCase) { c.Tensors[0].kind, c.Tensors[0].shape = 41, []int{32, 128} },
		"it does not say llama.embedding_length":             set("llama.embedding_length", nil),
		"it does not say llama.attention.layer_norm_rms_eps": set("llama.attention.layer_norm_rms_epsilon", nil),
		"attention.head_count is 0":                          set("llama.attention.head_count", 0.0),
		"rope_freqs.weight has 3 numbers of float32, where 4": func(c *ggufCase) {
			c.Extra["rope_freqs.weight"] = []float32{1, 2, 3}
		},
		"rope_freqs.weight has -2": func(c *ggufCase) { c.Extra["rope_freqs.weight"] = []float32{1, -2, 3, 4} },
		"rope.scaling.factor is NaN": func(c *ggufCase) {
			c.Keys["llama.rope.scaling.type"], c.Keys["llama.rope.scaling.factor"] = "linear", math.NaN()
		},
	} {
		err := build(changed(change))
		var unsupported *models.UnsupportedError
		if err == nil || !strings.Contains(err.Error(), want) ||
			errors.As(err, &unsupported) == errors.Is(err, loader.ErrFormat) {
			t.Errorf("want …%s…, got %v", want, err)
		}
	}
	missing := changed(func(c *ggufCase) { c.Tensors = c.Tensors[:len(c.Tensors)-2] })
	if err := build(missing); err == nil || !strings.Contains(fmt.Sprint(err), "lm_head.weight") && !strings.Contains(fmt.Sprint(err), "model.norm.weight") {
		t.Errorf("without some tensors: %v", err)
	}
}
