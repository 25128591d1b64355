package work

import (
	"bytes"
	"context"
	"errors"
	"io"
	goruntime "runtime"
	"sync/atomic"

	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// maxPreprocess bounds how a note says that a picture becomes numbers.
const maxPreprocess = 256

// firstRoom is what is set aside for decoding a picture, until one needs more.
const firstRoom = 24 << 20

// A darkroom is where a worker decodes pictures: few at a time, which leaves processors to passes, each within memory
// that was set aside for it.
type darkroom struct {
	places chan struct{}
	// room is what is set aside for the next picture: as much as one of those before needed.
	room atomic.Int64
}

func newDarkroom() *darkroom {
	d := &darkroom{places: make(chan struct{}, max(goruntime.GOMAXPROCS(0)/2, 1))}
	d.room.Store(firstRoom)
	return d
}

// inputs reads the inputs of an item that takes tensors. They hold so many bytes of the worker's memory for inputs,
// also of an error.
func (s *station) inputs(ctx context.Context, n *note) (in runtime.Values, held int64, err error) {
	need := 2 * n.bytes()
	for {
		room := int64(0)
		if n.hasPictures() {
			room = min(s.darkroom.room.Load(), s.opts.MaxBytes-need)
		}
		if err := s.memory.Acquire(ctx, need+room); err != nil {
			return nil, 0, err
		}
		in, left, err := s.readAll(ctx, n, room)
		switch {
		case err == nil: // what was for decoding is free again
			s.memory.Release(left)
			return in, need + room - left, nil
		case !errors.Is(err, preprocess.ErrLimit):
			return nil, need + room, err
		case need+room >= s.opts.MaxBytes:
			return nil, need + room, poison("%v", err)
		}
		s.memory.Release(need + room) // before more is taken, lest others wait for it and we for them
		s.darkroom.room.CompareAndSwap(room, 4*room)
	}
}

// readAll reads inputs, with so much memory beside their bytes for the pictures among them. It returns what of that is
// left.
func (s *station) readAll(ctx context.Context, n *note, room int64) (in runtime.Values, left int64, err error) {
	in = make(runtime.Values)
	for _, x := range n.Inputs {
		var t *tensor.Tensor
		if x.Preprocess == "" {
			t, err = s.read(ctx, x)
		} else if t, err = s.readPicture(ctx, x, room); err == nil {
			room -= int64(len(t.Data))
		}
		if err != nil {
			return nil, room, err
		}
		in[x.Name] = t
	}
	return in, room, nil
}

// readPicture reads a picture and has it become numbers, within so much memory.
func (s *station) readPicture(ctx context.Context, x noteInput, room int64) (*tensor.Tensor, error) {
	data, err := s.readBytes(ctx, x)
	if err != nil {
		return nil, err
	}
	select {
	case s.darkroom.places <- struct{}{}:
		defer func() { <-s.darkroom.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, err := develop(ctx, data, x.Preprocess, s.flat(x.Name), room)
	switch {
	case errors.Is(err, preprocess.ErrLimit):
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, poison("input %.100q: %v", x.Name, err)
	}
	return t, nil
}

// flat reports whether an input is one picture, and not rows of them.
func (s *station) flat(name string) bool {
	for _, p := range s.told.Inputs {
		if p.Name == name {
			return len(p.Shape) == 3
		}
	}
	return false
}

// develop makes numbers of a picture: a third of the memory is for decoding, one for resizing, one for the numbers.
func develop(ctx context.Context, file []byte, how string, flat bool, room int64) (*tensor.Tensor, error) {
	spec, err := preprocess.Parse(how)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(file)
	limits := preprocess.Limits{MemoryBytes: max(room/3, 1)}
	picture, err := preprocess.Decode(struct {
		io.Reader
		io.Seeker
	}{&stopping{ctx, r}, r}, limits)
	if err != nil {
		return nil, err
	}
	height, width, err := spec.Size(picture.Height, picture.Width)
	if err != nil {
		return nil, err
	}
	const colours, size = 3, 4
	pixels, ok := tensor.MulBytes(int64(height), int64(width))
	if !ok || pixels > room/3/(colours*size) {
		return nil, preprocess.ErrLimit
	}
	values := make([]float32, colours*pixels)
	if err := spec.Apply(ctx, picture, values); err != nil {
		return nil, err
	}
	if flat {
		return tensor.Of(values, colours, height, width), nil
	}
	return tensor.Of(values, 1, colours, height, width), nil
}
