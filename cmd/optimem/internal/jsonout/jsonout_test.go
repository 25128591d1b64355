package jsonout

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestObject(t *testing.T) {
	var b strings.Builder
	o := New(&b)
	o.Set("a", "x<\x1b\xff>")
	Array(o, "none", slices.Values([]int(nil)))
	Array(o, "two", slices.Values([]int{1, 2}))
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"a\": \"x<\\u001b\\ufffd>\",\n  \"none\": [],\n  \"two\": [\n    1,\n    2\n  ]\n}\n"
	if b.String() != want {
		t.Errorf("got %s\nwant %s", b.String(), want)
	}
	if !json.Valid([]byte(b.String())) {
		t.Error("not JSON")
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestObjectError(t *testing.T) {
	o := New(fullDisk{})
	o.Set("a", strings.Repeat("x", 1<<16))
	o.Set("b", 1)
	if err := o.Close(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
