package encoders

import (
	"github.com/optimem/optimem/layers"

	"github.com/optimem/optimem/models/transformers/family"
)

const electraClass = "transformers.models.electra.modeling_electra.Electra"

var electraEncoder = Encoder{
	Prefix: "electra", Class: electraClass, Vocabulary: 30522, Positions: FirstPositions, hidden: 256, heads: 4, inner: 1024, words: 128,
}

// electra is transformers/models/electra/modeling_electra.py: BERT with narrower embeddings, and heads of its own.
var electra = &family.Family{
	Model: "electra", Prefix: "electra", Encodes: "ElectraModel", Positions: 512,
	Ignored: []string{`(^|\.)embeddings\.token_type_ids$`},
	Classes: electraEncoder.Classes(layers.Classes{
		electraClass + "DiscriminatorPredictions":  layers.Unary(electraPredictionsForward),
		electraClass + "ClassificationHead":        layers.Unary(electraClassificationHeadForward),
		electraClass + "ForPreTraining":            family.Headed("electra", family.LogitsOf("discriminator_predictions")),
		electraClass + "ForSequenceClassification": family.Headed("electra", family.LogitsOf("classifier")),
		electraClass + "ForTokenClassification":    family.Headed("electra", family.LogitsOf("dropout", "classifier")),
		electraClass + "ForQuestionAnswering":      family.Headed("electra", family.SpansOf("qa_outputs")),
	}),
	Heads: []family.Head{
		{Class: "ElectraModel", Make: func(c *family.Config) *layers.Module { return electraEncoder.Model(c, false) }},
		electraHead("ForPreTraining", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("discriminator_predictions", layers.New(electraClass+"DiscriminatorPredictions", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("activation", c.Activation(c.Text("hidden_act", "gelu"))).
				Add("dense_prediction", layers.Linear(hidden, 1)))
		}),
		electraHead("ForSequenceClassification", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("classifier", layers.New(electraClass+"ClassificationHead", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("activation", c.Activation("gelu")).
				Add("dropout", layers.Dropout(0.1)).
				Add("out_proj", layers.Linear(hidden, c.Labels())))
		}),
		electraHead("ForTokenClassification", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("dropout", layers.Dropout(0.1)).Add("classifier", layers.Linear(hidden, c.Labels()))
		}),
		electraHead("ForQuestionAnswering", func(c *family.Config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, c.Labels()))
		}),
	},
	Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
}

// electraHead returns a model with a head that add puts on it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func electraHead(name string, add func(c *family.Config, m *layers.Module, hidden int)) family.Head {
	return family.Head{Class: "Electra" + name, Make: func(c *family.Config) *layers.Module {
		m := layers.New(electraClass+name, nil).Add("electra", electraEncoder.Model(c, false))
		add(c, m, c.Size("hidden_size", electraEncoder.hidden))
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
