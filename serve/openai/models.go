package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/tokenizer"
)

// Models are what requests may name. Whoever serves implements it: which models there are, which of them are open, how many
// requests may wait. It may be used by many goroutines at once.
//
// Errors are answered by their type: a [*NotFoundError] with 404, a [*BusyError] with 429 or 503 and when to come back, a
// [*KindError] with 400, the context's own with nothing, since the client went away, any other with 500 and no words of it.
type Models interface {
	// List returns the models that may be named, in the order in which they are to be shown.
	List(ctx context.Context) ([]Model, error)
	// Writer lends a model that writes text. It may wait, as until the model is loaded, no longer than ctx.
	Writer(ctx context.Context, need Need) (*WriterLease, error)
	// Embedder lends a model that makes vectors. It may wait as Writer does.
	Embedder(ctx context.Context, need Need) (*EmbedderLease, error)
}

// A Model is one of a list.
type Model struct {
	// ID is the name by which requests ask for the model.
	ID string
	// Created is when the model was made or found, OwnedBy who made it; "optimem" where that is empty.
	Created time.Time
	OwnedBy string
}

// A Need is what a request wants to be lent.
type Need struct {
	// Model is the name that the request gave.
	Model string
	// Sequences is how many texts are written at once; for vectors, how many texts there are.
	Sequences int
}

// A WriterLease is a model that writes, for one request.
type WriterLease struct {
	Writer Writer
	// Defaults are what holds where the request does not say; nil is what Writer's Defaults says.
	Defaults *generate.Defaults
	// Stop, Schema, Grammar and Logprobs are so, too: texts that end an answer, what it must be, and how many rivals of
	// each token are told. A request with tools has no schema but its tools', and none of /v1/completions tells of more
	// than five rivals.
	Stop     []string
	Schema   json.RawMessage
	Grammar  string
	Logprobs int
	// Pictures makes the source of a request of pictures, files or base64 of them; free gives back its memory, when the
	// request is done, and is never nil. Pictures is nil of a model that sees none.
	Pictures func(ctx context.Context, files [][]byte) (source *generate.Source, free func(), err error)
	// Release is called once, when the request is done with the model. It may be nil.
	Release func()
}

// An EmbedderLease is a model that makes vectors, for one request.
type EmbedderLease struct {
	Embedder Embedder
	// Release is called once, when the request is done with the model. It may be nil.
	Release func()
}

// A Writer is what this package needs of a [*generate.Writer], which is one.
type Writer interface {
	// Tokenizer turns text into tokens and back.
	Tokenizer() *tokenizer.Tokenizer
	// Defaults are those of the model's folder.
	Defaults() generate.Defaults
	// HasChat reports whether there is a chat template, and Render returns what it makes of messages.
	HasChat() bool
	Render(generate.TextRequest) (string, error)
	// Tokens returns the tokens of a prompt.
	Tokens(generate.TextRequest) ([]int, error)
	// Constraint returns what keeps an answer to a schema.
	Constraint(generate.TextRequest) (generate.Constraint, error)
	// Context is how many tokens a sequence has at most, Vocabulary how many tokens there are.
	Context() int
	Vocabulary() int
	// Pieces writes text and calls got with each piece that is certain, on the caller's goroutine.
	Pieces(ctx context.Context, r generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error)
}

// An Embedder is what this package needs of a [*embed.Embedder], which is one.
type Embedder interface {
	// Dim is how many numbers a vector has.
	Dim() int
	// Embed returns the vectors of texts.
	Embed(ctx context.Context, r embed.Request) (*embed.Result, error)
}

// A NotFoundError says that there is no model of a name.
type NotFoundError struct {
	Model string
}

// Error names the model.
func (e *NotFoundError) Error() string { return fmt.Sprintf("the model %q does not exist", e.Model) }

// A KindError says that a model is not one that does what is asked of it.
type KindError struct {
	Model string
	// Does is what the model does not do: "write text", "make vectors".
	Does string
}

// Error names the model and what it does not do.
func (e *KindError) Error() string { return fmt.Sprintf("the model %q does not %s", e.Model, e.Does) }

// A BusyError says that a request cannot be taken now.
type BusyError struct {
	// Msg says why, without words about the machine.
	Msg string
	// Unavailable tells that the server is not taking requests yet or any more (503), not that there are too many (429).
	Unavailable bool
	// RetryAfter is when to come back; 0 says nothing of it.
	RetryAfter time.Duration
}

// Error says why.
func (e *BusyError) Error() string { return e.Msg }
