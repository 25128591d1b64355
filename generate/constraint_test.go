package generate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
)

// A bounded is a schema or a grammar with what says whether a text fits.
type bounded struct {
	name, schema, grammar string
	fits                  func(text string) error
}

func decodes(to any, check func() bool) func(string) error {
	return func(text string) error {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(to); err != nil {
			return err
		}
		if d.More() || !check() {
			return errors.New("does not fit")
		}
		return nil
	}
}

func boundedCases() []bounded {
	var place struct {
		City    *string
		Country *string
		Large   *bool
		People  *int
	}
	var list []string
	line := regexp.MustCompile(`^(yes|no), [a-zé🙂]{2,5}\.\n?$`)
	cities := []string{"Paris", "Rome", "Lima"}
	return []bounded{
		{name: "place", schema: `{"type": "object", "properties": {"city": {"enum": ["Paris", "Rome", "Lima"]},
			"country": {"type": "string", "maxLength": 6}, "large": {"type": "boolean"},
			"people": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["city", "country"]}`,
			fits: func(text string) error {
				place.City, place.Country, place.People = nil, nil, nil
				return decodes(&place, func() bool {
					return place.City != nil && slices.Contains(cities, *place.City) && place.Country != nil &&
						len([]rune(*place.Country)) <= 6 && (place.People == nil || *place.People >= 0 && *place.People <= 99)
				})(text)
			}},
		{name: "list", schema: `{"type": "array", "items": {"enum": ["Oslo", "🙂"]}, "minItems": 1, "maxItems": 3}`,
			fits: func(text string) error {
				list = nil
				return decodes(&list, func() bool {
					return len(list) > 0 && len(list) <= 3 && !slices.ContainsFunc(list, func(s string) bool { return s != "Oslo" && s != "🙂" })
				})(text)
			}},
		{name: "line", grammar: `root ::= ("yes" | "no") ", " [a-zé🙂]{2,5} "." "\n"?`,
			fits: func(text string) error {
				if !line.MatchString(text) {
					return errors.New("does not fit")
				}
				return nil
			}},
	}
}

// TestBoundedAnswers: every answer under a schema or a grammar fits, at any temperature and with any seed, or says that it was cut
// off. Requests in the same passes that have none give what they give alone, and so do those that have.
func TestBoundedAnswers(t *testing.T) {
	w := chatWriter(t, generate.Options{Sequences: 8, Context: 128})
	alone := chatWriter(t, generate.Options{Context: 128})
	seeds := 12
	if testing.Short() {
		seeds = 4
	}
	var requests []generate.TextRequest
	var fits []func(string) error
	for _, temperature := range []float64{0, 0.7, 2, 20} {
		for seed := range seeds {
			for _, b := range boundedCases() {
				question := []string{"What is the capital of Peru?", "Count to ten.", "Hello"}[seed%3]
				r := generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: question}}}
				r.Request.MaxTokens, r.Request.Seed, r.Request.Sampling.Temperature = 70, uint64(seed), temperature
				plain := r
				plain.Request.MaxTokens = 12
				r.Schema, r.Grammar = json.RawMessage(b.schema), b.grammar
				requests, fits = append(requests, r, plain), append(fits, b.fits, nil)
			}
		}
	}
	answers := make([]*generate.TextResult, len(requests))
	var wait sync.WaitGroup
	for i, r := range requests {
		wait.Add(1)
		go func() {
			defer wait.Done()
			var err error
			if answers[i], err = w.Write(t.Context(), r, nil); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}()
	}
	wait.Wait()
	complete := 0
	for i, a := range answers {
		if a == nil {
			continue
		}
		want, err := alone.Write(t.Context(), requests[i], nil)
		if err != nil || !slices.Equal(want.Tokens, a.Tokens) || want.Text != a.Text {
			t.Errorf("request %d: %q, alone %q: %v", i, a.Text, want.Text, err)
		}
		switch {
		case fits[i] == nil:
			if a.Incomplete {
				t.Errorf("request %d has no grammar: %+v", i, a)
			}
		case a.Incomplete:
			if fits[i](a.Text) == nil || a.Finish != generate.FinishLength {
				t.Errorf("request %d: %q fits, and is said not to; %s", i, a.Text, a.Finish)
			}
		default:
			complete++
			if err := fits[i](a.Text); err != nil || a.Finish != generate.FinishStop {
				t.Errorf("request %d: %q: %v; %s", i, a.Text, err, a.Finish)
			}
		}
	}
	if complete < len(requests)/3 {
		t.Errorf("%d of %d answers are complete", complete, len(requests)/2)
	}
}

// TestBoundedEnds: where nothing may follow the answer ends at once, also where no token ends texts; one that is cut off says so.
func TestBoundedEnds(t *testing.T) {
	w := chatWriter(t, generate.Options{})
	r := generate.TextRequest{Prompt: "Hello", Grammar: `root ::= "<|im_end|>" [0-9]{3}`}
	r.Request.End = []int{}
	got, err := w.Write(t.Context(), r, nil)
	if err != nil || !regexp.MustCompile(`^<\|im_end\|>\d{3}$`).MatchString(got.Text) || got.Finish != generate.FinishStop || got.Incomplete {
		t.Errorf("got %+v: %v", got, err)
	}
	if slices.Contains(got.Tokens, 2) || got.Passes != len(got.Tokens) {
		t.Errorf("%d passes for %v", got.Passes, got.Tokens)
	}
	r.Request.MaxTokens = len(got.Tokens) - 1
	if got, err = w.Write(t.Context(), r, nil); err != nil || !got.Incomplete || got.Finish != generate.FinishLength {
		t.Errorf("cut off: %+v: %v", got, err)
	}
	r.Request.MaxTokens, r.Stop = 0, []string{"end"}
	if got, err = w.Write(t.Context(), r, nil); err != nil || !got.Incomplete || got.Text != "<|im_" {
		t.Errorf("stopped: %+v: %v", got, err)
	}
	// What may end or go on does what the model says, and an end that has a text ends nothing before it may.
	r = generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: "Count to ten."}}, Grammar: `root ::= "One" [a-z, ]* "."?`}
	if got, err = w.Write(t.Context(), r, nil); err != nil || got.Incomplete || got.Finish != generate.FinishStop ||
		got.Text != "One, two, three, four, five, six, seven, eight, nine, ten." {
		t.Errorf("got %+v: %v", got, err)
	}
	comma, _ := w.Tokenizer().ID(",")
	r.Grammar, r.Request.End = `root ::= "One, two, three"`, []int{int(comma)}
	if got, err = w.Write(t.Context(), r, nil); err == nil {
		t.Errorf("a comma is needed and ends: %+v", got)
	}
}

// TestBoundedErrors: a schema or a grammar that cannot be followed is the request's mistake, with its place.
func TestBoundedErrors(t *testing.T) {
	w := chatWriter(t, generate.Options{})
	for _, c := range []struct {
		schema, grammar, field, text string
	}{
		{`{"properties": {"a": {"multipleOf": 3}}}`, "", "Schema", "/properties/a/multipleOf"},
		{`{"type": "object"`, "", "Schema", "syntax error"},
		{"", "root ::= \"a\"\nx ::= [", "Grammar", "line 2"},
		{"", "a ::= \"a\"", "Grammar", "root"},
		{"{}", "root ::= \"a\"", "Grammar", "beside a schema"},
	} {
		r := generate.TextRequest{Prompt: "Hello", Schema: json.RawMessage(c.schema), Grammar: c.grammar}
		_, err := w.Write(t.Context(), r, nil)
		_, early := w.Constraint(r)
		var bad *generate.RequestError
		if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Msg, c.text) || fmt.Sprint(early) != fmt.Sprint(err) {
			t.Errorf("%s%s: %v; %v", c.schema, c.grammar, err, early)
		}
	}
	r := generate.TextRequest{Prompt: "Hello", Grammar: `root ::= "a"`}
	if r.Request.Constraint, _ = w.Constraint(r); r.Request.Constraint == nil {
		t.Error("there is no constraint")
	}
	var bad *generate.RequestError
	if _, err := w.Write(t.Context(), r, nil); !errors.As(err, &bad) || bad.Field != "Constraint" {
		t.Errorf("a constraint beside a grammar: %v", err)
	}
	c, err := w.Constraint(generate.TextRequest{Prompt: "Hello"})
	if c != nil || err != nil {
		t.Errorf("no grammar gives %v: %v", c, err)
	}
}
