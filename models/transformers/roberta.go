package transformers

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

const robertaClass = "transformers.models.roberta.modeling_roberta.Roberta"

var robertaEncoder = encoder{
	prefix: "roberta", class: robertaClass, vocabulary: 50265, padding: 1, positions: positionsAfterPadding,
}

// roberta is transformers/models/roberta/modeling_roberta.py.
var roberta = &family{
	model: "roberta", prefix: "roberta",
	ignored: []string{`(^|\.)pooler\.`, `(^|\.)embeddings\.token_type_ids$`},
	classes: robertaEncoder.classes(layers.Classes{
		robertaClass + "LMHead":                    layers.Unary(robertaLMHeadForward),
		robertaClass + "ClassificationHead":        layers.Unary(robertaClassificationHeadForward),
		robertaClass + "ForMaskedLM":               headed("roberta", logitsOf("lm_head")),
		robertaClass + "ForCausalLM":               headed("roberta", logitsOf("lm_head")),
		robertaClass + "ForSequenceClassification": headed("roberta", logitsOf("classifier")),
		robertaClass + "ForTokenClassification":    headed("roberta", logitsOf("dropout", "classifier")),
		robertaClass + "ForQuestionAnswering":      headed("roberta", spansOf("qa_outputs")),
	}),
	heads: []head{
		{class: "RobertaModel", make: func(c *config) *layers.Module {
			return robertaEncoder.model(c, c.holds("pooler.dense.weight"))
		}},
		robertaHead("ForMaskedLM", addRobertaLM),
		robertaHead("ForCausalLM", addRobertaLM),
		robertaHead("ForSequenceClassification", func(c *config, m *layers.Module) {
			hidden := c.size("hidden_size", 768)
			m.Add("classifier", layers.New(robertaClass+"ClassificationHead", nil).
				Add("dense", layers.Linear(hidden, hidden)).
				Add("dropout", layers.Dropout(0.1)).
				Add("out_proj", layers.Linear(hidden, c.labels())))
		}),
		robertaHead("ForTokenClassification", addClassifier),
		robertaHead("ForQuestionAnswering", addSpans),
	},
	inputs: tokenInputs("attention_mask", "token_type_ids", "position_ids"),
	tied: [][2]string{
		{"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
		{"lm_head.decoder.bias", "lm_head.bias"},
	},
	ties: true,
}

// robertaHead returns a model with a head that add puts on it.
func robertaHead(name string, add func(c *config, m *layers.Module)) head {
	return head{class: "Roberta" + name, make: func(c *config) *layers.Module {
		m := layers.New(robertaClass+name, nil).Add("roberta", robertaEncoder.model(c, false))
		add(c, m)
		return m
	}}
}

// addRobertaLM adds RobertaLMHead. Its own bias is that of its decoder.
func addRobertaLM(c *config, m *layers.Module) {
	hidden, words := c.size("hidden_size", 768), c.size("vocab_size", robertaEncoder.vocabulary)
	m.Add("lm_head", layers.New(robertaClass+"LMHead", nil).
		Param("bias", words).
		Add("dense", layers.Linear(hidden, hidden)).
		Add("layer_norm", layers.LayerNorm(hidden, layers.Eps(c.float("layer_norm_eps", 1e-12)))).
		Add("decoder", layers.Linear(hidden, words)))
}

func robertaLMHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("gelu", t.Child(m, "dense", x))
	return t.Child(m, "decoder", t.Child(m, "layer_norm", x))
}

func robertaClassificationHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Child(m, "dropout", t.Op("select.int", x, 1, 0))
	x = t.Op("tanh", t.Child(m, "dense", x))
	return t.Child(m, "out_proj", t.Child(m, "dropout", x))
}

// positionsAfterPadding numbers the tokens that are no padding, from the padding's number on, which padding keeps.
func positionsAfterPadding(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	padding := m.Int("padding_idx")
	mask := t.Op("to.dtype", t.Op("ne.Scalar", ids, padding), tensor.Int32)
	count := t.Op("type_as", t.Op("cumsum", mask, 1), mask)
	count = t.Op("mul.Tensor", t.Op("add.Tensor", count, 0), mask)
	return t.Op("add.Tensor", t.Op("to.dtype", count, tensor.Int64), padding)
}
