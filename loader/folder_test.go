package loader

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFolderChoice(t *testing.T) {
	a, b := u8Shard("a"), u8Shard("b")
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"plain": {map[string]string{
			"model.safetensors": a, "pytorch_model.bin": b, "config.json": "{}",
		}, []string{"a"}},
		"before its index": {map[string]string{"model.safetensors": a, indexName: "broken"}, []string{"a"}},
		"index": {map[string]string{
			indexName: indexText("b", "x"), "x": b, "pytorch_model.bin": a,
		}, []string{"b"}},
		"bin": {map[string]string{
			"pytorch_model.bin": b, "other.safetensors": a,
		}, []string{"b"}},
		"bin index": {map[string]string{
			"pytorch_model.bin.index.json": indexText("b", "x.bin"), "x.bin": b,
		}, []string{"b"}},
		"single safetensors": {map[string]string{"adapter_model.safetensors": a, "x.bin": b}, []string{"a"}},
		"single other index": {map[string]string{
			"diff.safetensors.index.json": indexText("b", "x"), "x": b,
		}, []string{"b"}},
		"single pt": {map[string]string{
			"weights.pt": a, "optimizer.pt": b, "rng_state_0.pth": b,
		}, []string{"a"}},
		"single bin": {map[string]string{
			"weights.bin": a, "training_args.bin": b, "notes.txt": "",
		}, []string{"a"}},
		"a folder so called": {map[string]string{
			"model.safetensors/x": "", "pytorch_model.bin": b,
		}, []string{"b"}},
		"config is a folder": {map[string]string{"model.safetensors": a, "config.json/x": ""}, []string{"a"}},
		"one in a pipeline": {map[string]string{
			"model_index.json": "{}", "vae.safetensors": a,
		}, []string{"a"}},
		"nested is not looked": {map[string]string{
			"model.safetensors": a, "sub/model.safetensors": b,
		}, []string{"a"}},
	} {
		ckpt, err := Open(writeFiles(t, c.files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ckpt.Format != FormatHuggingFace || !slices.Equal(weightNames(ckpt), c.want) {
			t.Errorf("%s: %s, %v", name, ckpt.Format, weightNames(ckpt))
		}
		if want := c.files["config.json"]; string(ckpt.Config) != want || (ckpt.Config == nil) != (want == "") {
			t.Errorf("%s: config %q", name, ckpt.Config)
		}
		if err := ckpt.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolderFails(t *testing.T) {
	a := u8Shard("a")
	for name, c := range map[string]struct {
		files map[string]string
		class error
		says  string
	}{
		"nothing": {map[string]string{"notes.txt": ""}, ErrUnsupported,
			"none of model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json"},
		"several": {map[string]string{
			"b.safetensors": a, "a.safetensors": a,
		}, ErrUnsupported, "(a.safetensors, b.safetensors)"},
		"many": {map[string]string{
			"4.pt": a, "1.pt": a, "2.pt": a, "3.pth": a,
		}, ErrUnsupported, "(1.pt, 2.pt, 3.pth, …)"},
		"diffusers": {map[string]string{
			"model_index.json": "{}", "unet/diffusion_pytorch_model.safetensors": a,
		}, ErrUnsupported,
			"a diffusers pipeline"},
		"only a trainer's files": {map[string]string{
			"training_args.bin": a, "optimizer.pt": a,
		}, ErrUnsupported, "no weights"},
		"JSON for weights": {map[string]string{"model.safetensors": "{}"}, ErrFormat, "not a shard"},
		"broken weights": {map[string]string{
			"model.safetensors": a + "x",
		}, ErrFormat, "model.safetensors: 1 bytes after"},
		"huge config": {map[string]string{"model.safetensors": a, "config.json": strings.Repeat(" ", maxConfigBytes+1)},
			ErrLimit, "config.json"},
	} {
		dir := writeFiles(t, c.files)
		_, err := Open(dir)
		if err == nil || Class(err) != c.class || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v; want %v: …%s…", name, err, c.class, c.says)
		}
	}
}

func TestFolderLinks(t *testing.T) {
	outside := filepath.Join(writeFiles(t, map[string]string{"secret": "root:x", "w": u8Shard("a")}), "secret")
	dir := writeFiles(t, map[string]string{"model.safetensors": u8Shard("a")})
	if err := os.Symlink(outside, filepath.Join(dir, "config.json")); err != nil {
		t.Skip("no symbolic links here")
	}
	if _, err := Open(dir); !errors.Is(err, ErrUnsafe) {
		t.Errorf("config.json that leads out: %v", err)
	}
	dir = t.TempDir()
	if err := os.Symlink(filepath.Join(filepath.Dir(outside), "w"), filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrUnsafe) {
		t.Errorf("weights that lead out: %v", err)
	}
}
