package template

import (
	"bufio"
	"compress/gzip"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var recordedFile = flag.String("recorded", "", "a further file that testdata/record.py wrote")

// recorded reads the lines of a file of record.py.
func recorded(t testing.TB, path string) []*Object {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var lines []*Object
	s := bufio.NewScanner(z)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		v, err := ParseJSON(s.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, v.(*Object))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func field[T any](o *Object, name string) T {
	v, _ := o.Get(name)
	x, _ := v.(T)
	return x
}

var recordedNow = Options{Now: func() time.Time { return time.Date(2026, 3, 7, 16, 5, 9, 120034000, time.UTC) }}

// TestChatTemplatesRenderAsJinja2Does compares with what transformers rendered, and wants an error where it had one.
func TestChatTemplatesRenderAsJinja2Does(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if *recordedFile != "" {
		files = append(files, *recordedFile)
	}
	for _, path := range files {
		if strings.Contains(path, "expressions") {
			continue
		}
		lines := recorded(t, path)
		tokens := field[*Object](lines[0], "tokens")
		requests := field[*Object](lines[0], "requests")
		equal, refused := 0, 0
		var chat *Chat
		for _, line := range lines[1:] {
			if source := field[string](line, "source"); source != "" {
				if chat, err = NewChat(source, tokens); err != nil {
					t.Errorf("%s: %v", field[string](line, "name"), err)
				}
				continue
			}
			if chat == nil {
				continue
			}
			name := field[string](line, "template") + ", " + field[string](line, "request")
			q := field[*Object](requests, field[string](line, "request"))
			messages, _ := q.Get("messages")
			tools, _ := q.Get("tools")
			documents, _ := q.Get("documents")
			got, err := chat.Render(Request{
				Messages: messages, Tools: tools, Documents: documents, Extra: field[*Object](q, "extra"),
				AddGenerationPrompt: field[bool](q, "add_generation_prompt"), ContinueFinalMessage: field[bool](q, "continue_final_message"),
			}, recordedNow)
			want, ok := line.Get("want")
			switch {
			case !ok && err == nil:
				t.Errorf("%s: no error, python says %s", name, field[string](line, "error"))
			case !ok:
				refused++
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case got != want:
				t.Errorf("%s:\n got %q\nwant %q", name, got, want)
			default:
				equal++
			}
		}
		t.Logf("%s: %d equal, %d refused by both", path, equal, refused)
	}
}

var expressionFile = flag.String("expressions", "", "a further file that testdata/expressions.py wrote")

// TestRandomTemplatesRenderAsJinja2Does compares random templates with what jinja2 made of them.
func TestRandomTemplatesRenderAsJinja2Does(t *testing.T) {
	files := []string{"testdata/expressions.jsonl.gz"}
	if *expressionFile != "" {
		files = append(files, *expressionFile)
	}
	for _, path := range files {
		lines := recorded(t, path)
		vars := field[*Object](lines[0], "vars")
		equal, refused := 0, 0
		for _, line := range lines[1:] {
			source := field[string](line, "source")
			got := ""
			parsed, err := Parse(source)
			if err == nil {
				got, err = parsed.Render(vars, recordedNow)
			}
			want, ok := line.Get("want")
			switch {
			case !ok && err == nil:
				t.Errorf("%s\n got %q, python says %s", source, got, field[string](line, "error"))
			case !ok:
				refused++
			case err != nil:
				t.Errorf("%s\n%v\nwant %q", source, err, want)
			case got != want:
				t.Errorf("%s\n got %q\nwant %q", source, got, want)
			default:
				equal++
			}
		}
		if equal < 100 || refused < 30 {
			t.Errorf("%s: %d equal and %d refused are too few", path, equal, refused)
		}
		t.Logf("%s: %d equal, %d refused by both", path, equal, refused)
	}
}
