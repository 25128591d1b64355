package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
)

// An Error is what a client is told.
type Error struct {
	// Status is HTTP's.
	Status int
	Msg    string
	// RetryAfter is when to come back; 0 says nothing of it.
	RetryAfter time.Duration
	// Err is the cause, of which nobody is told but logs.
	Err error
}

// Error returns the message.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Msg: fmt.Sprintf(format, args...)}
}

// statusClientGone is what is counted for a client that did not wait. Nobody gets it.
const statusClientGone = 499

// told returns what a client is told of an error. An error that is not a client's is told without its words, which may
// name files.
func told(ctx context.Context, err error) *Error {
	var already *Error
	var request *oip.Error
	var input *runtime.InputError
	var rows *runtime.RowsError
	var batch *runtime.NotBatchableError
	var program *models.ProgramError
	var capacity *runtime.CapacityError
	var large *http.MaxBytesError
	var embedding *embed.RequestError
	var text *generate.RequestError
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", large.Limit)
	case errors.As(err, &request):
		return &Error{Status: http.StatusBadRequest, Msg: request.Error(), Err: err}
	case errors.As(err, &input):
		return &Error{Status: http.StatusBadRequest, Msg: input.Error(), Err: err}
	case errors.As(err, &rows):
		return &Error{Status: http.StatusBadRequest, Msg: rows.Error(), Err: err}
	case errors.As(err, &batch), errors.As(err, &program) && !program.Fixed:
		return &Error{Status: http.StatusBadRequest, Msg: "the model does not take inputs of these shapes: " + err.Error(), Err: err}
	case errors.As(err, &embedding):
		return &Error{Status: http.StatusBadRequest, Msg: embedding.Error(), Err: err}
	case errors.As(err, &text):
		return &Error{Status: http.StatusBadRequest, Msg: text.Error(), Err: err}
	case errors.As(err, &capacity): // shapes that the budget does not admit
		return &Error{Status: http.StatusUnprocessableEntity, Msg: needs(capacity), Err: err}
	case errors.Is(err, runtime.ErrPoolFull):
		return &Error{Status: http.StatusTooManyRequests, Msg: "too many requests wait", RetryAfter: time.Second, Err: err}
	case errors.Is(err, runtime.ErrClosed), errors.Is(err, generate.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Msg: "the model was closed", RetryAfter: time.Second, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusGatewayTimeout, Msg: "the request's time is over", Err: err}
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return &Error{Status: statusClientGone, Msg: "the client is gone", Err: err}
	}
	return &Error{Status: http.StatusInternalServerError, Msg: "internal error", Err: err}
}

// needs says what would do where a budget does not.
func needs(e *runtime.CapacityError) string {
	if e.MinBytes > 0 {
		return fmt.Sprintf("it does not fit: it needs %d bytes of memory at least, and has %d", e.MinBytes, e.HaveBytes)
	}
	return e.Error()
}

// loadError returns why a model was not opened, without a path.
func loadError(err error) *Error {
	var already *Error
	var capacity *runtime.CapacityError
	var unsupported *models.UnsupportedError
	var placed *loader.Error
	var ambiguous *models.AmbiguousError
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &capacity):
		return &Error{Status: http.StatusInsufficientStorage, Msg: needs(capacity), Err: err}
	case errors.As(err, &unsupported):
		return &Error{Status: http.StatusNotImplemented, Msg: unsupported.Error(), Err: err}
	case errors.As(err, &placed):
		status := http.StatusUnprocessableEntity
		if errors.Is(err, loader.ErrUnsupported) {
			status = http.StatusNotImplemented
		}
		msg := placed.Err.Error()
		if placed.Record != "" {
			msg = placed.Record + ": " + msg
		}
		return &Error{Status: status, Msg: msg, Err: err}
	case errors.As(err, &ambiguous):
		return &Error{Status: http.StatusUnprocessableEntity, Msg: ambiguous.Error() + ": say which in model.json", Err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Status: http.StatusServiceUnavailable, Msg: "the server ends", Err: err}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return &Error{Status: http.StatusUnprocessableEntity, Msg: "a file cannot be read: " + at.Err.Error(), Err: err}
	}
	return &Error{Status: http.StatusUnprocessableEntity, Msg: err.Error(), Err: err}
}
