package transformers

import "github.com/optimem/optimem/layers"

const bertClass = "transformers.models.bert.modeling_bert.Bert"

var bertEncoder = encoder{prefix: "bert", class: bertClass, vocabulary: 30522, positions: firstPositions}

// bert is transformers/models/bert/modeling_bert.py.
var bert = &family{
	model: "bert", prefix: "bert", encodes: "BertModel", positions: 512,
	ignored: []string{`(^|\.)pooler\.`, `^cls\.seq_relationship\.`, `(^|\.)embeddings\.token_type_ids$`},
	classes: bertEncoder.classes(layers.Classes{
		bertClass + "OnlyMLMHead":               layers.Unary(through("predictions")),
		bertClass + "LMPredictionHead":          layers.Unary(through("transform", "decoder")),
		bertClass + "PredictionHeadTransform":   layers.Unary(through("dense", "transform_act_fn", "LayerNorm")),
		bertClass + "OnlyNSPHead":               layers.Unary(through("seq_relationship")),
		bertClass + "PreTrainingHeads":          {Forward: bertPreTrainingHeadsForward},
		bertClass + "ForPreTraining":            headed("bert", bertForPreTrainingForward),
		bertClass + "ForMaskedLM":               headed("bert", logitsOf("cls")),
		bertClass + "LMHeadModel":               headed("bert", logitsOf("cls")),
		bertClass + "ForNextSentencePrediction": headed("bert", logitsOfPooled("cls")),
		bertClass + "ForSequenceClassification": headed("bert", logitsOfPooled("dropout", "classifier")),
		bertClass + "ForTokenClassification":    headed("bert", logitsOf("dropout", "classifier")),
		bertClass + "ForQuestionAnswering":      headed("bert", spansOf("qa_outputs")),
	}),
	heads: []head{
		{class: "BertModel", make: func(c *config) *layers.Module {
			return bertEncoder.model(c, c.holds("pooler.dense.weight"))
		}},
		bertHead("ForMaskedLM", false, func(c *config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyMLMHead", nil).Add("predictions", bertPredictions(c)))
		}),
		bertHead("LMHeadModel", false, func(c *config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyMLMHead", nil).Add("predictions", bertPredictions(c)))
		}),
		bertHead("ForPreTraining", true, func(c *config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"PreTrainingHeads", nil).
				Add("predictions", bertPredictions(c)).
				Add("seq_relationship", layers.Linear(c.size("hidden_size", 768), 2)))
		}),
		bertHead("ForNextSentencePrediction", true, func(c *config, m *layers.Module) {
			m.Add("cls", layers.New(bertClass+"OnlyNSPHead", nil).
				Add("seq_relationship", layers.Linear(c.size("hidden_size", 768), 2)))
		}),
		bertHead("ForSequenceClassification", true, addClassifier),
		bertHead("ForTokenClassification", false, addClassifier),
		bertHead("ForQuestionAnswering", false, addSpans),
	},
	inputs: tokenInputs("attention_mask", "token_type_ids", "position_ids"),
	tied: [][2]string{
		{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
		{"cls.predictions.decoder.bias", "cls.predictions.bias"},
	},
	ties: true,
}

// bertHead returns a model with a head that add puts on it.
func bertHead(name string, pooler bool, add func(c *config, m *layers.Module)) head {
	return head{class: "Bert" + name, make: func(c *config) *layers.Module {
		m := layers.New(bertClass+name, nil).Add("bert", bertEncoder.model(c, pooler))
		add(c, m)
		return m
	}}
}

// addClassifier adds what classifies sequences or tokens.
func addClassifier(c *config, m *layers.Module) {
	m.Add("dropout", layers.Dropout(0.1)).
		Add("classifier", layers.Linear(c.size("hidden_size", 768), c.labels()))
}

// addSpans adds what finds answers.
func addSpans(c *config, m *layers.Module) {
	m.Add("qa_outputs", layers.Linear(c.size("hidden_size", 768), c.labels()))
}

// bertPredictions is BertLMPredictionHead. Its own bias is that of its decoder.
func bertPredictions(c *config) *layers.Module {
	hidden, words := c.size("hidden_size", 768), c.size("vocab_size", 30522)
	return layers.New(bertClass+"LMPredictionHead", nil).
		Param("bias", words).
		Add("transform", layers.New(bertClass+"PredictionHeadTransform", nil).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("transform_act_fn", c.activation(c.text("hidden_act", "gelu"))).
			Add("LayerNorm", layers.LayerNorm(hidden, layers.Eps(c.float("layer_norm_eps", 1e-12))))).
		Add("decoder", layers.Linear(hidden, words))
}

func bertPreTrainingHeadsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	return []layers.Tensor{
		t.Child(m, "predictions", optional(t, args, 0)), t.Child(m, "seq_relationship", optional(t, args, 1)),
	}
}

func bertForPreTrainingForward(t *layers.Trace, m *layers.Module, x, pooled layers.Tensor) any {
	scores := t.ChildOf(m, "cls", x, pooled).([]layers.Tensor)
	return layers.Fields{
		{Name: "prediction_logits", Value: scores[0]}, {Name: "seq_relationship_logits", Value: scores[1]},
	}
}
