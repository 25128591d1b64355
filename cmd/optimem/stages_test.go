//go:build !noserve && !files

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestDeviceList: settings of an emulated device hold commas, too.
func TestDeviceList(t *testing.T) {
	for text, want := range map[string][]string{
		"":              {""},
		"cpu":           {"cpu"},
		"cuda":          {"cuda"},
		"cuda:0,cuda:1": {"cuda:0", "cuda:1"},
		"emu:memory=2GiB,bandwidth=1GB/s,latency=10us":         {"emu:memory=2GiB,bandwidth=1GB/s,latency=10us"},
		"emu:memory=2GiB,bandwidth=1GB/s,emu:memory=1GiB,cuda": {"emu:memory=2GiB,bandwidth=1GB/s", "emu:memory=1GiB", "cuda"},
	} {
		if got := deviceList(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSeveralDevices: a batch over two devices has the texts of one, the memory of both is told, before and after, and what stages
// do not have is refused.
func TestSeveralDevices(t *testing.T) {
	const device = "emu:memory=64MiB,bandwidth=10GB/s"
	prompts := filepath.Join(t.TempDir(), "prompts.jsonl")
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, `{"id":%d,"prompt":"What is the capital of Peru?","seed":%[1]d,"max_tokens":%d}`+"\n", i, 4+i)
	}
	if err := os.WriteFile(prompts, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	answers := func(args ...string) (texts []string, said string) {
		out, said := done(t, append([]string{"generate", chatModel, "--batch", prompts, "--memory", "8MiB", "--verbose", "--temperature", "0.9"}, args...)...)
		for line := range strings.Lines(out) {
			var a struct{ Text string }
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, a.Text)
		}
		return texts, said
	}
	want, _ := answers("--device", "cpu")
	for _, devices := range [][]string{{"--device", device + "," + device}, {"--stage-device", device, "--stage-device", device}} {
		got, said := answers(devices...)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", devices, got, want)
		}
		if !strings.Contains(said, "6 at once over 2 stages, about ") || !regexp.MustCompile(`peak [0-9.]+ [KM]iB and [0-9.]+ [KM]iB`).MatchString(said) ||
			strings.Count(said, " on "+device) != 2 {
			t.Errorf("%q: %s", devices, said)
		}
	}
	var stderr bytes.Buffer
	if code := doMain([]string{"generate", chatModel, "x", "--device", device + "," + device, "--draft", chatModel}, io.Discard, &stderr); code != command.ExitUsage ||
		!strings.Contains(stderr.String(), "--draft does not go with several devices") {
		t.Errorf("%d, %s", code, stderr.String())
	}
}

// TestStagedRate: passes are shared by as many sequences as there are for each, and fewer sequences than passes do not keep all
// stages busy.
func TestStagedRate(t *testing.T) {
	s := staged{peaks: []string{"a", "b"}, seconds: 4, interval: 2}
	for n, want := range map[int]float64{1: 0.25, 2: 0.5, 3: 0.5, 6: 1, 30: 5} {
		if got := s.rate(n); got != want {
			t.Errorf("%d sequences: %v tokens a second, want %v", n, got, want)
		}
	}
}
