package runtime_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// statusBytes returns a line of /proc/self/status, in bytes.
func statusBytes(t *testing.T, name string) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("NOT CHECKED: ", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == name+":" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Skip("NOT CHECKED: no ", name)
	return 0
}

// TestPeakMemory holds the process to what was planned and 64 MiB, and a closed session to nothing.
func TestPeakMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	model := build(t, digitsModel, nil)
	x := pictures(512)
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Skip("NOT CHECKED: the peak cannot be reset: ", err)
	}
	before := statusBytes(t, "VmRSS")
	s, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runDigits(t, s, x)
	planned := s.Metrics().PeakBytes
	if held := hostmem.InUse(hostmem.Weights) + hostmem.InUse(hostmem.Activations) +
		hostmem.InUse(hostmem.Workspace); held != planned {
		t.Errorf("%d bytes are held, %d counted", held, planned)
	}
	peak := statusBytes(t, "VmHWM")
	if took := peak - before; took > planned+64<<20 {
		t.Errorf("the process took %d bytes, planned are %d", took, planned)
	} else if took < planned/2 {
		t.Errorf("the process took %d bytes of the %d that were planned: nothing is measured here", took, planned)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	if left := statusBytes(t, "VmRSS") - before; left > 32<<20 {
		t.Errorf("%d bytes are left after Close", left)
	}
}

// writeLayers writes linear layers of a width as a state dict whose weights are all zero and take no disk.
func writeLayers(t *testing.T, path string, layers, width int) {
	t.Helper()
	header := make(map[string]any)
	var at int64
	for i := range layers {
		end := at + int64(width)*int64(width)*4
		header[fmt.Sprintf("%d.weight", 2*i)] = map[string]any{
			"dtype": "F32", "shape": []int{width, width}, "data_offsets": []int64{at, end},
		}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(file))+at); err != nil {
		t.Fatal(err)
	}
}

// A pagedProcess is what a process is to do, and what it took.
type pagedProcess struct {
	Path    string
	Mode    string
	Options struct {
		Device             string
		Memory, HostMemory int64
		CapacityParams     int64
	}
	// Planned is the memory of the device and beside it, Peak the process's.
	Planned, Weights, Moved, Peak int64
}

// pagedChild is set in the processes that TestPeakMemoryOfPaging starts.
const pagedChild = "OPTIMEM_TEST_PAGED"

// TestPeakMemoryOfPaging runs 450 MB of weights in less memory, each mode in a process of its own from opening the
// checkpoint to the output, and holds the process to what was planned and 64 MiB.
func TestPeakMemoryOfPaging(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if text := os.Getenv(pagedChild); text != "" {
		runPagedChild(t, text)
		return
	}
	path := filepath.Join(t.TempDir(), "layers.safetensors")
	const layers, width, layerBytes = 12, 3072, 3072 * 3072 * 4
	writeLayers(t, path, layers, width)
	emu := "emu:memory=1GiB,bandwidth=12GB/s,latency=10us"
	for name, set := range map[string]func(p *pagedProcess){
		"page":  func(p *pagedProcess) { p.Mode = "page" },
		"auto":  func(p *pagedProcess) { p.Mode, p.Options.Memory = "auto", 5*layerBytes },
		"chunk": func(p *pagedProcess) { p.Mode, p.Options.CapacityParams = "chunk", 2*width*width },
		"page on emu": func(p *pagedProcess) {
			p.Mode, p.Options.Device, p.Options.HostMemory = "page", emu, 3*layerBytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pagedProcess{Path: path}
			set(&p)
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemoryOfPaging$", "-test.v")
			cmd.Env = append(os.Environ(), pagedChild+"="+string(text))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, measured, found := strings.Cut(string(out), "measured ")
			if !found {
				t.Skipf("NOT CHECKED: the process measured nothing:\n%s", out)
			}
			if err := json.NewDecoder(strings.NewReader(measured)).Decode(&p); err != nil {
				t.Fatal(err)
			}
			if p.Planned > p.Weights*2/3 || p.Moved < 3*p.Weights/4 {
				t.Errorf("%d bytes planned and %d moved of %d: nothing to see", p.Planned, p.Moved, p.Weights)
			}
			if p.Peak > p.Planned+64<<20 || p.Peak < p.Planned*9/10 {
				t.Errorf("the process took %d bytes, planned are %d", p.Peak, p.Planned)
			}
			t.Logf("%d MB of weights, %d MB planned, %d MB taken", p.Weights/1e6, p.Planned/1e6, p.Peak/1e6)
			within := cgroup(t, p.Planned+64<<20)
			cmd = exec.CommandContext(t.Context(), "sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(within, "cgroup.procs"),
				os.Args[0], "-test.run=^TestPeakMemoryOfPaging$", "-test.v")
			cmd.Env = append(os.Environ(), pagedChild+"="+string(text))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "measured ") {
				t.Errorf("in a limit of what was planned and 64 MiB: %v\n%s", err, out)
			}
		})
	}
}

// cgroup makes a cgroup with a limit of memory, page cache and all, for the rest of the test, and returns its folder; the
// test is skipped where that is not allowed.
func cgroup(t *testing.T, limitBytes int64) string {
	t.Helper()
	const root = "/sys/fs/cgroup"
	// write changes a file that is there: where there is no controller the folder is one like any other.
	write := func(path, text string) bool {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return false
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close()) == nil
	}
	for _, try := range []struct{ parent, limit, swap string }{
		{root, "memory.max", "memory.swap.max"},
		{root + "/memory", "memory.limit_in_bytes", ""},
	} {
		folder, err := os.MkdirTemp(try.parent, "optimem-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(folder) })
		if try.swap != "" {
			write(filepath.Join(folder, try.swap), "0")
		}
		if write(filepath.Join(folder, try.limit), strconv.FormatInt(limitBytes, 10)) {
			return folder
		}
	}
	t.Skip("NOT CHECKED in a cgroup: none can be made here")
	return ""
}

func runPagedChild(t *testing.T, text string) {
	var p pagedProcess
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	model := build(t, p.Path, nil)
	o := optimem.Options{Device: p.Options.Device, Memory: p.Options.Memory, HostMemory: p.Options.HostMemory}
	if p.Mode == "chunk" {
		o.Capacity = plan.Limit{N: p.Options.CapacityParams, Unit: plan.Params}
	}
	m := map[string]mode{
		"page": {start: optimem.Page, opts: o}, "auto": {start: optimem.Auto, opts: o}, "chunk": {start: optimem.Chunk, opts: o},
	}[p.Mode]
	s := open(t, m, model)
	x := tensor.Of(make([]float32, 4*3072), 4, 3072)
	for range 2 {
		if _, err := s.Run(t.Context(), optimem.Values{"x": x}); err != nil {
			t.Fatal(err)
		}
	}
	planned, err := s.Plan(t.Context(), map[string]tensor.Shape{"x": {4, 3072}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range planned.Groups {
		p.Weights += planned.Groups[i].WeightBytes
	}
	p.Planned, p.Moved, p.Peak = planned.PeakBytes()+planned.HostBytes(), s.Metrics().MovedBytes, statusBytes(t, "VmHWM")
	measured, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("measured %s", measured)
}
