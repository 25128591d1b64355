package serve

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeAdapter writes an adapter of the first layer's queries of the chat model, as peft does.
func writeAdapter(t *testing.T, folder string) {
	t.Helper()
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	config := `{"peft_type": "LORA", "r": 1, "lora_alpha": 8, "target_modules": ["q_proj"], "layers_to_transform": [0]}`
	if err := os.WriteFile(filepath.Join(folder, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	const module = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
	header, err := json.Marshal(map[string]any{
		module + "A.weight": map[string]any{"dtype": "F32", "shape": []int{1, 64}, "data_offsets": []int{0, 256}},
		module + "B.weight": map[string]any{"dtype": "F32", "shape": []int{64, 1}, "data_offsets": []int{256, 512}},
	})
	if err != nil {
		t.Fatal(err)
	}
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for i := range 128 {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i%7)-3))
	}
	if err := os.WriteFile(filepath.Join(folder, "adapter_model.safetensors"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAdapters: MODEL:NAME is the model with an adapter, for OpenAI's clients and, as a parameter, in the Open
// Inference Protocol; without one the model is what it was.
func TestAdapters(t *testing.T) {
	plain := open(t, directory(t, map[string]string{"chat": chat}), Options{})
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat)); err != nil {
		t.Fatal(err)
	}
	writeAdapter(t, filepath.Join(dir, "chat", "loud"))
	if err := os.WriteFile(filepath.Join(dir, "chat", "model.json"), []byte(`{"adapters": {"shout": "loud"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	adapted := open(t, dir, Options{})
	if _, _, list := ask(adapted.Handler(), "GET", "/v1/models", ""); !strings.Contains(list, `"chat:shout"`) {
		t.Errorf("the models are %s", list)
	}
	chats := func(r *Registry, model string) (int, string) {
		status, _, answer := ask(r.Handler(), "POST", "/v1/chat/completions", fmt.Sprintf(
			`{"model":%q,"messages":[{"role":"user","content":"What is the capital of Norway?"}],"max_tokens":8,"temperature":0}`, model),
			"Content-Type", "application/json")
		var got struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if status != 200 || json.Unmarshal([]byte(answer), &got) != nil || len(got.Choices) != 1 {
			return status, answer
		}
		return status, got.Choices[0].Message.Content
	}
	_, want := chats(plain, "chat")
	_, base := chats(adapted, "chat")
	status, loud := chats(adapted, "chat:shout")
	if base != want || loud == want || status != 200 {
		t.Errorf("without an adapter %q, want %q; with one %q, %d", base, want, loud, status)
	}
	for _, model := range []string{"chat:loud", "chat:", "chat:shout:shout", "other:shout"} {
		if status, answer := chats(adapted, model); status != 404 {
			t.Errorf("%s: %d, %s", model, status, answer)
		}
	}
	infer := func(adapter string) (int, string) {
		status, _, answer := ask(adapted.Handler(), "POST", "/v2/models/chat/infer", fmt.Sprintf(
			`{"parameters":{"max_tokens":8,"temperature":0%s},"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["What is the capital of Norway?"]}]}`,
			adapter), "Content-Type", "application/json")
		return status, answer
	}
	if status, answer := infer(`,"adapter":"shout"`); status != 200 || !strings.Contains(answer, strings.Trim(mustJSON(t, loud), `"`)) {
		t.Errorf("with the parameter adapter: %d, %s, want %q", status, answer, loud)
	}
	if status, answer := infer(""); status != 200 || !strings.Contains(answer, strings.Trim(mustJSON(t, want), `"`)) {
		t.Errorf("without the parameter adapter: %d, %s, want %q", status, answer, want)
	}
	for _, bad := range []string{`,"adapter":"quiet"`, `,"adapter":7`} {
		if status, answer := infer(bad); status != 400 {
			t.Errorf("%s: %d, %s", bad, status, answer)
		}
	}
}

func mustJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestAdapterFolders: an adapter is a folder beside model.json, and nowhere else.
func TestAdapterFolders(t *testing.T) {
	for _, bad := range []string{`"../loud"`, `"/loud"`, `"nothere"`, `"."`, `""`, `"link"`, `"inside"`} {
		dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "loud")
		if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat)); err != nil {
			t.Fatal(err)
		}
		writeAdapter(t, outside)
		writeAdapter(t, filepath.Join(dir, "loud"))
		if err := os.Symlink(outside, filepath.Join(dir, "chat", "link")); err != nil {
			t.Skip(err)
		}
		writeAdapter(t, filepath.Join(dir, "chat", "inside"))
		weights := filepath.Join("inside", "adapter_model.safetensors")
		if err := errors.Join(os.Remove(filepath.Join(dir, "chat", weights)),
			os.Symlink(filepath.Join(outside, "adapter_model.safetensors"), filepath.Join(dir, "chat", weights))); err != nil {
			t.Fatal(err)
		}
		text := `{"adapters": {"shout": ` + bad + `}}`
		if err := os.WriteFile(filepath.Join(dir, "chat", "model.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := readSettings(root, "chat/model.json"); err == nil {
			t.Errorf("%s: %+v", bad, s)
		}
		root.Close()
	}
}
