package runtime_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The network of Koila's README beside what Koila 0.1.1 expects of it: the same bytes of parameters, and less for each row than it
// counts, which is every value once, whether it is needed later or not. Where Koila has room for 64 rows, a pass of more fits.
func TestKoilasNetwork(t *testing.T) {
	text, err := os.ReadFile("testdata/koila.json")
	if err != nil {
		t.Fatal(err)
	}
	var koila struct {
		Row   int64 `json:"row_bytes"`
		Fixed int64 `json:"fixed_bytes"`
	}
	if err := json.Unmarshal(text, &koila); err != nil {
		t.Fatal(err)
	}
	model := build(t, gunzipped(t, "testdata/koila.pt2.gz"), nil)
	shapes := map[string]tensor.Shape{"x": {8, 28, 28}}
	const rows = 64
	const from = 19 // below, kernels' scratch memory, which Koila does not count, is more than what is saved
	budget := koila.Fixed + rows*koila.Row
	s := open(t, mode{start: optimem.Resident, opts: optimem.Options{Memory: budget, Threads: 1}}, model)
	list, err := s.Batches(t.Context(), shapes, optimem.BatchGoal{Max: 256})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Plan(t.Context(), shapes)
	if err != nil {
		t.Fatal(err)
	}
	var weights int64
	for i := range p.Groups {
		weights += p.Groups[i].WeightBytes
	}
	if weights != koila.Fixed {
		t.Errorf("%d bytes of parameters, Koila counts %d", weights, koila.Fixed)
	}
	for i, b := range list {
		if most := koila.Fixed + int64(b.Rows)*koila.Row; b.Rows >= from && b.PeakBytes > most {
			t.Errorf("%d rows take %d bytes, Koila counts %d", b.Rows, b.PeakBytes, most)
		}
		if i > 0 && b.PeakBytes-list[i-1].PeakBytes >= koila.Row {
			t.Errorf("row %d takes %d bytes, Koila counts %d", b.Rows, b.PeakBytes-list[i-1].PeakBytes, koila.Row)
		}
	}
	if last := list[len(list)-1]; last.Rows <= rows {
		t.Errorf("%d rows fit, where Koila has room for %d", last.Rows, rows)
	} else {
		t.Logf("%d rows in %d bytes, where Koila has room for %d", last.Rows, budget, rows)
	}
	// Paged, the rows go through in a part of that.
	s = open(t, mode{start: optimem.Page, opts: optimem.Options{Memory: budget / 2, Threads: 1}}, model)
	if best, err := s.BestBatch(t.Context(), shapes, optimem.BatchGoal{Largest: true}); err != nil || best.Rows <= rows {
		t.Errorf("%+v in half of the memory: %v", best, err)
	}
}

// gunzipped returns a file without its compression.
func gunzipped(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.pt2")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
