package seq2seq

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// Families that have the parts of BART: transformers/models/mbart, pegasus and marian.
var (
	mbart = (&seq2seqForm{
		class: "transformers.models.mbart.modeling_mbart.MBart", words: 50265, start: 2, scaled: true, normedEmbedding: true, normedEnd: true,
	}).family("mbart", "MBartForConditionalGeneration", NormedFirstLayerForward)
	pegasus = (&seq2seqForm{
		class: "transformers.models.pegasus.modeling_pegasus.Pegasus", words: 50265, sinusoids: true, normedEnd: true,
	}).family("pegasus", "PegasusForConditionalGeneration", NormedFirstLayerForward)
	marian = (&seq2seqForm{
		class: "transformers.models.marian.modeling_marian.Marian", words: 58101, start: 58100, sinusoids: true, parted: true,
	}).family("marian", "MarianMTModel", bartLayerForward)
)

// family returns the family of a model_type whose layers have a forward. The class that writes is writer.
func (f *seq2seqForm) family(model, writer string, layer func(t *layers.Trace, m *layers.Module, args ...any) any) *family.Family {
	base := f.writer(writer)
	name := f.class[len("transformers.models.")+len(model)+len(".modeling_")+len(model)+len("."):]
	classes := layers.Classes{
		f.class + "Model":            {Forward: bartModelForward},
		f.class + "Encoder":          {Forward: bartEncoderForward},
		f.class + "Decoder":          {Forward: bartDecoderForward},
		f.class + "EncoderLayer":     {Forward: layer},
		f.class + "DecoderLayer":     {Forward: layer},
		f.class + "Attention":        {Forward: bartAttentionForward},
		f.class + writer[len(name):]: {Forward: bartForConditionalGenerationForward},
	}
	if f.scaled {
		classes[f.class+"ScaledWordEmbedding"] = layers.Unary(bartEmbeddingForward)
	}
	if f.sinusoids {
		classes[f.class+"SinusoidalPositionalEmbedding"] = layers.Class{Forward: sinesForward}
	} else {
		classes[f.class+"LearnedPositionalEmbedding"] = layers.Class{Forward: bartPositionsForward}
	}
	return &family.Family{
		Model: model, Prefix: "model", Classes: classes, Inputs: bart.Inputs, Ties: true,
		Ignored: []string{`(^|\.)(encoder|decoder)\.version$`},
		Heads:   []family.Head{{Class: name + "Model", Make: f.model}, base},
		Tied:    append([][2]string{{"lm_head.weight", "model.decoder.embed_tokens.weight"}}, bart.Tied...),
	}
}

// maxSines bounds the numbers of a table of sinusoids.
const maxSines = 1 << 26

// sines is the table of positions that are not learned: for half of the dimensions their sines, for the others their
// cosines. Checkpoints may hold it or not.
func (f *seq2seqForm) sines(c *family.Config, side string, positions, hidden int) *layers.Module {
	m := layers.New(f.class+"SinusoidalPositionalEmbedding", nil)
	if c.Holds(side + ".embed_positions.weight") {
		return m.Param("weight", positions, hidden)
	}
	if c.Err == nil && positions > maxSines/hidden {
		c.Fail("max_position_embeddings", "times d_model is more than %d", maxSines)
	}
	if c.Err != nil {
		positions, hidden = 1, 1
	}
	all := make([]float32, 0, positions*hidden)
	for p := range positions {
		angle := func(j int) float64 { return float64(p) / math.Pow(10000, float64(2*(j/2))/float64(hidden)) }
		for j := 0; j < hidden; j += 2 {
			all = append(all, float32(math.Sin(angle(j))))
		}
		for j := 1; j < hidden; j += 2 {
			all = append(all, float32(math.Cos(angle(j))))
		}
	}
	m.Params = append(m.Params, layers.Param{
		Name: "weight", DType: tensor.Float32, Shape: tensor.Shape{positions, hidden}, Transient: true,
		Value: tensor.Of(all, positions, hidden),
	})
	return m
}

// sinesForward takes tokens, and their positions if they are known.
func sinesForward(t *layers.Trace, m *layers.Module, args ...any) any {
	weight, s := t.Param(m, "weight"), family.TokenIDs(t, args).Shape()
	if longest := weight.Shape()[0]; s[1] > longest && !IsStep(t) {
		t.Fail("%d tokens, and the model has %d positions", s[1], longest)
	}
	positions := family.Optional(t, args, 1)
	if positions == nil {
		positions = t.Op("arange", s[1], layers.Named{"dtype": tensor.Int64})
	}
	return t.Op("embedding", weight, positions)
}

// Families are the families that read one text and write another.
var Families = []*family.Family{t5, bart, mbart, pegasus, marian}
