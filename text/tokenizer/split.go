package tokenizer

// A behavior says what becomes of the delimiters that a piece is split at.
type behavior uint8

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{
	"Removed": removed, "Isolated": isolated, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// A splitter is told the parts of a piece in order, delimiters and what lies between, and cuts it up.
type splitter struct {
	p      *piece
	how    behavior
	emit   func(piece) error
	from   int // a part that is held back
	to     int
	held   bool
	match  bool // whether the last part was a delimiter
	err    error
	invert bool
}

// part takes the next part.
func (s *splitter) part(from, to int, match bool) {
	match = match != s.invert
	switch s.how {
	case removed:
		if !match {
			s.cut(from, to)
		}
	case isolated:
		s.cut(from, to)
	case contiguous:
		if s.held && match == s.match {
			s.to = to
		} else {
			s.hold(from, to)
		}
	case mergedWithPrevious:
		if s.held && match && !s.match {
			s.to = to
		} else {
			s.hold(from, to)
		}
	case mergedWithNext:
		if s.held && s.match && !match {
			s.to = to
		} else {
			s.hold(from, to)
		}
	}
	s.match = match
}

// hold cuts out what was held back and holds this back.
func (s *splitter) hold(from, to int) {
	s.end()
	s.from, s.to, s.held = from, to, true
}

func (s *splitter) end() {
	if s.held {
		s.cut(s.from, s.to)
		s.held = false
	}
}

func (s *splitter) cut(from, to int) {
	if s.err == nil && from < to {
		s.err = s.emit(s.p.slice(from, to))
	}
}
