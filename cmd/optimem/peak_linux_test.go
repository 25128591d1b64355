//go:build !files && !noserve

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// largeChat makes a model that answers in a folder, with weights of 205 MB, all zero, and returns these bytes.
func largeChat(t *testing.T, folder string) (weights int64) {
	t.Helper()
	if err := os.CopyFS(folder, os.DirFS(chatModel)); err != nil {
		t.Fatal(err)
	}
	const layers, hidden, inner, words = 8, 1024, 2816, 420
	var config map[string]any
	path := filepath.Join(folder, "config.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]int{
		"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "head_dim": 128,
		"num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 1024,
	} {
		config[key] = value
	}
	head := make(map[string]any)
	add := func(name string, shape ...int64) {
		bytes := int64(2)
		for _, n := range shape {
			bytes *= n
		}
		head[name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int64{weights, weights + bytes}}
		weights += bytes
	}
	add("model.embed_tokens.weight", words, hidden)
	add("model.norm.weight", hidden)
	for k := range layers {
		layer := fmt.Sprintf("model.layers.%d.", k)
		add(layer+"input_layernorm.weight", hidden)
		add(layer+"post_attention_layernorm.weight", hidden)
		for _, x := range []string{"q", "k", "v", "o"} {
			add(layer+"self_attn."+x+"_proj.weight", hidden, hidden)
		}
		add(layer+"mlp.gate_proj.weight", inner, hidden)
		add(layer+"mlp.up_proj.weight", inner, hidden)
		add(layer+"mlp.down_proj.weight", hidden, inner)
	}
	said, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	said = append(binary.LittleEndian.AppendUint64(nil, uint64(len(said))), said...)
	file := filepath.Join(folder, "model.safetensors")
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(file, said, 0o600)
	}
	if err == nil {
		err = os.Truncate(file, int64(len(said))+weights) // no disk has these zeros
	}
	if err != nil {
		t.Fatal(err)
	}
	return weights
}

// peakOf returns the most that a process has held at a time, 0 where it is over.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, text2, found := strings.Cut(string(text), "VmHWM:")
	if !found {
		return 0
	}
	fields := strings.Fields(text2)
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// besidePlan is what a process may hold beside what is planned: the program itself, which is mapped, and Go's heap.
const besidePlan = 96 << 20

// holds compares a process with its plan: planned bytes, of which caches are not all used yet.
func holds(t *testing.T, peak, weights, planned, caches int64) {
	t.Helper()
	t.Logf("a peak of %d, %d of weights; planned are %d, %d of it caches", peak, weights, planned, caches)
	if planned < weights+caches || caches < 16<<20 {
		t.Errorf("the plan has %d bytes, %d of it caches, for %d bytes of weights", planned, caches, weights)
	}
	if peak < weights {
		t.Errorf("the process held %d bytes, less than its weights' %d: nothing is measured here", peak, weights)
	}
	if most := planned - caches + besidePlan; peak > most {
		t.Errorf("the process held %d bytes, and is to hold %d at most: what is planned but its caches, and %d", peak, most, besidePlan)
	}
}

// TestPeakOfProcesses holds generate and serve to their plans, but for caches that nothing lies in yet.
func TestPeakOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if peakOf(t, os.Getpid()) == 0 {
		t.Skip("NOT CHECKED: the system does not say")
	}
	models := t.TempDir()
	weights := largeChat(t, filepath.Join(models, "large"))
	const prompt = "Hello! Who are you, and what do you do all day?"
	t.Run("generate", func(t *testing.T) {
		cmd := exec.Command("optimem", "generate", filepath.Join(models, "large"), prompt, "--raw", "--json", "--quiet",
			"--max-tokens", "200", "--context", "1024", "--mode", "resident")
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var peak int64
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		for {
			peak = max(peak, peakOf(t, cmd.Process.Pid))
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(2 * time.Millisecond):
				continue
			}
			break
		}
		var said struct {
			Planned int64 `json:"peak_device_bytes"`
			Caches  int64 `json:"kv_bytes"`
		}
		if err := json.Unmarshal([]byte(out.String()), &said); err != nil {
			t.Fatal(err)
		}
		holds(t, peak, weights, said.Planned, said.Caches)
	})
	t.Run("serve", func(t *testing.T) {
		s := startServer(t, models, "--listen", "127.0.0.1:0", "--admin", filepath.Join(t.TempDir(), "admin.sock"))
		body := fmt.Sprintf(`{"model":"large","prompt":%q,"max_tokens":32,"temperature":0}`, prompt)
		resp, err := http.Post("http://"+s.address+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		peak := peakOf(t, s.cmd.Process.Pid)
		_, text := get(t, onSocket(s.socket), "http://admin/metrics")
		gauge := func(name string) int64 {
			found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
			if found == nil {
				t.Fatalf("no %s", name)
			}
			x, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(x)
		}
		holds(t, peak, weights, gauge(`optimem_held_bytes\{model="large"\}`),
			gauge(`optimem_memory_bytes\{model="large",purpose="caches"\}`))
	})
}
