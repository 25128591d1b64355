package moments_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/quantize"
	"github.com/optimem/optimem/quantize/moments"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The sizes of a small Mixtral, whose experts have more numbers between than the layer has.
const (
	mixHidden, mixInner, mixExperts, mixChosen, mixWords = 32, 80, 4, 2, 60
	mixBlock                                             = "model.layers.%d."
	mixExpert                                            = "block_sparse_moe.experts.%d."
)

// A mixture is a small Mixtral with weights from a seed, whose words are few things in other measures, so that what
// layers are given depends on each other.
type mixture struct {
	folder  string
	numbers map[string][]float32
}

func newMixture(t *testing.T) *mixture {
	t.Helper()
	shapes := map[string]tensor.Shape{
		"model.embed_tokens.weight": {mixWords, mixHidden}, "lm_head.weight": {mixWords, mixHidden}, "model.norm.weight": {mixHidden},
	}
	for l := range 2 {
		p := fmt.Sprintf(mixBlock, l)
		shapes[p+"input_layernorm.weight"], shapes[p+"post_attention_layernorm.weight"] = tensor.Shape{mixHidden}, tensor.Shape{mixHidden}
		for _, name := range []string{"q", "k", "v", "o"} {
			shapes[p+"self_attn."+name+"_proj.weight"] = tensor.Shape{mixHidden, mixHidden}
		}
		shapes[p+"block_sparse_moe.gate.weight"] = tensor.Shape{mixExperts, mixHidden}
		for e := range mixExperts {
			x := p + fmt.Sprintf(mixExpert, e)
			shapes[x+"w1.weight"], shapes[x+"w3.weight"] = tensor.Shape{mixInner, mixHidden}, tensor.Shape{mixInner, mixHidden}
			shapes[x+"w2.weight"] = tensor.Shape{mixHidden, mixInner}
		}
	}
	numbers := make(map[string][]float32)
	for name, shape := range shapes {
		numbers[name] = mixNumbers(name, shape)
	}
	return writeMixture(t, numbers, shapes)
}

// writeMixture makes the folder of a mixture.
func writeMixture(t *testing.T, numbers map[string][]float32, shapes map[string]tensor.Shape) *mixture {
	t.Helper()
	m := &mixture{folder: t.TempDir(), numbers: numbers}
	var list []loader.TensorData
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		list = append(list, loader.TensorData{Name: name, DType: tensor.Float32, Shape: shapes[name]})
		data = append(data, tensor.Of(numbers[name], shapes[name]...).Data...)
	}
	head, _, err := loader.LayOutSafetensors(list, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": %d, "hidden_size": %d,
 "intermediate_size": %d, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": %d,
 "num_experts_per_tok": %d, "max_position_embeddings": 1024, "tie_word_embeddings": false, "rms_norm_eps": 1e-5}`,
		mixWords, mixHidden, mixInner, mixExperts, mixChosen)
	if err := fixtures.Files(m.folder, map[string]string{"config.json": config, "model.safetensors": string(head) + string(data)}); err != nil {
		t.Fatal(err)
	}
	return m
}

func mixNumbers(name string, shape tensor.Shape) []float32 {
	h := fnv.New64()
	_, _ = h.Write([]byte(name))
	random := rand.New(rand.NewPCG(h.Sum64(), 9))
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	switch {
	case len(shape) == 1:
		for i := range x {
			x[i] = float32(1 + random.NormFloat64()/4)
		}
	case strings.Contains(name, "embed"):
		things := make([]float32, 5*mixHidden)
		for i := range things {
			things[i] = float32(random.NormFloat64())
		}
		for w := range shape[0] {
			for j := range 5 {
				by := float32(random.NormFloat64())
				for i := range mixHidden {
					x[w*mixHidden+i] += by * things[j*mixHidden+i]
				}
			}
			for i := range mixHidden {
				x[w*mixHidden+i] += float32(random.NormFloat64() / 4)
			}
		}
	default:
		for i := range x {
			x[i] = float32(random.NormFloat64() / math.Sqrt(float64(shape[1])))
		}
	}
	return x
}

// read are words of a text.
func read(seed uint64, n int) []uint32 {
	random := rand.New(rand.NewPCG(seed, 1))
	words := make([]uint32, n)
	for i := range words {
		words[i] = uint32(random.IntN(mixWords))
	}
	return words
}

// ran is what a model gives for words.
func ran(t *testing.T, model *models.Model, words []uint32, output string, dump ...string) []float32 {
	t.Helper()
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{Dump: dump})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ids := make([]int64, len(words))
	for i, w := range words {
		ids[i] = int64(w)
	}
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of(ids, 1, len(ids))})
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.Slice[float32](out[output])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(x)
}

// times is a row by a matrix with as many columns.
func times(w, x []float32) []float64 {
	out := make([]float64, len(w)/len(x))
	for i := range out {
		for k, v := range x {
			out[i] += float64(w[i*len(x)+k]) * float64(v)
		}
	}
	return out
}

// given returns the moments of what an expert of the first block is given, and how many rows that is: rows of a norm
// that the router has chosen it for.
func (m *mixture) given(norm []float32, expert int, down bool) (sums []float64, rows int64) {
	p := fmt.Sprintf(mixBlock, 0)
	x := p + fmt.Sprintf(mixExpert, expert)
	width := mixHidden
	if down {
		width = mixInner
	}
	sums = make([]float64, width*width)
	for ; len(norm) > 0; norm = norm[mixHidden:] {
		row := norm[:mixHidden]
		scores := times(m.numbers[p+"block_sparse_moe.gate.weight"], row)
		better := 0
		for _, s := range scores {
			if s > scores[expert] {
				better++
			}
		}
		if better >= mixChosen {
			continue
		}
		rows++
		in := make([]float64, width)
		gate, up := times(m.numbers[x+"w1.weight"], row), times(m.numbers[x+"w3.weight"], row)
		for i := range in {
			if down {
				in[i] = gate[i] / (1 + math.Exp(-gate[i])) * up[i]
			} else {
				in[i] = float64(row[i])
			}
		}
		for i := range in {
			for j := range in {
				sums[i*width+j] += in[i] * in[j]
			}
		}
	}
	return sums, rows
}

// TestExpertSums: moments of an expert are those of the rows that the router sends it, and of what it makes of these,
// whatever the mode, the memory and the windows.
func TestExpertSums(t *testing.T) {
	m, words := newMixture(t), read(1, 90)
	norm := ran(t, build(t, m.folder), words, "dump:model.layers.0.post_attention_layernorm", "model.layers.0.post_attention_layernorm")
	for _, opts := range []moments.Options{{}, {Session: optimem.Options{Mode: "page", Threads: 1}}, {Session: optimem.Options{Device: "emu:memory=8MiB"}}} {
		text, err := moments.Of(build(t, m.folder), words, opts)
		if err != nil {
			t.Fatal(err)
		}
		for e := range mixExperts {
			x := fmt.Sprintf(mixBlock+mixExpert, 0, e)
			gate, down := text.Input(x+"w1.weight"), text.Input(x+"w2.weight")
			if gate == "" || gate != text.Input(x+"w3.weight") || down == "" || gate == down {
				t.Fatalf("inputs %q, %q, %q", gate, text.Input(x+"w3.weight"), down)
			}
			got, err := text.Sums(t.Context(), []string{gate, down}, 0)
			if err != nil || len(got) != 2 {
				t.Fatalf("%d sums: %v", len(got), err)
			}
			for k, name := range []string{gate, down} {
				want, n := m.given(norm, e, k == 1)
				if rows, ok := text.Routed(name); rows != n || !ok {
					t.Errorf("%s: %d rows, %v, want %d", name, rows, ok, n)
				}
				width := int(math.Sqrt(float64(len(want))))
				for i := range want {
					if scale := math.Sqrt(want[i/width*(width+1)]*want[i%width*(width+1)]) + 1e-9; math.Abs(got[k][i]-want[i]) > 2e-5*scale {
						t.Fatalf("%s: number %d is %v, want %v", name, i, got[k][i], want[i])
					}
				}
			}
		}
		if _, ok := text.Routed(text.Input(fmt.Sprintf(mixBlock, 0) + "self_attn.q_proj.weight")); ok {
			t.Error("rows of a layer that is given all")
		}
	}
}

// TestExpertWindows: rows of several windows are added up.
func TestExpertWindows(t *testing.T) {
	m, words := newMixture(t), read(2, 50)
	text, err := moments.Of(build(t, m.folder), words, moments.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	all := int64(0)
	for e := range mixExperts {
		name := text.Input(fmt.Sprintf(mixBlock+mixExpert+"w2.weight", 1, e))
		if _, err := text.Sums(t.Context(), []string{name}, 0); err != nil {
			t.Fatal(err)
		}
		rows, _ := text.Routed(name)
		all += rows
	}
	if all != int64(mixChosen*len(words)) {
		t.Errorf("%d rows in all experts, want %d of each of %d", all, mixChosen, len(words))
	}
}

func (m *mixture) quantised(t *testing.T, opts quantize.Options) (string, *quantize.Report) {
	t.Helper()
	opts.Keep = []string{"*.self_attn.*"}
	f, err := quantize.Open(t.Context(), m.folder, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := filepath.Join(t.TempDir(), "out")
	report, err := f.Write(t.Context(), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return to, report
}

// TestCalibratedExperts: with what experts are given of a text a model of experts computes another text nearer to the
// original than without, as GPTQ and with scaled channels; the files do not depend on memory.
func TestCalibratedExperts(t *testing.T) {
	m, words, other := newMixture(t), read(3, 600), read(4, 300)
	want := ran(t, build(t, m.folder), other, "logits")
	off := func(folder string) float64 {
		got, lost, all := ran(t, build(t, folder), other, "logits"), 0.0, 0.0
		for i := range want {
			d := float64(got[i] - want[i])
			lost, all = lost+d*d, all+float64(want[i])*float64(want[i])
		}
		return math.Sqrt(lost / all)
	}
	text, err := moments.Of(build(t, m.folder), words, moments.Options{})
	if err != nil {
		t.Fatal(err)
	}
	memory := int64(4 << 20)
	if simd.Best() == nil { // whose products take more beside
		memory = 16 << 20
	}
	little, err := moments.Of(build(t, m.folder), words, moments.Options{MemoryBytes: memory})
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []quantize.Scheme{{Kind: "int4", Group: 16}, {Kind: "int4", Group: 16, Minimum: true}} {
		plain, _ := m.quantised(t, quantize.Options{Scheme: scheme})
		without := off(plain)
		for _, opts := range []quantize.Options{{}, {ByUse: true}, {Channels: true}} {
			opts.Scheme, opts.Calibration = scheme, text
			to, report := m.quantised(t, opts)
			with := off(to)
			t.Logf("%+v by use %v, channels %v: off by %.4f, without a calibration %.4f", scheme, opts.ByUse, opts.Channels, with, without)
			if with >= without {
				t.Errorf("%+v by use %v, channels %v: off by %v, without a calibration %v", scheme, opts.ByUse, opts.Channels, with, without)
			}
			for _, l := range report.Layers {
				down := strings.HasSuffix(l.Module, "w2")
				if (!opts.Channels || down) && (!l.Calibrated || !l.Routed || l.RoutedRows <= 0 || l.OutputError == 0) {
					t.Errorf("%s: %+v", l.Module, l)
				}
			}
			opts.Calibration, opts.MemoryBytes = little, 64<<10
			again, _ := m.quantised(t, opts)
			same(t, to, again)
		}
	}
}

// TestExpertsOfFewRows: an expert that was sent fewer rows than a quarter of its columns has the codes that it has
// without a calibration, and the report says how many rows it saw; the others are calibrated.
func TestExpertsOfFewRows(t *testing.T) {
	m, words := newMixture(t), read(5, 36)
	text, err := moments.Of(build(t, m.folder), words, moments.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scheme := quantize.Scheme{Kind: "int4", Group: 16}
	plain, _ := m.quantised(t, quantize.Options{Scheme: scheme})
	for _, channels := range []bool{false, true} {
		to, report := m.quantised(t, quantize.Options{Scheme: scheme, Calibration: text, Channels: channels})
		few, many := 0, 0
		for _, l := range report.Layers {
			if channels && !strings.HasSuffix(l.Module, "w2") {
				continue
			}
			if !l.Routed || l.Calibrated != (l.RoutedRows >= l.Columns/4) {
				t.Errorf("%+v", l)
			}
			if l.Calibrated {
				many++
				continue
			}
			few++
			if a, b := codesOf(t, plain, l.Module), codesOf(t, to, l.Module); !slices.Equal(a, b) {
				t.Errorf("%s was sent %d rows, and has other codes", l.Module, l.RoutedRows)
			}
		}
		if few == 0 || many == 0 {
			t.Errorf("%d layers of few rows and %d others", few, many)
		}
	}
}

// stacked is the same mixture with the weights of all experts of a layer in one tensor.
func (m *mixture) stacked(t *testing.T) *mixture {
	t.Helper()
	numbers, shapes := make(map[string][]float32), make(map[string]tensor.Shape)
	ckpt, err := loader.Open(filepath.Join(m.folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	for _, w := range ckpt.Weights {
		if !strings.Contains(w.Name, ".experts.") {
			name := strings.Replace(w.Name, "block_sparse_moe", "mlp", 1)
			numbers[name], shapes[name] = m.numbers[w.Name], w.Layout.Shape
		}
	}
	for l := range 2 {
		to := fmt.Sprintf(mixBlock, l) + "mlp.experts."
		for e := range mixExperts {
			x := fmt.Sprintf(mixBlock+mixExpert, l, e)
			both := append(numbers[to+"gate_up_proj"], m.numbers[x+"w1.weight"]...)
			numbers[to+"gate_up_proj"] = append(both, m.numbers[x+"w3.weight"]...)
			numbers[to+"down_proj"] = append(numbers[to+"down_proj"], m.numbers[x+"w2.weight"]...)
		}
		shapes[to+"gate_up_proj"] = tensor.Shape{mixExperts, 2 * mixInner, mixHidden}
		shapes[to+"down_proj"] = tensor.Shape{mixExperts, mixHidden, mixInner}
	}
	return writeMixture(t, numbers, shapes)
}

// TestCalibratedStack: experts in one tensor are calibrated as those that are tensors of their own.
func TestCalibratedStack(t *testing.T) {
	apart, words := newMixture(t), read(3, 600)
	scheme := quantize.Scheme{Kind: "int4", Group: 16}
	names := strings.NewReplacer("block_sparse_moe", "mlp", "w1", "gate_proj", "w2", "down_proj", "w3", "up_proj")
	for _, channels := range []bool{false, true} {
		var folders []string
		var reports []*quantize.Report
		for _, m := range []*mixture{apart, apart.stacked(t)} {
			text, err := moments.Of(build(t, m.folder), words, moments.Options{})
			if err != nil {
				t.Fatal(err)
			}
			to, report := m.quantised(t, quantize.Options{Scheme: scheme, Calibration: text, Channels: channels})
			folders, reports = append(folders, to), append(reports, report)
		}
		for _, l := range reports[0].Layers {
			other := names.Replace(l.Module)
			i := slices.IndexFunc(reports[1].Layers, func(l quantize.Layer) bool { return l.Module == other })
			if i < 0 || reports[1].Layers[i].RoutedRows != l.RoutedRows || reports[1].Layers[i].Calibrated != l.Calibrated {
				t.Fatalf("%s: layer %d, want %+v", other, i, l)
			}
			if a, b := codesOf(t, folders[0], l.Module), codesOf(t, folders[1], other); !slices.Equal(a, b) {
				t.Errorf("%s, channels %v: other codes", other, channels)
			}
		}
	}
}

// codesOf are the codes of a layer.
func codesOf(t *testing.T, folder, module string) []byte {
	t.Helper()
	ckpt, err := loader.Open(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	for _, w := range ckpt.Weights {
		if w.Name == module+".weight_packed" {
			codes := make([]byte, w.Bytes())
			if err := w.Span().ReadAt(t.Context(), codes, 0); err != nil {
				t.Fatal(err)
			}
			return codes
		}
	}
	t.Fatal(os.ErrNotExist)
	return nil
}
