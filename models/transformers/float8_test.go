package transformers_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// float8Linear matches the weights that DeepSeek's folders have as float8: those of projections and experts.
var float8Linear = regexp.MustCompile(`^model\.layers\..*_proj(_with_mqa)?\.weight$`)

// float8Blocks returns a folder whose projections are float8 codes with a scale for each block, and one that has the
// numbers which those stand for.
func float8Blocks(t *testing.T, ckpt *loader.Checkpoint, rows, columns int) (codes, numbers *loader.Checkpoint) {
	t.Helper()
	nearest := func(x float32) (code byte) {
		least := math.Inf(1)
		for b := range 256 {
			y := float64(tensor.Float8ToFloat32(tensor.Float8E4M3FN, byte(b)))
			if d := math.Abs(y - float64(x)); d < least {
				code, least = byte(b), d
			}
		}
		return code
	}
	var coded, plain []tensor.Weight
	count := 0
	for _, w := range ckpt.Weights {
		if !float8Linear.MatchString(w.Name) {
			coded, plain = append(coded, w), append(plain, w)
			continue
		}
		count++
		raw := make([]byte, w.Extent.Bytes)
		if err := w.Extent.ReadAt(t.Context(), raw, 0); err != nil {
			t.Fatal(err)
		}
		n, m := w.Layout.Shape[0], w.Layout.Shape[1]
		at := func(i, j int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*m+j):])) }
		across := (m + columns - 1) / columns
		scales := make([]float32, (n+rows-1)/rows*across)
		for i := range n {
			for j := range m {
				s := &scales[i/rows*across+j/columns]
				*s = max(*s, float32(math.Abs(float64(at(i, j))))/448)
			}
		}
		bits, values := make([]byte, n*m), make([]float32, n*m)
		for i := range n {
			for j := range m {
				s := scales[i/rows*across+j/columns]
				bits[i*m+j] = nearest(at(i, j) / s)
				values[i*m+j] = tensor.Float8ToFloat32(tensor.Float8E4M3FN, bits[i*m+j]) * s
			}
		}
		coded = append(coded, weight(w.Name, &tensor.Tensor{
			DType: tensor.Float8E4M3FN, Layout: tensor.Contiguous(n, m), Data: bits,
		}), weight(w.Name+"_scale_inv", tensor.Of(scales, len(scales)/across, across)))
		plain = append(plain, weight(w.Name, tensor.Of(values, n, m)))
	}
	if count < 10 {
		t.Fatalf("%d projections", count)
	}
	made := func(list []tensor.Weight, config []byte) *loader.Checkpoint {
		c, err := loader.NewCheckpoint("float8", list, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Config = config
		return c
	}
	var config map[string]any
	if err := json.Unmarshal(ckpt.Config, &config); err != nil {
		t.Fatal(err)
	}
	config["torch_dtype"] = "float32"
	config["quantization_config"] = map[string]any{
		"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": []int{rows, columns},
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return made(coded, text), made(plain, ckpt.Config)
}

// TestFloat8DeepSeek: a folder as DeepSeek-V3's, its projections and experts blocks of float8 with scales, gives what
// the numbers give that these stand for: whole, step by step, where latents are attended to, and in less memory than
// they take.
func TestFloat8DeepSeek(t *testing.T) {
	for name, block := range map[string][2]int{"fitting": {4, 4}, "cutting ends": {16, 24}} {
		r := &recordedOf(t, "deepseek_v3")[0]
		coded, plain := float8Blocks(t, separated(t, r.folder(t), strings.Clone), block[0], block[1])
		tokens := []int64{7, 38, 69, 100, 131, 5, 5, 180, 23, 42}
		var wants [2][]float32
		for i, ckpt := range []*loader.Checkpoint{plain, coded} {
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := whole(t, model, tokens)
			for _, o := range []optimem.Options{{Mode: plan.Resident}, {Mode: plan.Page, Threads: 1}} {
				s := newStepper(t, model, 32, o)
				steps := append(s.feed(t, tokens[:6]), s.feed(t, tokens[6:])...)
				for k := range got {
					if !(math.Abs(float64(steps[k]-got[k])) <= worst) {
						t.Fatalf("%s, %v: logit %d is %v step by step, and %v", name, o.Mode, k, steps[k], got[k])
					}
				}
			}
			wants[i] = got
		}
		for k, want := range wants[0] {
			if got := wants[1][k]; !(math.Abs(float64(got-want)) <= worst) {
				t.Fatalf("%s: logit %d of blocks is %v, and of numbers %v", name, k, got, want)
			}
		}
		if slices.Equal(wants[0], whole(t, mustBuild(t, r.folder(t)), tokens)) {
			t.Errorf("%s: float8 rounds nothing", name)
		}
	}
}

// mustBuild builds a folder.
func mustBuild(t *testing.T, ckpt *loader.Checkpoint) *models.Model {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}
