package models_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/models/internal/zoo"
)

var rewriteFamilies = flag.Bool("rewrite-families", false, "write FAMILIES.md")

// A familyRow is a line of the table: which of the recorded models belong to a family.
type familyRow struct {
	name  string
	match string
	// folder is set for families that come as Hugging Face folders and not as bare state dicts.
	folder bool
}

var familyRows = []familyRow{
	{"AlexNet", "alexnet", false}, {"VGG", "vgg.*", false}, {"ResNet", "resnet.*", false},
	{"ResNeXt", "resnext.*", false}, {"Wide ResNet", "wide_resnet.*", false}, {"DenseNet", "densenet.*", false},
	{"GoogLeNet", "googlenet.*", false}, {"Inception v3", "inception.*", false},
	{"MobileNet v2", "mobilenet_v2.*", false}, {"MobileNet v3", "mobilenet_v3.*|mobile", false},
	{"ShuffleNet v2", "shufflenet.*", false}, {"SqueezeNet", "squeezenet.*", false}, {"MNASNet", "mnasnet[0-9v_].*", false},
	{"EfficientNet", "efficientnet_b.*|efficientnet_small", false}, {"EfficientNet v2", "efficientnet_v2.*", false},
	{"RegNet", "regnet.*", false}, {"ConvNeXt", "convnext.*", false}, {"ViT (torchvision)", "vit_[bhl].*|vit", false},
	{"Swin", "swin|swin_[tsb]", false}, {"Swin v2", "swin_v2.*", false}, {"MaxViT", "maxvit.*", false},
	{"DeepLabV3", "deeplabv3.*", false}, {"FCN", "fcn_.*", false}, {"LRASPP", "lraspp.*", false},
	{"video ResNet", "r3d_18|mc3_18|r2plus1d_18", false},
	{"BERT", "bert.*", true}, {"RoBERTa", "roberta.*", true}, {"XLM-RoBERTa", "xlm-roberta", true},
	{"DistilBERT", "distilbert.*", true}, {"ALBERT", "albert", true},
	{"ELECTRA", "electra", true}, {"MPNet", "mpnet", true},
	{"DeBERTa v2, v3", "deberta.v2", true}, {"ModernBERT", "modernbert", true}, {"GPT-2", "gpt2.*", true},
	{"OPT", "opt.*", true}, {"Llama", "llama", true}, {"Mistral", "mistral.*", true}, {"Qwen2", "qwen2", true},
	{"Qwen3", "qwen3", true}, {"Gemma", "gemma", true}, {"Gemma 2", "gemma2", true}, {"Phi-3", "phi3.*", true},
	{"T5", "t5.*", true}, {"BART", "bart.*", true}, {"Whisper", "whisper.*", true}, {"mBART", "mbart", true},
	{"Pegasus", "pegasus", true}, {"Marian", "marian.*", true}, {"ViT (transformers)", "vit|deit", true},
	{"DINOv2", "dinov2.*", true}, {"DINOv3 (ViT)", "dinov3_vit", true}, {"CLIP", "clip.*", true}, {"SigLIP", "siglip|siglip_.*", true}, {"SigLIP 2", "siglip2.*", true},
	{"Mixtral", "mixtral", true}, {"Qwen2-MoE", "qwen2_moe", true}, {"Qwen3-MoE", "qwen3_moe", true},
	{"OLMoE", "olmoe", true}, {"Granite-MoE", "granitemoe", true}, {"gpt-oss", "gpt_oss", true}, {"GLM-4-MoE", "glm4_moe", true},
	{"Ernie 4.5 MoE", "ernie4_5_moe", true}, {"dots.llm1", "dots1", true}, {"Phi-3.5-MoE", "phimoe.*", true},
	{"FlexOlmo", "flex_olmo", true}, {"Granite-MoE with shared experts", "granitemoeshared", true}, {"Solar Open", "solar_open", true},
	{"EXAONE MoE", "exaone_moe", true}, {"GLM-4-MoE Lite", "glm4_moe_lite", true}, {"Hunyuan (MoE)", "hunyuan_v1_moe", true},
	{"VaultGemma", "vaultgemma", true}, {"Qwen2.5-VL (text)", "qwen2_5_vl_pictures", true}, {"Qwen3-VL (text)", "qwen3_vl_pictures", true},
	{"Qwen3-VL-MoE (text)", "qwen3_vl_moe_pictures", true},
	{"DeepSeek-V2", "deepseek_v2", true}, {"DeepSeek-V3", "deepseek_v3", true},
	{"Llama 4 (text)", "llama4_text", true},
	{"Gemma 3 (text)", "gemma3|gemma3_.*", true}, {"Gemma 3n (text)", "gemma3n.*", true}, {"Gemma 4 (text)", "gemma4.*", true}, {"SmolLM3", "smollm3.*", true}, {"Ministral", "ministral", true},
	{"Ministral 3", "ministral3.*", true}, {"OLMo", "olmo|olmo_.*", true}, {"OLMo 2", "olmo2.*", true}, {"OLMo 3", "olmo3.*", true},
	{"Granite", "granite|granite_.*", true}, {"Cohere", "cohere|cohere_.*", true}, {"Cohere 2", "cohere2.*", true},
	{"Phi-1, 1.5, 2", "phi|phi_.*", true}, {"StableLM", "stablelm.*", true}, {"EXAONE 4", "exaone4.*", true},
	{"GLM-4", "glm|glm_.*", true}, {"GLM-4-0414", "glm4", true}, {"StarCoder2", "starcoder2.*", true},
	{"Nemotron", "nemotron", true}, {"Helium", "helium.*", true}, {"Seed-OSS", "seed_oss.*", true},
	{"ERNIE 4.5", "ernie4_5", true}, {"Hunyuan (dense)", "hunyuan_v1_dense.*", true}, {"Apertus", "apertus.*", true},
	{"Arcee", "arcee.*", true}, {"CWM", "cwm.*", true}, {"GPT-NeoX", "gpt_neox.*", true}, {"GPT-J", "gptj.*", true},
	{"HyperCLOVA X", "hyperclovax.*", true}, {"Jais 2", "jais2", true},
	{"Falcon", "falcon|falcon_(new|alibi).*", true}, {"BLOOM", "bloom.*", true}, {"MPT", "mpt.*", true},
	{"Mamba", "mamba|mamba_.*", true}, {"Mamba 2", "mamba2.*", true}, {"LFM2", "lfm2|lfm2_biased", true},
	{"Falcon-Mamba", "falcon_mamba", true}, {"Falcon-H1", "falcon_h1.*", true}, {"Bamba", "bamba", true},
	{"Granite 4 (hybrid)", "granitemoehybrid.*", true}, {"Qwen3-Next", "qwen3_next.*", true}, {"Qwen3.5 (text)", "qwen3_5", true},
	{"wav2vec 2.0", "wav2vec2", true}, {"HuBERT", "hubert", true}, {"WavLM", "wavlm", true}, {"Data2Vec (audio)", "data2vec-audio", true},
	{"LLaVA", "llava|llava_.*", true}, {"Chinese-CLIP", "chinese_clip", true}, {"BLIP", "blip", true},
	{"UniSpeech", "unispeech", true}, {"UniSpeech-SAT", "unispeech-sat", true},
	{"Qwen3.5-MoE (text)", "qwen3_5_moe", true}, {"LFM2-MoE", "lfm2_moe.*", true}, {"Jamba", "jamba.*", true},
	{"Nemotron-H", "nemotron_h.*", true}, {"MiniMax-Text", "minimax", true}, {"Kimi Linear", "kimi_linear", true}, {"MiniMax-M2", "minimax_m2", true},
}

// recordedNames are the names of the models in a list of records.
func recordedNames(t *testing.T, path string) []string {
	t.Helper()
	var list []struct{ Name string }
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(path, decode); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.Name
	}
	return names
}

// writesText says whether a text was recorded of one of the models in a list of records.
func writesText(t *testing.T, path string) bool {
	t.Helper()
	var list []struct {
		Greedy, Caption []int
		Written         [][][]int
	}
	if err := zoo.Unzip(path, func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if len(r.Greedy)+len(r.Caption)+len(r.Written) > 0 {
			return true
		}
	}
	return false
}

// TestFamiliesTable holds the table of families and forms in FAMILIES.md to what the tests run. Every number counts
// models whose outputs or graphs are compared with PyTorch's.
func TestFamiliesTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Families and forms\n\nMade by `go test ./models -run TestFamiliesTable -rewrite-families`. A number " +
		"counts the models of a family that the tests run in a form: their outputs are compared with PyTorch's, or their " +
		"graph, op by op, with that of the exported program whose outputs are. Where a family has none in a form, nothing " +
		"is recorded: whole modules and TorchScript are not made family by family. \"Tried\" is a model that `models/testdata/list_exports.py` exported " +
		"with the newest torch and ran once, whose program is too large to be kept here. A model that is run step by step gives the " +
		"logits of the whole text for any parts of it, and writes the tokens that transformers writes.\n\n" +
		"| family | state dict or folder | step by step | `torch.export` | whole module | TorchScript |\n|---|---|---|---|---|---|\n")
	names, err := zoo.Names(zooFolder)
	if err != nil || len(names) == 0 {
		t.Fatalf("no zoo: %v", err)
	}
	bare := maps.Clone(recognised)
	maps.Copy(bare, recognisedConv)
	maps.Copy(bare, recognisedAttention)
	counts := func(pattern string, list []string) int {
		whole := regexp.MustCompile("^(" + pattern + ")$")
		n := 0
		for _, name := range list {
			if whole.MatchString(name) {
				n++
			}
		}
		return n
	}
	listed := func(glob, suffix string) []string {
		paths, err := filepath.Glob(glob)
		if err != nil || len(paths) == 0 {
			t.Fatalf("nothing at %s: %v", glob, err)
		}
		for i, p := range paths {
			paths[i] = strings.TrimSuffix(filepath.Base(p), suffix)
		}
		return paths
	}
	var tv, hf, dicts []string
	for _, name := range names {
		family, model, _ := strings.Cut(name, "/")
		if strings.HasPrefix(family, "tv") {
			tv = append(tv, model)
		} else if family == "hf" {
			hf = append(hf, model)
		}
	}
	for name := range bare {
		dicts = append(dicts, name[strings.LastIndexByte(name, '/')+1:])
	}
	folders := listed("testdata/families/hf/*.heads.json.gz", ".heads.json.gz")
	decoders := slices.Concat(recordedNames(t, "testdata/families/hf/decoders.json.gz"), recordedNames(t, "testdata/families/hf/recurrents.json.gz"))
	steps := append(slices.Clone(decoders), recordedNames(t, "testdata/families/hf/text.json.gz")...)
	for _, name := range folders {
		if writesText(t, "testdata/families/hf/"+name+".heads.json.gz") {
			steps = append(steps, name)
		}
	}
	seq2seq := recordedNames(t, "testdata/families/hf/seq2seq.json.gz")
	steps = append(steps, seq2seq...)
	folders = slices.Concat(folders, decoders, seq2seq)
	exports := triedExports(t)
	modules := listed("testdata/nn/whole/*.pt", ".pt")
	scripts := append(listed("testdata/script/*.script.pt.gz", ".script.pt.gz"),
		listed("testdata/script/*.trace.pt.gz", ".trace.pt.gz")...)
	for _, row := range familyRows {
		form, exported, module, script := counts(row.match, dicts), counts(row.match, tv), 0, counts(row.match, scripts)
		module = counts(row.match, modules)
		if row.folder {
			form, exported, module = counts(row.match, folders), counts(row.match, hf), 0
			if row.name == "ViT (transformers)" {
				script = 0 // the recorded programs are torchvision's
			}
		}
		if form == 0 || exported == 0 && !row.folder {
			t.Errorf("%s: %d as state dict or folder, %d exported", row.name, form, exported)
		}
		kind, stepwise := "recognised", 0
		if row.folder {
			stepwise = counts(row.match, steps)
			kind = "with heads and options"
		}
		fmt.Fprintf(&b, "| %s | %d %s | %s | %s | %s | %s |\n", row.name, form, kind, orNo(stepwise), exports.of(row, exported), orNone(module), orNone(script))
	}
	if *rewriteFamilies {
		if err := os.WriteFile("FAMILIES.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("FAMILIES.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("FAMILIES.md is not what the tests run: run with -rewrite-families")
	}
}

// A triedExport is what became of a tiny model that list_exports.py exported: the largest difference of its logits from
// PyTorch's, or what torch.export or optimem said.
type triedExport struct {
	Err         float64
	Export, Run string
}

// triedExports are those of each model that was tried, by its name.
type triedExportsOf map[string]triedExport

func triedExports(t *testing.T) triedExportsOf {
	t.Helper()
	text, err := os.ReadFile("testdata/families/hf/exports.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Models triedExportsOf }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Models
}

// of says how many exported programs of a row the tests run, or else what became of those that were tried.
func (x triedExportsOf) of(row familyRow, run int) string {
	if run > 0 || !row.folder {
		return orNone(run)
	}
	whole := regexp.MustCompile("^(" + row.match + ")$")
	for _, name := range slices.Sorted(maps.Keys(x)) {
		switch e := x[name]; {
		case !whole.MatchString(name):
		case e.Export != "":
			return "does not export: " + strings.ReplaceAll(e.Export, "|", "/")
		case e.Run != "":
			return "does not run: " + strings.ReplaceAll(e.Run, "|", "/")
		case e.Err > 1e-4:
			return fmt.Sprintf("tried: logits differ by %.0e", e.Err)
		default:
			return "tried: within 1e-4"
		}
	}
	return orNone(0)
}

func orNo(n int) string {
	if n == 0 {
		return "no"
	}
	return fmt.Sprint(n)
}

func orNone(n int) string {
	if n == 0 {
		return "none recorded"
	}
	return fmt.Sprint(n)
}
