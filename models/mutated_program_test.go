package models_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// fixturesFolder is the folder of files that PyTorch wrote.
func fixturesFolder() string { return fixtures.Folder("../loader/testdata/valid.tar.bz2") + "/" }

// A zipped file is an entry of an archive.
type zipped struct {
	name string
	data []byte
}

// recordsOf reads an archive.
func recordsOf(t *testing.T, path string) []zipped {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var all []zipped
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, zipped{f.Name, data})
	}
	return all
}

// writeRecords writes an archive, the program in it changed.
func writeRecords(t *testing.T, path string, records []zipped, change func(program []byte) []byte) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	changed := 0
	for _, r := range records {
		if strings.HasSuffix(r.name, "model.json") || strings.HasSuffix(r.name, "serialized_exported_program.json") {
			r.data = change(r.data)
			changed++
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: r.name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(r.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if changed != 1 {
		t.Fatalf("%d programs", changed)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A place is where a value stands in JSON: a member of an object or an element of an array.
type place struct {
	object map[string]any
	array  []any
	key    string
	index  int
}

func (p place) get() any {
	if p.object != nil {
		return p.object[p.key]
	}
	return p.array[p.index]
}

func (p place) set(v any) {
	if p.object != nil {
		p.object[p.key] = v
	} else {
		p.array[p.index] = v
	}
}

// places lists all places below a value, in an order that is always the same.
func places(v any) []place {
	var all []place
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			all = append(append(all, place{object: v, key: k}), places(v[k])...)
		}
	case []any:
		for i := range v {
			all = append(append(all, place{array: v, index: i}), places(v[i])...)
		}
	}
	return all
}

// mutatedProgram changes up to three places of a program: numbers become extreme, names those of something else, lists
// change their order, and parts stand where others did.
func mutatedProgram(rng *rand.Rand, text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var root map[string]any
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	numbers := []json.Number{
		"0", "1", "-1", "2", "3", "64", "65536", "1099511627776", "9223372036854775807", "-9223372036854775808",
		"18446744073709551616", "0.5", "1e308",
	}
	expressions := []string{"", "NaN", "oo", strings.Repeat("s0*", 60) + "s0", "s0**s0**s0", strings.Repeat("(", 500)}
	for range 1 + rng.IntN(3) {
		all := places(root["graph_module"])
		p := all[rng.IntN(len(all))]
		other := all[rng.IntN(len(all))].get()
		switch v := p.get().(type) {
		case json.Number:
			p.set(numbers[rng.IntN(len(numbers))])
		case bool:
			p.set(!v)
		case string:
			name, ok := other.(string)
			if !ok || rng.IntN(8) == 0 {
				name = expressions[rng.IntN(len(expressions))]
			}
			p.set(name)
		case []any:
			if len(v) > 1 && rng.IntN(2) == 0 {
				i, j := rng.IntN(len(v)), rng.IntN(len(v))
				v[i], v[j] = v[j], v[i]
			} else if len(v) > 0 {
				p.set(v[:len(v)-1])
			}
		default:
			if rng.IntN(2) == 0 {
				p.set(nil)
			} else if same, err := json.Marshal(other); err == nil { // a copy: JSON has no cycles
				p.set(json.RawMessage(same))
			}
		}
		again, err := json.Marshal(root)
		if err != nil {
			return nil, err
		}
		root = nil
		d := json.NewDecoder(bytes.NewReader(again))
		d.UseNumber()
		if err := d.Decode(&root); err != nil {
			return nil, err
		}
	}
	return json.Marshal(root)
}

// TestMutatedPrograms changes the programs of the loader's fixtures: each opens and becomes a graph, or is refused with an
// error that says of which class it is, and nothing panics.
func TestMutatedPrograms(t *testing.T) {
	paths, err := filepath.Glob(fixturesFolder() + "*pt2_*.pt2")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d programs: %v", len(paths), err)
	}
	each := 20
	if testing.Short() {
		each = 3
	}
	built, opened, refused := 0, 0, 0
	path := filepath.Join(t.TempDir(), "changed.pt2")
	for i, from := range paths {
		if strings.Contains(from, "two_models") { // which of them is changed?
			continue
		}
		records := recordsOf(t, from)
		if slices.ContainsFunc(records, func(r zipped) bool { return bytes.Contains(r.data, []byte("Infinity")) }) {
			continue // Python's JSON, which Go's does not read
		}
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		for n := range each {
			writeRecords(t, path, records, func(program []byte) []byte {
				text, err := mutatedProgram(rng, program)
				if err != nil {
					t.Fatal(err)
				}
				return text
			})
			open, err := graphOf(t, path)
			switch {
			case err == nil:
				built++
			case open:
				opened++
			default:
				refused++
			}
			if err != nil && !classified(err) {
				t.Errorf("%s, change %d: %v (%T) has no class", filepath.Base(from), n, err, err)
			}
		}
	}
	if t.Logf("%d became graphs, %d opened, %d did not", built, opened, refused); min(built, opened, refused) < each {
		t.Error("the changes are too hard or too soft")
	}
}

// classified reports whether a program can tell from an error whose fault it is.
func classified(err error) bool {
	var (
		lacking *models.UnsupportedError
		shape   *models.InputError
		program *models.ProgramError
	)
	return errors.As(err, &lacking) || errors.As(err, &shape) || errors.As(err, &program) || loader.Class(err) != nil
}

// graphOf opens a program and builds its graph for inputs of the sizes that it was exported with, or of two rows.
func graphOf(t *testing.T, path string) (opened bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("%v\n%s", v, debug.Stack())
		}
	}()
	ckpt, err := loader.Open(path)
	if err != nil {
		return false, err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{Ops: graph.Standard()})
	if err != nil {
		return true, err
	}
	shapes := make(map[string]tensor.Shape)
	for _, p := range model.Inputs() {
		shape := slices.Clone(p.Shape)
		for i, n := range shape {
			if n < 0 {
				shape[i] = 2
			}
		}
		shapes[p.Name] = shape
	}
	_, err = model.Graph(shapes)
	return true, err
}

// TestProgramError: a program that contradicts itself is the file's fault where it takes inputs of one shape only.
func TestProgramError(t *testing.T) {
	for name, fixed := range map[string]bool{"pt2_mlp.pt2": true, "pt2_dynamic.pt2": false} {
		from, to := "aten.relu.default", "aten.sum.default"
		if !fixed {
			from, to = to, from
		}
		path := filepath.Join(t.TempDir(), name)
		writeRecords(t, path, recordsOf(t, fixturesFolder()+name), func(program []byte) []byte {
			changed := bytes.ReplaceAll(program, []byte(from), []byte(to))
			if bytes.Equal(changed, program) {
				t.Fatalf("no %s", from)
			}
			return changed
		})
		_, err := graphOf(t, path)
		var e *models.ProgramError
		if !errors.As(err, &e) || e.Fixed != fixed || errors.Is(err, loader.ErrFormat) != fixed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConditionalOfLists: branches that give what cannot be compared are refused.
func TestConditionalOfLists(t *testing.T) {
	result := regexp.MustCompile(`"outputs": \[\{"as_tensor": \{"name": "(add|getitem|mul|sin)"\}\}\], "nodes"`)
	for _, list := range []string{`{"as_ints": [1]}`, `{"as_floats": [1.0]}`, `{"as_bools": [true]}`, `{"as_strings": ["a"]}`} {
		path := filepath.Join(t.TempDir(), "cond.pt2")
		writeRecords(t, path, recordsOf(t, "../runtime/testdata/cond.pt2"), func(program []byte) []byte {
			if n := len(result.FindAll(program, -1)); n != 4 {
				t.Fatalf("%d branches", n)
			}
			program = bytes.ReplaceAll(program, []byte("torch.ops.test.gate"), []byte("torch.ops.aten.relu"))
			return result.ReplaceAll(program, []byte(`"outputs": [`+list+`], "nodes"`))
		})
		_, err := graphOf(t, path)
		var e *models.UnsupportedError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "or a list") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// TestConditionalThatWrites: branches that write to their inputs are refused, since a run may pass by the one that does.
func TestConditionalThatWrites(t *testing.T) {
	for from, to := range map[string]string{
		`"torch.ops.test.gate.default", "inputs": [{"name": "x"`: `"torch.ops.aten.relu_.default", "inputs": [{"name": "self"`,
		"torch.ops.aten.sin.default":                             "torch.ops.aten.sin_.default",
	} {
		path := filepath.Join(t.TempDir(), "cond.pt2")
		writeRecords(t, path, recordsOf(t, "../runtime/testdata/cond.pt2"), func(program []byte) []byte {
			changed := bytes.ReplaceAll(program, []byte(from), []byte(to))
			if bytes.Equal(changed, program) {
				t.Fatalf("no %s", from)
			}
			return bytes.ReplaceAll(changed, []byte("torch.ops.test.gate"), []byte("torch.ops.aten.relu"))
		})
		_, err := graphOf(t, path)
		var e *models.UnsupportedError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "writes to its input") {
			t.Errorf("%s: %v", to, err)
		}
	}
}
