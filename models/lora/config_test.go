package lora

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
)

// TestTargets: what an entry names is what peft's check_target_module_exists and get_pattern_key find.
func TestTargets(t *testing.T) {
	module := layers.Linear(4, 4)
	for _, c := range []struct {
		entries string
		path    string
		target  bool
		scale   float64
	}{
		{`"target_modules": ["q_proj"]`, "model.layers.0.q_proj", true, 2},
		{`"target_modules": ["q_proj"]`, "q_proj", true, 2},
		{`"target_modules": ["q_proj"]`, "model.layers.0.xq_proj", false, 0},
		{`"target_modules": ["q_proj"]`, "q_proj.inner", false, 0},
		{`"target_modules": ["0.q_proj"]`, "model.layers.10.q_proj", false, 0},
		{`"target_modules": "q_proj"`, "model.q_proj", false, 0},
		{`"target_modules": "model\\..*"`, "model.q_proj", true, 2},
		{`"target_modules": "model|q_proj"`, "model.q_proj", false, 0},
		{`"target_modules": ".*", "exclude_modules": "model\\.q"`, "model.q_proj", true, 2},
		{`"target_modules": ".*", "exclude_modules": "model\\.q.*"`, "model.q_proj", false, 0},
		{`"target_modules": "all-linear"`, "model.q_proj", true, 2},
		{`"target_modules": "ALL-LINEAR"`, "model.score", true, 2},
		{`"target_modules": "all-linear"`, "lm_head", false, 0},
		{`"target_modules": "all-linear"`, "score", false, 0},
		{`"target_modules": ["q", "score"], "modules_to_save": ["score"]`, "score", false, 0},
		{`"target_modules": ["q", "dense"], "modules_to_save": ["score"]`, "score.dense", false, 0},
		{`"target_modules": ["q"], "layers_to_transform": 1`, "model.layers.1.q", true, 2},
		{`"target_modules": ["q"], "layers_to_transform": [0, 11]`, "model.layers.1.q", false, 0},
		{`"target_modules": ["q"], "layers_to_transform": [0]`, "model.layers.0.experts.1.q", true, 2},
		{`"target_modules": ["q"], "layers_to_transform": [1]`, "model.layers.0.experts.1.q", false, 0},
		{`"target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": "experts"`, "model.layers.0.experts.1.q", true, 2},
		{`"target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": ["h", "layers"]`, "layers.1.q", true, 2},
		{`"target_modules": ["q"], "layers_to_transform": [1]`, "layers.1.q", false, 0},
		{`"target_modules": ["model.layers.0.q"], "layers_to_transform": [1]`, "model.layers.0.q", true, 2},
		{`"target_modules": "all-linear", "layers_to_transform": [1]`, "model.layers.0.q", true, 2},
		{`"target_modules": ["q"], "rank_pattern": {"q": 2}`, "a.q", true, 8},
		{`"target_modules": ["q"], "rank_pattern": {"q": 2, "a.q": 4}`, "a.q", true, 8},
		{`"target_modules": ["q"], "rank_pattern": {"b.q": 2, "a.q": 4}`, "a.q", true, 4},
		{`"target_modules": ["qq"], "rank_pattern": {"q": 2}`, "a.qq", true, 2},
		{`"target_modules": ["q"], "rank_pattern": {"^q": 2}`, "a.q", true, 2},
		{`"target_modules": ["q"], "alpha_pattern": {"(a|b)\\.q": 32}`, "a.q", true, 4},
		{`"target_modules": ["q"], "alpha_pattern": {"a": 32}`, "a.q", true, 2},
		{`"target_modules": ["q"], "use_rslora": true, "rank_pattern": {"q": 16}`, "a.q", true, 4},
	} {
		text := strings.Replace(`{"peft_type": "LORA", "r": 8, "lora_alpha": 16, REST}`, "REST", c.entries, 1)
		config, err := parseConfig("a", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", c.entries, err)
			continue
		}
		got := config.targets(c.path, module)
		scale := config.scaling(config.ranks.of(c.path, float64(config.rank)), config.alphas.of(c.path, config.alpha))
		if got != c.target || got && scale != c.scale {
			t.Errorf("%s: %s: %v, %v, want %v, %v", c.entries, c.path, got, scale, c.target, c.scale)
		}
	}
}
