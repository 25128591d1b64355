package encoders

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// roberta is transformers/models/roberta/modeling_roberta.py; the others are its copies under other names.
var (
	roberta    = robertaFamily("roberta", "transformers.models.roberta.modeling_roberta.", "Roberta", 50265)
	xlmRoberta = robertaFamily("xlm-roberta", "transformers.models.xlm_roberta.modeling_xlm_roberta.", "XLMRoberta", 30522)
	camembert  = robertaFamily("camembert", "transformers.models.camembert.modeling_camembert.", "Camembert", 30522)
)

// robertaFamily is RoBERTa by a name of its own: the classes of a Python module that begin with name.
func robertaFamily(model, module, name string, vocabulary int) *family.Family {
	class := module + name
	e := Encoder{Prefix: "roberta", Class: class, Vocabulary: vocabulary, padding: 1, Positions: positionsAfterPadding}
	withHead := func(kind string, add func(c *family.Config, m *layers.Module)) family.Head {
		return family.Head{Class: name + kind, Make: func(c *family.Config) *layers.Module {
			m := layers.New(class+kind, nil).Add("roberta", e.Model(c, false))
			add(c, m)
			return m
		}}
	}
	// addLM adds RobertaLMHead. Its own bias is that of its decoder.
	addLM := func(c *family.Config, m *layers.Module) {
		hidden, words := c.Size("hidden_size", 768), c.Size("vocab_size", vocabulary)
		m.Add("lm_head", layers.New(class+"LMHead", nil).
			Param("bias", words).
			Add("dense", layers.Linear(hidden, hidden)).
			Add("layer_norm", layers.LayerNorm(hidden, layers.Eps(c.Float("layer_norm_eps", 1e-12)))).
			Add("decoder", layers.Linear(hidden, words)))
	}
	return &family.Family{
		Model: model, Prefix: "roberta",
		Encodes: name + "Model", Positions: 512, AfterPadding: true, Padding: e.padding,
		Ignored: []string{`(^|\.)pooler\.`, `(^|\.)embeddings\.token_type_ids$`},
		Classes: e.Classes(robertaClasses(class)),
		Heads: []family.Head{
			{Class: name + "Model", Make: func(c *family.Config) *layers.Module {
				return e.Model(c, c.Holds("pooler.dense.weight"))
			}},
			withHead("ForMaskedLM", addLM),
			withHead("ForCausalLM", addLM),
			withHead("ForSequenceClassification", func(c *family.Config, m *layers.Module) {
				addClassificationHead(c, m, class)
			}),
			withHead("ForTokenClassification", addClassifier),
			withHead("ForQuestionAnswering", addSpans),
		},
		Inputs: family.TokenInputs("attention_mask", "token_type_ids", "position_ids"),
		Tied: [][2]string{
			{"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
			{"lm_head.decoder.bias", "lm_head.bias"},
		},
		Ties: true,
	}
}

// robertaClasses are the classes of the heads.
func robertaClasses(class string) layers.Classes {
	return layers.Classes{
		class + "LMHead":                    layers.Unary(robertaLMHeadForward),
		class + "ClassificationHead":        layers.Unary(robertaClassificationHeadForward),
		class + "ForMaskedLM":               family.Headed("roberta", family.LogitsOf("lm_head")),
		class + "ForCausalLM":               family.Headed("roberta", family.LogitsOf("lm_head")),
		class + "ForSequenceClassification": family.Headed("roberta", family.LogitsOf("classifier")),
		class + "ForTokenClassification":    family.Headed("roberta", family.LogitsOf("dropout", "classifier")),
		class + "ForQuestionAnswering":      family.Headed("roberta", family.SpansOf("qa_outputs")),
	}
}

func robertaLMHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("gelu", t.Child(m, "dense", x))
	return t.Child(m, "decoder", t.Child(m, "layer_norm", x))
}

// addClassificationHead adds the head of a class that labels whole texts.
func addClassificationHead(c *family.Config, m *layers.Module, class string) {
	hidden := c.Size("hidden_size", 768)
	m.Add("classifier", layers.New(class+"ClassificationHead", nil).
		Add("dense", layers.Linear(hidden, hidden)).
		Add("dropout", layers.Dropout(0.1)).
		Add("out_proj", layers.Linear(hidden, c.Labels())))
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
