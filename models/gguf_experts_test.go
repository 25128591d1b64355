package models_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// TestGGUFKeysThatAreNotKnown: a file is refused where it says what would change numbers and is not known, by the key's name.
func TestGGUFKeysThatAreNotKnown(t *testing.T) {
	all := readGGUFCases(t)
	for _, x := range []struct {
		name, key string
		value     any
		want      string
	}{
		{"gpt oss", "gpt-oss.attention.clamp_kqv", 8.5, "gpt-oss.attention.clamp_kqv, which is not known"},
		{"gpt oss", "gpt-oss.expert_gating_func", 2.0, "weighed by function 2"},
		{"gpt oss", "gpt-oss.rope.scaling.yarn_attn_factor", 8.5, "rope.scaling.yarn_attn_factor of 8.5"},
		{"gpt oss", "gpt-oss.rope.scaling.yarn_ext_factor", 0.5, "rope.scaling.yarn_ext_factor of 0.5"},
		{"qwen2 moe", "qwen2moe.expert_weights_norm", true, "weights of experts whose sum is one: true"},
		{"qwen2 moe", "qwen2moe.attention.sliding_window", 4.0, "qwen2moe.attention.sliding_window, which is not known"},
		{"olmoe", "olmoe.expert_weights_scale", 2.5, "weights of experts times 2.5"},
		{"olmoe", "olmoe.expert_group_count", 2.0, "experts in 2 groups"},
		{"granite moe", "granitemoe.expert_weights_norm", false, "weights of experts whose sum is one: false"},
		{"deepseek v3", "deepseek2.expert_gating_func", 4.0, "weighed by function 4"},
		{"deepseek v3", "deepseek2.attention.temperature_scale", 0.5, "deepseek2.attention.temperature_scale, which is not known"},
		{"glm4 moe", "glm4moe.expert_gating_func", 1.0, "weighed by function 1"},
		{"llama 4", "llama4.attention.sliding_window", 16.0, "chunks of 16"},
		{"llama 4", "llama4.attention.scale", 0.5, "llama4.attention.scale, which is not known"},
		{"phi 2", "phi2.attention.clamp_kqv", 8.5, "phi2.attention.clamp_kqv, which is not known"},
		{"stablelm", "stablelm.attention.sliding_window", 4.0, "stablelm.attention.sliding_window, which is not known"},
		{"command-r", "command-r.final_logit_softcapping", 8.5, "command-r.final_logit_softcapping, which is not known"},
		{"deepseek v2", "deepseek2.expert_weights_norm", true, "shares of experts whose sum is one"},
		{"deepseek v2", "deepseek2.rope.scaling.type", "yarn", "without rope.scaling.yarn_log_multiplier"},
	} {
		c := all.named(t, x.name)
		c.Keys = maps.Clone(c.Keys)
		c.Keys[x.key] = x.value
		err := buildGGUF(t, c, all.Masks)
		var unsupported *models.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s = %v: want …%s…, got %v", x.key, x.value, x.want, err)
		}
	}
}

// TestGGUFHostileSizes: sizes that no tensor has are refused before anything is made for them.
func TestGGUFHostileSizes(t *testing.T) {
	all := readGGUFCases(t)
	first := slices.IndexFunc(all.Cases, func(c ggufCase) bool { return c.Name == "gpt oss" })
	for _, c := range all.Cases[first:] {
		for key, v := range c.Keys {
			if _, isNumber := v.(float64); !isNumber {
				continue
			}
			hostile := c
			hostile.Keys = maps.Clone(c.Keys)
			hostile.Keys[key] = 4294967295.0
			err := buildGGUF(t, hostile, all.Masks)
			for _, size := range []string{".expert_count", ".block_count", ".embedding_length", ".head_count", "_lora_rank", "_length_mla"} {
				if strings.HasSuffix(key, size) && err == nil {
					t.Errorf("%s: %s of 4294967295 passes", c.Name, key)
				}
			}
		}
		const experts = "blk.1.ffn_up_exps.weight"
		there := len(c.Tensors)
		c.Tensors = slices.DeleteFunc(slices.Clone(c.Tensors), func(x ggufTensor) bool { return x.name == experts })
		if err := buildGGUF(t, c, all.Masks); there > len(c.Tensors) && (err == nil || !strings.Contains(err.Error(), "up_proj")) {
			t.Errorf("%s without a tensor of experts: %v", c.Name, err)
		}
	}
}

// TestGGUFModelsStepByStep: a text that is read token by token after its first half has transformers' logits, too; of latents, keys
// and values are made in another way then.
func TestGGUFModelsStepByStep(t *testing.T) {
	all := readGGUFCases(t)
	first := slices.IndexFunc(all.Cases, func(c ggufCase) bool { return c.Name == "gpt oss" })
	for _, c := range all.Cases[first:] {
		ckpt, err := loader.Open(c.file(t, all.Masks))
		if err != nil {
			t.Fatal(err)
		}
		logits, _, _ := stepLogits(t, ckpt, all.IDs, optimem.Options{Mode: plan.Resident})
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
		row := len(logits) / len(all.IDs)
		for k, at := range []int{0, 4, len(all.IDs) - 1} {
			for i, want := range c.Logits[k] {
				got := math.Float32frombits(binary.NativeEndian.Uint32(logits[at*row+4*i:]))
				if math.Abs(float64(got-want)) > 2e-5*max(1, math.Abs(float64(want))) {
					t.Errorf("%s: row %d, logit %d: %v, want %v", c.Name, at, i, got, want)
				}
			}
		}
	}
}

// named returns the case of a name.
func (all *ggufCases) named(t *testing.T, name string) ggufCase {
	t.Helper()
	i := slices.IndexFunc(all.Cases, func(c ggufCase) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	return all.Cases[i]
}

// buildGGUF writes a case's file and makes its model.
func buildGGUF(t *testing.T, c ggufCase, masks map[uint32][][3]int) error {
	t.Helper()
	ckpt, err := loader.Open(c.file(t, masks))
	if err != nil {
		return err
	}
	defer ckpt.Close()
	_, err = models.Build(ckpt, models.Options{})
	return err
}
