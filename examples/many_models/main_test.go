package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestLargerPictures: within one budget small pictures go through as they are, and large ones with activations that wait
// outside the device's memory, with the same bits, on the CPU and on a device with memory of its own. Without that the
// large ones do not fit.
func TestLargerPictures(t *testing.T) {
	const budget = 1_300_000
	for _, o := range []optimem.Options{
		{Device: "cpu", Memory: budget, Swap: 1 << 20, SwapFolder: t.TempDir()},
		{Device: "emu:memory=1300000", Memory: budget},
	} {
		var out strings.Builder
		if err := run(context.Background(), &out, "skips.pt", "16,48, 64", 1, o); err != nil {
			t.Fatalf("%s: %v", o.Device, err)
		}
		rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if err != nil || len(rows) != 4 {
			t.Fatalf("%s: %v\n%s", o.Device, err, &out)
		}
		for i, want := range []string{"nothing", "nothing", "activations"} {
			row := rows[i+1]
			peak, _ := strconv.Atoi(row[3])
			swapped := row[5] != "0" && row[6] != "0"
			if row[1] != want || swapped != (want == "activations") || peak <= 0 || peak > budget {
				t.Errorf("%s: %v, and %s is to give way", o.Device, row, want)
			}
		}
	}
	var capacity *optimem.CapacityError
	err := run(context.Background(), &strings.Builder{}, "skips.pt", "64", 1, optimem.Options{Device: "cpu", Memory: budget})
	if !errors.As(err, &capacity) || capacity.MinBytes <= budget {
		t.Errorf("without a file: %v", err)
	}
}

// TestPyTorchsNumbers: the model computes what PyTorch did when make_model.py wrote it, also with activations in a file.
func TestPyTorchsNumbers(t *testing.T) {
	text, err := os.ReadFile("picture.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Side  int
		First []float32
		Sum   float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open("skips.pt")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Page(t.Context(), model, optimem.PageOptions{Memory: 100_000, Swap: 1 << 20, SwapFolder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), optimem.Values{model.Inputs()[0].Name: pixels(1, want.Side)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[float32](out[model.Outputs()[0]])
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for i, v := range got {
		sum += float64(v)
		if i < len(want.First) && math.Abs(float64(v-want.First[i])) > 1e-5 {
			t.Errorf("element %d is %v, PyTorch's %v", i, v, want.First[i])
		}
	}
	if math.Abs(sum-want.Sum) > 1e-3 {
		t.Errorf("the sum is %v, PyTorch's %v", sum, want.Sum)
	}
	if m := session.Metrics(); m.SwappedInBytes == 0 || m.SwapStall <= 0 {
		t.Errorf("nothing waited in a file: %+v", m)
	}
}
