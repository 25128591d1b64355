package transformers

import "github.com/optimem/optimem/layers"

const electraClass = "transformers.models.electra.modeling_electra.Electra"

var electraEncoder = encoder{
	prefix: "electra", class: electraClass, vocabulary: 30522, positions: firstPositions, hidden: 256, heads: 4, inner: 1024, words: 128,
}

// electra is transformers/models/electra/modeling_electra.py: BERT with narrower embeddings, and heads of its own.
var electra = &family{
	model: "electra", prefix: "electra", encodes: "ElectraModel", positions: 512,
	ignored: []string{`(^|\.)embeddings\.token_type_ids$`},
	classes: electraEncoder.classes(layers.Classes{
		electraClass + "DiscriminatorPredictions":  layers.Unary(electraPredictionsForward),
		electraClass + "ClassificationHead":        layers.Unary(electraClassificationHeadForward),
		electraClass + "ForPreTraining":            headed("electra", logitsOf("discriminator_predictions")),
		electraClass + "ForSequenceClassification": headed("electra", logitsOf("classifier")),
		electraClass + "ForTokenClassification":    headed("electra", logitsOf("dropout", "classifier")),
		electraClass + "ForQuestionAnswering":      headed("electra", spansOf("qa_outputs")),
	}),
	heads: []head{
		{class: "ElectraModel", make: func(c *config) *layers.Module { return electraEncoder.model(c, false) }},
		electraHead("ForPreTraining", func(c *config, m *layers.Module, hidden int) {
			m.Add("discriminator_predictions", layers.New(electraClass+"DiscriminatorPredictions", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("activation", c.activation(c.text("hidden_act", "gelu"))).
				Add("dense_prediction", layers.Linear(hidden, 1)))
		}),
		electraHead("ForSequenceClassification", func(c *config, m *layers.Module, hidden int) {
			m.Add("classifier", layers.New(electraClass+"ClassificationHead", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("activation", c.activation("gelu")).
				Add("dropout", layers.Dropout(0.1)).
				Add("out_proj", layers.Linear(hidden, c.labels())))
		}),
		electraHead("ForTokenClassification", func(c *config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.labels()))
		}),
		electraHead("ForQuestionAnswering", func(c *config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, c.labels()))
		}),
	},
	inputs: tokenInputs("attention_mask", "token_type_ids", "position_ids"),
}

// electraHead returns a model with a head that add puts on it.
func electraHead(name string, add func(c *config, m *layers.Module, hidden int)) head {
	return head{class: "Electra" + name, make: func(c *config) *layers.Module {
		m := layers.New(electraClass+name, nil).Add("electra", electraEncoder.model(c, false))
		add(c, m, c.size("hidden_size", electraEncoder.hidden))
		return m
	}}
}

// electraPredictionsForward tells of each token whether it was replaced.
func electraPredictionsForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "activation", t.Child(m, "dense", x))
	return t.Op("squeeze.dim", t.Child(m, "dense_prediction", x), -1)
}

func electraClassificationHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "dropout", t.Op("select.int", x, 1, 0))
	x = t.Child(m, "activation", t.Child(m, "dense", x))
	return t.Child(m, "out_proj", t.Child(m, "dropout", x))
}
