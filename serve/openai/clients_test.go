package openai_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve/openai"
)

var (
	clients = flag.String("clients", "", "folder with venv and node, as testdata/README.md says")
	write   = flag.Bool("write", false, "write testdata/clients.txt")
)

// A busyRegistry has no room for every other request for the model busy.
type busyRegistry struct {
	registry
	mu    sync.Mutex
	asked int
}

func (r *busyRegistry) Writer(ctx context.Context, need openai.Need) (*openai.WriterLease, error) {
	if need.Model == "busy" {
		r.mu.Lock()
		r.asked++
		busy := r.asked%3 != 0 // two of three, so that who does not come back sees it
		r.mu.Unlock()
		if busy {
			return nil, &openai.BusyError{Msg: "too many requests wait", RetryAfter: time.Second}
		}
	}
	return r.registry.Writer(ctx, need)
}

// TestClients: stock clients see what they should. See testdata/README.md.
func TestClients(t *testing.T) {
	if *clients == "" {
		t.Skip("no clients: see testdata/README.md")
	}
	tiny := writer(t, "")
	script := "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
	r := &busyRegistry{registry: registry{
		writers: map[string]openai.Writer{
			"tiny": tiny, "busy": tiny, "tools": writer(t, calling(hermesCalls)),
			"scripted": &scripted{Writer: writer(t, calling(hermesCalls)), script: script, piece: 4, asked: new(generate.TextRequest)},
			"broken":   &waiting{Writer: tiny, pieces: 2, fail: errors.New("a bug")},
		},
		embedders: map[string]openai.Embedder{"vectors": staticEmbedder(t)},
	}}
	url := listen(t, r)
	run := func(name string, args ...string) []byte {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env = append(os.Environ(), "LANGSMITH_TRACING=false", "OPENAI_API_KEY=none")
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return out
	}
	got := run(filepath.Join(*clients, "venv", "bin", "python"), "testdata/check.py", url)
	got = append(got, "node\n"...)
	got = append(got, run("node", "testdata/check.mjs", url, filepath.Join(*clients, "node"))...)
	if *write {
		put(t, "testdata/clients.txt", got)
		return
	}
	want, err := os.ReadFile("testdata/clients.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("clients see something else (-want +got):\n%s", diff)
	}
}
