package torchvision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// TestPublished compares the state dicts of the published architectures with what Python's constructors make: all names,
// dtypes and shapes, in order.
func TestPublished(t *testing.T) {
	want := make(map[string]struct {
		Entries int
		SHA256  string
	})
	data, err := os.ReadFile("../testdata/families/tv/published.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		python := strings.TrimSuffix(name, untransformed)
		w, ok := want[python]
		if !ok {
			t.Errorf("%s: not recorded from Python", name)
			continue
		}
		dict := mustNew(t, name, Options{}).Root.StateDict()
		h := sha256.New()
		for _, e := range dict {
			sizes := make([]string, len(e.Shape))
			for i, n := range e.Shape {
				sizes[i] = strconv.Itoa(n)
			}
			fmt.Fprintf(h, "%s %s %s\n", e.Name, e.DType, strings.Join(sizes, ","))
		}
		if got := hex.EncodeToString(h.Sum(nil)); len(dict) != w.Entries || got != w.SHA256 {
			t.Errorf("%s: the state dict has %d entries and is not Python's of %d", name, len(dict), w.Entries)
		}
	}
}

// TestRecognise holds what is recognised from a state dict against the architecture that it is of, with the published
// head and another one.
func TestRecognise(t *testing.T) {
	for i, name := range Names() {
		if testing.Short() && i%4 != 0 {
			continue
		}
		for _, classes := range []int{0, 7} {
			a := mustNew(t, name, Options{Classes: classes})
			dict := a.Root.StateDict()
			found, _ := Recognise(dict)
			var names []string
			for _, f := range found {
				names = append(names, f.Name)
			}
			want := []string{name}
			if base, ok := strings.CutSuffix(name, untransformed); ok || slices.Contains(Names(), name+untransformed) {
				want = []string{base, base + untransformed}
				if classes == 0 {
					want = want[:1]
				}
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s with %d classes is recognised as %v, want %v", name, classes, names, want)
			}
			named, err := Named(name, dict)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := named.Root.Check(name, dict); err != nil || !sameModules(a.Root, named.Root) {
				t.Errorf("%s by its name is another model: %v", name, err)
			}
		}
	}
}

// TestNotes looks at what is said of assumptions: only where there are some, and where the model was not asked for by
// its name.
func TestNotes(t *testing.T) {
	for name, noted := range map[string]bool{"googlenet": true, "inception_v3": true, "efficientnet_b2": false, "vgg11": false} {
		found, _ := Recognise(mustNew(t, name, Options{}).Root.StateDict())
		if len(found) != 1 || (found[0].Note != "") != noted {
			t.Errorf("%s: %d found, note %q", name, len(found), found[0].Note)
		}
	}
	if a, err := Named("googlenet", mustNew(t, "googlenet", Options{}).Root.StateDict()); err != nil || a.Note != "" {
		t.Errorf("googlenet by its name: note %q, error %v", a.Note, err)
	}
	wide := efficientnetB(1.3, 1, 1e-5)
	found, _ := Recognise(wide.module(10).StateDict())
	if len(found) != 1 || found[0].Name != "efficientnet" || found[0].Note == "" {
		t.Errorf("an EfficientNet of another width: %+v", found)
	}
}

// sameModules compares two trees: classes, attributes and parameters.
func sameModules(a, b *layers.Module) bool {
	write := func(root *layers.Module) string {
		var s strings.Builder
		root.Walk(func(path string, m *layers.Module) {
			fmt.Fprintln(&s, path, m.Class, m.Attrs, m.Params)
		})
		return s.String()
	}
	return write(a) == write(b)
}

// TestOlderSpelling recognises a DenseNet under the names of the published weights, which hold dots that modules cannot
// have today.
func TestOlderSpelling(t *testing.T) {
	a := mustNew(t, "densenet121", Options{})
	var dict layers.StateDict
	for _, e := range a.Root.StateDict() {
		for _, part := range []string{"norm1", "norm2", "conv1", "conv2"} {
			e.Name = strings.Replace(e.Name, "."+part+".", "."+part[:4]+"."+part[4:]+".", 1)
		}
		if !strings.HasSuffix(e.Name, "num_batches_tracked") {
			dict = append(dict, e)
		}
	}
	found, nearest := Recognise(dict)
	if len(found) != 1 || found[0].Name != "densenet121" {
		t.Fatalf("found %d architectures, nearest %v", len(found), nearest)
	}
	const today, older = "features.denseblock2.denselayer11.norm2.running_var",
		"features.denseblock2.denselayer11.norm.2.running_var"
	if got := found[0].Weights[today]; got != older {
		t.Errorf("%s is read from %q, want %q", today, got, older)
	}
	if got, ok := found[0].Weights["features.conv0.weight"]; ok {
		t.Errorf("features.conv0.weight is read from %q", got)
	}
}

// TestNearest looks at what is said about a state dict that almost fits.
func TestNearest(t *testing.T) {
	dict := mustNew(t, "vgg16_bn", Options{}).Root.StateDict()
	i := slices.IndexFunc(dict, func(e layers.Entry) bool { return e.Name == "features.7.bias" })
	dict[i].Shape = tensor.Shape{3}
	dict = append(slices.Delete(dict, i-1, i), layers.Entry{Name: "epoch", Shape: tensor.Shape{}})
	found, nearest := Recognise(dict)
	var mismatch *layers.MismatchError
	if len(found) > 0 || !errors.As(nearest, &mismatch) {
		t.Fatalf("found %d, nearest %v", len(found), nearest)
	}
	want := &layers.MismatchError{
		Arch: "vgg16_bn", Missing: []string{"features.7.weight"}, Unexpected: []string{"epoch"},
		Misshaped: []layers.Misshaped{{Name: "features.7.bias", Got: tensor.Shape{3}, Want: tensor.Shape{128}}},
	}
	if diff := cmp.Diff(want, mismatch); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// The entry that tells the sizes is missing.
	_, nearest = Recognise(mustNew(t, "mobilenet_v3_small", Options{Classes: 3}).Root.StateDict()[1:])
	want = &layers.MismatchError{Arch: "mobilenet_v3_small", Missing: []string{"features.0.0.weight"}}
	if diff := cmp.Diff(want, nearest); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestRecogniseHostile damages state dicts: whatever is found must fit what was given.
func TestRecogniseHostile(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	var dicts []layers.StateDict
	for _, f := range families {
		small := slices.MinFunc(f.names, func(a, b string) int {
			return len(mustNew(t, a, Options{}).Root.StateDict()) - len(mustNew(t, b, Options{}).Root.StateDict())
		})
		dicts = append(dicts, mustNew(t, small, Options{}).Root.StateDict())
	}
	sizes := []int{0, 1, 2, 3, 8, 1000, 1 << 24, 1<<24 + 1, math.MaxInt32, math.MaxInt, -1, math.MinInt}
	rounds, leading := 8*len(dicts), 15
	if testing.Short() {
		rounds, leading = len(dicts), 3
	}
	for i := range rounds {
		dict := slices.Clone(dicts[i%len(dicts)])
		other := dicts[r.IntN(len(dicts))]
		for range 1 + r.IntN(5) {
			switch at := r.IntN(len(dict)); r.IntN(6) {
			case 0:
				dict = slices.Delete(dict, at, at+1)
			case 1:
				dict[at].Name = other[r.IntN(len(other))].Name
			case 2:
				dict[at].Shape = slices.Clone(dict[at].Shape)
				if n := len(dict[at].Shape); n > 0 {
					dict[at].Shape[r.IntN(n)] = sizes[r.IntN(len(sizes))]
				}
			case 3:
				dict[at].Shape = other[r.IntN(len(other))].Shape
			case 4:
				dict = append(dict, other[r.IntN(len(other))])
			case 5:
				dict = dict[:len(dict)-r.IntN(len(dict))]
			}
		}
		found, nearest := Recognise(dict)
		for _, a := range found {
			if err := a.Root.Check(a.Name, dict); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		}
		var mismatch *layers.MismatchError
		if nearest != nil && !errors.As(nearest, &mismatch) {
			t.Errorf("round %d: %v", i, nearest)
		}
	}
	// Every size of the leading entries, which is what sizes are read off.
	for _, dict := range dicts {
		for at := range min(leading, len(dict)) {
			for dim := range dict[at].Shape {
				for _, n := range []int{0, -1, 1 << 24, math.MaxInt} {
					damaged := slices.Clone(dict)
					damaged[at].Shape = slices.Clone(damaged[at].Shape)
					damaged[at].Shape[dim] = n
					for _, f := range families {
						for _, c := range f.infer(sound(damaged)) {
							if n < 1 && c.root.Check(c.name, damaged) == nil {
								t.Errorf("%s of size %d is taken for %s", dict[at].Name, n, c.name)
							}
						}
					}
				}
			}
		}
	}
}

func BenchmarkRecognise(b *testing.B) {
	for _, name := range []string{"resnet101", "densenet201", "efficientnet_v2_l"} {
		a, err := New(name, Options{})
		if err != nil {
			b.Fatal(err)
		}
		dict := a.Root.StateDict()
		b.Run(fmt.Sprintf("%s/%d", name, len(dict)), func(b *testing.B) {
			for range b.N {
				if found, _ := Recognise(dict); len(found) != 1 {
					b.Fatal("not recognised")
				}
			}
		})
	}
}

func BenchmarkNearest(b *testing.B) {
	a, err := New("efficientnet_v2_l", Options{})
	if err != nil {
		b.Fatal(err)
	}
	dict := a.Root.StateDict()[10:]
	for range b.N {
		if found, nearest := Recognise(dict); len(found) > 0 || nearest == nil {
			b.Fatal("recognised")
		}
	}
}

func mustNew(t *testing.T, name string, o Options) *layers.Architecture {
	t.Helper()
	a, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
