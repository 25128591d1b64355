package otlp

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// A Context is where a span belongs: its trace, and itself. The zero value is none.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	// Unwanted says that whoever began the trace does not want it to be kept.
	Unwanted bool
}

// NewContext returns the context of a span that begins a trace.
func NewContext() Context {
	var c Context
	_, _ = rand.Read(c.Trace[:])
	_, _ = rand.Read(c.Span[:])
	return c
}

// Child returns the context of a span within c.
func (c Context) Child() Context {
	_, _ = rand.Read(c.Span[:])
	return c
}

// IsZero reports whether c is none.
func (c Context) IsZero() bool { return c.Trace == [16]byte{} || c.Span == [8]byte{} }

// Traceparent is the context as W3C's header has it.
func (c Context) Traceparent() string {
	flags := "-01"
	if c.Unwanted {
		flags = "-00"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + flags
}

// ParseTraceparent reads W3C's header; false where it is none.
func ParseTraceparent(text string) (c Context, ok bool) {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return Context{}, false
	}
	version, err := hex.DecodeString(parts[0])
	if err != nil || version[0] == 0xff || version[0] == 0 && len(parts) > 4 || strings.ToLower(text) != text {
		return Context{}, false
	}
	flags, err := hex.DecodeString(parts[3])
	if err != nil {
		return Context{}, false
	}
	if _, err := hex.Decode(c.Trace[:], []byte(parts[1])); err != nil {
		return Context{}, false
	}
	if _, err := hex.Decode(c.Span[:], []byte(parts[2])); err != nil {
		return Context{}, false
	}
	c.Unwanted = flags[0]&1 == 0
	if c.IsZero() {
		return Context{}, false
	}
	return c, true
}

// A Kind is what a span is to others.
type Kind int

// The kinds of spans.
const (
	Internal Kind = 1
	Server   Kind = 2
)

// A Span is something that took a time.
type Span struct {
	Context
	// Parent is the span within which it is, zero where it begins a trace.
	Parent     [8]byte
	Name       string
	Kind       Kind
	Begin, End time.Time
	Attributes []Attribute
	// Links are spans that it has to do with, as those of the requests that share a pass.
	Links  []Context
	Events []Event
	// Error says that it failed, and how.
	Error string
}

// An Event is something within a span.
type Event struct {
	Name       string
	At         time.Time
	Attributes []Attribute
}

// An Attribute is a name with a value: a string, bool, int64, int or float64. Others are left out.
type Attribute struct {
	Name  string
	Value any
}

// The messages of the protocol, as its mapping to JSON has them: identities in hexadecimal, 64-bit integers as text.
type (
	message struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []attribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope struct {
			Name    string `json:"name"`
			Version string `json:"version,omitempty"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Flags      uint32      `json:"flags"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Begin      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Events     []event     `json:"events,omitempty"`
		Links      []link      `json:"links,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	event struct {
		At         string      `json:"timeUnixNano"`
		Name       string      `json:"name"`
		Attributes []attribute `json:"attributes,omitempty"`
	}
	link struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
)

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(list []Attribute) []attribute {
	var all []attribute
	for _, a := range list {
		var v value
		switch x := a.Value.(type) {
		case string:
			x = strings.ToValidUTF8(x, "\ufffd")
			v.String = &x
		case bool:
			v.Bool = &x
		case int64:
			text := strconv.FormatInt(x, 10)
			v.Int = &text
		case int:
			text := strconv.Itoa(x)
			v.Int = &text
		case float64:
			if x-x != 0 { // which JSON has no word for
				continue
			}
			v.Double = &x
		default:
			continue
		}
		all = append(all, attribute{a.Name, v})
	}
	return all
}

func (e *Exporter) message(batch []Span) message {
	var r resourceSpans
	about := []Attribute{{"service.name", e.opts.Service}}
	if e.opts.Version != "" {
		about = append(about, Attribute{"service.version", e.opts.Version})
	}
	r.Resource.Attributes = attributes(about)
	s := scopeSpans{}
	s.Scope.Name, s.Scope.Version = "github.com/optimem/optimem/serve", e.opts.Version
	for i := range batch {
		s.Spans = append(s.Spans, batch[i].json())
	}
	r.ScopeSpans = []scopeSpans{s}
	return message{[]resourceSpans{r}}
}

func (s *Span) json() span {
	out := span{
		TraceID: hex.EncodeToString(s.Trace[:]), SpanID: hex.EncodeToString(s.Context.Span[:]), Flags: 1, Name: s.Name, Kind: max(s.Kind, Internal),
		Begin: nanos(s.Begin), End: nanos(s.End), Attributes: attributes(s.Attributes),
	}
	if s.Parent != [8]byte{} {
		out.Parent = hex.EncodeToString(s.Parent[:])
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, event{nanos(e.At), e.Name, attributes(e.Attributes)})
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, link{hex.EncodeToString(l.Trace[:]), hex.EncodeToString(l.Span[:])})
	}
	if s.Error != "" {
		out.Status = &status{strings.ToValidUTF8(s.Error, "\ufffd"), 2}
	}
	return out
}
