package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// FuzzParse checks that no text makes the parser panic or exceed its meter, that every error has a class, and that
// what parses is printed as code that parses to the same.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"everything", "hooked", "traced_dict", "containers", "complexes", "quantized"} {
		for _, src := range archive(f, "testdata/"+name+".txt") {
			for _, def := range strings.SplitAfter(src, "\nclass ") {
				f.Add("class " + strings.TrimPrefix(strings.TrimSuffix(def, "class "), "class "))
			}
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Parse(one("__torch__.py", src), Options{Meter: limit.New(32 << 20), Depth: 50})
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.Class == nil || e.Offset < 0 || e.Offset > int64(len(src)) {
				t.Fatalf("error without class or place: %v", err)
			}
			return
		}
		for name := range p.Classes {
			p.Outputs(name)
		}
		text := p.Files[0].String()
		q, err := Parse(one("__torch__.py", text), Options{Depth: 200})
		if err != nil {
			t.Fatalf("printed code does not parse: %v\n%s", err, text)
		}
		if !same(p.Files[0], q.Files[0]) {
			t.Fatalf("printed code parses to another tree:\n%s", text)
		}
	})
}
