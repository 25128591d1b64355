package moments_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/quantize"
	"github.com/optimem/optimem/quantize/moments"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/text/tokenizer"
)

const chat = "../../generate/testdata/chat"

func build(t *testing.T, folder string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// said is what the chat model was trained on, or some of it.
func said(t *testing.T, lands ...string) []uint32 {
	t.Helper()
	writer, err := generate.OpenText(chat)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, pair := range lands {
		land, city, _ := strings.Cut(pair, " ")
		b.WriteString("<|im_start|>user\nWhat is the capital of " + land + "?<|im_end|>\n<|im_start|>assistant\nThe capital of " + land + " is " + city + ".<|im_end|>\n")
	}
	encoded, err := writer.Tokenizer().Encode(b.String(), tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return encoded.IDs
}

var lands = []string{"Peru Lima", "Norway Oslo", "Greece Athens", "Egypt Cairo", "Cuba Havana", "Austria Vienna", "Ireland Dublin", "France Paris"}

func of(t *testing.T, tokens []uint32, opts moments.Options) *moments.Text {
	t.Helper()
	text, err := moments.Of(build(t, chat), tokens, opts)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const layer = "model.layers.1."

// TestSums: moments are those of what a module gives, which --dump shows, whatever the mode, the windows' number and
// the memory.
func TestSums(t *testing.T) {
	tokens := said(t, lands[:3]...)
	const window = 24
	session, err := optimem.Resident(t.Context(), build(t, chat), optimem.ResidentOptions{Dump: []string{layer + "post_attention_layernorm"}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	const width = 64
	want := make([]float64, width*width)
	for begin := 0; begin < len(tokens); begin += window {
		var ids []int64
		for _, id := range tokens[begin:min(begin+window, len(tokens))] {
			ids = append(ids, int64(id))
		}
		out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of(ids, 1, len(ids))})
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensor.Slice[float32](out["dump:"+layer+"post_attention_layernorm"])
		if err != nil {
			t.Fatal(err)
		}
		for ; len(x) > 0; x = x[width:] {
			for i := range width {
				for j := range width {
					want[i*width+j] += float64(x[i]) * float64(x[j])
				}
			}
		}
	}
	var first []float64
	for _, opts := range []moments.Options{
		{}, {MemoryBytes: 700 << 10}, {Session: optimem.Options{Mode: plan.Page, Threads: 1}}, {Session: optimem.Options{Device: "emu:memory=8MiB"}},
	} {
		opts.Context = window
		read := 0
		opts.Done = func(n int) { read += n }
		text := of(t, tokens, opts)
		input := text.Input(layer + "mlp.up_proj.weight")
		if input == "" || input != text.Input(layer+"mlp.gate_proj.weight") || input == text.Input(layer+"mlp.down_proj.weight") {
			t.Fatalf("inputs %q, %q, %q", input, text.Input(layer+"mlp.gate_proj.weight"), text.Input(layer+"mlp.down_proj.weight"))
		}
		sums, err := text.Sums(t.Context(), []string{input}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if read != len(tokens) {
			t.Errorf("%d tokens of %d", read, len(tokens))
		}
		for i, got := range sums[0] {
			if scale := math.Sqrt(want[i/width*(width+1)] * want[i%width*(width+1)]); math.Abs(got-want[i]) > 1e-5*scale {
				t.Fatalf("%+v: number %d is %v, want %v", opts, i, got, want[i])
			}
		}
		if first == nil {
			first = sums[0]
		}
		if !slices.Equal(first, sums[0]) {
			t.Errorf("%+v: other bits", opts)
		}
	}
}

// TestSets: as many inputs are summed at a time as memory allows, one at least, and less than one is an error that says
// so.
func TestSets(t *testing.T) {
	text := of(t, said(t, lands[0]), moments.Options{MemoryBytes: 1 << 20})
	inputs := []string{text.Input(layer + "self_attn.q_proj.weight"), text.Input(layer + "mlp.up_proj.weight"), text.Input(layer + "mlp.down_proj.weight")}
	sums, err := text.Sums(t.Context(), inputs, 0)
	if err != nil || len(sums) != 2 {
		t.Fatalf("%d of 3: %v", len(sums), err)
	}
	alone, err := text.Sums(t.Context(), inputs[1:2], 0)
	if err != nil || !slices.Equal(alone[0], sums[1]) {
		t.Errorf("other bits alone: %v", err)
	}
	if _, err := text.Sums(t.Context(), inputs, 1<<20); !errors.Is(err, moments.ErrMemory) {
		t.Errorf("no memory: %v", err)
	}
	if _, err := text.Sums(t.Context(), []string{"lm_head.weight"}, 0); err == nil {
		t.Error("an input that there is not")
	}
	if text.Input("model.embed_tokens.weight") != "" {
		t.Error("an embedding that is read by an op of another kind, too")
	}
	if _, err := moments.Of(build(t, chat), []uint32{1}, moments.Options{}); !errors.Is(err, perplexity.ErrShort) {
		t.Errorf("one token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := text.Sums(ctx, inputs, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func quantised(t *testing.T, scheme quantize.Scheme, opts quantize.Options) (string, *quantize.Report) {
	t.Helper()
	opts.Scheme = scheme
	f, err := quantize.Open(t.Context(), chat, opts)
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

// TestCalibrated: codes that were chosen with a text foresee another one better than codes that were not, with what
// layers compute nearer to what they did; the same text gives the same files, whatever the memory.
func TestCalibrated(t *testing.T) {
	text := said(t, lands[:5]...)
	foreseen := func(folder string) float64 {
		model, sum, tokens := build(t, folder), 0.0, 0
		for _, land := range lands[5:] {
			r, err := perplexity.Of(t.Context(), model, said(t, land), perplexity.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sum, tokens = sum+float64(r.Tokens)*math.Log(r.Perplexity), tokens+r.Tokens
		}
		return math.Exp(sum / float64(tokens))
	}
	before := foreseen(chat)
	for _, scheme := range []quantize.Scheme{{Kind: "int4", Group: 32}, {Kind: "int4", Group: 32, Minimum: true}, {Kind: "int4"}} {
		plain, _ := quantised(t, scheme, quantize.Options{})
		without := foreseen(plain)
		for _, byUse := range []bool{false, true} {
			to, report := quantised(t, scheme, quantize.Options{Calibration: of(t, text, moments.Options{}), ByUse: byUse})
			with := foreseen(to)
			t.Logf("%+v, by use %v: perplexity %.4f, %.4f, calibrated %.4f; error %.3f, of outputs %.3f", scheme, byUse, before, without, with, report.Error, report.OutputError)
			if with > without {
				t.Errorf("%+v, by use %v: perplexity %v, without a calibration %v", scheme, byUse, with, without)
			}
			for _, l := range report.Layers {
				if !l.Calibrated || l.OutputError == 0 || l.OutputError > l.Error {
					t.Errorf("%s: %+v", l.Module, l)
				}
			}
			little := of(t, text, moments.Options{MemoryBytes: 3 << 20})
			again, _ := quantised(t, scheme, quantize.Options{Calibration: little, ByUse: byUse, MemoryBytes: 128 << 10})
			same(t, to, again)
		}
	}
}

func same(t *testing.T, a, b string) {
	t.Helper()
	const name = "model.safetensors"
	x, err := os.ReadFile(filepath.Join(a, name))
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(filepath.Join(b, name))
	if err != nil || !bytes.Equal(x, y) {
		t.Errorf("other files with little memory: %v", err)
	}
}
