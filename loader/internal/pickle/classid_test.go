package pickle

import (
	"bytes"
	"errors"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
)

// TestClassIDs reads modules as PyTorch's legacy format names their classes.
func TestClassIDs(t *testing.T) {
	const id = "(X\x06\x00\x00\x00modulecpkg\nNet\nNNtQ" // ('module', pkg.Net, None, None) as a persistent id
	load := func(t *testing.T, pickled string, classIDs bool) (any, error) {
		t.Helper()
		in := bytes.NewReader([]byte(pickled))
		report, err := Scan(in, 0, in.Size(), Options{Persistent: true, ClassIDs: classIDs})
		if err != nil {
			t.Fatal(err)
		}
		return report.Load(Hooks{Persistent: func(any) (any, error) { return "hook", nil }})
	}
	v, err := load(t, "\x80\x02"+id+")\x81}b.", true)
	if err != nil {
		t.Fatal(err)
	}
	obj, ok := AsObject(v)
	if !ok || obj.Class() != (Global{"pkg", "Net"}) {
		t.Errorf("got %v, want an object of pkg.Net", v)
	}
	if v, err := load(t, "\x80\x02"+id+"q\x000h\x00.", true); err != nil {
		t.Error(err)
	} else if g, ok := AsGlobal(v); !ok || g.Name != "Net" {
		t.Errorf("got %v, want the class from the memo", v)
	}
	// Without the option the id is the hook's, and what a hook gives is never called.
	if _, err := load(t, "\x80\x02"+id+")\x81.", false); !errors.Is(err, fault.ErrUnsafe) {
		t.Errorf("got %v, want ErrUnsafe", err)
	}
	// An inert class is not called either, however it was named.
	if _, err := load(t, "\x80\x02"+id+")R.", true); !errors.Is(err, fault.ErrUnsafe) {
		t.Errorf("got %v, want ErrUnsafe", err)
	}
	// The tuple of an id is a tuple like any other where it is no id.
	if v, err := load(t, "\x80\x02(X\x06\x00\x00\x00modulecpkg\nNet\nNNt.", true); err != nil {
		t.Error(err)
	} else if items, ok := Tuple(v); !ok || len(items) != 4 {
		t.Errorf("got %v, want a tuple of four", v)
	}
}
