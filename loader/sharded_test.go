package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeFiles writes files into a new folder.
func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// u8Shard is a safetensors file of one-byte tensors, the i-th of value i.
func u8Shard(names ...string) string {
	var entries []string
	for i, name := range names {
		entries = append(entries, u8Entry(name, i, i+1))
	}
	file := safetensorsFile("{"+strings.Join(entries, ",")+"}", len(names))
	for i := range names {
		file[len(file)-len(names)+i] = byte(i)
	}
	return string(file)
}

// saysFormat adds metadata to a safetensors file.
func saysFormat(file string) string {
	n := binary.LittleEndian.Uint64([]byte(file))
	header := `{"__metadata__":{"format":"pt"},` + file[9:8+n]
	return string(safetensorsFile(header, 0)) + file[8+n:]
}

// indexText is an index of the given pairs of tensor and shard.
func indexText(pairs ...string) string {
	var entries []string
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, fmt.Sprintf("%q: %q", pairs[i], pairs[i+1]))
	}
	metadata := `{"metadata": {"total_size": 3, "by": "us", "nested": {}}, "weight_map": {`
	return metadata + strings.Join(entries, ", ") + "}}\n"
}

func weightNames(c *Checkpoint) []string {
	var names []string
	for _, w := range c.Weights {
		names = append(names, w.Name)
	}
	return names
}

func valueOf(c *Checkpoint, name string) string {
	for _, v := range c.Values {
		if v.Name == name {
			return v.Text
		}
	}
	return ""
}

const indexName = "model.safetensors.index.json"

func TestSharded(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"1.safetensors": saysFormat(u8Shard("x", "a")),
		"2.safetensors": saysFormat(u8Shard("b", "extra")),
		indexName:       indexText("a", "1.safetensors", "b", "2.safetensors", "x", "1.safetensors"),
	})
	ckpt, err := Open(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	if ckpt.Format != FormatSharded || !slices.Equal(weightNames(ckpt), []string{"x", "a", "b", "extra"}) {
		t.Errorf("%s: %v", ckpt.Format, weightNames(ckpt))
	}
	a, _ := ckpt.Weight("a")
	got, err := a.Contents(t.Context())
	if err != nil || got.Data[0] != 1 {
		t.Errorf("a is %v, %v", got, err)
	}
	if n := len(ckpt.Values); n != 4 {
		t.Errorf("%d values: %v", n, ckpt.Values)
	}
	for name, want := range map[string]string{
		"__metadata__.format": "pt", "index.unmapped": `1 tensors: "extra"`, "metadata.total_size": "3", "metadata.by": "us", "metadata.nested": "",
	} {
		if text := valueOf(ckpt, name); text != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
	for range 2 {
		if err := ckpt.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Contents(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	}
}

// TestShardedTied: a shard's metadata name a tensor that was left out, wherever the one that was kept is.
func TestShardedTied(t *testing.T) {
	header := `{"__metadata__":{"head":"b","b":"a"},` + u8Entry("a", 0, 1) + "}"
	ckpt, err := Open(filepath.Join(writeFiles(t, map[string]string{
		indexName:       indexText("a", "1.safetensors", "b", "2.safetensors"),
		"1.safetensors": string(safetensorsFile(header, 1)), "2.safetensors": u8Shard("b"),
	}), indexName))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	b, _ := ckpt.Weight("b")
	if w, ok := ckpt.Weight("head"); !ok || !w.SharesStorage(b) || len(ckpt.Weights) != 3 {
		t.Errorf("the tensors are %v", ckpt.Weights)
	}
}

func TestShardedFails(t *testing.T) {
	good := map[string]string{"1.safetensors": u8Shard("a"), "2.safetensors": u8Shard("b", "c")}
	index := func(file string) string { return indexText("a", "1.safetensors", "b", file) }
	for name, c := range map[string]struct {
		files map[string]string
		class error
		says  string
	}{
		"missing tensors": {map[string]string{
			indexName: indexText("a", "1.safetensors", "d", "1.safetensors", "b", "2.safetensors", "c", "2.safetensors"),
		}, ErrFormat, `the shards lack 1 tensors: "d"`},
		"in another shard": {map[string]string{
			indexName: indexText("a", "2.safetensors", "b", "2.safetensors", "z", "1.safetensors"),
		}, ErrFormat, "1.safetensors: a: the index says that 2.safetensors holds it"},
		"in two shards": {map[string]string{
			"2.safetensors": u8Shard("b", "a"), indexName: index("2.safetensors"),
		}, ErrFormat, "2.safetensors: a: the shard 1.safetensors holds it too"},
		"unmapped in two shards": {map[string]string{
			"1.safetensors": u8Shard("a", "q"), "2.safetensors": u8Shard("b", "q"), indexName: index("2.safetensors"),
		}, ErrFormat, "holds it too"},
		"broken shard": {map[string]string{
			"2.safetensors": u8Shard("b") + "x", indexName: index("2.safetensors"),
		}, ErrFormat, "2.safetensors: 1 bytes after the last tensor"},
		"shard absent": {map[string]string{indexName: index("3.safetensors")}, nil, "3.safetensors"},
		"folder above": {map[string]string{
			indexName: index("../2.safetensors"),
		}, ErrUnsafe, "does not lie beside"},
		"folder below": {map[string]string{
			indexName: index("sub/2.safetensors"),
		}, ErrUnsafe, "does not lie beside"},
		"the folder itself": {map[string]string{indexName: index(".")}, ErrUnsafe, "does not lie beside"},
		"the one above":     {map[string]string{indexName: index("..")}, ErrUnsafe, "does not lie beside"},
		"absolute": {map[string]string{
			indexName: index("/etc/passwd"),
		}, ErrUnsafe, "does not lie beside"},
		"Windows separator": {map[string]string{indexName: index(`..\x`)}, ErrUnsafe, "does not lie beside"},
		"Windows drive":     {map[string]string{indexName: index("C:x")}, ErrUnsafe, "does not lie beside"},
		"empty name":        {map[string]string{indexName: index("")}, ErrUnsafe, "does not lie beside"},
		"zero byte": {map[string]string{
			indexName: strings.ReplaceAll(index("2@"), "@", `\u0000`),
		}, ErrUnsafe, "beside"},
		"itself": {map[string]string{indexName: index(indexName)}, ErrFormat, "not a shard"},
		"shard is a folder": {map[string]string{
			"sub/x": "", indexName: index("sub"),
		}, ErrFormat, "not a shard"},
		"mapped twice": {map[string]string{
			indexName: indexText("a", "1.safetensors", "a", "2.safetensors"),
		}, ErrFormat, "twice"},
		"no weight_map": {map[string]string{
			indexName: `{"a": 1}`,
		}, ErrUnsupported, "without a weight_map"},
		"map of numbers": {map[string]string{
			indexName: `{"weight_map": {"a": 1}}`,
		}, ErrFormat, "/weight_map/a"},
		"map is a list": {map[string]string{indexName: `{"weight_map": []}`}, ErrFormat, "/weight_map"},
		"metadata a list": {map[string]string{
			indexName: `{"metadata": [], "weight_map": {}}`,
		}, ErrFormat, "/metadata"},
		"text after the end": {map[string]string{
			indexName: `{"weight_map": {}} x`,
		}, ErrFormat, "after the end"},
		"two maps": {map[string]string{
			indexName: `{"weight_map": {}, "weight_map": {}}`,
		}, ErrFormat, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(good)
			maps.Copy(files, c.files)
			_, err := Open(filepath.Join(writeFiles(t, files), indexName))
			if err == nil || Class(err) != c.class || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %v: …%s…", err, c.class, c.says)
			}
			if name == "shard absent" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v does not say that a file is absent", err)
			}
		})
	}
}

func TestShardedLimits(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"1.safetensors": u8Shard("a"), "2.safetensors": u8Shard("b"),
		indexName: indexText("a", "1.safetensors", "b", "2.safetensors"),
	})
	path := filepath.Join(dir, indexName)
	for _, limits := range []Limits{{Records: 1}, {MemoryBytes: 5000}} {
		_, err := OpenWith(t.Context(), path, Options{Limits: limits})
		if !errors.Is(err, ErrLimit) || AllowedBytes(err) != limits.MemoryBytes {
			t.Errorf("%+v: %v, of %d bytes", limits, err, AllowedBytes(err))
		}
	}
}

func TestShardedLinks(t *testing.T) {
	shard := u8Shard("a")
	outside := filepath.Join(writeFiles(t, map[string]string{"x": shard}), "x")
	dir := writeFiles(t, map[string]string{indexName: indexText("a", "1.safetensors"), "real": shard})
	link := filepath.Join(dir, "1.safetensors")
	if err := os.Symlink(outside, link); err != nil {
		t.Skip("no symbolic links here")
	}
	_, err := Open(filepath.Join(dir, indexName))
	if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link out of the folder: %v", err)
	}
	for _, target := range []string{"real", filepath.Join(dir, "real")} {
		if err := errors.Join(os.Remove(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		ckpt, err := Open(filepath.Join(dir, indexName))
		if err != nil {
			t.Fatalf("a link within the folder: %v", err)
		}
		ckpt.Close()
	}

	cache := writeFiles(t, map[string]string{
		"models--a--b/blobs/1": shard, "models--a--b/blobs/2": indexText("a", "1.safetensors"), "models--a--b/other/1": shard,
		"models--a--b/snapshots/main/README": "",
	})
	snapshot := filepath.Join(cache, "models--a--b/snapshots/main")
	shardLink := filepath.Join(snapshot, "1.safetensors")
	if err := errors.Join(os.Symlink("../../blobs/2", filepath.Join(snapshot, indexName)),
		os.Symlink("../../blobs/1", shardLink)); err != nil {
		t.Fatal(err)
	}
	ckpt, err := Open(snapshot)
	if err != nil {
		t.Fatalf("the layout of the Hugging Face cache: %v", err)
	}
	ckpt.Close()
	if err := errors.Join(os.Remove(shardLink), os.Symlink("../../other/1", shardLink)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(snapshot); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a link to another folder of the cache: %v", err)
	}
}

// TestShardedMany opens as many shards as a large model has, of which two are wrong: the first of them is told.
func TestShardedMany(t *testing.T) {
	files := map[string]string{}
	var pairs []string
	for i := range 60 {
		name := fmt.Sprintf("%02d.safetensors", i)
		files[name] = u8Shard(fmt.Sprint("t", i))
		pairs = append(pairs, fmt.Sprint("t", i), name)
	}
	files[indexName] = indexText(pairs...)
	dir := writeFiles(t, files)
	path := filepath.Join(dir, indexName)
	ckpt, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(ckpt.Weights) != 60 || ckpt.Weights[41].Name != "t41" {
		t.Errorf("%v", weightNames(ckpt))
	}
	if err := ckpt.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"17.safetensors", "50.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(files[name]+"!"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "17.safetensors: 1 bytes after") {
			t.Errorf("%v", err)
		}
	}
	report, err := Scan(t.Context(), path, Options{})
	if err != nil || len(report.Problems) != 2 || report.Verdict != VerdictUnsafe {
		t.Errorf("scan: %+v, %v", report, err)
	}
}
