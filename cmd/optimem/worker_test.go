//go:build unix && !noserve && !files

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// startWorker starts 'optimem worker' for the digits model and waits until it takes work. It returns where a server within listens.
func startWorker(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile("../../examples/digits/digits.pt2")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "digits.pt2"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return startWorkerOf(t, dir, args...)
}

// startWorkerOf is startWorker for a directory of models.
func startWorkerOf(t *testing.T, dir string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	args = append([]string{"worker", dir, "--stream", "s", "--memory", "64MiB", "--device", "cpu", "--ack-wait", "1s"}, args...)
	cmd := exec.Command("optimem", args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(stderr)
	url := ""
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "optimem: note: the server within listens on "); ok {
			url = "nats://" + address
		}
		if strings.HasPrefix(lines.Text(), "optimem: note: takes work of s") {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return cmd, url
		}
	}
	t.Fatal("the worker ended")
	return nil, ""
}

// arrayFiles writes n arrays, of which the last is no picture.
func arrayFiles(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	var files []string
	for i := range n {
		x := make([]float32, 64)
		for k := range x {
			x[k] = random.Float32()
		}
		shape := []int{1, 1, 8, 8}
		if i == n-1 {
			shape = []int{1, 1, 4, 16}
		}
		files = append(files, filepath.Join(dir, fmt.Sprintf("%03d.npy", i)))
		var b bytes.Buffer
		if err := npy.Write(&b, tensor.Of(x, shape...)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[i], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func resultLines(t *testing.T, out string) (all []submitLine) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var l submitLine
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// Two workers, of which one is killed, and a submitter that is killed and comes again: every item has one output, in the order of
// the files and with the bits of 'optimem run', and what cannot be run has its reason.
func TestWorkersAndSubmittersAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	_, url := startWorker(t, "--embedded", t.TempDir(), "--listen", "127.0.0.1:0")
	dies, _ := startWorker(t, "--nats", url)
	files := arrayFiles(t, 120)
	out := filepath.Join(t.TempDir(), "out")
	args := append([]string{"submit", "--nats", url, "--stream", "s", "--model", "digits", "-o", out, "--in-flight", "20"}, files...)
	killed := exec.Command("optimem", args...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if there, _ := filepath.Glob(filepath.Join(out, "*.safetensors")); len(there) > 10 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = dies.Process.Signal(syscall.SIGKILL)
	_ = killed.Process.Signal(syscall.SIGKILL)
	_ = killed.Wait()
	var stderr bytes.Buffer
	if code := doMain(args, io.Discard, &stderr); code != command.ExitFailed || !strings.Contains(stderr.String(), "1 item could not be run") {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	lines := resultLines(t, out)
	if len(lines) != len(files) {
		t.Fatalf("%d lines for %d files", len(lines), len(files))
	}
	for i, l := range lines {
		if bad := i == len(files)-1; l.File != files[i] || (l.Output == "") != bad || bad != strings.Contains(l.Error, "[1 1 4 16]") {
			t.Errorf("line %d: %+v", i, l)
		}
	}
	if there, _ := filepath.Glob(filepath.Join(out, "*.safetensors")); len(there) != len(files)-1 {
		t.Errorf("%d outputs for %d items", len(there), len(files)-1)
	}
	for _, i := range []int{0, 7, 60, 118} {
		alone := filepath.Join(t.TempDir(), "x.safetensors")
		run := []string{"run", "../../examples/digits/digits.pt2", "--input", files[i], "-o", alone, "--device", "cpu", "--quiet"}
		if code := doMain(run, io.Discard, &stderr); code != 0 {
			t.Fatal(stderr.String())
		}
		want, err := os.ReadFile(alone)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(out, lines[i].Output)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes than 'optimem run' writes: %v", files[i], err)
		}
	}
}

// Files on a shared path are read there, and have outputs as others do.
func TestSharedFilesAreSubmitted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	files := arrayFiles(t, 5)
	folder := filepath.Dir(files[0])
	_, url := startWorker(t, "--embedded", t.TempDir(), "--listen", "127.0.0.1:0", "--shared", folder)
	out := filepath.Join(t.TempDir(), "out")
	args := append([]string{"submit", "--nats", url, "--stream", "s", "--model", "digits", "-o", out, "--shared", folder}, files[:4]...)
	var stderr bytes.Buffer
	if code := doMain(args, io.Discard, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for i, l := range resultLines(t, out) {
		if l.File != files[i] || l.Output == "" || l.Error != "" {
			t.Errorf("line %d: %+v", i, l)
		}
	}
	if code := doMain(append(args, "--shared", filepath.Join(folder, "gone")), io.Discard, &stderr); code != command.ExitFailed {
		t.Errorf("a folder that is not there: exit code %d", code)
	}
}

// Prompts of files have their answers in one, in their order, as 'optimem generate --batch' gives them, with the reason
// where there is none.
func TestPromptsAreSubmitted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	const chat = "../../generate/testdata/chat"
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat)); err != nil {
		t.Fatal(err)
	}
	_, url := startWorkerOf(t, dir, "--embedded", t.TempDir(), "--listen", "127.0.0.1:0")
	good := `{"id": "a", "prompt": "What is the capital of France?"}` + "\r\n\n" + `{"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 9}` + "\n" +
		`{"id": {"n": 3}, "prompt": "Hello", "seed": 5}`
	first, second := filepath.Join(dir, "first.jsonl"), filepath.Join(dir, "second.jsonl")
	for path, text := range map[string]string{first: good, second: `{"id": 4, "prompt": "x", "wrong": 1}` + "\n{\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type answer struct {
		ID       json.RawMessage `json:"id"`
		Text     string          `json:"text"`
		TokenIDs []int           `json:"token_ids"`
		Prompt   int             `json:"prompt_tokens"`
		Finish   string          `json:"finish_reason"`
		Error    string          `json:"error"`
	}
	read := func(text []byte) (all []answer) {
		for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
			var a answer
			if err := d.Decode(&a); err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
		return all
	}
	var stderr, batch bytes.Buffer
	if code := doMain([]string{"generate", chat, "--batch", first, "--device", "cpu", "--quiet"}, &batch, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	for range 2 {
		stderr.Reset()
		code := doMain([]string{"submit", "--nats", url, "--stream", "s", "--model", "chat", "-o", out, first, second}, io.Discard, &stderr)
		if code != command.ExitFailed || !strings.Contains(stderr.String(), "2 items could not be run") {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		text, err := os.ReadFile(filepath.Join(out, "answers.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		got, want := read(text), read(batch.Bytes())
		if len(got) != 5 || len(want) != 3 || !reflect.DeepEqual(got[:3], want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if len(got) == 5 && (string(got[3].ID) != "4" || !strings.Contains(got[3].Error, "wrong") || string(got[4].ID) != "null" || got[4].Error == "") {
			t.Errorf("what could not be run: %+v", got[3:])
		}
		lines := resultLines(t, out)
		if len(lines) != 5 || lines[1].File != first+":3" || lines[1].Output != "answers.jsonl" || lines[4].File != second+":2" || lines[4].Output != "" {
			t.Errorf("results: %+v", lines)
		}
		if names, err := os.ReadDir(out); err != nil || len(names) != 2 {
			t.Errorf("the folder has %v: %v", names, err)
		}
	}
}

// Texts have their vectors in files, the bits of 'optimem embed', with the reason where there is none.
func TestTextsAreSubmitted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	err := os.CopyFS(filepath.Join(dir, "words"), os.DirFS(chatModel))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "words", "model.json"), []byte(`{"kind": "embeddings"}`), 0o600)
	}
	file := filepath.Join(t.TempDir(), "texts.jsonl")
	if err == nil {
		err = os.WriteFile(file, []byte(`{"id": 1, "text": "Lima"}`+"\n"+`{"texts": ["Count to ten.", "Lima"]}`+"\n"+`{"prompt": "x"}`+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, url := startWorkerOf(t, dir, "--embedded", t.TempDir(), "--listen", "127.0.0.1:0")
	var stderr bytes.Buffer
	code := doMain([]string{"submit", "--nats", url, "--stream", "s", "--model", "words", "-o", out, file}, io.Discard, &stderr)
	if code != command.ExitFailed || !strings.Contains(stderr.String(), "1 item could not be run") {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	want := embedded(t, "Count to ten.", "Lima").Embeddings
	lines := resultLines(t, out)
	if len(lines) != 3 || lines[2].Output != "" || !strings.Contains(lines[2].Error, "neither a text nor texts") {
		t.Fatalf("results: %+v", lines)
	}
	for i, rows := range [][][]float32{want[1:], want} {
		ckpt, err := loader.Open(filepath.Join(out, lines[i].Output))
		if err != nil {
			t.Fatal(err)
		}
		x, err := ckpt.Weights[0].Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := tensor.Slice[float32](x)
		if err != nil || !slices.Equal(got, slices.Concat(rows...)) || !x.Layout.Shape.Equal(tensor.Shape{len(rows), 64}) {
			t.Errorf("line %d: %v has other vectors than 'optimem embed': %v", i+1, x.Layout.Shape, err)
		}
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	}
	if names, err := os.ReadDir(out); err != nil || len(names) != 3 {
		t.Errorf("the folder has %v: %v", names, err)
	}
}

// What the commands are not told, or told wrongly.
func TestWorkUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"worker --stream s .", "one of --nats and --embedded"},
		{"worker --stream s --nats nats://127.0.0.1:1 --embedded x .", "one of --nats and --embedded"},
		{"worker --nats nats://127.0.0.1:1 .", "--stream names the queue"},
		{"worker --nats nats://127.0.0.1:1 --stream s --memory 50% .", "and no share"},
		{"worker --nats nats://127.0.0.1:1 --stream s --ack-wait 1ms .", "take times of a second or more"},
		{"submit --stream s --model m -o out x.npy", "--nats is missing"},
		{"submit --nats nats://127.0.0.1:1 --stream s --model m x.npy", "--output is missing"},
		{"submit --nats nats://127.0.0.1:1 --stream s --model m -o out --in-flight 0 x.npy", "--in-flight takes"},
		{"submit --nats nats://127.0.0.1:1 --stream s --model m -o out x.jsonl x.npy", "beside others"},
		{"submit --nats nats://127.0.0.1:1 --stream s --model m -o out --preprocess nothing x.png", "nothing"},
	} {
		var stderr bytes.Buffer
		if code := doMain(strings.Fields(c.args), io.Discard, &stderr); code != command.ExitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: %d, %s", c.args, code, stderr.String())
		}
	}
}
