package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestJSONObject(t *testing.T) {
	var b strings.Builder
	o := newJSONObject(&b)
	o.set("a", "x<\x1b\xff>")
	setArray(o, "none", slices.Values([]int(nil)))
	setArray(o, "two", slices.Values([]int{1, 2}))
	if err := o.close(); err != nil {
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

func TestJSONObjectError(t *testing.T) {
	o := newJSONObject(fullDisk{})
	o.set("a", strings.Repeat("x", 1<<16))
	o.set("b", 1)
	if err := o.close(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
