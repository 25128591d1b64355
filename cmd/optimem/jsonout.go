package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"iter"
)

// A jsonObject writes one JSON object key by key, arrays one element a line, so that a listing of a hundred thousand
// tensors is never in memory as a whole. The first error stays until close returns it.
type jsonObject struct {
	w       *bufio.Writer
	buffer  bytes.Buffer // one value, with the newline that the encoder puts after it
	encoder *json.Encoder
	keys    int
	err     error
}

func newJSONObject(w io.Writer) *jsonObject {
	o := &jsonObject{w: bufio.NewWriterSize(w, 64<<10)}
	o.encoder = json.NewEncoder(&o.buffer)
	o.encoder.SetEscapeHTML(false)
	o.text("{")
	return o
}

// set writes a key with a value.
func (o *jsonObject) set(key string, value any) {
	o.key(key)
	o.value(value)
}

func (o *jsonObject) close() error {
	o.text("\n}\n")
	if err := o.w.Flush(); o.err == nil {
		o.err = err
	}
	return o.err
}

// setArray writes a key with an array, "[]" where there is nothing.
func setArray[T any](o *jsonObject, key string, values iter.Seq[T]) {
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

func (o *jsonObject) key(key string) {
	if o.keys++; o.keys > 1 {
		o.text(",")
	}
	o.text("\n  ")
	o.value(key)
	o.text(": ")
}

func (o *jsonObject) value(v any) {
	if o.err != nil {
		return
	}
	o.buffer.Reset()
	if o.err = o.encoder.Encode(v); o.err == nil {
		_, o.err = o.w.Write(bytes.TrimSuffix(o.buffer.Bytes(), []byte("\n")))
	}
}

func (o *jsonObject) text(s string) {
	if o.err == nil {
		_, o.err = o.w.WriteString(s)
	}
}
