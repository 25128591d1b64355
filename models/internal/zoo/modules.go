package zoo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/optimem/optimem/loader"
)

// A Recorded is a module of torch.nn with weights, inputs, and PyTorch's outputs.
type Recorded struct {
	Name    string
	Module  Pickled
	Weights map[string]Filled
	Inputs  map[string]Filled
	Outputs []Output
	// Refused is part of the error where the module must not run.
	Refused string
	// Calls are the ops that PyTorch's exporter recorded, without overloads; empty where it was not asked.
	Calls []string
	// Text is how Python prints the module.
	Text string
}

// A Pickled is a module as it is pickled.
type Pickled struct {
	Class    string
	Attrs    map[string]any
	Members  [][]any
	Hooks    []string
	Children [][]json.RawMessage
}

// Modules reads what the classes of torch.nn were recorded to compute, models/testdata/nn/nn.json.gz.
func Modules(path string) ([]Recorded, error) {
	file, err := modules(path)
	return file.Cases, err
}

// Classes returns the classes of torch.nn by their names there, with the names under which they are pickled.
func Classes(path string) (map[string]string, error) {
	file, err := modules(path)
	return file.Classes, err
}

// recording is the file.
type recording struct {
	Classes map[string]string
	Cases   []Recorded
}

func modules(path string) (file recording, err error) {
	err = Unzip(path, func(r io.Reader) error {
		d := json.NewDecoder(r)
		d.UseNumber() // Python tells 1 from 1.0, and so must the attributes
		return d.Decode(&file)
	})
	return file, err
}

// Checkpoint returns the module as the loader reads it from a file.
func (c Recorded) Checkpoint() (*loader.Checkpoint, error) {
	weights, err := Weights(c.Weights)
	if err != nil {
		return nil, err
	}
	ckpt, err := loader.NewCheckpoint(c.Name, weights, nil)
	if err != nil {
		return nil, err
	}
	ckpt.Module, err = c.Module.load("")
	return ckpt, err
}

func (m Pickled) load(path string) (*loader.Module, error) {
	out := &loader.Module{Class: m.Class, Path: path}
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	for name, v := range m.Attrs {
		value, err := attribute(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", join(name), err)
		}
		out.Attrs = append(out.Attrs, loader.Attr{Name: name, Value: value})
	}
	for _, member := range m.Members {
		name, _ := member[0].(string)
		one := loader.Member{Name: name, Transient: member[3] == true}
		if member[1] == true {
			one.Weight = join(name)
		}
		if member[2] == true {
			out.Buffers = append(out.Buffers, one)
		} else {
			out.Params = append(out.Params, one)
		}
	}
	for _, h := range m.Hooks {
		out.Hooks = append(out.Hooks, loader.ClassName(h))
	}
	for _, pair := range m.Children {
		var name string
		var child Pickled
		if err := json.Unmarshal(pair[0], &name); err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(pair[1]))
		d.UseNumber()
		if err := d.Decode(&child); err != nil {
			return nil, err
		}
		if child.Class == "" { // None
			continue
		}
		c, err := child.load(join(name))
		if err != nil {
			return nil, err
		}
		out.Children = append(out.Children, c)
	}
	return out, nil
}

// attribute returns a value as the loader gives it.
func attribute(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		return v.Float64()
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = attribute(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if name, ok := v["class"].(string); ok {
			return loader.ClassName(name), nil
		}
		switch v["float"] {
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		case "NaN":
			return math.NaN(), nil
		}
		dict, ok := v["dict"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("an attribute %v", v)
		}
		out := make(map[string]any, len(dict))
		for k, x := range dict {
			var err error
			if out[k], err = attribute(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
