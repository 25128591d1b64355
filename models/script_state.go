package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/torchscript"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// scriptStates are what the attributes of a program hold between calls that no weight of the checkpoint keeps. Of numbers and
// texts the values are known while a graph is built, of tensors the dtypes and shapes: a graph is for one form of all of them.
type scriptStates struct {
	mu sync.Mutex
	// forms has the attributes by their text.
	forms map[string]torchscript.Attributes
	// extents has the place of each tensor of an attribute, which has the name, dtype and shape.
	extents map[string]storage.Extent
	source  blank
	// placed is how many bytes of the source have a tensor.
	placed int64
}

// maxForms bounds the forms of a program's attributes. A session keeps the tensors of all.
const maxForms = 1 << 10

// maxSettling is after how many calls alike a program has to come to a form that it had before: one whose attributes become
// something else with every call would need a graph for each.
const maxSettling = 16

func newScriptStates() *scriptStates {
	return &scriptStates{forms: map[string]torchscript.Attributes{"": nil}, extents: make(map[string]storage.Extent)}
}

// form returns the attributes of a text that an earlier graph left.
func (s *scriptStates) form(text string) (torchscript.Attributes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	form, ok := s.forms[text]
	if !ok {
		return nil, fmt.Errorf("no call leaves %q", text)
	}
	return form, nil
}

// add keeps a form and returns its text.
func (s *scriptStates) add(form torchscript.Attributes) (string, error) {
	text := form.String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.forms[text]; !ok && len(s.forms) >= maxForms {
		return "", &UnsupportedError{What: fmt.Sprintf("attributes that have held more than %d different shapes and values", maxForms)}
	}
	s.forms[text] = form
	return text, nil
}

// extent returns the place of a tensor.
func (s *scriptStates) extent(k torchscript.Kept, bytes int64) storage.Extent {
	key := fmt.Sprintf("%q %v %v", k.Name, k.DType, k.Shape)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.extents[key]
	if !ok {
		e = storage.Extent{Source: &s.source, Offset: s.placed, Bytes: bytes}
		s.extents[key] = e
		s.placed += bytes
	}
	return e
}

// settle returns an error where calls alike never come to a form that they had before. run evaluates one call.
func settle(
	before, after torchscript.Attributes, run func(torchscript.Attributes) (torchscript.Attributes, error),
) error {
	seen := map[string]bool{before.String(): true}
	changed := ""
	for range maxSettling {
		if seen[after.String()] {
			return nil
		}
		seen[after.String()] = true
		next, err := run(after)
		if err != nil {
			return nil // the call that comes to that says so
		}
		changed, after = next.Changed(after), next
	}
	return &UnsupportedError{Missing: []Missing{{
		Name: "attribute " + changed, Uses: 1, Reason: "it has another value or shape after every call, and each needs a graph of its own",
	}}}
}

// sameAgain reports whether what a call leaves changes nothing: the next call has the same graph and leaves the same. So it is with
// a flag that says that a warning was given.
func sameAgain(
	g *graph.Graph, before, after torchscript.Attributes,
	evaluate func(torchscript.Attributes) (*scriptRecorder, *torchscript.Result, error),
) (bool, error) {
	if before.String() == after.String() {
		return true, nil
	}
	r, next, err := evaluate(after)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false, err
	case err != nil, next.Attributes.String() != after.String(), r.finish(next) != nil:
		return false, nil // the call that comes to that says why
	}
	r.Graph.Finds = g.Finds
	return reflect.DeepEqual(g, r.Graph), nil
}

// Kept implements torchscript.Recorder.
func (r *scriptRecorder) Kept(k torchscript.Kept) (layers.Tensor, error) {
	n, err := k.Shape.NumElements()
	if err != nil {
		return nil, err
	}
	bytes, ok := tensor.MulBytes(n, int64(k.DType.Size()))
	if !ok {
		return nil, fmt.Errorf("%v of %v takes more than 2^63 bytes", k.Shape, k.DType)
	}
	if bytes == 0 {
		return r.Constant(&tensor.Tensor{DType: k.DType, Layout: tensor.Contiguous(k.Shape...)})
	}
	x := r.stored(tensor.Weight{
		Name: k.Name, DType: k.DType, Layout: tensor.Contiguous(k.Shape...), Extent: r.states.extent(k, bytes),
	})
	id := x.Memory().Value()
	if v := &r.Graph.Values[id]; v.Role == graph.Weight {
		v.Role = graph.State
		r.keeps = append(r.keeps, id)
	}
	return x, nil
}

// update makes tensors of the module what the program set them to, all at once: one may become what another was.
func (r *scriptRecorder) update(updates []torchscript.Update) error {
	was := make([]*cells.Ref, len(updates))
	for i, u := range updates {
		x, ok := u.Value.(*cells.Ref)
		if !ok || x.IsCounted() {
			return &UnsupportedError{What: fmt.Sprintf("buffer %s: %s", u.Weight, cells.SizeOfData)}
		}
		was[i] = cells.Snapshot(x)
	}
	for i, u := range updates {
		name := u.Weight
		var w layers.Tensor
		var err error
		if u.Kept != nil {
			name = u.Kept.Name
			w, err = r.Kept(*u.Kept)
		} else {
			w, err = r.weight(u.Weight)
		}
		if err != nil {
			return err
		}
		if cells.NumElements(w.Shape()) == 0 {
			continue
		}
		if err := r.Write(w.(*cells.Ref), was[i]); err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
	}
	return nil
}

// blank is the source of what no file holds: zeros, that a pass writes before one reads them.
type blank struct{ _ byte }

// ReadAt implements storage.Source.
func (b *blank) ReadAt(_ context.Context, p []byte, _ int64) error {
	clear(p)
	return nil
}

// Size implements storage.Source.
func (b *blank) Size() int64 { return math.MaxInt64 }
