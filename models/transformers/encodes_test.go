package transformers

import (
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/models/transformers/family"
)

// TestEncoderOf: whatever head a configuration names, its texts are encoded by the base model, up to the positions that
// it has.
func TestEncoderOf(t *testing.T) {
	for _, c := range []struct {
		config string
		want   Encoder
	}{
		{`{"model_type": "bert", "architectures": ["BertForMultipleChoice"], "max_position_embeddings": 64, "pad_token_id": 3}`,
			Encoder{Class: "BertModel", Positions: 64, Padding: 3}},
		{`{"model_type": "bert"}`, Encoder{Class: "BertModel", Positions: 512}},
		{`{"model_type": "xlm-roberta", "max_position_embeddings": 514}`, Encoder{Class: "XLMRobertaModel", Positions: 512, Padding: 1}},
		{`{"model_type": "camembert", "max_position_embeddings": 514, "pad_token_id": 4}`,
			Encoder{Class: "CamembertModel", Positions: 509, Padding: 4}},
		{`{"model_type": "mpnet", "architectures": ["MPNetForMaskedLM"]}`, Encoder{Class: "MPNetModel", Positions: 510, Padding: 1}},
		{`{"model_type": "modernbert", "pad_token_id": null}`, Encoder{Class: "ModernBertModel", Positions: 8192}},
		{`{"model_type": "gpt2", "n_positions": 48}`, Encoder{Class: "GPT2Model", Positions: 48}},
		{`{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}`, Encoder{Class: "T5EncoderModel"}},
		{`{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}`, Encoder{Class: "Qwen3Model", Positions: 32768, Causal: true}},
	} {
		got, err := EncoderOf([]byte(c.config))
		if err != nil || *got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.config, got, err, c.want)
		}
	}
	var unknown *family.UnsupportedError
	for _, config := range []string{`{"model_type": "vit"}`, `{"model_type": "whisper"}`, `{"model_type": "new"}`} {
		if _, err := EncoderOf([]byte(config)); !errors.As(err, &unknown) {
			t.Errorf("%s: %v, want an UnsupportedError", config, err)
		}
	}
	var wrong *family.ConfigError
	for _, config := range []string{`[]`, `{"model_type": "roberta", "max_position_embeddings": 2}`, `{"model_type": "bert", "max_position_embeddings": -1}`} {
		if _, err := EncoderOf([]byte(config)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a ConfigError", config, err)
		}
	}
}

// TestEncodersOfHeads: the weights of a model with a head are those of its encoder, too.
func TestEncodersOfHeads(t *testing.T) {
	for kind, class := range map[string]string{
		"bert": "BertForMaskedLM", "roberta": "RobertaForSequenceClassification", "xlm-roberta": "XLMRobertaForMaskedLM",
		"camembert": "CamembertForTokenClassification", "distilbert": "DistilBertForMaskedLM", "mpnet": "MPNetForMaskedLM", "albert": "AlbertForMaskedLM",
		"modernbert": "ModernBertForMaskedLM", "t5": "T5ForConditionalGeneration", "qwen3": "Qwen3ForCausalLM",
		"deberta-v2": "DebertaV2ForTokenClassification", "gpt2": "GPT2LMHeadModel", "opt": "OPTForCausalLM",
	} {
		text := fmt.Appendf(nil, `{"model_type": %q, "architectures": [%q], "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2}`, kind, class)
		dict := dictOf(t, text)
		e, err := EncoderOf(text)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Named(e.Class, text, dict)
		if err != nil {
			t.Errorf("%s of %s: %v", e.Class, class, err)
			continue
		}
		if a.Name != e.Class {
			t.Errorf("%s of %s is a %s", e.Class, class, a.Name)
		}
	}
}
