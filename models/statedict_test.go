package models_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A noSource is the bytes of weights that a test does not read.
type noSource struct{}

func (noSource) Size() int64 { return 1 << 40 }

func (noSource) ReadAt(context.Context, []byte, int64) error { return errors.New("a weight was read") }

// bareWeights returns the weights of an architecture, none of which can be read.
func bareWeights(t *testing.T, arch string) []tensor.Weight {
	t.Helper()
	a, err := models.NewArchitecture(arch)
	if err != nil {
		t.Fatal(err)
	}
	var weights []tensor.Weight
	var at int64
	for _, e := range a.Root.StateDict() {
		n, _ := e.Shape.NumElements()
		size := n * int64(e.DType.Size())
		weights = append(weights, tensor.Weight{
			Name: e.Name, DType: e.DType, Layout: tensor.Contiguous(e.Shape...),
			Extent: storage.Extent{Source: noSource{}, Offset: at, Bytes: size},
		})
		at += size
	}
	return weights
}

func checkpointOf(t *testing.T, weights []tensor.Weight) *loader.Checkpoint {
	t.Helper()
	ckpt, err := loader.NewCheckpoint("test.pt", weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ckpt
}

// renamed returns weights under other names.
func renamed(weights []tensor.Weight, name func(string) string) []tensor.Weight {
	out := slices.Clone(weights)
	for i := range out {
		out[i].Name = name(out[i].Name)
	}
	return out
}

// TestWrapped builds state dicts that training scripts have wrapped, and traces them: every weight must be found under
// the name that it has in the file.
func TestWrapped(t *testing.T) {
	plain := bareWeights(t, "resnet18")
	half := slices.Clone(plain)
	for i := range half {
		if half[i].DType == tensor.Float32 {
			half[i].DType = tensor.Float16
			half[i].Extent.Bytes /= 2
		}
	}
	shuffled := slices.Clone(plain)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for name, weights := range map[string][]tensor.Weight{
		"plain":    plain,
		"shuffled": shuffled,
		"half":     half,
		"parallel": renamed(plain, func(s string) string { return "module." + s }),
		"compiled": renamed(plain, func(s string) string { return "module._orig_mod." + s }),
		"nested":   renamed(plain, func(s string) string { return "net.encoder." + s }),
		"no counters": slices.DeleteFunc(slices.Clone(plain), func(w tensor.Weight) bool {
			return strings.HasSuffix(w.Name, "num_batches_tracked")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := models.Build(checkpointOf(t, weights), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Arch() != "resnet18" {
				t.Errorf("recognised as %q", m.Arch())
			}
			g, err := m.Graph(map[string]tensor.Shape{"x": {1, 3, 64, 64}})
			if err != nil {
				t.Fatal(err)
			}
			if got := g.Outputs[0].Operand.Layout.Shape; !got.Equal(tensor.Shape{1, 1000}) {
				t.Errorf("gives %v", got)
			}
			for _, v := range g.Values {
				if v.Role == graph.Weight && !slices.ContainsFunc(weights, func(w tensor.Weight) bool { return w.Name == v.Weight.Name }) {
					t.Errorf("weight %s is not the file's", v.Weight.Name)
				}
			}
		})
	}
}

// TestTiedNamesOfSafetensors: safetensors.torch.save_model leaves out all names but one of a weight that several modules share;
// the state dict is that of the family all the same.
func TestTiedNamesOfSafetensors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tied.safetensors")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []loader.TensorData
	for _, w := range []struct {
		name  string
		shape tensor.Shape
	}{{"0.bias", tensor.Shape{4}}, {"0.weight", tensor.Shape{4, 4}}, {"2.bias", tensor.Shape{4}}} {
		tensors = append(tensors, loader.TensorData{
			Name: w.name, DType: tensor.Float32, Shape: w.shape,
			ReadAt: func(context.Context, []byte, int64) error { return nil },
		})
	}
	if err := loader.WriteSafetensors(t.Context(), f, tensors, map[string]string{"2.weight": "0.weight"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	m, err := models.Build(ckpt, models.Options{Arch: "mlp"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(map[string]tensor.Shape{m.Inputs()[0].Name: {2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	// The two layers multiply by one weight, which a plan holds once.
	var factors []graph.ValueID
	for _, op := range g.Ops {
		if op.Kind == "linear" {
			factors = append(factors, op.In[1].Value)
		}
	}
	if len(factors) != 2 || factors[0] != factors[1] || g.Values[factors[0]].Role != graph.Weight {
		t.Errorf("the layers multiply by the values %v", factors)
	}
}

// TestMismatch changes a state dict and wants the differences, as load_state_dict lists them.
func TestMismatch(t *testing.T) {
	plain := bareWeights(t, "resnet18")
	broken := slices.Clone(plain)
	for i := range broken {
		switch broken[i].Name {
		case "layer1.0.conv1.weight":
			broken[i].Name = "layer1.0.conv9.weight"
		case "layer2.0.conv2.weight":
			broken[i].Layout = tensor.Contiguous(128, 64, 3, 3)
			broken[i].Extent.Bytes /= 2
		case "fc.weight":
			broken[i].Layout = tensor.Contiguous(10, 512)
			broken[i].Extent.Bytes = 10 * 512 * 4
		case "fc.bias":
			broken[i].Layout = tensor.Contiguous(10)
			broken[i].Extent.Bytes = 10 * 4
		}
	}
	_, err := models.Build(checkpointOf(t, broken), models.Options{Arch: "resnet18"})
	var got *layers.MismatchError
	if !errors.As(err, &got) {
		t.Fatalf("error is %v", err)
	}
	want := &layers.MismatchError{
		Arch: "resnet18", Missing: []string{"layer1.0.conv1.weight"}, Unexpected: []string{"layer1.0.conv9.weight"},
		Misshaped: []layers.Misshaped{{
			Name: "layer2.0.conv2.weight", Got: tensor.Shape{128, 64, 3, 3}, Want: tensor.Shape{128, 128, 3, 3},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := models.Build(checkpointOf(t, broken), models.Options{Arch: "resnet-81"}); err == nil {
		t.Error("resnet-81 was built")
	} else {
		var unknown *models.UnknownArchitectureError
		if !errors.As(err, &unknown) || !slices.Contains(unknown.Close, "resnet18") {
			t.Errorf("error is %v", err)
		}
	}
	one := []tensor.Weight{plain[0]}
	if _, err := models.Build(checkpointOf(t, one), models.Options{}); err == nil {
		t.Error("one weight was a model")
	}
}

// TestMismatchWithin: what is amiss with a state dict is said of the module that fits best, also where another one
// holds all of it.
func TestMismatchWithin(t *testing.T) {
	wrapped := renamed(bareWeights(t, "resnet18"), func(s string) string {
		if s == "layer1.0.conv1.weight" {
			s = "layer1.0.conv9.weight"
		}
		return "net." + s
	})
	for _, arch := range []string{"", "resnet18"} {
		_, err := models.Build(checkpointOf(t, wrapped), models.Options{Arch: arch})
		var got *layers.MismatchError
		if !errors.As(err, &got) {
			t.Errorf("with --arch %q the error is %v", arch, err)
			continue
		}
		want := &layers.MismatchError{
			Arch: "resnet18", Missing: []string{"layer1.0.conv1.weight"}, Unexpected: []string{"layer1.0.conv9.weight"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with --arch %q: %s", arch, diff)
		}
	}
}

// TestMLP recognises linear layers in a Sequential and says what it assumed.
func TestMLP(t *testing.T) {
	weights := bareWeights(t, "mlp")
	m, err := models.Build(checkpointOf(t, weights), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if notes := m.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "ReLU is assumed") {
		t.Errorf("notes are %q", notes)
	}
	g, err := m.Graph(map[string]tensor.Shape{"x": {3, 784}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, op := range g.Ops {
		kinds = append(kinds, string(op.Kind))
	}
	if want := []string{"linear", "relu", "linear"}; !slices.Equal(kinds, want) {
		t.Errorf("ops are %v, want %v", kinds, want)
	}
	weights[2].Layout = tensor.Contiguous(5, 512)
	_, err = models.Build(checkpointOf(t, weights), models.Options{})
	want := "size mismatch for 2.weight: [5 512] in the checkpoint, [5 256] in the model"
	var mismatch *layers.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Arch != "mlp" || !strings.Contains(err.Error(), want) {
		t.Errorf("layers that do not fit each other: %v, want %q", err, want)
	}
	for i := range weights {
		weights[i].Name = strings.Replace(weights[i].Name, "2.", "3.", 1)
	}
	for _, name := range []string{"1.running_mean", "1.running_var", "1.bias"} {
		w := weights[1]
		w.Name = name
		weights = append(weights, w)
	}
	var unsupported *models.UnsupportedError
	if _, err := models.Build(checkpointOf(t, weights), models.Options{}); !errors.As(err, &unsupported) {
		t.Errorf("a Sequential with other layers in it: %v", err)
	}
}

// digits are the four forms of one model; its logits for the pictures are in digits.json.
const digits = "../examples/digits/"

// TestCode runs a state dict with the code of another file, and compares graphs with those of that file.
func TestCode(t *testing.T) {
	open := func(name string) *loader.Checkpoint {
		ckpt, err := loader.Open(digits + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ckpt.Close() })
		return ckpt
	}
	for _, name := range []string{"digits.pt2", "digits_module.pt"} {
		t.Run(name, func(t *testing.T) {
			weights, code := open("digits.pth"), open(name)
			m, err := models.Build(weights, models.Options{Code: code})
			if err != nil {
				t.Fatal(err)
			}
			whole, err := models.Build(code, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			shapes := map[string]tensor.Shape{m.Inputs()[0].Name: {2, 1, 8, 8}}
			got, err := m.Graph(shapes)
			if err != nil {
				t.Fatal(err)
			}
			want, err := whole.Graph(shapes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
				t.Error(diff)
			}
			for _, v := range got.Values {
				if v.Role != graph.Weight {
					continue
				}
				if w, _ := weights.Weight(v.Weight.Name); w.Extent != v.Weight.Extent {
					t.Errorf("%s is not read from the state dict", v.Weight.Name)
				}
			}
		})
	}
	t.Run("no code", func(t *testing.T) {
		_, err := models.Build(open("digits.pth"), models.Options{Code: open("digits.pth")})
		var unsupported *models.UnsupportedError
		if !errors.As(err, &unsupported) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("other weights", func(t *testing.T) {
		_, err := models.Build(checkpointOf(t, bareWeights(t, "resnet18")), models.Options{Code: open("digits.pt2")})
		var mismatch *layers.MismatchError
		if !errors.As(err, &mismatch) || !slices.Contains(mismatch.Missing, "stem.conv.weight") {
			t.Errorf("error is %v", err)
		}
	})
}

// TestSeveral takes the model of a training checkpoint, not its moving average or the optimizer, and says so.
func TestSeveral(t *testing.T) {
	ckpt, err := loader.Open("testdata/wrapped.pt")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	m, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if notes := m.Notes(); !slices.Contains(notes, "the weights are those of model; the file also holds ema") {
		t.Errorf("notes are %q", notes)
	}
	g, err := m.Graph(map[string]tensor.Shape{"x": {1, 4}})
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, v := range g.Values {
		if v.Role == graph.Weight {
			read = append(read, v.Weight.Name)
		}
	}
	want := []string{"model.module.0.weight", "model.module.0.bias", "model.module.2.weight", "model.module.2.bias"}
	if !slices.Equal(read, want) {
		t.Errorf("reads %q, want %q", read, want)
	}
	if d := g.Values[g.Outputs[0].Operand.Value].DType; d != tensor.Float32 {
		t.Errorf("a half-precision checkpoint gives %v", d)
	}
}

// TestHostileStateDicts recognises state dicts that were cut, mixed and given other shapes. Whatever comes of it, it is
// a model or an error, and soon.
func TestHostileStateDicts(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 7, 64, 1 << 20, 1 << 40}
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for k, arch := range []string{
		"vit_b_16", "swin_t", "swin_v2_t", "maxvit_t", "fcn_resnet50", "deeplabv3_mobilenet_v3_large",
		"lraspp_mobilenet_v3_large", "r3d_18", "r2plus1d_18", "mlp",
	} {
		plain := bareWeights(t, arch)
		random := rand.New(rand.NewPCG(uint64(k), 7))
		for range rounds {
			entries := slices.Clone(plain)
			for range 1 + random.IntN(4) {
				i := random.IntN(len(entries))
				switch random.IntN(4) {
				case 0:
					entries = slices.Delete(entries, i, i+1)
				case 1:
					entries[i].Name = plain[random.IntN(len(plain))].Name
				case 2:
					shape := slices.Clone(entries[i].Layout.Shape)
					if len(shape) > 0 {
						shape[random.IntN(len(shape))] = sizes[random.IntN(len(sizes))]
					}
					entries[i].Layout = tensor.Layout{Shape: shape, Strides: make([]int, len(shape))}
				case 3:
					entries[i].Layout = tensor.Layout{}
				}
				if len(entries) == 0 {
					break
				}
			}
			ckpt, err := loader.NewCheckpoint("hostile.pt", entries, nil)
			if err != nil {
				continue // the loader refuses it
			}
			for _, opts := range []models.Options{{}, {Arch: arch}} {
				m, err := models.Build(ckpt, opts)
				if err != nil {
					continue
				}
				_, _ = m.Graph(models.ExampleInputs(m.Inputs()))
			}
		}
	}
}

// Modules that are built in Go are the code of a state dict, also of one that a training script wrapped. Other names or shapes
// are told as for any architecture.
func TestArchitectureInGo(t *testing.T) {
	net := func(hidden int) *layers.Architecture {
		return &layers.Architecture{
			Name: "net", Classes: layers.NN(),
			Root: layers.Sequential(layers.Linear(4, hidden), layers.Tanh(), layers.Linear(hidden, 2)),
			Inputs: []layers.Port{{
				Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, 4}, Dims: []string{"batch", ""},
			}},
		}
	}
	weights := func(prefix string) []tensor.Weight {
		var out []tensor.Weight
		for _, e := range net(3).Root.StateDict() {
			n, _ := e.Shape.NumElements()
			out = append(out, tensor.Weight{
				Name: prefix + e.Name, DType: e.DType, Layout: tensor.Contiguous(e.Shape...),
				Extent: storage.Extent{Source: noSource{}, Bytes: 4 * n},
			})
		}
		return out
	}
	for _, prefix := range []string{"", "module.model."} {
		m, err := models.Build(checkpointOf(t, weights(prefix)), models.Options{Architecture: net(3)})
		if err != nil {
			t.Fatal(err)
		}
		if m.Arch() != "net" {
			t.Errorf("the architecture is %q", m.Arch())
		}
		g, err := m.Graph(map[string]tensor.Shape{"x": {5, 4}})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []graph.Kind
		for _, op := range g.Ops {
			kinds = append(kinds, op.Kind)
		}
		if want := []graph.Kind{"linear", "tanh", "linear"}; !slices.Equal(kinds, want) {
			t.Errorf("the ops are %v, not %v: an mlp of ReLUs was recognised in its place", kinds, want)
		}
	}
	_, err := models.Build(checkpointOf(t, weights("")), models.Options{Architecture: net(7)})
	var mismatch *layers.MismatchError
	if !errors.As(err, &mismatch) || len(mismatch.Misshaped) != 3 {
		t.Errorf("with other widths: %v", err)
	}
}
