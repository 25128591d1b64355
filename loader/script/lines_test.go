package script

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// words returns every name and path below a part of the tree, with its position.
func words(n any) (list []Expr) {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Interface:
			walk(v.Elem())
		case reflect.Pointer:
			if v.IsNil() {
				return
			}
			switch x := v.Interface().(type) {
			case *Name:
				list = append(list, x)
			case *Path:
				list = append(list, x)
			}
			walk(v.Elem())
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(n))
	return list
}

// checkPositions looks in the text at the place that the program gives for each word.
func checkPositions(t *rapid.T, p *Program, texts map[string]string) {
	n := 0
	for _, f := range p.Files {
		lines := strings.Split(texts[f.Name], "\n")
		for _, x := range words(f.Defs) {
			n++
			want := Format(x)
			at := p.Position(x.Pos())
			if at.File != f.Name || at.Line < 1 || at.Line > len(lines) || at.Col < 1 || at.Col > len(lines[at.Line-1]) ||
				!strings.HasPrefix(lines[at.Line-1][at.Col-1:], want) {
				t.Fatalf("%s: %s does not stand at %v of\n%s", f.Name, want, at, texts[f.Name])
			}
		}
	}
	if n == 0 {
		t.Fatal("no word was looked at")
	}
}

// Empty lines, blanks, comments and the end of the last line change where things stand and nothing else; and they stand
// where the program says.
func TestBlankLinesAndCommentsMeanNothing(t *testing.T) {
	for _, name := range []string{"everything", "hooked", "containers", "traced_dict"} {
		var files [][2]string
		for file, src := range archive(t, "testdata/"+name+".txt") {
			files = append(files, [2]string{file, src})
		}
		plain, err := Parse(archive(t, "testdata/"+name+".txt"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			noise := rapid.SampledFrom([]string{"", "", "", "\n", "   \n", "# a\n", "       # b (\n", "\n \n\n", " #\n# c\n"})
			texts := make(map[string]string)
			for _, f := range files {
				var b strings.Builder
				for line := range strings.Lines(f[1]) {
					b.WriteString(noise.Draw(t, "before a line"))
					b.WriteString(strings.TrimSuffix(line, "\n"))
					b.WriteString(rapid.SampledFrom([]string{"", "", "  ", " # d"}).Draw(t, "at its end") + "\n")
				}
				end := rapid.SampledFrom([]string{"", "\n", "   ", " # e", "#", "\n      # f", "\n          "}).Draw(t, "last")
				texts[f[0]] = strings.TrimRight(b.String(), "\n ") + end
			}
			p, err := Parse(func(yield func(name, src string) bool) {
				for _, f := range files {
					if !yield(f[0], texts[f[0]]) {
						return
					}
				}
			}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range p.Files {
				if !same(plain.Files[i], f) {
					t.Fatalf("%s is another tree:\n%s", f.Name, texts[f.Name])
				}
			}
			checkPositions(t, p, texts)
		})
	}
}

// Errors are on the line that an editor shows, whatever lines are before.
func TestErrorsCountLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.SampledFrom([]string{"", "  ", "# a", "   # b", "  x = y", "  x = [y,", "  z]"})).Draw(t, "lines")
		open := false
		src, n := "def f(x: Tensor) -> Tensor:\n", 1
		for _, line := range lines {
			if line == "  x = [y," && open || line == "  z]" && !open || line == "  x = y" && open {
				continue
			}
			open = open != (line == "  x = [y," || line == "  z]")
			src, n = src+line+"\n", n+1
		}
		if open {
			src, n = src+"]\n", n+1
		}
		src, n = src+"  x = y + z\n", n+1
		_, err := Parse(one("__torch__.py", src), Options{})
		if want := fmt.Sprintf("__torch__.py:%d:9: ", n); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want it at %s in\n%s", err, want, src)
		}
	})
}

func TestNoPositionIsUnknown(t *testing.T) {
	p := parse(t, "def f(x: Tensor) -> Tensor:\n  return x\n")
	if at := p.Position(0); at != (Position{}) {
		t.Errorf("a node of no file stands at %v", at)
	}
	if at := (&Program{}).Position(1); at != (Position{}) {
		t.Errorf("a node stands at %v of a program without files", at)
	}
}
