package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/runtime"
)

// change replaces what a file of a folder says.
func change(t *testing.T, folder, file, from, to string) {
	t.Helper()
	path := filepath.Join(folder, file)
	text, err := os.ReadFile(path)
	if err != nil && from != "" {
		t.Fatal(err)
	}
	if from == "" {
		put(t, path, []byte(to))
		return
	}
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %q: %s", file, from, text)
	}
	put(t, path, []byte(strings.ReplaceAll(string(text), from, to)))
}

// TestBadFolders: what is wrong in a folder ends in an error that names the file; what is not known here in another.
func TestBadFolders(t *testing.T) {
	const dense = "2_Dense/config.json"
	pooling := func(kind string) string {
		return `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"` + kind + `"}]`
	}
	for _, c := range []struct {
		name, folder, file, from, to string
		unknown                      bool
		says                         string
	}{
		{"no modules", "bert", "modules.json", "", "[]", false, "lists no modules"},
		{"modules that are no list", "bert", "modules.json", "", "{}", false, "modules.json"},
		{"modules that end early", "bert", "modules.json", "", "[", false, "modules.json"},
		{"many modules", "bert", "modules.json", "", "[" + strings.Repeat(`{"type":"x"},`, 64) + `{}]`, false, "65 modules"},
		{"a module outside", "bert", "modules.json", `"1_Pooling"`, `"../1_Pooling"`, false, "outside the folder"},
		{"code of its own", "bert", "modules.json", "", pooling("custom.Pooling"), true, `"custom.Pooling"`},
		{"an unknown module", "bert", "modules.json", "", pooling("sentence_transformers.models.CNN"), true, "CNN as module 1"},
		{"a module after pooling", "bert_all", "modules.json", "Dropout", "WordWeights", true, "WordWeights"},
		{"pooling alone", "bert", "modules.json", "", `[{"type":"sentence_transformers.models.Pooling"}]`, true, "Pooling as module 0"},
		{"no pooling", "bert", "modules.json", "", `[{"path":"","type":"sentence_transformers.models.Transformer"}]`, true, "without Pooling"},
		{"pooled twice", "bert", "modules.json", "Normalize", "Pooling", true, "Pooling as module 2"},
		{"two transformers", "bert", "modules.json", "", pooling("sentence_transformers.models.Transformer"), true, "as module 1"},
		{"a default that is no prompt", "bert", "config_sentence_transformers.json", `"default_prompt_name":null`,
			`"default_prompt_name":"x"`, false, `"x" is none of its prompts`},
		{"an unknown similarity", "bert", "config_sentence_transformers.json", `"dot"`, `"jaccard"`, true, `"jaccard"`},
		{"cut to nothing", "bert_all", "config_sentence_transformers.json", `"truncate_dim":10`, `"truncate_dim":0`, false, "truncate_dim is 0"},
		{"prompts that are numbers", "bert", "config_sentence_transformers.json", "", `{"prompts":{"query":1}}`, false, "config_sentence"},
		{"an unknown pooling", "bert", "1_Pooling/config.json", "", `{"pooling_mode":"median"}`, true, `"median"`},
		{"a pooling that is a number", "bert", "1_Pooling/config.json", "", `{"pooling_mode":3}`, false, "pooling_mode is 3"},
		{"a flag that is a text", "bert", "1_Pooling/config.json", "", `{"pooling_mode_cls_token":"yes"}`, false, "pooling_mode_cls_token"},
		{"no modes", "bert", "1_Pooling/config.json", "", `{"pooling_mode":[]}`, false, "0 modes"},
		{"states of another size", "bert", "1_Pooling/config.json", "", `{"embedding_dimension":17}`, false, "pools states of 17"},
		{"pooling that is null", "bert", "1_Pooling/config.json", "", `null`, false, "does not say how to pool"},
		{"no tokens", "bert", "sentence_bert_config.json", "", `{"max_seq_length":0}`, false, "max_seq_length is 0"},
		{"another task", "bert", "sentence_bert_config.json", "", `{"transformer_task":"fill-mask"}`, true, `"fill-mask"`},
		{"another output", "bert", "sentence_bert_config.json", "", `{"module_output_name":"logits"}`, true, `"logits"`},
		{"another kind of model", "bert", "config.json", `"model_type":"bert"`, `"model_type":"vit"`, true, "vit"},
		{"no kind of model", "bert", "config.json", `"model_type":"bert"`, `"type":"bert"`, true, "model_type"},
		{"a size below zero", "bert", "config.json", `"max_position_embeddings":120`, `"max_position_embeddings":-3`, false, "max_position"},
		{"cut at the left", "bert", "tokenizer_config.json", "{", `{"truncation_side":"left",`, true, "cut at the left"},
		{"a tokenizer without tokens", "plain", "tokenizer_config.json", "", `{"model_max_length":0}`, false, "model_max_length is 0"},
		{"a dense layer of nothing", "bert_all", dense, `"in_features":96`, `"in_features":0`, false, "20 numbers of 0"},
		{"another dense layer", "bert_all", dense, `"in_features":96`, `"in_features":95`, false, "linear.weight is [20 96]"},
		{"an activation of its own", "bert_all", dense, "torch.nn.modules.activation.Tanh", "my.Tanh", true, `"my.Tanh"`},
		{"a dense layer of tokens", "bert_all", dense, "sentence_embedding", "token_embeddings", true, `"token_embeddings"`},
		{"a norm of another size", "bert_all", "3_LayerNorm/config.json", `"dimension":20`, `"dimension":21`, false, "norm.weight is [20]"},
		{"lengths of tokens", "bert", "2_Normalize/config.json", "", `{"module_input_name":"token_embeddings"}`, true, "token_embeddings"},
		{"a long file", "bert", "modules.json", "", strings.Repeat(" ", 8<<20+1), false, "more than"},
		{"a table without rows", "static", "modules.json", `"path":""`, `"path":"1"`, false, "model.safetensors"},
		{"no length", "model2vec", "config.json", `"max_length":9`, `"max_length":0`, false, "max_length is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := named(t, c.folder).unpack(t)
			change(t, folder, c.file, c.from, c.to)
			f, err := embed.Open(folder)
			if err == nil {
				defer f.Close()
				_, err = startOpen(t, f, embed.Options{})
			}
			var wrong *embed.FolderError
			var unknown *embed.UnsupportedError
			if errors.As(err, &wrong) == c.unknown || errors.As(err, &unknown) != c.unknown || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%T: %v; want %q", err, err, c.says)
			}
		})
	}
}

// TestMissingFiles: a folder that lacks a file says which.
func TestMissingFiles(t *testing.T) {
	for _, file := range []string{
		"config.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "3_LayerNorm/config.json",
	} {
		folder := named(t, "bert_all").unpack(t)
		if err := os.Remove(filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
		var wrong *embed.FolderError
		if _, err := embed.Open(folder); !errors.As(err, &wrong) || wrong.File != file {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := embed.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	var unknown *embed.UnsupportedError
	if _, err := embed.Open(t.TempDir()); !errors.As(err, &unknown) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.Mkdir(filepath.Join(t.TempDir(), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	folder := named(t, "static").unpack(t)
	put(t, filepath.Join(folder, "model.safetensors"), []byte("no weights at all"))
	if _, err := embed.Open(folder); loader.Class(err) == nil {
		t.Errorf("a table that is none: %v", err)
	}
}

// TestOlderFolder: the transformer is in a folder of its own, where older versions put it.
func TestOlderFolder(t *testing.T) {
	folder := named(t, "bert").unpack(t)
	_, e := start(t, folder, embed.Options{})
	want := vectors(t, e, "", "tea for one").Data
	all, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "0_Transformer"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if name := filepath.Base(path); name != "modules.json" && name != "config_sentence_transformers.json" {
			if err := os.Rename(path, filepath.Join(folder, "0_Transformer", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	change(t, folder, "modules.json", `"path":""`, `"path":"0_Transformer"`)
	f, e := start(t, folder, embed.Options{})
	if got := vectors(t, e, "", "tea for one").Data; !slices.Equal(got, want) || f.MaxTokens() != 24 {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestMangledFolders: whatever stands in a folder's files, opening it ends well or in an error.
func TestMangledFolders(t *testing.T) {
	const letters = "0123456789-{}[]\",:.enull"
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	for _, name := range []string{"bert_all", "model2vec"} {
		r := named(t, name)
		folder := r.unpack(t)
		rng := rand.New(rand.NewPCG(1, 2))
		texts := folders(t).Texts[:2]
		opened := 0
		files := slices.Sorted(maps.Keys(r.Files))
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, "tokenizer") })
		for range rounds {
			file := files[rng.IntN(len(files))]
			text := []byte(r.Files[file])
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(text))
				switch rng.IntN(4) {
				case 0:
					text[at] = letters[rng.IntN(len(letters))]
				case 1:
					text = text[:at+1]
				case 2:
					text = slices.Insert(text, at, []byte("99999999")...)
				default:
					text = slices.Delete(text, at, min(at+1+rng.IntN(12), len(text)))
				}
				if len(text) == 0 {
					text = []byte("0")
				}
			}
			put(t, filepath.Join(folder, file), text)
			if f, err := embed.Open(folder); err == nil {
				if e, err := startOpen(t, f, embed.Options{}); err == nil {
					opened++
					_, _ = e.Embed(t.Context(), embed.Request{Texts: texts}) // an error is as good
					_ = e.Close()
				}
				_ = f.Close()
			}
			put(t, filepath.Join(folder, file), []byte(r.Files[file]))
		}
		if opened < rounds/20 || opened > rounds-rounds/20 {
			t.Errorf("%s: %d of %d folders opened: the mistakes are none, or all are", name, opened, rounds)
		}
	}
}

// TestRows: a token that a table has no row for is an error, and so is a table that ends early.
func TestRows(t *testing.T) {
	whole := named(t, "static")
	short := *whole
	short.Weights = map[string]map[string][2]json.RawMessage{"model.safetensors": {
		"embedding.weight": {json.RawMessage(`"F32"`), json.RawMessage(`[60,16]`)},
	}}
	_, e := start(t, short.unpack(t), embed.Options{})
	var wrong *embed.FolderError
	_, err := e.Embed(t.Context(), embed.Request{Texts: []string{"winter"}})
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "has no row of the 60") {
		t.Errorf("%v", err)
	}
	if got, want := vectors(t, e, "", "z").Tokens, []int{1}; !slices.Equal(got, want) {
		t.Errorf("%d tokens", got)
	}
}

// TestDenseDefault: a dense layer that names no activation has tanh.
func TestDenseDefault(t *testing.T) {
	folder := named(t, "bert_all").unpack(t)
	_, e := start(t, folder, embed.Options{})
	want := vectors(t, e, "", "tea for one").Data
	change(t, folder, "2_Dense/config.json", `"activation_function":"torch.nn.modules.activation.Tanh"`, `"activation_function":null`)
	_, e = start(t, folder, embed.Options{})
	if got := vectors(t, e, "", "tea for one").Data; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestManyTexts: more texts of a length than go through the model at once have each their own vector.
func TestManyTexts(t *testing.T) {
	_, e := start(t, named(t, "plain").unpack(t), embed.Options{})
	texts := folders(t).Texts
	long := []string{strings.Repeat(texts[2], 2), strings.Repeat(texts[5], 9), strings.Repeat(texts[0], 12)}
	want := vectors(t, e, "", long...)
	before := e.Session().Metrics().Runs
	got := vectors(t, e, "", slices.Repeat(long, 400)...)
	tokens := 0
	for _, n := range got.Tokens {
		tokens += n
	}
	if runs := e.Session().Metrics().Runs - before; runs < int64(tokens/8192) || tokens < 3*8192 {
		t.Errorf("%d passes for %d tokens", runs, tokens)
	}
	for i := range got.Tokens {
		if !slices.Equal(got.Vector(i), want.Vector(i%3)) {
			t.Fatalf("text %d: %v, want %v", i, got.Vector(i)[:3], want.Vector(i % 3)[:3])
		}
	}
}

// TestPooling: older configurations name modes by flags, in an order of their own; one that names none means the mean.
func TestPooling(t *testing.T) {
	folder := named(t, "plain").unpack(t)
	put(t, filepath.Join(folder, "modules.json"), []byte(`[{"path":"","type":"sentence_transformers.models.Transformer"},
		{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`))
	vector := func(pooling string) []float32 {
		put(t, filepath.Join(folder, "1_Pooling/config.json"), []byte(pooling))
		_, e := start(t, folder, embed.Options{})
		return vectors(t, e, "", "tea for one").Data
	}
	first, last, mean := vector(`{"pooling_mode":"cls"}`), vector(`{"pooling_mode":"lasttoken"}`), vector(`{}`)
	if slices.Equal(first, last) || slices.Equal(first, mean) {
		t.Fatal("the poolings are the same")
	}
	got := vector(`{"word_embedding_dimension": 16, "pooling_mode_lasttoken": true, "pooling_mode_cls_token": true}`)
	if !slices.Equal(got, slices.Concat(first, last)) {
		t.Errorf("by flags: %v", got)
	}
	if got := vector(`{"pooling_mode":["lasttoken","cls"]}`); !slices.Equal(got, slices.Concat(last, first)) {
		t.Errorf("by a list: %v", got)
	}
	if got := vector(`{"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":false}`); !slices.Equal(got, mean) {
		t.Errorf("by one flag: %v", got)
	}
	// Of a text whose tokens are all its prompt's the one that ends it is left.
	put(t, filepath.Join(folder, "1_Pooling/config.json"), []byte(`{"pooling_mode":["mean","lasttoken","cls"],"include_prompt":false}`))
	_, e := start(t, folder, embed.Options{MaxTokens: 4})
	out := vectors(t, e, "tea for one lake boat ", "north").Data
	_, e = start(t, folder, embed.Options{})
	all := vectors(t, e, "tea ", "north").Data
	if !slices.Equal(out[:16], out[16:32]) || !slices.Equal(out[:16], out[32:]) || slices.Equal(all[:16], all[16:32]) {
		t.Errorf("only a prompt: %v; more: %v", out, all)
	}
}

// TestOptions: vectors are cut and have the length 1 again where the folder gives them that or the caller asks for it; texts
// are cut, and it is said how many were; what cannot be is refused.
func TestOptions(t *testing.T) {
	folder := named(t, "bert").unpack(t)
	long := folders(t).Texts[2]
	f, whole := start(t, folder, embed.Options{})
	want := vectors(t, whole, "", "tea", long)
	if want.Cut != 1 || want.Tokens[0] != 3 || want.Tokens[1] != 24 || f.MaxTokens() != 24 {
		t.Errorf("%d cut, %d tokens", want.Cut, want.Tokens)
	}
	_, e := start(t, folder, embed.Options{Dim: 5})
	got := vectors(t, e, "", "tea")
	scale := want.Data[0] / got.Data[0]
	for i, x := range got.Data {
		if math.Abs(float64(x*scale-want.Data[i])) > 1e-6 {
			t.Errorf("number %d is %v of %v", i, x*scale, want.Data[i])
		}
	}
	if n := f.Compare(got.Data, got.Data); got.Dim != 5 || math.Abs(n-1) > 1e-6 || scale > 0.999 {
		t.Errorf("%d numbers of length %v", got.Dim, n)
	}
	_, e = start(t, folder, embed.Options{MaxTokens: 7})
	if cut := vectors(t, e, "", long, "tea"); cut.Tokens[0] != 7 || cut.Cut != 1 || slices.Equal(cut.Vector(0), want.Vector(1)) {
		t.Errorf("cut to 7: %v", cut.Tokens)
	}
	plain := named(t, "plain").unpack(t)
	_, e = start(t, plain, embed.Options{Normalize: true, Dim: 8})
	if x := vectors(t, e, "", "tea").Data; math.Abs(f.Compare(x, x)-1) > 1e-6 {
		t.Errorf("not of length 1: %v", x)
	}
	_, e = start(t, plain, embed.Options{Dim: 8})
	if x := vectors(t, e, "", "tea").Data; math.Abs(f.Compare(x, x)-1) < 0.1 {
		t.Errorf("of length 1: %v", x)
	}
	var refused *embed.RequestError
	for field, opts := range map[string]embed.Options{
		"Dim": {Dim: 17}, "MaxTokens": {MaxTokens: 25},
	} {
		if _, err := startOpen(t, f, opts); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, opts := range map[string]embed.Options{"Dim": {Dim: -1}, "MaxTokens": {MaxTokens: -1}, "model": {}} {
		if _, err := embed.New(t.Context(), f, nil, opts); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var full *runtime.CapacityError
	_, e = start(t, folder, embed.Options{Session: runtime.Options{Memory: 1000}})
	if _, err := e.Embed(t.Context(), embed.Request{Texts: []string{"tea"}}); !errors.As(err, &full) {
		t.Errorf("in 1000 bytes: %v", err)
	}
}

// TestMaxTokens: the transformer's own limit counts more than the tokenizer's, and neither goes beyond its positions.
func TestMaxTokens(t *testing.T) {
	folder := named(t, "bert").unpack(t)
	for _, c := range []struct {
		sentences, tokenizer string
		want                 int
	}{
		{`{"max_seq_length":24}`, `{"model_max_length":5}`, 24},
		{`{"max_seq_length":null}`, `{"model_max_length":5}`, 5},
		{`{"max_seq_length":500}`, `{"model_max_length":5}`, 120},
		{`{}`, `{"model_max_length":1000000000000000019884624838656}`, 120},
		{`{}`, `{}`, 120},
	} {
		put(t, filepath.Join(folder, "sentence_bert_config.json"), []byte(c.sentences))
		put(t, filepath.Join(folder, "tokenizer_config.json"), []byte(c.tokenizer))
		f, err := embed.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.MaxTokens(); got != c.want {
			t.Errorf("%s, %s: %d tokens, want %d", c.sentences, c.tokenizer, got, c.want)
		}
	}
}

// TestPrompts: prompts go by name; those of searching are none where a folder has none, and the default is the folder's.
func TestPrompts(t *testing.T) {
	f, e := start(t, named(t, "instructor").unpack(t), embed.Options{})
	for name, want := range map[string]string{"": "the good oven : ", "query": "the good oven : ", "document": ""} {
		if got, err := f.Prompt(name); got != want || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	var refused *embed.RequestError
	if _, err := f.Prompt("other"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "query") {
		t.Errorf("%v", err)
	}
	if got := f.Prompts(); !slices.Equal(got, []string{"document", "query"}) {
		t.Errorf("prompts %q", got)
	}
	if vectors(t, e, "tea ", "lake").Tokens[0] != vectors(t, e, "", "tea lake").Tokens[0] {
		t.Error("a prompt's tokens do not count")
	}
	folder := named(t, "plain").unpack(t)
	put(t, filepath.Join(folder, "config_sentence_transformers.json"), []byte(`{"prompts":{"passage":"this "}}`))
	f, _ = start(t, folder, embed.Options{})
	if got, err := f.Prompt("document"); got != "this " || err != nil {
		t.Errorf("a passage is a document: %q, %v", got, err)
	}
}

// TestLower: texts become lower case where the folder says so, whatever its tokenizer does.
func TestLower(t *testing.T) {
	folder := named(t, "bert").unpack(t)
	change(t, folder, "tokenizer.json", `"lowercase":true`, `"lowercase":false`)
	_, e := start(t, folder, embed.Options{})
	want := vectors(t, e, "", "tea")
	if slices.Equal(vectors(t, e, "", "TEA").Data, want.Data) {
		t.Fatal("the tokenizer makes lower case")
	}
	put(t, filepath.Join(folder, "sentence_bert_config.json"), []byte(`{"max_seq_length":24,"do_lower_case":true}`))
	_, e = start(t, folder, embed.Options{})
	if !slices.Equal(vectors(t, e, "", "TEA").Data, want.Data) {
		t.Error("do_lower_case does nothing")
	}
}

// TestSimilarity: vectors are compared as the folder says, more being more alike.
func TestSimilarity(t *testing.T) {
	folder := named(t, "plain").unpack(t)
	a, b := []float32{3, 4, 0}, []float32{0, 4, 3}
	for name, want := range map[string]float64{"cosine": 0.64, "dot": 16, "euclidean": -math.Sqrt(18), "manhattan": -6} {
		put(t, filepath.Join(folder, "config_sentence_transformers.json"), []byte(`{"similarity_fn_name":"`+name+`"}`))
		f, err := embed.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Compare(a, b); math.Abs(got-want) > 1e-12 || f.Similarity() != name {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestCancel: a context that ends ends a request, and the embedder answers the next one.
func TestCancel(t *testing.T) {
	for _, name := range []string{"bert", "static"} {
		_, e := start(t, named(t, name).unpack(t), embed.Options{})
		texts := folders(t).Texts
		want := vectors(t, e, "", texts...)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		request := embed.Request{Texts: slices.Repeat(texts, 40), Done: func(int) {
			if n++; n == 3 {
				cancel()
			}
		}}
		if _, err := e.Embed(ctx, request); !errors.Is(err, context.Canceled) || n >= len(request.Texts) {
			t.Errorf("%s: %v after %d texts", name, err, n)
		}
		if _, err := e.Embed(ctx, request); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if got := vectors(t, e, "", texts...); !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: other vectors afterwards", name)
		}
	}
}

// TestManyCallers: goroutines share an embedder.
func TestManyCallers(t *testing.T) {
	_, e := start(t, named(t, "mpnet").unpack(t), embed.Options{})
	texts := folders(t).Texts
	want := vectors(t, e, "", texts...)
	var wait sync.WaitGroup
	for range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if got, err := e.Embed(t.Context(), embed.Request{Texts: texts}); err != nil || !slices.Equal(got.Data, want.Data) {
				t.Errorf("%v", err)
			}
		}()
	}
	wait.Wait()
}

// TestNoTokens: a text of no token has a vector of zeros, before what comes after pooling.
func TestNoTokens(t *testing.T) {
	folder := named(t, "qwen3").unpack(t)
	var file map[string]any
	text, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	if err != nil || json.Unmarshal(text, &file) != nil {
		t.Fatal(err)
	}
	file["post_processor"] = nil
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(folder, "tokenizer.json"), text)
	_, e := start(t, folder, embed.Options{})
	got := vectors(t, e, "", "", "tea", "")
	if zeros := make([]float32, 16); !slices.Equal(got.Vector(0), zeros) || !slices.Equal(got.Vector(2), zeros) || slices.Equal(got.Vector(1), zeros) {
		t.Errorf("%v", got.Data)
	}
}

// TestNoTexts: nothing comes of nothing.
func TestNoTexts(t *testing.T) {
	_, e := start(t, named(t, "static").unpack(t), embed.Options{})
	if got := vectors(t, e, ""); len(got.Data) != 0 || got.Dim != 16 {
		t.Errorf("%+v", got)
	}
}
