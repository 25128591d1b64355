package runtime_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const tinyLlama = "../models/testdata/families/hf/tiny_llama"

func tokens(ids ...int64) optimem.Values {
	return optimem.Values{"input_ids": tensor.Of(ids, 1, len(ids))}
}

// TestIndexOutOfRange: an index that an embedding does not have is the fault of the input that holds it, in every mode, and the
// session goes on.
func TestIndexOutOfRange(t *testing.T) {
	model := build(t, tinyLlama, nil)
	for _, m := range smallModes() {
		t.Run(m.name+" on "+m.opts.Device, func(t *testing.T) {
			s := open(t, m, model)
			want, err := s.Run(t.Context(), tokens(3, 1, 2))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []int64{1 << 40, -1} {
				_, err = s.Run(t.Context(), tokens(3, id, 2))
				var input *optimem.InputError
				if !errors.As(err, &input) || input.Input != "input_ids" || !strings.Contains(err.Error(), "out of bounds") {
					t.Errorf("%d: %v", id, err)
				}
			}
			got, err := s.Run(t.Context(), tokens(3, 1, 2))
			if err != nil {
				t.Fatal(err)
			}
			for name, y := range got {
				if !bytes.Equal(y.Data, want[name].Data) {
					t.Errorf("%s has other bits afterwards", name)
				}
			}
		})
	}
}

// TestNeighbourOutOfRange: a call that shares a pass with one whose index is out of range has its answer all the same.
func TestNeighbourOutOfRange(t *testing.T) {
	model := build(t, tinyLlama, nil)
	want, err := start(t, model, optimem.Options{}).Run(t.Context(), tokens(3, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range smallModes() {
		t.Run(m.name+" on "+m.opts.Device, func(t *testing.T) {
			const calls = 6
			var s *optimem.Session
			var hold sync.Once
			began := make(chan struct{})
			m.opts.MaxJoin = calls
			m.opts.Memory = 0
			m.opts.Observe = func(e optimem.Event) {
				if e.Kind == optimem.PassDone {
					hold.Do(func() {
						close(began)
						s.WaitFor(calls)
					})
				}
			}
			s = open(t, m, model)
			var group sync.WaitGroup
			group.Go(func() { // the pass while which the others wait
				if _, err := s.Run(t.Context(), tokens(3, 1, 2)); err != nil {
					t.Error(err)
				}
			})
			<-began
			for i := range calls {
				group.Go(func() {
					if i%3 == 0 {
						var input *optimem.InputError
						if _, err := s.Run(t.Context(), tokens(3, 1<<40, 2)); !errors.As(err, &input) {
							t.Errorf("%v", err)
						}
						return
					}
					got, err := s.Run(t.Context(), tokens(3, 1, 2))
					if err != nil {
						t.Errorf("a neighbour's index: %v", err)
						return
					}
					if !bytes.Equal(got["logits"].Data, want["logits"].Data) {
						t.Error("other bits")
					}
				})
			}
			group.Wait()
		})
	}
}
