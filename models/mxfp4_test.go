package models_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// inBytes is a source of bytes in memory.
type inBytes struct{ data []byte }

func (b *inBytes) Size() int64 { return int64(len(b.data)) }

func (b *inBytes) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, b.data[off:])
	return nil
}

// gptOssShape are the sizes of a model with experts of MXFP4, and what its configuration says.
const (
	ossHidden, ossInner, ossExperts = 64, 32, 3

	ossConfig = `{"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 40, "hidden_size": 64,
	"intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
	"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 4, "max_position_embeddings": 128, "swiglu_limit": 2.0%s}`
)

// ossWeights are the weights of a gpt-oss, with experts as codes and scales or as the numbers that those stand for, turned.
func ossWeights(t *testing.T, packed bool) []tensor.Weight {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	var list []tensor.Weight
	add := func(name string, d tensor.DType, data []byte, shape ...int) {
		list = append(list, tensor.Weight{
			Name: name, DType: d, Layout: tensor.Contiguous(shape...),
			Extent: storage.Extent{Source: &inBytes{data}, Bytes: int64(len(data))},
		})
	}
	floats := func(values []float32) []byte {
		var data []byte
		for _, x := range values {
			data = binary.NativeEndian.AppendUint32(data, math.Float32bits(x))
		}
		return data
	}
	plain := func(name string, mean, spread float32, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = mean + spread*(2*rng.Float32()-1)
		}
		add(name, tensor.Float32, floats(values), shape...)
	}
	numbers := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	experts := func(name string, rows, columns int) {
		codes, scales := make([]byte, ossExperts*rows*columns/2), make([]byte, ossExperts*rows*columns/32)
		turned := make([]float32, ossExperts*rows*columns)
		for i := range scales {
			scales[i] = byte(122 + rng.IntN(3))
		}
		for i := range codes {
			codes[i] = byte(rng.Uint32())
			for half := range 2 {
				code := codes[i] >> (4 * half) & 15
				x := float32(math.Ldexp(float64(numbers[code&7]), int(scales[i/16])-127))
				if code > 7 {
					x = -x
				}
				at := 2*i + half
				e, row, column := at/(rows*columns), at/columns%rows, at%columns
				turned[(e*columns+column)*rows+row] = x
			}
		}
		if packed {
			add(name+"_blocks", tensor.UInt8, codes, ossExperts, rows, columns/32, 16)
			add(name+"_scales", tensor.UInt8, scales, ossExperts, rows, columns/32)
		} else {
			add(name, tensor.Float32, floats(turned), ossExperts, columns, rows)
		}
		plain(name+"_bias", 0, 0.1, ossExperts, rows)
	}
	plain("model.embed_tokens.weight", 0, 1, 40, ossHidden)
	plain("lm_head.weight", 0, 0.3, 40, ossHidden)
	plain("model.norm.weight", 1, 0.1, ossHidden)
	for i := range 2 {
		p := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range []string{"input_layernorm.weight", "post_attention_layernorm.weight"} {
			plain(p+name, 1, 0.1, ossHidden)
		}
		for k, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			n := []int{64, 32, 32, 64}[k]
			plain(p+"self_attn."+name+".weight", 0, 0.2, n, ossHidden)
			plain(p+"self_attn."+name+".bias", 0, 0.1, n)
		}
		plain(p+"self_attn.sinks", 0, 1, 4)
		plain(p+"mlp.router.weight", 0, 0.3, ossExperts, ossHidden)
		plain(p+"mlp.router.bias", 0, 0.1, ossExperts)
		experts(p+"mlp.experts.gate_up_proj", 2*ossInner, ossHidden)
		experts(p+"mlp.experts.down_proj", ossHidden, ossInner)
	}
	return list
}

func ossFolder(t *testing.T, weights []tensor.Weight, more string) *loader.Checkpoint {
	t.Helper()
	ckpt, err := loader.NewCheckpoint("oss", weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = fmt.Appendf(nil, ossConfig, more)
	return ckpt
}

const mxfp4 = `, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}`

// TestExpertsOfMXFP4: a gpt-oss as it is published gives the logits of the numbers that its codes stand for, whether codes are
// decoded when they are read or when they are computed with, and takes a quarter of the memory then.
func TestExpertsOfMXFP4(t *testing.T) {
	tokens := tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)
	run := func(ckpt *loader.Checkpoint, o optimem.PageOptions) (logits []byte, least int64) {
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		session, err := optimem.Page(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 8}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.Run(t.Context(), optimem.Values{"input_ids": tokens})
		if err != nil {
			t.Fatal(err)
		}
		return out["logits"].Data, p.MinBytes
	}
	want, _ := run(ossFolder(t, ossWeights(t, false), ""), optimem.PageOptions{})
	kept, small := run(ossFolder(t, ossWeights(t, true), mxfp4), optimem.PageOptions{})
	read, large := run(ossFolder(t, ossWeights(t, true), mxfp4), optimem.PageOptions{Without: rewrite.KeepEncodings})
	if !bytes.Equal(kept, want) || !bytes.Equal(read, want) {
		t.Error("other bits than those of the numbers")
	}
	if small >= large {
		t.Errorf("at least %d bytes, and %d where weights are decoded as they are read", small, large)
	}
}

// TestMXFP4ThatDoesNotFit: blocks without scales, with others, or of other sizes are the file's fault.
func TestMXFP4ThatDoesNotFit(t *testing.T) {
	all := ossWeights(t, true)
	at := func(end string) int {
		return slices.IndexFunc(all, func(w tensor.Weight) bool { return strings.HasSuffix(w.Name, end) })
	}
	changed := func(end string, change func(w *tensor.Weight)) []tensor.Weight {
		list := slices.Clone(all)
		change(&list[at(end)])
		return list
	}
	for about, list := range map[string][]tensor.Weight{
		"no scales": slices.Delete(slices.Clone(all), at("_scales"), at("_scales")+1),
		"scales of another shape": changed("_scales", func(w *tensor.Weight) {
			w.Layout = tensor.Contiguous(w.Layout.Shape[0], w.Layout.Shape[2], w.Layout.Shape[1])
		}),
		"scales of another type": changed("_scales", func(w *tensor.Weight) { w.DType = tensor.Int8 }),
		"blocks of 8 bytes": changed("_blocks", func(w *tensor.Weight) {
			s := slices.Clone(w.Layout.Shape)
			s[2], s[3] = 2*s[2], 8
			w.Layout = tensor.Contiguous(s...)
		}),
		"blocks of one dimension": changed("_blocks", func(w *tensor.Weight) { w.Layout = tensor.Contiguous(int(w.NumElements())) }),
	} {
		if _, err := models.Build(ossFolder(t, list, mxfp4), models.Options{}); !errors.Is(err, loader.ErrFormat) {
			t.Errorf("%s: %v", about, err)
		}
	}
	if _, err := models.Build(ossFolder(t, all, `, "quantization_config": {"quant_method": "other"}`), models.Options{}); err == nil {
		t.Error("weights of another method: no error")
	}
}
