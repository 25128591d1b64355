package runtime_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/quantize"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// folderModel is the model of a Hugging Face folder.
func folderModel(t *testing.T, folder string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestPrecisionOfCodes: in the precision int8 logits are near those of float32, and have the same bits in every mode,
// with any memory and threads, on the CPU and beside it; a model without blocks of integers, and a GPU, refuse it.
func TestPrecisionOfCodes(t *testing.T) {
	const chat = "../generate/testdata/chat"
	scheme, err := quantize.ParseScheme("int4:32")
	if err != nil {
		t.Fatal(err)
	}
	f, err := quantize.Open(t.Context(), chat, quantize.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	folder := filepath.Join(t.TempDir(), "int4")
	if _, err := f.Write(t.Context(), folder, nil); err != nil {
		t.Fatal(err)
	}
	model := folderModel(t, folder)
	logits := func(o optimem.Options) []byte {
		t.Helper()
		s, err := optimem.Start(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		out, err := s.Run(t.Context(), optimem.Values{"input_ids": tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)})
		if err != nil {
			t.Fatal(err)
		}
		return out["logits"].Data
	}
	plain, want := logits(optimem.Options{Mode: plan.Resident}), logits(optimem.Options{Mode: plan.Resident, Precision: "int8"})
	if bytes.Equal(plain, want) {
		t.Error("nothing was rounded")
	}
	a, _ := tensor.Slice[float32](&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(len(plain) / 4), Data: plain})
	b, _ := tensor.Slice[float32](&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(len(want) / 4), Data: want})
	var all, off float64
	for i := range a {
		all, off = all+float64(a[i]*a[i]), off+float64((a[i]-b[i])*(a[i]-b[i]))
	}
	if off > 4e-4*all {
		t.Errorf("the squared error is %v of %v", off, all)
	}
	for _, o := range []optimem.Options{
		{Mode: plan.Page}, {Mode: plan.Page, Memory: 300 << 10}, {Mode: plan.Auto, Memory: 350 << 10}, {Mode: plan.Chunk}, {Mode: plan.Resident, Threads: 1},
		{Mode: plan.Page, Device: "emu:memory=1MiB"}, {Mode: plan.Chunk, Device: "emu:memory=1MiB", Capacity: plan.Limit{N: 40 << 10, Unit: plan.Bytes}},
	} {
		o.Precision = "int8"
		if got := logits(o); !bytes.Equal(got, want) {
			t.Errorf("%s on %q with %d bytes: other bits", o.Mode, o.Device, o.Memory)
		}
	}
	s, err := optimem.Start(t.Context(), folderModel(t, chat), optimem.Options{Precision: "int8"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 8}})
	if !errors.Is(err, graph.ErrUnsupported) || !strings.Contains(err.Error(), "no weights are blocks of integers") {
		t.Errorf("a model of bfloat16: %v", err)
	}
}
