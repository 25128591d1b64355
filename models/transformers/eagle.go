package transformers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// EAGLE: a head that guesses what follows in a text from what layers of another model, the target, see of its tokens
// (https://arxiv.org/abs/2401.15077, 2406.16858 and 2503.01840). Its row of a token takes the embedding of the token that
// follows, and what the target saw of the token itself or, of tokens that are guessed, what the head gave for it. The heads
// of EAGLE-2 are EAGLE's.

// The inputs of a head beside the tokens, and its result beside the logits.
const (
	// EagleSeen is what the target saw of each token, [batch tokens size]. A head of EAGLE finds there what it gave itself, too.
	EagleSeen = "seen"
	// EagleOwn is what the head of EAGLE-3 gave for a token, [batch tokens size], and EagleGuessed is 1 where it is to be
	// taken: int64 [batch tokens].
	EagleOwn     = "own"
	EagleGuessed = "guessed"
	// EagleHidden is what the head gives for a token, from which the next one may be guessed: [batch tokens size].
	EagleHidden = "hidden"
)

// A Target is the model that a head is for.
type Target struct {
	// Hidden is how many numbers its layers see of a token, Layers how many there are.
	Hidden, Layers int
	// Context is how many positions a sequence has at most.
	Context int
}

// A TargetError says why a head is not one for its target.
type TargetError struct{ Msg string }

// Error says so.
func (e *TargetError) Error() string { return e.Msg }

// unfit records that a head does not fit its target.
func unfit(c *family.Config, format string, args ...any) {
	if c.Err == nil {
		c.Err = &TargetError{fmt.Sprintf(format, args...)}
	}
}

// An Eagle is what a head is, beside its architecture.
type Eagle struct {
	// Third says that it is of EAGLE-3.
	Third bool
	// Layers are those of the target of which it sees what they see: [layers.Trace.Hidden].
	Layers []int
	// Size is how many numbers it gives for a token, and Words how many tokens it reads, Known how many it chooses from.
	Size, Words, Known int
}

// eagleNames turns the names that heads have into those of the modules.
var eagleNames = strings.NewReplacer("midlayer.", "layers.0.", "fusion_fc.", "fc.")

// eagleName is what a weight of a head is called here.
func eagleName(name string) string {
	bare, _ := strings.CutPrefix(name, "model.")
	return eagleNames.Replace(bare)
}

// EagleWeights are the names of the weights that a head may have from its target: the embeddings and the head proper.
const (
	EagleWords = "embed_tokens.weight"
	EagleHead  = "lm_head.weight"
	// EagleTokens is the table of EAGLE-3 that says by how much the number of a token that the head chooses is less than the
	// target's.
	EagleTokens = "d2t"
)

// IsEagle reports whether a state dict is that of a head, and lists what it has by the names of the modules.
func IsEagle(dict layers.StateDict) (names map[string]layers.Entry, ok bool) {
	names = make(map[string]layers.Entry, len(dict))
	for _, e := range dict {
		names[eagleName(e.Name)] = e
	}
	_, joins := names["fc.weight"]
	_, attends := names["layers.0.self_attn.q_proj.weight"]
	_, first := names["layers.0.input_layernorm.weight"]
	_, third := names["layers.0.hidden_norm.weight"]
	return names, joins && attends && first == third
}

// eagleDecoder is what heads have of Llama's.
var eagleDecoder = func() decoder {
	d := decoder{
		model: "eagle", class: "optimem.eagle.Eagle", name: "Eagle", vocabulary: 32000, hidden: 4096, inner: 11008,
		layers: 1, heads: 32, positions: 2048, eps: 1e-6, act: silu, actKey: hiddenAct, mlpBias: mlpBias,
	}
	d.names = d.names.filled()
	return d
}()

// eagleClasses are the classes of heads.
var eagleClasses = func() layers.Classes {
	all := maps.Clone(runnable)
	maps.Copy(all, eagleDecoder.family().Classes)
	all[eagleDecoder.class+"Head"] = layers.Class{Forward: eagleForward}
	all[eagleDecoder.class+"Third"] = layers.Class{Forward: eagleThirdForward}
	all[eagleDecoder.class+"ThirdLayer"] = layers.Class{Forward: eagleThirdLayerForward}
	return all
}()

// eagleFamily binds the weights of heads.
var eagleFamily = &family.Family{
	Model: "eagle", Prefix: "model", Renames: eagleNames,
	Ignored: []string{`(^|\.)(d2t|t2d)$`, `^target_model\.`, `^verifier_`},
}

// EagleFrom returns the head that the text of a config.json describes, for the weights of a state dict, among which those of
// the target that it lacks are under the names [EagleWords] and [EagleHead].
func EagleFrom(text []byte, dict layers.StateDict, target Target) (*layers.Architecture, *Eagle, error) {
	c, err := family.Parse(text, dict)
	if err != nil {
		return nil, nil, err
	}
	if inner, ok := c.Fields["transformer_layer_config"].(map[string]any); ok { // of vLLM's speculators
		all := maps.Clone(inner)
		for key, v := range c.Fields {
			if key != "model_type" && key != "architectures" {
				all[key] = v
			}
		}
		c.Fields = all
	}
	names, ok := IsEagle(dict)
	if !ok {
		return nil, nil, &family.UnsupportedError{Type: "eagle", Feature: "weights that are not a head's"}
	}
	if c.Fields["quantization_config"] != nil {
		return nil, nil, &family.UnsupportedError{Type: "eagle", Feature: "quantized weights (quantization_config)"}
	}
	_, third := names["layers.0.hidden_norm.weight"]
	e := &Eagle{Third: third, Layers: []int{layers.LastHidden}}
	if third {
		e.Layers = eagleLayers(c, target.Layers)
	}
	has := func(name string) bool { _, ok := names[name]; return ok }
	root := eagleRoot(c, e, target, has)
	if c.Err != nil {
		return nil, nil, c.Err
	}
	a := &layers.Architecture{
		Name: "EAGLE", Root: root, Classes: eagleClasses, Context: target.Context, Inputs: e.inputs(target),
	}
	if third {
		a.Name = "EAGLE-3"
	}
	if seen := names["fc.weight"].Shape; len(seen) == 2 && seen[1] != e.reads(target) {
		unfit(c, "it reads %d numbers of each token, and the model has %d for it", seen[1], e.reads(target))
	}
	root.Walk(func(_ string, m *layers.Module) {
		if context, ok := m.Attrs["context"].(int); ok && context > 0 {
			c.Unsupported("rotary embeddings that change with the length, in a head")
		}
	})
	if c.Err != nil {
		return nil, nil, c.Err
	}
	a.Weights, err = eagleFamily.Bind(&family.Head{Class: a.Name}, c, root, dict)
	if err != nil {
		return nil, nil, err
	}
	return a, e, nil
}

// reads is how many numbers the module fc takes of a token.
func (e *Eagle) reads(target Target) int {
	if e.Third {
		return len(e.Layers) * target.Hidden
	}
	return 2 * e.Size
}

// inputs are those of a head.
func (e *Eagle) inputs(target Target) []layers.Port {
	numbers := func(name string, size int) layers.Port {
		return layers.Port{
			Name: name, DType: tensor.Float32, Shape: tensor.Shape{-1, -1, size},
			Dims: []string{"batch", "sequence", ""},
		}
	}
	ports := family.TokenInputs("position_ids")(nil)
	ports = append(ports, numbers(EagleSeen, len(e.Layers)*target.Hidden))
	if e.Third {
		ports = append(ports, numbers(EagleOwn, e.Size), family.Tokens(EagleGuessed, false))
	}
	return ports
}

// eagleLayers are the layers of the target that a head of EAGLE-3 sees: those that its configuration names, by what they see, or
// in an entry of SGLang's by what they give; else the third one, the middle one and the one before the last two.
func eagleLayers(c *family.Config, depth int) []int {
	const key = "eagle_aux_hidden_state_layer_ids"
	list, add := c.Fields[key], 0
	if inner, ok := c.Fields["eagle_config"].(map[string]any); ok {
		if inner["use_aux_hidden_state"] == false {
			c.Unsupported("a head of EAGLE-3 that sees one layer (use_aux_hidden_state)")
		}
		if list == nil {
			list, add = inner[key], 1
		}
	}
	chosen := []int{2, depth / 2, depth - 3}
	if list != nil {
		all, ok := list.([]any)
		if !ok || len(all) == 0 || len(all) > 16 {
			c.Fail(key, "is %s, not a list of 1 to 16 layers", family.Short(list))
			return nil
		}
		chosen = chosen[:0]
		for _, v := range all {
			n, ok := v.(json.Number)
			i, err := n.Int64()
			if !ok || err != nil {
				c.Fail(key, "has %s, not the number of a layer", family.Short(v))
				return nil
			}
			chosen = append(chosen, int(i)+add)
		}
	}
	if i := slices.IndexFunc(chosen, func(n int) bool { return n < 0 || n > depth }); i >= 0 {
		unfit(c, "it asks for what layer %d sees, and the model has %d", chosen[i], depth)
	}
	return chosen
}

// eagleRoot makes the modules of a head, of which has says which weights there are.
func eagleRoot(c *family.Config, e *Eagle, target Target, has func(string) bool) *layers.Module {
	d := eagleDecoder
	s := d.shape(c)
	e.Size, e.Words = s.hidden, c.Size("vocab_size", d.vocabulary)
	e.Known = c.Size("draft_vocab_size", e.Words)
	bias := func(name string) layers.Option { return layers.Attr("bias", has(name+".bias")) }
	attrs := d.attentionAttrs(c, s)
	attrs["turned"], attrs["window"], attrs["decoder"] = true, 0, &d
	class := d.class + "Head"
	if e.Third {
		class = d.class + "Third"
	}
	m := layers.New(class, map[string]any{"size": e.Size}).Add("embed_tokens", layers.Embedding(e.Words, s.hidden)).
		Add("fc", layers.Linear(e.reads(target), s.hidden, bias("fc")))
	switch {
	case !e.Third && c.Flag("add_para_norm", false):
		c.Unsupported("norms before the first layer of a head (add_para_norm)")
	case e.Third && s.layers != 1:
		c.Unsupported("a head of EAGLE-3 of several layers")
	case !e.Third && s.hidden != target.Hidden:
		unfit(c, "its hidden_size is %d, and that of the model is %d", s.hidden, target.Hidden)
	}
	in := s.hidden
	if e.Third {
		in *= 2
	}
	m.Add("layers", c.Repeat(s.layers, func(i int) *layers.Module {
		own := d
		if !e.Third && i == 0 {
			own.names.before[0] = ""
		}
		how := maps.Clone(attrs)
		how["decoder"] = &own
		attention := layers.New(d.class+"Attention", how)
		at := "layers.0.self_attn."
		attention.Add("q_proj", layers.Linear(in, s.heads*s.size, bias(at+"q_proj"))).
			Add("k_proj", layers.Linear(in, s.keys*s.size, bias(at+"k_proj"))).
			Add("v_proj", layers.Linear(in, s.keys*s.size, bias(at+"v_proj"))).
			Add("o_proj", layers.Linear(s.heads*s.size, s.hidden, bias(at+"o_proj")))
		if !e.Third {
			own.attend = func(*decoder, *family.Config, int, shape, map[string]any) *layers.Module { return attention }
			return own.layer(c, i, s, how, false)
		}
		return layers.New(d.class+"ThirdLayer", map[string]any{"first": c.Flag("norm_before_residual", false)}).
			Add("hidden_norm", own.normModule(c, s.hidden)).Add("input_layernorm", own.normModule(c, s.hidden)).
			Add("self_attn", attention).Add("post_attention_layernorm", own.normModule(c, s.hidden)).
			Add("mlp", own.mlp(c, s.hidden, s.inner))
	}))
	if e.Third {
		m.Add("norm", d.normModule(c, s.hidden))
	}
	m.Add("rotary_emb", rotary(c, d.class+"RotaryEmbedding", s.size, s.positions, d.rope))
	return m.Add("lm_head", layers.Linear(s.hidden, e.Known, layers.NoBias))
}

// eagleAround is what the layers of a head have around them.
func eagleAround(t *layers.Trace, m *layers.Module, args []any) *around {
	positions := family.Optional(t, args, 1)
	if positions == nil {
		t.Fail("a head runs step by step")
	}
	a := &around{positions: positions}
	a.angles[0] = t.ChildOf(m, "rotary_emb", positions)
	return a
}

// eagleForward is that of EAGLE's heads: the embedding and what was seen are joined, and the target's own head chooses from
// what the layers make of both.
func eagleForward(t *layers.Trace, m *layers.Module, args ...any) any {
	words := t.Child(m, "embed_tokens", family.TokenIDs(t, args))
	x := t.Child(m, "fc", t.Op("cat", []layers.Tensor{words, family.Optional(t, args, 2)}, -1))
	a := eagleAround(t, m, args)
	for _, block := range m.Child("layers").Children {
		x = t.Run(block.Module, x, a).(layers.Tensor)
	}
	x = t.Wanted(x)
	return layers.Fields{{Name: "logits", Value: t.Child(m, "lm_head", x)}, {Name: EagleHidden, Value: x}}
}

// eagleThirdForward is that of EAGLE-3's: what was seen is of several layers, or what the head itself gave.
func eagleThirdForward(t *layers.Trace, m *layers.Module, args ...any) any {
	words := t.Child(m, "embed_tokens", family.TokenIDs(t, args))
	seen, own, guessed := family.Optional(t, args, 2), family.Optional(t, args, 3), family.Optional(t, args, 4)
	x := t.Child(m, "fc", seen)
	x = t.Op("where.self", t.Op("unsqueeze", t.Op("eq.Scalar", guessed, 1), 2), own, x)
	x = t.ChildOf(m, "layers.0", words, x, eagleAround(t, m, args)).(layers.Tensor)
	x = t.Wanted(x)
	logits := t.Child(m, "lm_head", t.Child(m, "norm", x))
	return layers.Fields{{Name: "logits", Value: logits}, {Name: EagleHidden, Value: x}}
}

// eagleThirdLayerForward attends to embeddings and what was seen, side by side.
func eagleThirdLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	words, x, a := args[0].(layers.Tensor), args[1].(layers.Tensor), args[2].(*around)
	normed := t.Child(m, "hidden_norm", x)
	if m.Bool("first") {
		x = normed
	}
	both := t.Op("cat", []layers.Tensor{t.Child(m, "input_layernorm", words), normed}, -1)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", both, a, false).(layers.Tensor))
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "post_attention_layernorm", x)))
}
