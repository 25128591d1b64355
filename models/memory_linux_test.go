package models_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// memoryChild is set in the processes that TestPeakMemoryOfProcess starts, to the model that they run.
const memoryChild = "OPTIMEM_TEST_PEAK_MEMORY"

// TestPeakMemoryOfProcess runs models with about 100 MB of weights, each in a process of its own from opening the
// checkpoint to the output, and holds the process's peak to weights, planned activations and workspace, and 64 MiB.
func TestPeakMemoryOfProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if name := os.Getenv(memoryChild); name != "" {
		runMemoryChild(t, name)
		return
	}
	for _, name := range []string{"tv/resnet50", "tv/convnext_tiny"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemoryOfProcess$", "-test.v")
			cmd.Env = append(os.Environ(), memoryChild+"="+name)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, text, found := strings.Cut(string(out), "measured ")
			if !found {
				t.Skipf("NOT CHECKED: the process measured nothing:\n%s", out)
			}
			var m measured
			if err := json.NewDecoder(strings.NewReader(text)).Decode(&m); err != nil {
				t.Fatal(err)
			}
			if m.Weights < 90e6 || m.Planned-m.Weights < 4e6 {
				t.Errorf("weights of %d bytes and %d in all: too little to measure", m.Weights, m.Planned)
			}
			if m.Peak > m.Planned+64<<20 || m.Peak < m.Planned {
				t.Errorf("the process took %d bytes, planned are %d (weights %d)", m.Peak, m.Planned, m.Weights)
			}
			t.Logf("%d MB of weights, %d MB planned, %d MB taken", m.Weights/1e6, m.Planned/1e6, m.Peak/1e6)
		})
	}
}

// measured is what a child reports, in bytes.
type measured struct{ Weights, Planned, Peak int64 }

func runMemoryChild(t *testing.T, name string) {
	ckpt, ref, err := zoo.Load(zooFolder, name, "aten")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	shape := append(tensor.Shape{8}, ref.Cases[0].Inputs["x"].Shape[1:]...)
	n, err := shape.NumElements()
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Of(make([]float32, n), shape...)
	if _, err := s.Run(t.Context(), optimem.Values{"x": x}); err != nil {
		t.Fatal(err)
	}
	m := s.Metrics()
	text, err := json.Marshal(measured{m.WeightBytes, m.PeakBytes, peakOfProcess(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("measured %s", text)
}

// peakOfProcess returns the most memory that this process had.
func peakOfProcess(t *testing.T) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("NOT CHECKED: no VmHWM")
	return 0
}
