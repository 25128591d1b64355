package models_test

import (
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// detectorFiles are the programs and references of make_detectors.py.
var detectorFiles = sync.OnceValues(func() (*zip.Reader, error) {
	f, err := os.Open(filepath.Join(scriptFolder, "detectors.zip.bz2"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	whole, err := io.ReadAll(bzip2.NewReader(f))
	if err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
})

// detector opens a model of torchvision with what PyTorch gave: "maskrcnn.script".
func detector(t *testing.T, name string) (*models.Model, []zoo.Case) {
	t.Helper()
	files, err := detectorFiles()
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string) io.Reader {
		f, err := files.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ref := &zoo.Reference{}
	if err := json.NewDecoder(open(name + ".ref.json")).Decode(ref); err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(openArchive(t, open(name+".pt"), ref), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model, ref.Cases
}

// pictures returns the inputs of a case; what was traced with one picture has no list of them.
func pictures(t *testing.T, model *models.Model, c zoo.Case) optimem.Values {
	t.Helper()
	in := make(optimem.Values)
	for name, f := range c.Inputs {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if first := model.Inputs()[0].Name; len(c.Inputs) == 1 {
			name = first
		}
		in[name] = x
	}
	return in
}

// compareDetected holds what a run gave against PyTorch's.
func compareDetected(t *testing.T, i int, out optimem.Values, c zoo.Case) {
	t.Helper()
	if len(out) != len(c.Outputs) {
		t.Errorf("case %d: %d outputs, PyTorch gave %d", i, len(out), len(c.Outputs))
	}
	for _, want := range c.Outputs {
		if _, err := compareSample(out[want.Name], want); err != nil {
			t.Errorf("case %d: output %s: %v", i, want.Name, err)
		}
	}
}

// TestDetectors: torchvision's detection models find what they find in PyTorch, traced and scripted: several things in a picture,
// nothing in one, and, scripted, things in two pictures of other sizes in one call.
func TestDetectors(t *testing.T) {
	for _, name := range []string{"fasterrcnn", "maskrcnn", "keypointrcnn", "retinanet", "fcos", "ssd"} {
		for _, form := range []string{"trace", "script"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				model, cases := detector(t, name+"."+form)
				session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				found, nothing := false, false
				for i, c := range cases {
					out, err := session.Run(t.Context(), pictures(t, model, c))
					if err != nil {
						t.Fatalf("case %d: %v", i, err)
					}
					compareDetected(t, i, out, c)
					n := out["scores"].Layout.Shape[0]
					found, nothing = found || n > 4, nothing || n == 0
				}
				if !found || !nothing && form == "script" {
					t.Error("no case finds several things, or none finds nothing")
				}
			})
		}
	}
}

// TestDetectorWithoutProposals: a trace runs where there is not a single region to look at, on which PyTorch fails.
func TestDetectorWithoutProposals(t *testing.T) {
	model, _ := detector(t, "keypointrcnn.trace")
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	_, scripted := detector(t, "keypointrcnn.script")
	out, err := session.Run(t.Context(), pictures(t, model, scripted[2]))
	if err != nil {
		t.Fatal(err)
	}
	compareDetected(t, 2, out, scripted[2])
}

// TestDetectorModes: the same bits in every mode, of keypoints and of masks.
func TestDetectorModes(t *testing.T) {
	for _, name := range []string{"maskrcnn.script", "keypointrcnn.trace"} {
		model, cases := detector(t, name)
		first := make([]optimem.Values, len(cases))
		for mode, start := range map[string]func() (*optimem.Session, error){
			"resident": func() (*optimem.Session, error) {
				return optimem.Resident(t.Context(), model, optimem.Options{Threads: 1})
			},
			"paged": func() (*optimem.Session, error) {
				return optimem.Page(t.Context(), model, optimem.Options{})
			},
			"emulated": func() (*optimem.Session, error) {
				return optimem.Page(t.Context(), model, optimem.Options{Device: "emu:memory=64MiB"})
			},
			"chunk": func() (*optimem.Session, error) {
				return optimem.Chunk(t.Context(), model, optimem.Options{Device: "emu:memory=64MiB"})
			},
			"auto": func() (*optimem.Session, error) {
				return optimem.Auto(t.Context(), model, optimem.Options{})
			},
		} {
			s, err := start()
			if err != nil {
				t.Fatalf("%s, %s: %v", name, mode, err)
			}
			for i, c := range cases {
				out, err := s.Run(t.Context(), pictures(t, model, c))
				if err != nil {
					t.Fatalf("%s, %s, case %d: %v", name, mode, i, err)
				}
				if first[i] == nil {
					first[i] = out
				}
				for output, x := range first[i] {
					if y := out[output]; y == nil || !bytes.Equal(x.Data, y.Data) {
						t.Errorf("%s, %s, case %d: %s has other bits than in another mode", name, mode, i, output)
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWarningsLeaveNothing: that a warning was given is no state that a call leaves to the next: both have one graph.
func TestWarningsLeaveNothing(t *testing.T) {
	model, cases := detector(t, "fasterrcnn.script")
	x, err := cases[0].Inputs["images.0"].Tensor("images.0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := model.Graph(map[string]tensor.Shape{"images.0": x.Layout.Shape})
	if err != nil {
		t.Fatal(err)
	}
	if g.Finds != "" || g.Leaves != "" {
		t.Errorf("the first call finds %q and leaves %q", g.Finds, g.Leaves)
	}
}

// TestListsOfTensors: a list of which no trace tells the length is as long as it is given, at least one tensor, and has no gap.
func TestListsOfTensors(t *testing.T) {
	model, cases := detector(t, "fasterrcnn.script")
	ports := model.Inputs()
	if p := ports[0]; p.Name != "images.0" || p.Optional {
		t.Errorf("the first picture is %+v", p)
	}
	if i := slices.IndexFunc(ports, func(p models.Port) bool { return p.Name == "images.1" }); i < 0 || !ports[i].Optional {
		t.Errorf("the inputs are %+v", ports)
	}
	x, err := cases[0].Inputs["images.0"].Tensor("images.0")
	if err != nil {
		t.Fatal(err)
	}
	shape := x.Layout.Shape
	_, err = model.Graph(map[string]tensor.Shape{"images.0": shape, "images.2": shape})
	if err == nil || !strings.Contains(err.Error(), "images.1") {
		t.Errorf("a gap in the list: %v", err)
	}
}
