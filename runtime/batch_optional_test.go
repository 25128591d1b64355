package runtime_test

import (
	"bytes"
	"errors"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A batch is cut although the model has inputs that nobody gives: a mask, positions.
func TestBatchWithoutOptionalInputs(t *testing.T) {
	model := build(t, "../models/testdata/families/hf/tiny_llama", nil)
	const rows, length = 3, 5
	ids := make([]int64, rows*length)
	for i := range ids {
		ids[i] = int64(i * 7 % 32)
	}
	name := model.Inputs()[0].Name
	s := start(t, model, optimem.ResidentOptions{MicroBatch: 1, Threads: 1})
	out, err := s.RunBatch(t.Context(), optimem.Values{name: tensor.Of(ids, rows, length)})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for row := range rows {
		one, err := s.Run(t.Context(), optimem.Values{name: tensor.Of(ids[row*length:][:length], 1, length)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, one["logits"].Data...)
	}
	if got := out["logits"].Data; !bytes.Equal(got, want) {
		t.Error("the batch has other bits than its rows")
	}
}

// An optional input that is given as nil is one that is not given; another name is none of the model's.
func TestNilOptionalInput(t *testing.T) {
	model := build(t, "../models/testdata/families/hf/tiny_llama", nil)
	s := start(t, model, optimem.ResidentOptions{Threads: 1})
	ids := tensor.Of([]int64{1, 2, 3, 4, 5, 6}, 2, 3)
	want, err := s.Run(t.Context(), optimem.Values{"input_ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	in := optimem.Values{"input_ids": ids, "attention_mask": nil}
	got, err := s.Run(t.Context(), in)
	if err != nil || !bytes.Equal(got["logits"].Data, want["logits"].Data) {
		t.Errorf("a mask that is nil: %v", err)
	}
	if batch, err := s.RunBatch(t.Context(), in); err != nil || batch["logits"] == nil {
		t.Errorf("a batch with a mask that is nil: %v", err)
	}
	var refused *optimem.InputError
	if _, err := s.Run(t.Context(), optimem.Values{"input_ids": ids, "mask": nil}); !errors.As(err, &refused) || refused.Input != "mask" {
		t.Errorf("a name that is no input's: %v", err)
	}
	if _, err := s.Run(t.Context(), optimem.Values{"input_ids": nil}); !errors.As(err, &refused) || refused.Input != "input_ids" {
		t.Errorf("an input that is needed: %v", err)
	}
}
