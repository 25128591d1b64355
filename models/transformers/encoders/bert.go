package encoders

import (
	"github.com/optimem/optimem/layers"

	"github.com/optimem/optimem/models/transformers/family"
)

const bertClass = "transformers.models.bert.modeling_bert.Bert"

var bertEncoder = Encoder{Prefix: "bert", Class: bertClass, Vocabulary: 30522, Positions: FirstPositions}

// bert is transformers/models/bert/modeling_bert.py.
var bert = &family.Family{
	Model: "bert", Prefix: "bert", Encodes: "BertModel", Positions: 512,
	Ignored: []string{`(^|\.)pooler\.`, `^cls\.seq_relationship\.`, `(^|\.)embeddings\.token_type_ids$`},
	Classes: bertEncoder.Classes(layers.Classes{
		bertClass + "OnlyMLMHead":               layers.Unary(family.Through("predictions")),
		bertClass + "LMPredictionHead":          layers.Unary(family.Through("transform", "decoder")),
		bertClass + "PredictionHeadTransform":   layers.Unary(family.Through("dense", "transform_act_fn", "LayerNorm")),
		bertClass + "OnlyNSPHead":               layers.Unary(family.Through("seq_relationship")),
		bertClass + "PreTrainingHeads":          {Forward: bertPreTrainingHeadsForward},
		bertClass + "ForPreTraining":            family.Headed("bert", bertForPreTrainingForward),
		bertClass + "ForMaskedLM":               family.Headed("bert", family.LogitsOf("cls")),
		bertClass + "LMHeadModel":               family.Headed("bert", family.LogitsOf("cls")),
		bertClass + "ForNextSentencePrediction": family.Headed("bert", family.LogitsOfPooled("cls")),
		bertClass + "ForSequenceClassification": family.Headed("bert", family.LogitsOfPooled("dropout", "classifier")),
		bertClass + "ForTokenClassification":    family.Headed("bert", family.LogitsOf("dropout", "classifier")),
		bertClass + "ForQuestionAnswering":      family.Headed("bert", family.SpansOf("qa_outputs")),
	}),
	Heads: []family.Head{
		{Class: "BertModel", Make: func(c *family.Config) *layers.Module {
			return bertEncoder.Model(c, c.Holds("pooler.dense.weight"))
		}},
		bertHead("ForMaskedLM", false, func(c *family.Config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyMLMHead", nil).Add("predictions", bertPredictions(c)))
		}),
		bertHead("LMHeadModel", false, func(c *family.Config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyMLMHead", nil).Add("predictions", bertPredictions(c)))
		}),
		bertHead("ForPreTraining", true, func(c *family.Config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"PreTrainingHeads", nil).
				Add("predictions", bertPredictions(c)).
				Add("seq_relationship", layers.Linear(c.Size("hidden_size", 768), 2)))
		}),
		bertHead("ForNextSentencePrediction", true, func(c *family.Config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyNSPHead", nil).
				Add("seq_relationship", layers.Linear(c.Size("hidden_size", 768), 2)))
		}),
		bertHead("ForSequenceClassification", true, addClassifier),
		bertHead("ForTokenClassification", false, addClassifier),
		bertHead("ForQuestionAnswering", false, addSpans),
	},
	Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
	Tied: [][2]string{
		{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
		{"cls.predictions.decoder.bias", "cls.predictions.bias"},
	},
	Ties: true,
}

// bertHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func bertHead(name string, pooler bool, add func(c *family.Config, m *layers.Module)) family.Head {
	return family.Head{Class: "Bert" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(bertClass+name, nil).Add("bert", bertEncoder.Model(c, pooler))
		add(c, m)
		return m
	}}
}

// addClassifier adds what classifies sequences or tokens.
func addClassifier(c *family.Config, m *layers.Module) {
	m.Add("dropout", layers.Dropout(0.1)).
		Add("classifier", layers.Linear(c.Size("hidden_size", 768), c.Labels()))
}

// addSpans adds what finds answers.
func addSpans(c *family.Config, m *layers.Module) {
	m.Add("qa_outputs", layers.Linear(c.Size("hidden_size", 768), c.Labels()))
}

// bertPredictions is BertLMPredictionHead. Its own bias is that of its decoder.
func bertPredictions(c *family.Config) *layers.Module {
	hidden, words := c.Size("hidden_size", 768), c.Size("vocab_size", 30522)
	return layers.New(bertClass+"LMPredictionHead", nil).
		Param("bias", words).
		Add("transform", layers.New(bertClass+"PredictionHeadTransform", nil).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("transform_act_fn", c.Activation(c.Text("hidden_act", "gelu"))).
			Add("LayerNorm", layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-12))))).
		Add("decoder", layers.Linear(hidden, words))
}

func bertPreTrainingHeadsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return []layers.Tensor{
		t.Child(m, "predictions", family.Optional(t, args, 0)), t.Child(m, "seq_relationship", family.Optional(t, args, 1)),
	}
}

func bertForPreTrainingForward(t *layers.Trace, m *layers.Module, x, pooled layers.Tensor) any {
	scores := t.ChildOf(m, "cls", x, pooled).([]layers.Tensor)
	return layers.Fields{
		{Name: "prediction_logits", Value: scores[0]}, {Name: "seq_relationship_logits", Value: scores[1]},
	}
}
