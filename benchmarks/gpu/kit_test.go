// Package gpu_test builds the kit for machines with a GPU and runs it on the simulated driver.
package gpu_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
)

// A line is one of the file of results.
type line struct {
	Part, Run, Failed string
	Finished          bool
	Tests             map[string]int
	Outside           int
}

// TestKit builds the kit, which must not be larger than what can be sent to a machine, and runs it without a GPU. What
// compares with PyTorch is looked at where the Python of OPTIMEM_PYTHON has it.
func TestKit(t *testing.T) {
	if os.Getenv("OPTIMEM_REQUIRE_SIM") != "1" {
		t.Skip("takes minutes: OPTIMEM_REQUIRE_SIM=1")
	}
	python := os.Getenv("OPTIMEM_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "").Run(); err != nil {
		t.Skip("NOT CHECKED: the kit needs Python: ", err)
	}
	torch := exec.Command(python, "-c", "import torch, torchvision, transformers, accelerate, safetensors").Run() == nil
	library := sim.Path(t)
	folder := filepath.Join(t.TempDir(), "kit")
	run(t, nil, "./make_kit.sh", folder)
	var bytes int64
	err := filepath.WalkDir(folder, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil || bytes == 0 || bytes > 64<<20 {
		t.Fatalf("%d bytes, %v", bytes, err)
	}
	out := filepath.Join(t.TempDir(), "results.jsonl")
	args := []string{"--dry", "--library", library, "--out", out}
	parts := "parity,copies,start,resnet,transformer,ops,text,cold,kernels,models"
	if !torch { // what is there without it
		parts = "parity,copies,start,resnet,ops,text,kernels,models"
	}
	args = append(args, "--only", parts)
	command := exec.Command(filepath.Join(folder, "run.sh"), args...)
	command.Env = append(os.Environ(), "OPTIMEM_SIM=memory=4G order=threads", "OPTIMEM_PYTHON="+python,
		"OPTIMEM_KIT_SECONDS=540")
	text, err := command.CombinedOutput()
	if torch && err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	check(t, out, torch)
}

func run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), env...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
}

// check looks at the results: all of optimem's programs did what they are for, and so did PyTorch's where it is there.
func check(t *testing.T, path string, torch bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	finished, tests := make(map[string]int), 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if l.Failed != "" && (torch || !strings.Contains(l.Run, "PyTorch")) {
			t.Errorf("%s, %s: %s", l.Part, l.Run, l.Failed)
		}
		if l.Tests["FAIL"] > 0 || l.Outside > 0 {
			t.Errorf("%s, %s: %s", l.Part, l.Run, lines.Bytes())
		}
		if l.Finished && l.Run != "" {
			finished[l.Part]++
		}
		tests += l.Tests["PASS"]
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"machine": 2, "parity": 3, "copies": 1, "start": 3, "resnet": 5, "ops": 1, "text": 10, "kernels": 4, "models": 4}
	if torch {
		want = map[string]int{"machine": 2, "parity": 5, "copies": 2, "start": 4, "resnet": 10, "transformer": 10, "ops": 2, "text": 10,
			"cold": 6, "kernels": 5, "models": 6}
	}
	for part, n := range want {
		if finished[part] < n {
			t.Errorf("%s: %d programs came to their end, of %d at least", part, finished[part], n)
		}
	}
	if tests < 100 {
		t.Errorf("%d tests passed", tests)
	}
}
