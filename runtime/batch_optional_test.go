package runtime_test

import (
	"bytes"
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
