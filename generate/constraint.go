package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/text/grammar"
	"github.com/optimem/optimem/text/tokenizer"
)

// KeptGrammars is how many grammars of requests are kept for the next ones, with what was learned about them.
const KeptGrammars = 4

// grammars are those that texts of a tokenizer were asked to follow. The zero value has none.
type grammars struct {
	mu         sync.Mutex
	vocabulary *grammar.Vocabulary
	// begin are the tokens that add other bytes to the beginning of a text than after others: mostly no space.
	begin []beginning
	kept  *recent.Map[string, *textGrammar]
	// bytes is what the vocabulary takes, with all that is learned at most.
	bytes   int64
	reserve func(bytes int64) (release func(), err error)
}

// A beginning is what a token adds to the beginning of a text.
type beginning struct {
	id    int
	bytes []byte
}

// A textGrammar is a grammar with the tokens of a tokenizer.
type textGrammar struct {
	// field is that of the [TextRequest] that has the grammar.
	field  string
	engine *grammar.Engine
	start  grammar.Matcher
	// bytes is what the grammar takes, without what is learned.
	bytes int64

	begin []beginning
	once  sync.Once
	// first is the mask of a text's first token.
	first grammar.Mask
	err   error
}

// Constraint returns what keeps an answer to what a request's Schema or Grammar asks for; nil where it has neither. It is for
// one request. [Writer.Write] makes its own: this is for callers of [Engine.Generate], and to check a grammar before anything is
// opened. What is wrong with it is a [*RequestError] that names the place.
func (t *Text) Constraint(r TextRequest) (Constraint, error) {
	g, err := t.grammar(r)
	if g == nil || err != nil {
		return nil, err
	}
	return g.constraint(t.end(r)), nil
}

// grammar returns that of a request, nil where it has none.
func (t *Text) grammar(r TextRequest) (*textGrammar, error) {
	field, source := "Schema", string(r.Schema)
	switch {
	case len(r.Schema) == 0 && r.Grammar == "":
		return nil, nil
	case len(r.Schema) > 0 && r.Grammar != "":
		return nil, &RequestError{"Grammar", "is there beside a schema"}
	case r.Request.Constraint != nil:
		return nil, &RequestError{"Constraint", "is there beside a schema or a grammar"}
	case r.Grammar != "":
		field, source = "Grammar", r.Grammar
	}
	all := &t.grammars
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := all.learn(t.tokenizer, field); err != nil {
		return nil, err
	}
	key := field + "\x00" + source
	if g, ok := all.kept.Get(key); ok {
		go g.engine.Prepare(context.Background()) // where others had it forget
		return g, nil
	}
	var parsed *grammar.Grammar
	var err error
	if field == "Schema" {
		parsed, err = grammar.ParseSchema(r.Schema, grammar.SchemaOptions{})
	} else {
		parsed, err = grammar.ParseGBNF(source)
	}
	if err != nil {
		return nil, grammarError(field, err)
	}
	g := &textGrammar{field: field, bytes: parsed.Bytes() + int64(all.vocabulary.Len()/8) + int64(len(key))}
	if err := all.take(g, g.bytes); err != nil {
		return nil, err
	}
	g.engine, g.begin = grammar.NewEngine(parsed, all.vocabulary), all.begin
	if g.start, err = g.engine.Start(); err != nil {
		return nil, grammarError(field, err)
	}
	all.kept.Put(key, g)
	// In the time of the prompt's pass: it ends by itself, and masks that are asked for before are right.
	go g.engine.Prepare(context.Background())
	return g, nil
}

// learn makes the vocabulary, once.
func (all *grammars) learn(t *tokenizer.Tokenizer, field string) error {
	if all.kept != nil {
		return nil
	}
	later, err := t.TokenBytes(false)
	first, errFirst := t.TokenBytes(true)
	if err = cmp.Or(err, errFirst); err != nil {
		return &RequestError{field, "cannot be followed: " + err.Error()}
	}
	begin, bytes := []beginning(nil), int64(0)
	for id, b := range later {
		if !slices.Equal(b, first[id]) {
			begin = append(begin, beginning{id, first[id]})
			bytes += int64(len(first[id])+7) &^ 7
		}
	}
	bytes += int64(cap(begin)) * int64(unsafe.Sizeof(beginning{}))
	most := grammar.MostBytes(later) + bytes
	free := func() {}
	if all.reserve != nil {
		if free, err = all.reserve(most); err != nil {
			return err
		}
	}
	all.vocabulary = grammar.NewVocabulary(later)
	all.begin, all.bytes = begin, all.vocabulary.Bytes()+bytes
	if all.reserve != nil { // what it turned out to take, which is no more
		free()
		if _, err = all.reserve(all.bytes); err != nil {
			all.vocabulary = nil
			return err
		}
	}
	all.kept = recent.New[string, *textGrammar](KeptGrammars)
	return nil
}

// take reserves what a grammar takes until nobody has it any more. Where there is no room those that are kept for others give way.
func (all *grammars) take(g *textGrammar, bytes int64) error {
	if all.reserve == nil {
		return nil
	}
	free, err := all.reserve(bytes)
	if err != nil {
		all.kept.Clear()
		goruntime.GC() // which has what nobody has any more given back
		if free, err = all.reserve(bytes); err != nil {
			return err
		}
	}
	goruntime.AddCleanup(g, func(free func()) { free() }, free)
	return nil
}

// Reserve has f reserve the memory of grammars before it is taken: what the vocabulary takes of which masks are made, at the first request with
// a schema or a grammar, for as long as the Text is there, and each grammar until the collector finds that nobody has it. A request for which f
// gives an error ends with it. It is called before the first request.
func (t *Text) Reserve(f func(bytes int64) (release func(), err error)) { t.grammars.reserve = f }

// GrammarBytes is what the schema or the grammar of a request takes beside the engine: shared with all requests that have one, with all that
// is learned at most, and its own, which texts that are written at once share where theirs is the same, and which [KeptGrammars] keep. It is
// 0 of a request that has none.
func (t *Text) GrammarBytes(r TextRequest) (shared, own int64, err error) {
	g, err := t.grammar(r)
	if g == nil || err != nil {
		return 0, 0, err
	}
	return t.grammars.bytes, g.bytes, nil
}

// grammarError says what is wrong with a grammar, and where.
func grammarError(field string, err error) error {
	var placed *grammar.Error
	if !errors.As(err, &placed) {
		return err
	}
	text := fmt.Sprintf("%v: %s", placed.Class, placed.Text)
	if placed.Where != "" {
		text = placed.Where + ": " + text
	}
	return &RequestError{field, text}
}

// constraint returns one for an answer that ends with one of some tokens.
func (g *textGrammar) constraint(end []int) *constraint {
	return &constraint{g: g, at: g.start, begins: true, end: end}
}

// beginMask returns the mask of a text's first token.
func (g *textGrammar) beginMask() (grammar.Mask, error) {
	g.once.Do(func() {
		mask, err := g.start.Mask()
		if err != nil {
			g.err = err
			return
		}
		g.first = slices.Clone(mask)
		for _, t := range g.begin {
			g.first[t.id/64] &^= 1 << (t.id % 64)
			if len(t.bytes) == 0 {
				continue
			}
			if _, err := g.start.AdvanceBytes(t.bytes); err == nil {
				g.first[t.id/64] |= 1 << (t.id % 64)
			} else if !errors.Is(err, grammar.ErrRejected) {
				g.err = err
				return
			}
		}
	})
	return g.first, g.err
}

// complete reports whether a text is one of the grammar's, not only the beginning of one.
func (g *textGrammar) complete(text string) bool {
	m, err := g.start.AdvanceBytes([]byte(text))
	return err == nil && m.CanEnd()
}

// A constraint keeps one answer to a grammar.
type constraint struct {
	g      *textGrammar
	at     grammar.Matcher
	begins bool
	end    []int
}

func (c *constraint) mask() (grammar.Mask, error) {
	if c.begins {
		return c.g.beginMask()
	}
	return c.at.Mask()
}

// Mask clears the tokens that the grammar does not allow. Those that end a text may follow where it is complete.
func (c *constraint) Mask(allowed []uint64) error {
	mask, err := c.mask()
	if err != nil {
		return grammarError(c.g.field, err)
	}
	ends := make([]bool, len(c.end))
	for i, id := range c.end {
		ends[i] = c.at.CanEnd() && id/64 < len(allowed) && allowed[id/64]>>(id%64)&1 != 0
	}
	for i := range allowed {
		if i < len(mask) {
			allowed[i] &= mask[i]
		} else {
			allowed[i] = 0
		}
	}
	for i, id := range c.end {
		if id/64 >= len(allowed) {
			continue
		}
		allowed[id/64] &^= 1 << (id % 64)
		if ends[i] {
			allowed[id/64] |= 1 << (id % 64)
		}
	}
	if empty(allowed) {
		return &RequestError{c.g.field, "has a place at which no token of the model may follow"}
	}
	return nil
}

// Accept goes on after a token. It returns [ErrStop] where nothing may follow it.
func (c *constraint) Accept(token int) error {
	if slices.Contains(c.end, token) {
		return nil
	}
	var err error
	before := c.at
	c.at, err = before.Advance(token)
	if c.begins {
		if i := slices.IndexFunc(c.g.begin, func(t beginning) bool { return t.id == token }); i >= 0 {
			c.at, err = before.AdvanceBytes(c.g.begin[i].bytes)
		}
	}
	c.begins = false
	if err != nil {
		return grammarError(c.g.field, err)
	}
	if !c.at.CanEnd() {
		return nil
	}
	mask, err := c.at.Mask()
	if err != nil {
		return grammarError(c.g.field, err)
	}
	if empty(mask) {
		return ErrStop
	}
	return nil
}

// empty reports whether no token is in a mask.
func empty(mask []uint64) bool {
	return !slices.ContainsFunc(mask, func(word uint64) bool { return word != 0 })
}
