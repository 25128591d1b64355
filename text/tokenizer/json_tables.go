package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A tableScanner reads the large tables of a tokenizer.json, which are most of it, faster than encoding/json does. What it
// reads has been found to be JSON; where it is not what is expected the caller has encoding/json read it, or say why not.
type tableScanner struct {
	data []byte
	at   int
}

// next skips white space and takes a character if it is c.
func (s *tableScanner) next(c byte) bool {
	for s.at < len(s.data) &&
		(s.data[s.at] == ' ' || s.data[s.at] == '\n' || s.data[s.at] == '\r' || s.data[s.at] == '\t') {
		s.at++
	}
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *tableScanner) text() (string, bool) {
	if !s.next('"') {
		return "", false
	}
	rest := s.data[s.at:]
	end := bytes.IndexByte(rest, '"')
	if end >= 0 && bytes.IndexByte(rest[:end], '\\') < 0 {
		s.at += end + 1
		if utf8.Valid(rest[:end]) {
			return string(rest[:end]), true
		}
		return "", false
	}
	for end = 0; end < len(rest) && rest[end] != '"'; end++ {
		if rest[end] == '\\' {
			end++
		}
	}
	if end >= len(rest) {
		return "", false
	}
	var text string
	if json.Unmarshal(s.data[s.at-1:s.at+end+1], &text) != nil {
		return "", false
	}
	s.at += end + 1
	return text, true
}

func (s *tableScanner) number() (uint32, bool) {
	s.next(0)
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	n, err := strconv.ParseUint(string(s.data[from:s.at]), 10, 32)
	return uint32(n), err == nil
}

// readVocab reads an object of tokens and their numbers.
func readVocab(raw json.RawMessage, path string) (map[string]uint32, error) {
	ids := make(map[string]uint32, len(raw)/24)
	s := &tableScanner{data: raw}
	ok := s.next('{')
	for first := true; ok && !s.next('}'); first = false {
		var token string
		var id uint32
		if ok = first || s.next(','); !ok {
			break
		}
		if token, ok = s.text(); !ok {
			break
		}
		if ok = s.next(':'); !ok {
			break
		}
		id, ok = s.number()
		ids[token] = id
	}
	if ok {
		return ids, nil
	}
	ids = nil
	err := decode(raw, path, &ids)
	return ids, err
}

// readMerges reads pairs of tokens: "a b", or ["a", "b"].
func readMerges(raw json.RawMessage) ([]string, error) {
	pairs := make([]string, 0, len(raw)/8)
	s := &tableScanner{data: raw}
	ok := s.next('[')
	lists := false
	for first := true; ok && !s.next(']'); first = false {
		if ok = first || s.next(','); !ok {
			break
		}
		if !s.next('[') {
			ok = false
			break
		}
		lists = true
		var left, right string
		if left, ok = s.text(); !ok {
			break
		}
		if ok = s.next(','); !ok {
			break
		}
		if right, ok = s.text(); !ok {
			break
		}
		pairs = append(pairs, left, right)
		ok = s.next(']')
	}
	if ok && lists {
		return pairs, nil
	}
	return readMergeLines(raw)
}

func readMergeLines(raw json.RawMessage) ([]string, error) {
	var lines []string
	s := &tableScanner{data: raw}
	ok := s.next('[')
	for first := true; ok && !s.next(']'); first = false {
		var line string
		if ok = first || s.next(','); !ok {
			break
		}
		line, ok = s.text()
		lines = append(lines, line)
	}
	if ok || json.Unmarshal(raw, &lines) == nil {
		return splitMerges(lines, "model.merges")
	}
	var lists [][]string
	if err := decode(raw, "model.merges", &lists); err != nil {
		return nil, err
	}
	pairs := make([]string, 0, 2*len(lists))
	for i, l := range lists {
		if len(l) != 2 {
			return nil, format(fmt.Sprintf("model.merges[%d]", i), "is not a pair")
		}
		pairs = append(pairs, l[0], l[1])
	}
	return pairs, nil
}
