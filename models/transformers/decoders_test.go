package transformers_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A decoderRecord is a model of testdata/make_decoders.py, with what transformers computes.
type decoderRecord struct {
	Name, Config string
	State        map[string][]int
	Logits       [][]float32
	Masked       [][]float32
	Runs         []struct{ Prompt, Tokens []int }
}

// worst is how far logits may be from those recorded, and a step's from those of a whole text.
const worst = 1e-4

func recordedDecoders(t testing.TB) []decoderRecord {
	t.Helper()
	return append(decodersIn(t, "decoders.json.gz"), decodersIn(t, "recurrents.json.gz")...)
}

// decodersIn returns those of a file: those of recurrents.json.gz keep states.
func decodersIn(t testing.TB, file string) []decoderRecord {
	t.Helper()
	var list []decoderRecord
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(filepath.Join(configFolder, file), decode); err != nil {
		t.Fatal(err)
	}
	return list
}

// weightRule is make_decoders.py's weight_rule.
func weightRule(name string, shape []int) (offset, scale float64) {
	switch {
	case strings.HasSuffix(name, "bias") || strings.Contains(name, "alpha_"):
		return 0, 0.125
	case strings.HasSuffix(name, ".beta"):
		return 0.5, 0
	case strings.HasSuffix(name, ".eps"):
		return -1e-6, 0
	case len(shape) == 1 || strings.Contains(name, "norm") && !strings.Contains(name, "embed"):
		return 1, 0.25
	case strings.Contains(name, "embed") || strings.Contains(name, ".wte."):
		return 0, 0.25
	}
	scale, _ = strconv.ParseFloat(fmt.Sprintf("%.3g", math.Sqrt(6/float64(shape[len(shape)-1]))), 64)
	return 0, scale
}

// folder returns a checkpoint as a folder with the configuration and the weights of the model gives it.
func (r *decoderRecord) folder(t testing.TB) *loader.Checkpoint {
	t.Helper()
	filled := make(map[string]zoo.Filled)
	for name, shape := range r.State {
		offset, scale := weightRule(name, shape)
		number := func(x float64) *json.Number {
			n := json.Number(strconv.FormatFloat(x, 'g', -1, 64))
			return &n
		}
		filled[name] = zoo.Filled{DType: "float32", Shape: shape, Kind: "parameter", Offset: number(offset), Scale: number(scale)}
	}
	weights, err := zoo.Weights(filled)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.NewCheckpoint(r.Name, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = []byte(r.Config)
	return ckpt
}

// forEachDecoder runs a test for every recorded model, or for those of every third name.
func forEachDecoder(t *testing.T, test func(t *testing.T, r *decoderRecord, model *models.Model)) {
	t.Helper()
	forDecoders(t, recordedDecoders(t), test)
}

// forSomeDecoders is forEachDecoder, in short with a fourth of them.
func forSomeDecoders(t *testing.T, test func(t *testing.T, r *decoderRecord, model *models.Model)) {
	t.Helper()
	list := recordedDecoders(t)
	if testing.Short() {
		for i := range (len(list) + 3) / 4 {
			list[i] = list[4*i]
		}
		list = list[:(len(list)+3)/4]
	}
	forDecoders(t, list, test)
}

func forDecoders(t *testing.T, list []decoderRecord, test func(t *testing.T, r *decoderRecord, model *models.Model)) {
	t.Helper()
	for _, r := range list {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			test(t, &r, model)
		})
	}
}

// wholeLogits are the logits of all tokens of rows, [rows × tokens × vocabulary].
func wholeLogits(t *testing.T, model *models.Model, in optimem.Values) []float32 {
	t.Helper()
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	logits, err := tensor.Slice[float32](out["logits"].Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// near compares logits; name says which.
func near(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if !(math.Abs(float64(got[i]-w)) <= worst) {
			t.Fatalf("%s: logit %d is %v, want %v", name, i, got[i], w)
		}
	}
}

func int64s(list []int) []int64 {
	out := make([]int64, len(list))
	for i, x := range list {
		out[i] = int64(x)
	}
	return out
}

// TestDecoders: the logits of a prompt, and of rows with padding before them, are transformers'.
func TestDecoders(t *testing.T) {
	forEachDecoder(t, func(t *testing.T, r *decoderRecord, model *models.Model) {
		prompt := int64s(r.Runs[1].Prompt)
		const vocabulary = 96
		got := wholeLogits(t, model, optimem.Values{"input_ids": tensor.Of(prompt, 1, len(prompt))})
		for i, at := range []int{0, 30, 60} {
			near(t, fmt.Sprintf("token %d", at), got[at*vocabulary:], r.Logits[i])
		}
		mask := make([]int64, 24)
		for i := range mask {
			if i >= 4 {
				mask[i] = 1
			}
		}
		got = wholeLogits(t, model, optimem.Values{
			"input_ids": tensor.Of(prompt[:24], 2, 12), "attention_mask": tensor.Of(mask, 2, 12),
		})
		for i := range 2 {
			near(t, fmt.Sprintf("padded row %d", i), got[(i*12+11)*vocabulary:], r.Masked[i])
		}
	})
}

// TestDecodersStepByStep: the logits of 300 tokens that are read in parts of any length are those of the whole text.
func TestDecodersStepByStep(t *testing.T) {
	forEachDecoder(t, func(t *testing.T, r *decoderRecord, model *models.Model) {
		h := fnv.New64()
		io.WriteString(h, r.Name)
		rng := rand.New(rand.NewPCG(h.Sum64(), 1))
		tokens := make([]int64, 300)
		if testing.Short() {
			tokens = tokens[:80]
		}
		for i := range tokens {
			tokens[i] = rng.Int64N(96)
		}
		want := wholeLogits(t, model, optimem.Values{"input_ids": tensor.Of(tokens, 1, len(tokens))})
		s := newStepper(t, model, len(tokens), optimem.Options{Mode: plan.Resident, Threads: 1})
		var got []float32
		for at := 0; at < len(tokens); {
			n := min(1+rng.IntN(40), len(tokens)-at)
			if rng.IntN(3) == 0 {
				n = 1
			}
			got = append(got, s.feed(t, tokens[at:at+n])...)
			at += n
		}
		if len(got) != len(want) {
			t.Fatalf("%d logits, want %d", len(got), len(want))
		}
		near(t, "300 tokens", got, want)
	})
}

// TestDecodersWrite: the most likely tokens, one after the other, are those that transformers writes, also where several are guessed
// in a pass.
func TestDecodersWrite(t *testing.T) {
	forEachDecoder(t, func(t *testing.T, r *decoderRecord, model *models.Model) {
		guesses := []int{5}
		if stretch, _ := model.Stretch(); stretch > 0 {
			guesses = append(guesses, generate.NoSpeculation)
		}
		for _, ahead := range guesses {
			engine, err := generate.New(t.Context(), model, generate.Options{
				Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Context: 160, Sequences: 2, Rows: 48, Speculate: ahead,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			r.writes(t, engine)
		}
	})
}

// writes has an engine answer the recorded prompts at the same time, and compares the tokens.
func (r *decoderRecord) writes(t *testing.T, engine *generate.Engine) {
	t.Helper()
	var wait sync.WaitGroup
	for _, run := range r.Runs {
		wait.Go(func() {
			got, err := engine.Generate(t.Context(), generate.Request{Prompt: run.Prompt, MaxTokens: len(run.Tokens)}, nil)
			if err != nil {
				t.Error(err)
			} else if !slices.Equal(got.Tokens, run.Tokens) {
				t.Errorf("prompt of %d tokens: %s", len(run.Prompt), firstOther(got.Tokens, run.Tokens))
			}
		})
	}
	wait.Wait()
}

// TestDecodersInAFile: keys and values that wait in a file while other layers are computed, or beside a device in the host's memory,
// change no token, and memory has those of two layers.
func TestDecodersInAFile(t *testing.T) {
	forSomeDecoders(t, func(t *testing.T, r *decoderRecord, model *models.Model) {
		for _, device := range []string{"cpu", "emu:memory=64MiB"} {
			engine, err := generate.New(t.Context(), model, generate.Options{
				Session: optimem.Options{Device: device, Mode: plan.Page, Threads: 2, CachesAway: true, SwapFolder: t.TempDir()}, Context: 160,
				Sequences: 3, Rows: 48,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			r.writes(t, engine)
			p, err := engine.Forecast(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m := engine.Session().Metrics()
			if slots := int64(p.CacheSlots) * p.CacheSlotBytes; slots > p.CacheBytes || m.CacheBytes != p.CacheBytes || (m.CacheInBytes > 0) != (slots > 0) {
				t.Errorf("%s: %d bytes of caches are held of %d planned, %d of them slots; %d came", device, m.CacheBytes, p.CacheBytes, slots, m.CacheInBytes)
			}
			if m.HostBytes < p.WaitingBytes() {
				t.Errorf("%s: %d bytes of the host's memory are held, where %d wait", device, m.HostBytes, p.WaitingBytes())
			}
		}
	})
}

// TestDecodersNeedTheirWeights: a checkpoint that lacks any weight is refused by its name, so that all of them are read.
func TestDecodersNeedTheirWeights(t *testing.T) {
	for _, r := range recordedDecoders(t) {
		names := slices.Sorted(maps.Keys(r.State))
		for _, name := range []string{names[0], names[len(names)/2]} {
			if strings.Contains(name, "multi_modal") || strings.Contains(name, "vision") || strings.Contains(name, "visual") {
				continue // what no text needs
			}
			less := r
			less.State = maps.Clone(r.State)
			delete(less.State, name)
			if _, err := models.Build(less.folder(t), models.Options{}); err == nil || !strings.Contains(err.Error(), strings.Replace(name, "model.language_model.", "model.", 1)) {
				t.Errorf("%s without %s: %v", r.Name, name, err)
			}
		}
	}
}
