package serve

import (
	"context"
	"errors"
	"sync"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// maxParts is how many passes' rows a request may have.
const maxParts = 1024

// A partition says how a request with more rows than a program takes is cut: which inputs are cut at their first dimension, and
// which outputs are put together again.
type partition struct {
	in, out map[string]int
	err     error
}

// parts returns into how many calls a request is cut, 1 where it is none that could be, or need not be: where a program was
// exported for so many rows, and the request has a multiple of them.
func (m *tensorRunner) parts(in runtime.Values) int {
	parts := 1
	for _, p := range m.model.Inputs() {
		x := in[p.Name]
		if x == nil || p.Shape == nil || p.Number || len(p.Shape) != len(x.Layout.Shape) || len(p.Shape) == 0 {
			return 1
		}
		for i, n := range p.Shape {
			got := x.Layout.Shape[i]
			switch {
			case n < 0:
				return 1
			case got == n:
			case i > 0 || n == 0 || got%n != 0 || parts > 1 && got/n != parts:
				return 1
			default:
				parts = got / n
			}
		}
	}
	return parts
}

// partition finds out whether rows of the program can be kept apart, and which dimensions count them. It looks once.
func (m *tensorRunner) partition(ctx context.Context) *partition {
	m.rows.Do(func() {
		shapes := make(map[string]tensor.Shape)
		for _, p := range m.model.Inputs() {
			shapes[p.Name] = p.Shape
		}
		c := &partition{}
		c.in, c.out, c.err = m.model.BatchAxesContext(context.WithoutCancel(ctx), shapes, nil)
		for _, axes := range []map[string]int{c.in, c.out} {
			for _, axis := range axes {
				if axis > 0 {
					c.err = errors.Join(c.err, errors.New("rows are not counted by the first dimension"))
				}
			}
		}
		m.cut.Store(c)
	})
	return m.cut.Load()
}

// runParts runs a request's parts as calls of their own, which share passes as other calls do, and puts their outputs together.
func (m *tensorRunner) runParts(ctx context.Context, c *call, in runtime.Values, parts int) (runtime.Values, error) {
	if parts > maxParts {
		return nil, refuse(400, "a request of %d times the rows that the model takes: %d are the most", parts, maxParts)
	}
	cut := m.partition(ctx)
	if cut.err != nil {
		return nil, &Error{Status: 400, Msg: "the model takes no more rows than it was exported for: " + cut.err.Error(), Err: cut.err}
	}
	for _, p := range m.model.Inputs() {
		if x := in[p.Name]; x != nil && (cut.in[p.Name] == 0) != (p.Shape[0] != x.Layout.Shape[0]) {
			return nil, refuse(400, "input %q has as many rows as fit no other input", p.Name)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]runtime.Values, parts)
	var wait sync.WaitGroup
	for i := range parts {
		wait.Go(func() {
			some := make(runtime.Values, len(in))
			for name, x := range in {
				some[name] = x
				if cut.in[name] == 0 {
					some[name] = part(x, i, parts)
				}
			}
			var err error
			if results[i], err = m.member.RunWith(ctx, some, runtime.CallOptions{Priority: c.priority}); err != nil {
				cancel(err)
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	out := make(runtime.Values)
	for name, first := range results[0] {
		out[name] = first
		if cut.out[name] == 0 && len(first.Layout.Shape) > 0 {
			out[name] = together(name, results)
		}
	}
	return out, nil
}

// part is one of several equal parts of a contiguous tensor, by its first dimension. It shares its memory.
func part(x *tensor.Tensor, i, parts int) *tensor.Tensor {
	shape := append(tensor.Shape{}, x.Layout.Shape...)
	shape[0] /= parts
	size := len(x.Data) / parts
	return &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(shape...), Data: x.Data[i*size : (i+1)*size]}
}

// together puts outputs of one name behind each other.
func together(name string, results []runtime.Values) *tensor.Tensor {
	first := results[0][name]
	shape := append(tensor.Shape{}, first.Layout.Shape...)
	shape[0] = 0
	var data []byte
	for _, r := range results {
		x := r[name].Contiguous()
		n, _ := x.Layout.NumElements()
		data = append(data, x.Data[:n*int64(x.DType.Size())]...)
		shape[0] += x.Layout.Shape[0]
	}
	return &tensor.Tensor{DType: first.DType, Layout: tensor.Contiguous(shape...), Data: data}
}
