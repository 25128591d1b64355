// Package perplexity tells how well a language model foresees a text: the exponential of the mean of −log p over the
// text's tokens, each seen from those before it, as transformers' guide to perplexity has it. Two models of one
// vocabulary are compared by it, such as a folder and what package quantize makes of it.
//
// A text that is longer than a window is read in windows that overlap by half; of each those tokens count that no
// earlier one had, so that all but the first are seen from half a window at least. The first token of a text is not
// foreseen. A window is one run of the model, whose logits are part of the session's plan.
//
// It is a package of its own since it runs models, which quantize does not, and needs no caches, which generate is
// about. It does not know tokenizers, folders, or what a model computes.
//
//	result, err := perplexity.Of(ctx, model, tokens, perplexity.Options{Context: 1024})
//	fmt.Println(result.Perplexity)
package perplexity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Options say how a text is read. The zero value is right.
type Options struct {
	// Context is how many tokens a window has; 0 is [DefaultContext], or what the model was made for where that is
	// less.
	Context int
	// Session is how the session runs: its mode, memory, device, ….
	Session runtime.Options
	// Done, where it is not nil, is told how many tokens more were read.
	Done func(tokens int)
}

// DefaultContext is what [Options.Context] is at most where it says nothing.
const DefaultContext = 1024

// A Result is what a text is to a model.
type Result struct {
	// Perplexity is 1 where the model is sure of every token, and the number of tokens that there are where it knows
	// nothing.
	Perplexity float64
	// Tokens is how many tokens were foreseen: all but the first.
	Tokens int
}

// ErrShort says that a text has fewer than two tokens, so that there is none to foresee.
var ErrShort = errors.New("the text has fewer than two tokens")

// ErrContext says that windows cannot have the length that was asked for.
var ErrContext = errors.New("no such context")

// ErrModel says that a model gives no logits of the tokens that follow each of its input_ids.
var ErrModel = errors.New("not a model that writes text")

// ErrInfinite says that a perplexity is no number.
var ErrInfinite = errors.New("the perplexity is no finite number")

// The names of a model's input and output.
const (
	idsInput     = "input_ids"
	logitsOutput = "logits"
)

// Of returns the perplexity of a text's tokens. The model's checkpoint must be open.
func Of(ctx context.Context, model *models.Model, tokens []uint32, opts Options) (result Result, err error) {
	length, err := Context(model, opts.Context)
	if err != nil {
		return Result{}, err
	}
	if len(tokens) < 2 {
		return Result{}, ErrShort
	}
	session, err := runtime.Start(ctx, model, opts.Session)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = cmp.Or(err, session.Close()) }()
	if opts.Done == nil {
		opts.Done = func(int) {}
	}
	sum, seen := 0.0, 0 // seen is the end of what was read
	for begin := 0; seen < len(tokens); begin += length / 2 {
		end := min(begin+length, len(tokens))
		// What foresees the first token that is new stands before it, in this window.
		first := max(seen, 1)
		lost, err := window(ctx, session, tokens[begin:end], first-begin)
		if err != nil {
			return Result{}, err
		}
		sum += lost
		opts.Done(end - seen)
		seen = end
	}
	result = Result{Tokens: len(tokens) - 1}
	result.Perplexity = math.Exp(sum / float64(result.Tokens))
	if math.IsInf(result.Perplexity, 0) || math.IsNaN(result.Perplexity) {
		return Result{}, ErrInfinite
	}
	return result, nil
}

// Context returns how many tokens a window has, where asked for n or, with 0, for what is right for the model.
func Context(model *models.Model, n int) (int, error) {
	longest := model.Context()
	switch {
	case longest == 0:
		return 0, ErrModel
	case n == 0:
		n = min(longest, DefaultContext)
	case n > longest:
		return 0, fmt.Errorf("%w: %d tokens, and the model was made for %d", ErrContext, n, longest)
	}
	if n < 2 {
		return 0, fmt.Errorf("%w: %d tokens, and a window has two at least", ErrContext, n)
	}
	return n, nil
}

// window returns the sum of −log p of a window's tokens from first on, which is at least 1.
func window(ctx context.Context, session *runtime.Session, tokens []uint32, first int) (float64, error) {
	ids := make([]int64, len(tokens))
	for i, id := range tokens {
		ids[i] = int64(id)
	}
	out, err := session.Run(ctx, runtime.Values{idsInput: tensor.Of(ids, 1, len(ids))})
	if err != nil {
		return 0, err
	}
	logits := out[logitsOutput]
	if logits == nil || logits.DType != tensor.Float32 || len(logits.Layout.Shape) != 3 ||
		logits.Layout.Shape[1] != len(ids) {
		return 0, fmt.Errorf("%w: it has no logits of all tokens", ErrModel)
	}
	numbers, err := tensor.Slice[float32](logits.Contiguous())
	if err != nil {
		return 0, err
	}
	width, sum := logits.Layout.Shape[2], 0.0
	for i := first; i < len(ids); i++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if ids[i] >= int64(width) {
			return 0, fmt.Errorf("%w: the token %d, and it has logits of %d", ErrModel, ids[i], width)
		}
		sum += surprise(numbers[(i-1)*width:][:width], int(ids[i]))
	}
	return sum, nil
}

// surprise is −log p of a token.
func surprise(logits []float32, token int) float64 {
	most := math.Inf(-1)
	for _, x := range logits {
		most = max(most, float64(x)) // NaN stays
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	return most + math.Log(sum) - float64(logits[token])
}
