package models

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// Models with an encoder read a source before they write. A pass of steps does the one or the other: one with
// [StepSource] runs the encoder, and keeps the keys and values that the decoder's modules make of what it gives in
// caches of their own; one with [StepTokens] writes, and its rows attend to what their source left there.

// Source returns how many positions a source may have, of a model that [Model.Steps] takes and that reads one; 0 of
// others.
func (m *Model) Source() int { return m.source }

// Sound returns the port of the features that a model reads in the place of a text, with their shape: of a sound, or
// the pixels of a picture. It is false of one that reads neither.
func (m *Model) Sound() (Port, bool) {
	if m.sound == nil {
		return Port{}, false
	}
	return *m.sound, true
}

// sourcePorts returns the inputs of passes that write, of those that they have without a source, and those of passes
// that read one.
func (from stepSource) sourcePorts(o StepOptions, steps []Port) (writing, reading []Port) {
	at := func(rows string) []Port {
		return []Port{
			{Name: StepSourceAt, DType: tensor.Int64, Shape: tensor.Shape{-1}, Dims: []string{rows}},
			{Name: StepSourceBlocks, DType: tensor.Int64, Shape: tensor.Shape{-1, graph.Blocks(o.Source)}, Dims: []string{rows, "source_blocks"}},
		}
	}
	source := from.arch.Inputs[0]
	source.Name, source.Optional = StepSource, false
	source.Shape = append(tensor.Shape{1}, source.Shape[1:]...)
	source.Dims = append([]string{""}, source.Dims[1:]...)
	reading = []Port{source}
	if source.DType == tensor.Int64 {
		mask := source
		mask.Name = StepSourceMask
		reading = append(reading, mask)
	}
	return append(steps, at("rows")...), append(reading, at("positions")...)
}

// eitherPorts are those of passes of two kinds.
func eitherPorts(writing, reading []Port) []Port {
	var all []Port
	seen := make(map[string]bool)
	for _, list := range [][]Port{writing, reading} {
		for _, p := range list {
			if !seen[p.Name] {
				p.Optional = true
				all = append(all, p)
			}
			seen[p.Name] = true
		}
	}
	return all
}

// read returns the graph of a pass that reads a source.
func (from stepSource) read(r *recorder, o StepOptions, ports []Port, c Call) (*graph.Graph, error) {
	bound, err := r.bind(ports, c.Inputs)
	if err != nil {
		return nil, err
	}
	n := len(bound)
	reads := &sourceRecorder{recorder: r, options: o, at: bound[n-2], blocks: bound[n-1]}
	a := from.arch
	args := make([]any, len(a.Inputs))
	for i, x := range bound[:n-2] {
		args[i] = x
	}
	result, err := a.Trace(reads, args)
	if err != nil {
		return nil, traceError(err)
	}
	fields, _ := result.(layers.Fields)
	if len(fields) != 1 {
		return nil, fmt.Errorf("a source that gives %d results", len(fields))
	}
	first := fields[0].Value
	for _, dim := range []int{1, 2} {
		out, err := r.Call("aten::slice.Tensor", []any{first, dim, 0, 1}, nil)
		if err != nil {
			return nil, err
		}
		first = out[0]
	}
	return r.Graph, r.give(layers.Fields{{Name: StepSourceRead, Value: first}})
}

// A sourceRecorder is what the trace writes to where a source is read.
type sourceRecorder struct {
	*recorder
	options    StepOptions
	at, blocks layers.Tensor
}

// Keep implements layers.SourceReader. What is kept is written by an attention in which each position sees itself
// alone, and whose result nobody wants.
func (r *sourceRecorder) Keep(path string, k, v layers.Tensor) error {
	keys, err := r.rowsOf(k)
	if err != nil {
		return err
	}
	values, err := r.rowsOf(v)
	if err != nil {
		return err
	}
	if rows := r.at.Shape()[0]; keys.Shape()[0] != rows {
		return &InputError{StepSourceAt, fmt.Sprintf("%d positions, and the source has %d", rows, keys.Shape()[0])}
	}
	in := []graph.Operand{
		r.Read(keys), r.Read(keys), r.Read(values),
		r.cache(r.options, path, false, r.options.SourceBlocks, keys.Shape()[1:]),
		r.cache(r.options, path, true, r.options.SourceBlocks, values.Shape()[1:]),
		r.Read(r.at.(*cells.Ref)), r.Read(r.blocks.(*cells.Ref)),
	}
	_, err = r.Emit1("attend", graph.Attrs{"scale": 1.0, "window": 1}, in...)
	return err
}

// Reserve implements layers.SourceReader.
func (r *sourceRecorder) Reserve(path string, heads, size int) {
	for _, values := range []bool{false, true} {
		r.cache(r.options, path, values, r.options.Blocks, tensor.Shape{heads, size})
	}
}

// Recall implements layers.Stepper.
func (r *stepRecorder) Recall(path string, q layers.Tensor, a layers.Attention) (layers.Tensor, error) {
	if r.sourceAt == nil {
		return nil, fmt.Errorf("%s attends to a source, and the model reads none", path)
	}
	rows, err := r.rowsOf(q)
	if err != nil {
		return nil, err
	}
	row := rows.Shape()[1:]
	return r.attend([]graph.Operand{
		r.Read(rows), graph.Absent, graph.Absent, r.cache(r.options, path, false, r.options.SourceBlocks, row),
		r.cache(r.options, path, true, r.options.SourceBlocks, row), r.Read(r.sourceAt.(*cells.Ref)), r.Read(r.sourceBlocks.(*cells.Ref)),
	}, nil, a)
}
