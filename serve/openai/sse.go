package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// A stream is an answer of server-sent events. Its status is sent with the first of them, so that what fails before has a
// status of its own.
type stream struct {
	w     http.ResponseWriter
	begun bool
	buf   bytes.Buffer
}

// eventStream is the type of such an answer.
const eventStream = "text/event-stream"

// writeTimeout is how long a client may take for one event, so that one who does not read holds nobody.
const writeTimeout = 30 * time.Second

// write sends bytes at once.
func (s *stream) write(data []byte) error {
	control := http.NewResponseController(s.w)
	if !s.begun {
		s.begun = true
		header := s.w.Header()
		header.Set("Content-Type", eventStream+"; charset=utf-8")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // nginx waits for more otherwise
		s.w.WriteHeader(http.StatusOK)
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not everybody has deadlines
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	if _, err := s.w.Write(data); err != nil {
		return &goneError{err}
	}
	_ = control.Flush()
	return nil
}

// send sends an object.
func (s *stream) send(v any) error {
	s.buf.Reset()
	s.buf.WriteString("data: ")
	encoder := json.NewEncoder(&s.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil { // which ends the line
		return err
	}
	s.buf.WriteByte('\n')
	return s.write(s.buf.Bytes())
}

// wait tells that the answer is still being written.
func (s *stream) wait() error { return s.write([]byte(": waiting\n\n")) }

// done ends a stream that has everything.
func (s *stream) done() error { return s.write([]byte("data: [DONE]\n\n")) }

// A goneError says that a client does not read its answer any more.
type goneError struct{ err error }

func (e *goneError) Error() string { return "the client went away: " + e.err.Error() }

func (e *goneError) Unwrap() error { return e.err }
