package openai

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
)

// An Error is one as clients see it.
type Error struct {
	// Status is that of the answer.
	Status int
	// Type is OpenAI's word for the kind of error, Code for the error itself, Param the parameter that is wrong. Code and Param
	// may be empty.
	Type, Code, Param string
	Message           string
	// RetryAfter is when to come back; 0 says nothing of it.
	RetryAfter time.Duration
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// OpenAI's kinds of errors.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
	tooMany        = "rate_limit_error"
)

// invalid returns an error about a parameter.
func invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: invalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// unsupported returns an error about a parameter that would change the answer and is not known here.
func unsupported(param, format string, args ...any) *Error {
	e := invalid(param, format, args...)
	e.Code = "unsupported_parameter"
	return e
}

// statusClientGone is what logs say of clients that went away; nobody reads the answer.
const statusClientGone = 499

// asError returns what clients are told of an error. What they are told nothing about is internal.
func asError(err error) (e *Error, internal bool) {
	var found *NotFoundError
	var kind *KindError
	var busy *BusyError
	var request *generate.RequestError
	var vectors *embed.RequestError
	switch {
	case errors.As(err, &e):
		return e, false
	case errors.As(err, &found):
		return &Error{Status: http.StatusNotFound, Type: invalidRequest, Code: "model_not_found", Param: "model", Message: found.Error()}, false
	case errors.As(err, &kind):
		return invalid("model", "%v", kind), false
	case errors.As(err, &busy):
		e = &Error{Status: http.StatusTooManyRequests, Type: tooMany, Code: "rate_limit_exceeded", Message: busy.Error(), RetryAfter: busy.RetryAfter}
		if busy.Unavailable {
			e.Status, e.Type, e.Code = http.StatusServiceUnavailable, serverError, "unavailable"
		}
		return e, false
	case errors.Is(err, generate.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Type: serverError, Code: "unavailable", Message: "the model was closed"}, false
	case errors.As(err, &request):
		return invalid(paramOf[request.Field], "%v", request), false
	case errors.As(err, &vectors):
		return invalid("input", "%v", vectors), false
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusGatewayTimeout, Type: serverError, Code: "timeout", Message: "the request took too long"}, false
	case errors.Is(err, context.Canceled):
		return &Error{Status: statusClientGone, Type: serverError, Code: "cancelled", Message: "the request was cancelled"}, false
	}
	return &Error{Status: http.StatusInternalServerError, Type: serverError, Message: "internal error"}, true
}

// paramOf are the parameters that fields of a request come from.
var paramOf = map[string]string{
	"Sampling.Bias": "logit_bias", "Stop": "stop", "Schema": "response_format", "Grammar": "response_format", "Prompt": "messages",
}

// body is the error as clients see it.
func (e *Error) body() any {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{
		"message": e.Message, "type": e.Type, "param": orNull(e.Param), "code": orNull(e.Code),
	}}
}

// fail answers with an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var gone *goneError
	if errors.As(err, &gone) || r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		h.opts.Logger.DebugContext(r.Context(), "client went away", "path", r.URL.Path, "request", w.Header().Get(requestID))
		return // nobody reads it
	}
	e, internal := asError(err)
	if internal {
		h.opts.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "request", w.Header().Get(requestID), "error", err)
	}
	if strings.HasPrefix(w.Header().Get("Content-Type"), eventStream) { // in the middle of one, which ends without [DONE]
		_ = (&stream{w: w, begun: true}).send(e.body())
		return
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Status == http.StatusInternalServerError || e.Status == http.StatusGatewayTimeout {
		w.Header().Set("X-Should-Retry", "false") // clients would ask for the same again, and find the same
	}
	answer(w, e.Status, e.body())
}
