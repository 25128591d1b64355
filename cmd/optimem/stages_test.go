//go:build !noserve && !files

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// startStage starts 'optimem stage' and returns where it listens.
func startStage(t *testing.T, model string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("optimem", append([]string{"stage", model, "--listen", "127.0.0.1:0", "--memory", "8MiB", "--device", "cpu"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "optimem: note: listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			address, _, _ := strings.Cut(rest, ",")
			return cmd, address
		}
	}
	t.Fatal("the stage ended")
	return nil, ""
}

// TestStages: two processes compute what one does, texts and tensors, and what is slower than one alone is refused.
func TestStages(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, first := startStage(t, chatModel, "--stage-token", token)
	second, address := startStage(t, chatModel, "--stage-token", token)
	over := []string{"--stages", first + "," + address, "--stage-token", token}
	slower := append(over[:len(over):len(over)], "--even-if-slower")

	question := []string{"generate", chatModel, "What is the capital of Peru?"}
	if out, _ := done(t, append(question, slower...)...); out != "The capital of Peru is Lima.\n" {
		t.Errorf("got %q", out)
	}
	in := []string{"run", chatModel, "--input", "random", "--shape", "input_ids=1,20", "--json"}
	outputs := func(args ...string) string {
		text, _ := done(t, append(in, args...)...)
		var all struct{ Outputs json.RawMessage }
		if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Outputs) < 10 {
			t.Fatalf("%v: %s", err, text)
		}
		return string(all.Outputs)
	}
	if got, want := outputs(slower...), outputs(); got != want {
		t.Errorf("over stages %s, want %s", got, want)
	}
	text, err := exec.Command("optimem", append(question, "--stages", first+","+address)...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "--stage-token") {
		t.Errorf("without a token: %v, %s", err, text)
	}
	_ = second.Process.Kill()
	_ = second.Wait()
	text, err = exec.Command("optimem", append(question, slower...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "stage 2, "+address) {
		t.Errorf("without the second stage: %v, %s", err, text)
	}
}

// TestPlanMachines: the division over machines is planned without them, for tensors and for texts.
func TestPlanMachines(t *testing.T) {
	for _, args := range [][]string{{}, {"--context", "64"}} {
		text, _ := done(t, append([]string{"plan", chatModel, "--machines", "a=2MiB,b=2MiB", "--link", "1e6", "--json"}, args...)...)
		var p struct {
			Stages []struct {
				Machine, From string
				Weights       int64   `json:"weight_bytes"`
				Hop           int64   `json:"hop_bytes"`
				Seconds       float64 `json:"hop_seconds"`
			}
			Seconds float64 `json:"expected_seconds"`
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Stages) != 2 || p.Stages[0].Machine != "a" || p.Stages[1].From == "" || p.Stages[0].Weights == 0 || p.Stages[1].Weights == 0 ||
			p.Stages[0].Hop == 0 || p.Stages[0].Seconds < float64(p.Stages[0].Hop)/1e6 || p.Seconds < p.Stages[0].Seconds {
			t.Errorf("%+v", p)
		}
		text, _ = done(t, append([]string{"plan", chatModel, "--machines", "a=2MiB,b=2MiB"}, args...)...)
		if !strings.Contains(text, "a alone: a pass takes") || !strings.Contains(text, "over all: a pass takes") {
			t.Error(text)
		}
	}
}

// TestStagesUsage: what is for one machine is refused over stages before anybody is asked.
func TestStagesUsage(t *testing.T) {
	over := []string{"--stages", "127.0.0.1:1,127.0.0.1:2"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append([]string{"generate", chatModel, "x", "--lora", "a=b"}, over...), "adapters are for one machine"},
		{append([]string{"run", chatModel, "--adapter", "none"}, over...), "adapters are for one machine"},
		{[]string{"plan", chatModel, "--machines", "a=2MiB,b=2MiB", "--lora", "a=b"}, "adapters are for one machine"},
		{append([]string{"generate", chatModel, "x", "--draft", chatModel}, over...), "--draft and --routing are for one machine"},
		{append([]string{"run", chatModel, "--input", "random", "--batch", "4"}, over...), "--batch is for one machine"},
	} {
		var stderr bytes.Buffer
		if code := doMain(c.args, io.Discard, &stderr); code != command.ExitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: %d, %s", c.args, code, stderr.String())
		}
	}
}
