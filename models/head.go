package models

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/quantized"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/tensor"
)

// A Head says how a model guesses that is a head on another one, its target: EAGLE's, EAGLE-2's or EAGLE-3's. It sees what
// layers of the target see of each token, and has what weights it lacks from the target.
//
// Row i of a text has position i, the token behind it, i + 1, and what the target saw of token i; the logits are of token i + 2.
// Where token i is a guess, which the target has not seen, what the head itself gave for row i − 1 stands for that.
type Head struct {
	// Kind is "EAGLE" or "EAGLE-3".
	Kind string
	// Layers are those of the target whose [StepHidden] it sees, Seen how many numbers that are for a token.
	Layers []int
	Seen   int
	// Size is how many numbers it gives for a token, [StepHidden]. Own says that those go to [StepOwn], and not to [StepSeen].
	Size int
	Own  bool
	// Tokens are the numbers of the tokens that its logits are of; nil are all in order. Vocabulary is how many the target has.
	Tokens     []int
	Vocabulary int

	target *Model
}

// For reports whether the head is one for a model.
func (h *Head) For(m *Model) bool { return h.target == m }

// Head returns what a model is that [BuildHead] made; nil of all others.
func (m *Model) Head() *Head { return m.head }

// The inputs of a step of a head, beside [StepTokens] and those that say where rows are.
const (
	// StepSeen is what the target saw of each row's token: float32 [rows, Head.Seen].
	StepSeen = "seen"
	// StepOwn is what the head gave for the row before, float32 [rows, Head.Size], which stands for it where [StepGuessed] is
	// 1: int64 [rows].
	StepOwn     = "own"
	StepGuessed = "guessed"
	// StepHidden is what the layers of [StepOptions.Hidden] see of each row, float32 [rows, …], or, of a head, what it gives
	// for the wanted rows: [wanted, Head.Size].
	StepHidden = "hidden"
)

// IsHead reports whether a checkpoint is that of a head for another model: one for [BuildHead].
func IsHead(ckpt *loader.Checkpoint) bool {
	if ckpt.Config == nil {
		return false
	}
	for _, d := range ckpt.StateDicts() {
		_, ok := transformers.IsEagle(entriesOf(d))
		return ok
	}
	return false
}

// entriesOf are the names, dtypes and shapes of a state dict.
func entriesOf(d loader.StateDict) layers.StateDict {
	dict := make(layers.StateDict, len(d.Weights))
	for i, w := range d.Weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	return dict
}

// A HeadError says why a head is not one for a model.
type HeadError struct{ Msg string }

// Error says so.
func (e *HeadError) Error() string { return "a head that does not fit the model: " + e.Msg }

// BuildHead returns the model of a head for a target, which runs step by step only: [Model.Head] says how. The target's checkpoint
// must stay open as the head's own must, since the head may have its embeddings and its last layer from there. A head that does
// not fit is a [*HeadError].
func BuildHead(ckpt *loader.Checkpoint, target *Model) (*Model, error) {
	wrong := func(err error) error { return fmt.Errorf("%s: %w", ckpt.Path, err) }
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		return nil, wrong(&UnsupportedError{What: "a head without weights"})
	}
	words, known := target.named("embed_tokens.weight")
	if !known || target.step == nil || len(words.Layout.Shape) != 2 {
		return nil, wrong(&HeadError{"nothing says what the layers of the model see"})
	}
	all := slices.Clone(dicts[0].Weights)
	dict := entriesOf(dicts[0])
	have, _ := transformers.IsEagle(dict)
	if own := have[transformers.EagleWords].Shape; len(own) == 2 && own[0] != words.Layout.Shape[0] {
		return nil, wrong(otherWords(own[0], words.Layout.Shape[0]))
	}
	for _, name := range []string{transformers.EagleWords, transformers.EagleHead} {
		if _, there := have[name]; there {
			continue
		}
		w, ok := target.named(name)
		if !ok {
			return nil, wrong(&HeadError{"neither has the weight " + name})
		}
		w.Name = name
		all, dict = append(all, w), append(dict, layers.Entry{Name: name, DType: w.DType, Shape: w.Layout.Shape})
	}
	facts := transformers.Target{Hidden: words.Layout.Shape[1], Layers: target.depth, Context: target.context}
	a, e, err := transformers.EagleFrom(ckpt.Config, dict, facts)
	if err != nil {
		var mismatch *layers.MismatchError
		var unfit *transformers.TargetError
		if errors.As(err, &mismatch) || errors.As(err, &unfit) {
			err = &HeadError{err.Error()}
		}
		return nil, wrong(configError(ckpt, err))
	}
	h := &Head{
		Kind: a.Name, Layers: e.Layers, Seen: len(e.Layers) * facts.Hidden, Size: e.Size, Own: e.Third,
		Vocabulary: words.Layout.Shape[0], target: target,
	}
	if e.Words != h.Vocabulary {
		return nil, wrong(otherWords(e.Words, h.Vocabulary))
	}
	if h.Tokens, err = headTokens(dicts[0].Weights, e.Known, h.Vocabulary); err != nil {
		return nil, wrong(err)
	}
	joined, err := loader.NewCheckpoint(ckpt.Path, all, nil)
	if err != nil {
		return nil, err
	}
	joined.Format = ckpt.Format
	m := newModel(target.ops, joined.Weights)
	if err := m.useArchitecture(joined, a, Options{Ops: target.ops}, nil); err != nil {
		return nil, wrong(err)
	}
	m.head = h
	m.build = func(context.Context, Call) (*graph.Graph, error) {
		return nil, &UnsupportedError{What: "a head alone", Hint: "give it beside its model: --draft"}
	}
	return m, nil
}

// otherWords is of a head with another vocabulary.
func otherWords(own, words int) error {
	return &HeadError{fmt.Sprintf("it reads %d tokens, and the model has %d", own, words)}
}

// maxHeadTokens bounds the bytes of the table of the tokens of a head.
const maxHeadTokens = 64 << 20

// headTokens are the numbers of the tokens that a head chooses from, where those are not all: it has by how much they are more
// than the places.
func headTokens(weights []tensor.Weight, known, vocabulary int) ([]int, error) {
	i := slices.IndexFunc(weights, func(w tensor.Weight) bool {
		return strings.TrimPrefix(w.Name, "model.") == transformers.EagleTokens
	})
	if known == vocabulary && i < 0 {
		return nil, nil
	}
	if i < 0 {
		const text = "it chooses from %d tokens of %d, and has no table %s that says which"
		return nil, &HeadError{fmt.Sprintf(text, known, vocabulary, transformers.EagleTokens)}
	}
	w := weights[i]
	shape := w.Layout.Shape
	listed := shape.Equal(tensor.Shape{known}) && w.Layout.IsContiguous() && !w.BigEndian
	if w.DType != tensor.Int64 && w.DType != tensor.Int32 || !listed {
		return nil, fmt.Errorf("%w: %s is %v %v, not numbers for %d tokens", loader.ErrFormat, w.Name, w.DType,
			shape, known)
	}
	raw, err := quantized.FirstBytes(&w, maxHeadTokens)
	if err != nil {
		return nil, err
	}
	tokens := make([]int, known)
	for k := range tokens {
		more := int64(0)
		if w.DType == tensor.Int64 {
			more = int64(binary.LittleEndian.Uint64(raw[8*k:]))
		} else {
			more = int64(int32(binary.LittleEndian.Uint32(raw[4*k:])))
		}
		if more < -int64(k) || more >= int64(vocabulary-k) {
			const text = "its token %d is %d of the model's, which has %d"
			return nil, &HeadError{fmt.Sprintf(text, k, int64(k)+more, vocabulary)}
		}
		tokens[k] = k + int(more)
	}
	return tokens, nil
}

// named returns a weight of a model whose modules are known by the end of its name, wherever its base is.
func (m *Model) named(name string) (tensor.Weight, bool) {
	if m.lookup == nil {
		return tensor.Weight{}, false
	}
	return m.lookup(name)
}

// lookupIn finds weights of an architecture in a checkpoint.
func lookupIn(
	ckpt *loader.Checkpoint, a *layers.Architecture, rename func(string) string,
) func(string) (tensor.Weight, bool) {
	return func(name string) (tensor.Weight, bool) {
		for _, e := range a.Root.StateDict() {
			if e.Name != name && !strings.HasSuffix(e.Name, "."+name) {
				continue
			}
			own := e.Name
			if other, ok := a.Weights[own]; ok {
				own = other
			}
			if rename != nil {
				own = rename(own)
			}
			return ckpt.Weight(own)
		}
		return tensor.Weight{}, false
	}
}

// depthOf is how many layers an architecture has: the modules of its list of that name.
func depthOf(a *layers.Architecture) int {
	depth := 0
	a.Root.Walk(func(path string, m *layers.Module) {
		if depth == 0 && (path == "layers" || strings.HasSuffix(path, ".layers")) {
			depth = len(m.Children)
		}
	})
	return depth
}

// ports are the inputs of a head's step beside those of others.
func (h *Head) ports() []Port {
	numbers := func(name string, size int) Port {
		return Port{Name: name, DType: tensor.Float32, Shape: tensor.Shape{-1, size}, Dims: []string{"rows", ""}}
	}
	ports := []Port{numbers(StepSeen, h.Seen)}
	if h.Own {
		ports = append(ports, numbers(StepOwn, h.Size),
			Port{Name: StepGuessed, DType: tensor.Int64, Shape: tensor.Shape{-1}, Dims: []string{"rows"}})
	}
	return ports
}
