package serve

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// seeingFolder makes the folder of a tiny model that sees pictures in texts.
func seeingFolder(t *testing.T) string {
	t.Helper()
	var list []struct {
		Config    string
		Reference struct {
			Weights map[string]struct {
				DType string
				Shape []int
				Data  *string
			}
		}
	}
	f, err := os.Open("../models/testdata/families/hf/llava.heads.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&list); err != nil {
		t.Fatal(err)
	}
	header, data, random := make(map[string]any), []byte(nil), rand.New(rand.NewPCG(1, 2))
	for _, name := range slices.Sorted(maps.Keys(list[0].Reference.Weights)) {
		w := list[0].Reference.Weights[name]
		if w.DType != "float32" || w.Data != nil {
			continue
		}
		begin, n := len(data), 1
		for _, d := range w.Shape {
			n *= d
		}
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(random.NormFloat64()/2)))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": w.Shape, "data_offsets": []int{begin, len(data)}}
	}
	words := make(map[string]int)
	for id := range 200 {
		words[fmt.Sprintf("w%d", id)] = id
	}
	text := func(x any) string {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	begin := text(header)
	root := t.TempDir()
	dir := filepath.Join(root, "eyes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"config.json":       list[0].Config,
		"model.safetensors": string(binary.LittleEndian.AppendUint64(nil, uint64(len(begin)))) + begin + string(data),
		"tokenizer.json": text(map[string]any{
			"version": "1.0", "pre_tokenizer": map[string]any{"type": "WhitespaceSplit"},
			"model": map[string]any{"type": "WordLevel", "vocab": words, "unk_token": "w3"},
		}),
		"chat_template.jinja": `{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}w7 {% else %}{{ c['text'] }} ` +
			`{% endif %}{% endfor %}{% endfor %}w9`,
		"preprocessor_config.json": `{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}, ` +
			`"crop_size": {"height": 40, "width": 40}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// pictureURL is a picture as a URL that has it.
func pictureURL(t *testing.T, shade int) string {
	t.Helper()
	p := image.NewGray(image.Rect(0, 0, 60, 50))
	for i := range p.Pix {
		p.Pix[i] = byte(i*i*shade%251 + i%5)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestPicturesInMessages: a model that sees is shown the pictures of messages; another one gives another answer, and a
// text without one its own; what is no picture, lies elsewhere, or is more than may be, is refused with its place.
func TestPicturesInMessages(t *testing.T) {
	h := open(t, seeingFolder(t), Options{Context: 128}).Handler()
	chat := func(urls ...string) (int, string) {
		t.Helper()
		parts := []any{}
		for _, url := range urls {
			parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url, "detail": "auto"}})
		}
		body, err := json.Marshal(map[string]any{
			"model": "eyes", "max_tokens": 8, "temperature": 2, "seed": 5,
			"messages": []any{map[string]any{"role": "user", "content": append(parts, map[string]any{"type": "text", "text": "w20 w21"})}},
		})
		if err != nil {
			t.Fatal(err)
		}
		status, _, text := ask(h, "POST", "/v1/chat/completions", string(body), "Content-Type", "application/json")
		return status, text
	}
	written := func(urls ...string) string {
		t.Helper()
		var a struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		status, text := chat(urls...)
		if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Choices) != 1 || a.Choices[0].Message.Content == "" {
			t.Fatalf("%d pictures: %d %s", len(urls), status, text)
		}
		if want := 3 + 25*len(urls); a.Usage.Prompt != want {
			t.Errorf("%d pictures: a prompt of %d tokens, not %d", len(urls), a.Usage.Prompt, want)
		}
		return a.Choices[0].Message.Content
	}
	cat, dog := pictureURL(t, 1), pictureURL(t, 7)
	first := written(cat)
	all := map[string]bool{first: true, written(dog): true, written(cat, dog): true, written(): true}
	if len(all) != 4 {
		t.Errorf("%d answers to four questions", len(all))
	}
	if written(cat) != first {
		t.Error("the same question has another answer")
	}
	for name, urls := range map[string][]string{
		"elsewhere": {"https://example.org/cat.png"}, "no base64": {"data:image/png,abc"}, "no picture": {"data:image/png;base64,AAAA"},
		"neither": {"data:image/png;base64,%%"}, "five": {cat, cat, cat, cat, cat},
	} {
		if status, text := chat(urls...); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}
