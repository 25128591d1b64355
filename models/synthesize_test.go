package models_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/torchvision"
	"github.com/optimem/optimem/tensor"
)

// TestStateDicts compares what is written of every architecture with the state dicts that PyTorch's have: names, dtypes
// and shapes, in order.
func TestStateDicts(t *testing.T) {
	text, err := os.ReadFile("testdata/state_dicts.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]json.RawMessage
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, name := range torchvision.Names() {
		if strings.HasSuffix(name, "_no_transform") {
			continue // the same state dict as the one that transforms its input
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want struct {
				Entries int
				SHA256  string
			}
			if err := json.Unmarshal(recorded[name], &want); err != nil {
				t.Fatalf("no such model was recorded: %v", err)
			}
			a, err := models.NewArchitecture(name)
			if err != nil {
				t.Fatal(err)
			}
			tensors, err := models.Synthesize(a, 1, tensor.Float32)
			if err != nil {
				t.Fatal(err)
			}
			hash := sha256.New()
			for _, d := range tensors {
				fmt.Fprintln(hash, d.Name, d.DType, fmt.Sprint([]int(d.Shape)))
			}
			if got := hex.EncodeToString(hash.Sum(nil)); len(tensors) != want.Entries || got != want.SHA256 {
				t.Errorf("%d entries with hash %s, want %d with %s", len(tensors), got, want.Entries, want.SHA256)
				for _, d := range tensors[:min(len(tensors), 20)] {
					t.Log(d.Name, d.DType, d.Shape)
				}
			}
		})
	}
}

// TestSynthesized looks at what is written of a model with every kind of entry.
func TestSynthesized(t *testing.T) {
	if testing.Short() {
		t.Skip("makes the weights of a whole model four times")
	}
	a, err := models.NewArchitecture("swin_v2_t")
	if err != nil {
		t.Fatal(err)
	}
	read := func(seed uint64, dtype tensor.DType) map[string][]byte {
		tensors, err := models.Synthesize(a, seed, dtype)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string][]byte)
		for _, d := range tensors {
			n, _ := d.Shape.NumElements()
			p := make([]byte, n*int64(d.DType.Size()))
			if err := d.ReadAt(t.Context(), p, 0); err != nil {
				t.Fatal(d.Name, err)
			}
			all[d.Name] = p
		}
		return all
	}
	one, again, other, half := read(1, tensor.Float32), read(1, tensor.Float32), read(2, tensor.Float32), read(1, tensor.BFloat16)
	const weight = "features.1.0.attn.qkv.weight"
	if !bytes.Equal(one[weight], again[weight]) || bytes.Equal(one[weight], other[weight]) {
		t.Error("the seed does not decide the weights")
	}
	if len(half[weight])*2 != len(one[weight]) {
		t.Errorf("bfloat16 takes %d bytes, float32 %d", len(half[weight]), len(one[weight]))
	}
	var sum float64
	for p := one[weight]; len(p) > 0; p = p[4:] {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
		sum += x * x
	}
	// 96 inputs without normalization before, of mean square a little above 1
	if variance := sum / float64(len(one[weight])/4); variance > 1.1/96 || variance < 0.3/96 {
		t.Errorf("variance of %s is %v", weight, variance)
	}
	// PyTorch's relative_position_index of an 8 by 8 window begins 112, 111, 110 and ends with 112.
	index := one["features.1.0.attn.relative_position_index"]
	for _, at := range []struct{ i, want int }{{0, 112}, {1, 111}, {8, 97}, {64, 113}, {4095, 112}} {
		if got := int(binary.LittleEndian.Uint64(index[8*at.i:])); got != at.want {
			t.Errorf("element %d of the index is %d, want %d", at.i, got, at.want)
		}
	}
	coords := one["features.1.0.attn.relative_coords_table"]
	if got := math.Float32frombits(binary.LittleEndian.Uint32(coords)); math.Abs(float64(got)+1.0566) > 1e-3 {
		t.Errorf("the first coordinate is %v, want -1.0566", got)
	}
}

// TestSynthesizedTies: a weight that a model ties to another has its contents, as both are one tensor in PyTorch.
func TestSynthesizedTies(t *testing.T) {
	a, err := models.NewArchitecture("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := models.Synthesize(a, 1, tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	const at = 1 << 20 // the tables take too long to compare whole
	rows := make(map[string][]byte)
	for _, d := range tensors {
		switch d.Name {
		case "lm_head.weight", "transformer.wte.weight", "transformer.wpe.weight":
			rows[d.Name] = make([]byte, 768*4)
			if err := d.ReadAt(t.Context(), rows[d.Name], at); err != nil {
				t.Fatal(err)
			}
		}
	}
	tokens := rows["transformer.wte.weight"]
	if len(tokens) == 0 || !bytes.Equal(rows["lm_head.weight"], tokens) {
		t.Error("the head differs from the table of tokens that it is tied to")
	}
	if bytes.Equal(rows["transformer.wpe.weight"], tokens) {
		t.Error("the table of positions has the contents of that of tokens")
	}
}
