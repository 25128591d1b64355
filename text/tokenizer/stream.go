package tokenizer

// A Stream decodes tokens as they come. What its calls return, put together, is what Decode makes of all the tokens; no
// call returns a part of a character. It is for one goroutine.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	chain       joint
	ready       []byte
	any         bool
}

// Stream begins to decode.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	if t.decoders != nil {
		s.chain = t.chain(true, func(text string) { s.ready = append(s.ready, text...) })
	}
	return s
}

// Write takes a token and returns the text that is certain now, which may be none.
func (s *Stream) Write(id uint32) string {
	token, ok := s.t.decodable(id, s.skipSpecial)
	if !ok {
		return ""
	}
	if s.chain == nil {
		if s.any {
			return " " + token
		}
		s.any = true
		return token
	}
	s.chain.write(token)
	return s.take()
}

// Flush returns what was held back. The stream is then at its end.
func (s *Stream) Flush() string {
	if s.chain == nil {
		return ""
	}
	s.chain.flush()
	s.chain = sink(func(string) {})
	return s.take()
}

func (s *Stream) take() string {
	text := string(s.ready)
	s.ready = s.ready[:0]
	return text
}
