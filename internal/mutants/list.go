package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A list is the mistakes of one package.
type list struct {
	name    string   // the package's path with - for /
	tests   []string // arguments of go test for mistakes that name none
	mutants []mutant
}

// A mutant is one mistake.
type mutant struct {
	title      string
	edits      []edit
	tests      []string // arguments of go test; none for the list's
	equivalent string   // why no test can notice; such a mistake is not planted
}

// An edit replaces one text of a file by another. White space counts only as such: a run of it stands for any other.
// An edit without an old text is at a place, from byte from to before byte to.
type edit struct {
	file     string
	old, new string
	from, to int
}

// parseList reads the form of the committed lists:
//
//	# What follows # at the beginning of a line is a comment.
//	tests: -short ./plan
//
//	== what the mistake is, in words: "staging memory for one group only"
//	file: plan/stage.go
//	- the text that is replaced, which stands in the file once,
//	- on as many lines as it needs
//	+ what replaces it; nothing where the text is removed
//	tests: -run=TestStaging ./plan ./pager
//	equivalent: why no test can notice, in place of being planted
//
// tests before the first mistake are those of every mistake without any of its own. A - after a + begins another edit
// of the same file, as does another file.
func parseList(name, text string) (list, error) {
	l := list{name: name}
	var m *mutant
	var e *edit
	var file string
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) (list, error) {
			return list{}, fmt.Errorf("%d: %s", i+1, fmt.Sprintf(format, args...))
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			l.mutants = append(l.mutants, mutant{title: strings.TrimSpace(line[3:])})
			m, e, file = &l.mutants[len(l.mutants)-1], nil, ""
		case m == nil && key == "tests":
			l.tests = strings.Fields(value)
		case m == nil:
			return fail("%q stands before the first mistake", line)
		case line[0] == '-':
			if file == "" {
				return fail("no file is named")
			}
			if e == nil || e.new != "" {
				m.edits = append(m.edits, edit{file: file})
				e = &m.edits[len(m.edits)-1]
			}
			e.old += line[1:] + "\n"
		case line[0] == '+':
			if e == nil {
				return fail("nothing is replaced")
			}
			e.new += line[1:] + "\n"
		case key == "file":
			file, e = value, nil
		case key == "tests":
			m.tests = strings.Fields(value)
		case key == "equivalent":
			m.equivalent = value
		default:
			return fail("%q is no line of a list", line)
		}
	}
	for _, m := range l.mutants {
		if len(m.edits) == 0 {
			return list{}, fmt.Errorf(" %q changes nothing", m.title)
		}
		if len(m.tests)+len(l.tests) == 0 {
			return list{}, fmt.Errorf(" %q has no tests", m.title)
		}
		if slices.ContainsFunc(m.edits, func(e edit) bool { return strings.TrimSpace(e.old) == "" }) {
			return list{}, fmt.Errorf(" %q replaces nothing", m.title)
		}
	}
	return l, nil
}

// apply returns a file's text with the edit made.
func (e edit) apply(text string) (string, error) {
	if e.old == "" {
		return text[:e.from] + e.new + text[e.to:], nil
	}
	var parts []string
	for _, field := range strings.Fields(e.old) {
		parts = append(parts, regexp.QuoteMeta(field))
	}
	found := regexp.MustCompile(strings.Join(parts, `\s+`)).FindAllStringIndex(text, 2)
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s has no %q", e.file, strings.Join(strings.Fields(e.old), " "))
	case 1:
		return text[:found[0][0]] + strings.TrimSpace(e.new) + text[found[0][1]:], nil
	default:
		return "", fmt.Errorf("%s has more than one %q", e.file, strings.Join(strings.Fields(e.old), " "))
	}
}

// changed returns the files that a mistake changes, with their new texts.
func (m mutant) changed(read func(name string) ([]byte, error)) (map[string]string, error) {
	texts := make(map[string]string)
	for _, e := range m.edits {
		text, ok := texts[e.file]
		if !ok {
			bytes, err := read(e.file)
			if err != nil {
				return nil, err
			}
			text = string(bytes)
		}
		text, err := e.apply(text)
		if err != nil {
			return nil, err
		}
		texts[e.file] = text
	}
	return texts, nil
}
