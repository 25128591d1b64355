package memory_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// expected is what PyTorch says of the storages of a model.
type expected struct {
	File     string
	Input    []int
	Storages []struct {
		Name       string
		Shape      []int
		DType      string
		Bytes      int64
		SharedWith string `json:"shared_with"`
	}
}

func recorded(t *testing.T) map[string]expected {
	t.Helper()
	text, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]expected
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// session returns a session of a model, which is closed with the test.
func session(t *testing.T, path string, o runtime.Options) (*runtime.Session, *models.Model) {
	t.Helper()
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := runtime.Start(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, model
}

const (
	digits         = "../examples/digits/digits.pt2"
	emulatedDevice = "emu:memory=64MiB,bandwidth=12GB/s,latency=10us"
)

// adds checks that storages and the rest add up to what the device counts, and that nothing is negative.
func adds(t *testing.T, what string, r *memory.Report) {
	t.Helper()
	for i := range r.Devices {
		d := &r.Devices[i]
		if n := d.StorageBytes() + d.RestBytes(); n != d.HeldBytes {
			t.Errorf("%s: %s adds up to %d, the device counts %d\n%s", what, d.Name, n, d.HeldBytes, r.Text(memory.Verbose))
		}
		for _, s := range d.Storages {
			if s.Bytes < 0 || s.Bytes == 0 && s.SharedWith == "" && s.UsedBytes > 0 || s.Name == "" || s.Kind == "" || s.DType == "" {
				t.Errorf("%s: %+v", what, s)
			}
		}
		for _, x := range d.Rest {
			if x.Bytes <= 0 {
				t.Errorf("%s: %+v", what, x)
			}
		}
	}
}

// TestStoragesAsPyTorch: the weights that stay are PyTorch's, with its names, shapes, dtypes and bytes, those that share a storage
// under all of their names, of which the first has the bytes.
func TestStoragesAsPyTorch(t *testing.T) {
	for name, want := range recorded(t) {
		for _, device := range []string{"cpu", emulatedDevice} {
			s, model := session(t, "testdata/"+want.File, runtime.Options{Mode: plan.Resident, Device: device, Once: true})
			n, err := tensor.Shape(want.Input).NumElements()
			if err != nil {
				t.Fatal(err)
			}
			in := runtime.Values{model.Inputs()[0].Name: tensor.Of(make([]float32, n), want.Input...)}
			if _, err := s.Run(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			r, err := s.Memory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			adds(t, name, r)
			got := make(map[string]memory.Storage)
			for _, x := range r.Devices[0].Storages {
				if (x.Kind == memory.Weight || x.Kind == memory.Packed) && !strings.HasPrefix(x.Name, "_flat_weights.") {
					got[x.Name] = x
				}
			}
			for _, w := range want.Storages {
				x := got[w.Name]
				delete(got, w.Name)
				if !slices.Equal(x.Shape, w.Shape) || x.DType != w.DType || x.UsedBytes != w.Bytes {
					t.Errorf("%s on %s: %+v, want %+v", name, device, x, w)
				}
				first := w.SharedWith == w.Name
				if first && (x.Bytes != w.Bytes && x.Kind != memory.Packed || x.Bytes == 0 || x.SharedWith != "") || !first && (x.Bytes != 0 || x.SharedWith != w.SharedWith) {
					t.Errorf("%s on %s: %s takes %d, shared with %q; PyTorch has it with %s", name, device, w.Name, x.Bytes, x.SharedWith, w.SharedWith)
				}
			}
			if len(got) > 0 {
				t.Errorf("%s on %s: PyTorch has no %v", name, device, got)
			}
		}
	}
}

// TestText: a table of all storages, or of the largest, whose last row is the sum.
func TestText(t *testing.T) {
	s, _ := session(t, "testdata/shared.pt2", runtime.Options{Mode: plan.Resident, Device: emulatedDevice})
	if _, err := s.Run(t.Context(), runtime.Values{"x": tensor.Of(make([]float32, 48), 2, 24)}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// What scratch memory takes, and whether weights are packed, depends on the processor's kernels.
	text := r.Text(memory.Verbose)
	if !strings.HasPrefix(text, "emu, now: ") || !strings.Contains(text, "\ntotal ") {
		t.Errorf("verbose is\n%s", text)
	}
	rows := strings.NewReplacer("packed weight", "weight").Replace(text)
	for _, want := range [][2]string{
		{"linear.bias ", "weight [24] float32 96 96"}, {"linear2.bias ", "weight [24] float32 96 96"},
		{"linear.weight ", "weight [24 24] float32 * 2,304"}, {"linear2.weight (->linear.weight) ", "weight [24 24] float32 0 2,304"},
		{"(alignment of weights that stay) ", "*"}, {"(activations, none alive) ", "512"},
	} {
		found := false
		for line := range strings.Lines(rows) {
			rest, ok := strings.CutPrefix(line, want[0])
			if !ok {
				continue
			}
			got, fields := strings.Fields(rest), strings.Fields(want[1])
			found = len(got) == len(fields)
			for i := range fields {
				found = found && (fields[i] == "*" || fields[i] == got[i])
			}
			break
		}
		if !found {
			t.Errorf("no row %q %q in\n%s", want[0], want[1], text)
		}
	}
	if strings.Contains(text, "cpu") || strings.Contains(text, "differs") {
		t.Errorf("verbose is\n%s", text)
	}
	brief := r.Text(memory.Brief)
	if strings.Contains(brief, "->") || strings.Index(brief, "linear.weight") > strings.Index(brief, "linear.bias") {
		t.Errorf("brief is\n%s", brief)
	}
	r.Devices[0].HeldBytes++
	if text := r.Text(memory.Brief); !strings.Contains(text, "what the device counts differs by") {
		t.Errorf("a byte that nobody has is not told of\n%s", text)
	}
	for range 20 {
		r.Devices[0].Storages = append(r.Devices[0].Storages, memory.Storage{Name: "another", Bytes: 1})
	}
	if text := r.Text(memory.Brief); !strings.Contains(squeezed(text), "… and 13 more 13 0") || strings.Count(text, "another") != 7 {
		t.Errorf("brief is\n%s", text)
	}
}

// squeezed has one space where there are several.
func squeezed(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
