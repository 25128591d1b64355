// Package grammar computes which tokens may come next so that a text follows a grammar: llama.cpp's GBNF, or a JSON
// schema. A grammar becomes an automaton over bytes; with a vocabulary it gives, for every state, the mask of allowed
// tokens.
//
// Grammars are untrusted: parsing, compiling and matching are bounded, and every failure is an [*Error]. A schema
// keyword that is not supported is refused with its place, never ignored. The package does not know tokenizers, or how
// a token is chosen.
//
//	g, err := grammar.ParseGBNF(`root ::= "yes" | "no" [.!]*`)
//	m := grammar.NewEngine(g, grammar.NewVocabulary(tokens)).Start()
//	mask, err := m.Mask()     // bit i: token i may follow; the end may follow if m.CanEnd()
//	m, err = m.Advance(token)
package grammar

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// The classes of error, for errors.Is.
var (
	// ErrSyntax is a grammar or a schema that is malformed.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported is a grammar or a schema with a meaning that this package cannot hold.
	ErrUnsupported = errors.New("not supported")
	// ErrLimit is a grammar that is too large, or a text that nests too deeply.
	ErrLimit = errors.New("limit exceeded")
	// ErrNothing is a grammar that no text fits.
	ErrNothing = errors.New("no text fits the grammar")
	// ErrRejected is a token or a byte that the grammar does not allow here.
	ErrRejected = errors.New("not allowed by the grammar")
)

// An Error says what is wrong and where.
type Error struct {
	Where string // a line of a grammar, a JSON pointer into a schema; may be empty
	Class error  // one of the Err… above
	Text  string
}

// Error returns the message.
func (e *Error) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("grammar: %v: %s", e.Class, e.Text)
	}
	return fmt.Sprintf("grammar: %s: %v: %s", e.Where, e.Class, e.Text)
}

// Unwrap returns the class.
func (e *Error) Unwrap() error { return e.Class }

//go:noinline
func errorf(class error, where, format string, args ...any) error {
	return &Error{Where: where, Class: class, Text: fmt.Sprintf(format, args...)}
}

// What a grammar may be.
const (
	maxSourceBytes = 1 << 20
	maxNesting     = 100
	maxRules       = 5_000
	maxBranches    = 100       // of a oneOf
	maxKeyBytes    = 1_000     // of a declared property, beside further ones
	maxRepeats     = 2_000     // of one item
	maxNodes       = 200_000   // of the automaton
	inlineNodes    = 4_000     // of a rule that is copied to where it is named
	maxStack       = 1_000     // rules inside each other while matching
	maxItems       = 2_000     // places in the grammar at which a text may be at once
	maxWork        = 3_000_000 // places looked at for one mask or one text
	maxStates      = 8_000     // kept
	maxMasks       = 512       // kept
	maxHeld        = 300_000   // places of states that are kept
	maxFollow      = 1_000_000 // nodes of the vocabulary's tree kept for what is around rules
)

// A term is a part of a rule.
type term interface{}

type (
	literal  string
	sequence []term
	choice   []term
	// A class is any one character of sorted ranges.
	class []runeRange
	// A repeat is an item min to max times. max -1: without end.
	repeat struct {
		of       term
		min, max int
	}
	// A reference is a rule, by number.
	reference int
)

type runeRange struct{ lo, hi rune }

var anyChar = class{{0, utf8.MaxRune}}

// A Grammar is a compiled grammar. It may be shared by goroutines.
type Grammar struct {
	nodes []node
	start int32
	// classOf has for each byte which of the classes of bytes it is in: no edge tells those of a class apart. firsts are their first
	// bytes. The first ones are of ASCII, and have chars.
	classOf [256]uint8
	firsts  []byte
	chars   []charSet
}

// A node is a place in a rule.
type node struct {
	bytes []byteEdge
	free  []int32 // nodes that are reached without a byte
	calls []callEdge
	final bool // the rule may end here
	// wide are the nodes to which every character outside of ASCII leads; partial says that some bytes outside of ASCII lead elsewhere.
	wide    []int32
	partial bool
}

type byteEdge struct {
	lo, hi byte
	to     int32
}

// A callEdge goes through another rule.
type callEdge struct{ rule, back int32 }

// ruleSet is what the parsers hand to the compiler.
type ruleSet struct {
	names []string
	rules []term
	root  int
}
