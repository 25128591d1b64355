// Package jsonout writes one JSON object key by key, so that a long answer is never in memory as a whole.
//
// It does not know what the keys mean.
//
//	o := jsonout.New(w)
//	o.Set("name", name)
//	jsonout.Array(o, "tensors", slices.Values(tensors))
//	err := o.Close()
package jsonout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"iter"
)

// An Object writes one JSON object key by key, arrays one element a line, so that a listing of a hundred thousand
// tensors is never in memory as a whole. The first error stays until Close returns it.
type Object struct {
	w       *bufio.Writer
	buffer  bytes.Buffer // one value, with the newline that the encoder puts after it
	encoder *json.Encoder
	keys    int
	err     error
}

// New begins an object.
func New(w io.Writer) *Object {
	o := &Object{w: bufio.NewWriterSize(w, 64<<10)}
	o.encoder = json.NewEncoder(&o.buffer)
	o.encoder.SetEscapeHTML(false)
	o.text("{")
	return o
}

// Set writes a key with a value.
func (o *Object) Set(key string, value any) {
	o.key(key)
	o.value(value)
}

// Close ends the object and returns the first error of all.
func (o *Object) Close() error {
	o.text("\n}\n")
	if err := o.w.Flush(); o.err == nil {
		o.err = err
	}
	return o.err
}

// Array writes a key with an array, "[]" where there is nothing.
func Array[T any](o *Object, key string, values iter.Seq[T]) {
	o.key(key)
	o.text("[")
	n := 0
	for v := range values {
		if n > 0 {
			o.text(",")
		}
		o.text("\n    ")
		o.value(v)
		n++
	}
	if n > 0 {
		o.text("\n  ")
	}
	o.text("]")
}

func (o *Object) key(key string) {
	if o.keys++; o.keys > 1 {
		o.text(",")
	}
	o.text("\n  ")
	o.value(key)
	o.text(": ")
}

func (o *Object) value(v any) {
	if o.err != nil {
		return
	}
	o.buffer.Reset()
	if o.err = o.encoder.Encode(v); o.err == nil {
		_, o.err = o.w.Write(bytes.TrimSuffix(o.buffer.Bytes(), []byte("\n")))
	}
}

//go:noinline
func (o *Object) text(s string) {
	if o.err == nil {
		_, o.err = o.w.WriteString(s)
	}
}
