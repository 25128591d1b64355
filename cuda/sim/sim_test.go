//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda/internal/driver"
)

// image is PTX as far as the simulator reads it: kernels whose parameters are all pointers.
func image(kernels map[string]int) []byte {
	text := ".version 7.8\n.target sm_70\n.address_size 64\n"
	for name, parameters := range kernels {
		var list []string
		for i := range parameters {
			list = append(list, fmt.Sprintf("\t.param .u64 %s_param_%d", name, i))
		}
		text += ".visible .entry " + name + "(\n" + strings.Join(list, ",\n") + "\n)\n{\n\tret;\n}\n"
	}
	return []byte(text)
}

// A gpu is the simulated driver with the kernels of testdata.
type gpu struct {
	t   *testing.T
	lib *driver.Library
	l   *Library
	s   driver.Stream
	m   driver.Module
}

// withThreads builds the driver with the kernels of testdata, once for all tests: even where nothing is to be compiled, each build
// writes and reads all sources, and one at a time.
var withThreads = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("testdata/threads.cu")
	if err != nil {
		return "", err
	}
	return buildWith(source{name: "threads.cu", text: text})
})

func newGPU(t *testing.T, settings string) *gpu {
	t.Helper()
	Path(t)
	path, err := withThreads()
	if err != nil {
		t.Fatal(err)
	}
	g := &gpu{t: t, l: at(t, path, settings)}
	g.lib = must(driver.Open(path))(t)
	goruntime.LockOSThread()
	d := must(g.lib.Device(0))(t)
	g.check(g.lib.SetCurrent(must(g.lib.RetainPrimary(d))(t)))
	g.s = must(g.lib.NewStream())(t)
	g.m = must(g.lib.LoadModule(image(map[string]int{
		"om_test_sum": 2, "om_test_warp": 2, "om_test_diverged": 1, "om_test_deadlock": 1, "om_test_index": 1, "om_test_hasty": 1,
	})))(t)
	t.Cleanup(func() {
		_ = g.lib.SetCurrent(0)
		_ = g.lib.ReleasePrimary(d)
		goruntime.UnlockOSThread()
	})
	return g
}

func must[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func (g *gpu) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// run launches a kernel and returns n ints that it wrote, which were zero before.
func (g *gpu) run(name string, grid driver.Grid, n int, in ...int32) ([]int32, error) {
	g.t.Helper()
	f := must(g.lib.Function(g.m, name))(g.t)
	out := must(g.lib.Alloc(int64(n) * 4))(g.t)
	g.check(g.lib.Fill(out, 0, int64(n)*4, g.s))
	p := &driver.Parameters{Packed: binary.LittleEndian.AppendUint64(nil, uint64(out)), Offsets: []int32{0}}
	if len(in) > 0 {
		data := make([]byte, 0, len(in)*4)
		for _, x := range in {
			data = binary.LittleEndian.AppendUint32(data, uint32(x))
		}
		from := must(g.lib.Alloc(int64(len(data))))(g.t)
		g.check(g.lib.CopyIn(from, data, g.s))
		p.Packed, p.Offsets = binary.LittleEndian.AppendUint64(p.Packed, uint64(from)), append(p.Offsets, 8)
	}
	g.check(g.lib.Launch(f, grid, p, g.s))
	data := make([]byte, n*4)
	if err := errors.Join(g.lib.CopyOut(data, out, g.s), g.lib.SyncStream(g.s)); err != nil {
		return nil, err
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(binary.LittleEndian.Uint32(data[i*4:]))
	}
	return list, nil
}

func threads(blocks, x uint32) driver.Grid {
	return driver.Grid{Blocks: [3]uint32{blocks, 1, 1}, Threads: [3]uint32{x, 1, 1}}
}

// orders are the ways in which blocks and threads take turns.
var orders = []string{"order=lazy:0", "order=lazy:1", "order=lazy:2", "order=lazy:3", "order=threads"}

// TestBarriers adds up in shared memory.
func TestBarriers(t *testing.T) {
	for _, order := range orders {
		g := newGPU(t, order)
		var in []int32
		want := make([]int32, 3)
		for i := range 3 * 128 {
			in = append(in, int32(i*i%97))
			want[i/128] += int32(i * i % 97)
		}
		grid := threads(3, 128)
		grid.SharedBytes = 128 * 4
		got, err := g.run("om_test_sum", grid, 3, in...)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v: %v", order, got, want, err)
		}
	}
}

// TestWarps exchanges values between lanes, of whole warps and of parts.
func TestWarps(t *testing.T) {
	for _, order := range orders {
		g := newGPU(t, order)
		const n = 96
		in := make([]int32, n)
		sums, odd := make([]int32, n/32), make([]uint32, n/16)
		for i := range in {
			in[i] = int32(i * i % 31)
			sums[i/32] += in[i]
			odd[i/16] |= uint32(in[i]&1) << (i % 32)
		}
		got, err := g.run("om_test_warp", threads(1, n), n*4, in...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			up := in[i]
			if i%32 >= 2 {
				up = in[i-2]
			}
			want := []int32{sums[i/32], up, in[i^1], int32(odd[i/16])}
			if !slices.Equal(got[i*4:i*4+4], want) {
				t.Errorf("%s: thread %d: %v, want %v (odd lanes %d)", order, i, got[i*4:i*4+4], want, bits.OnesCount32(odd[i/16]))
			}
		}
	}
}

// TestIndices counts the threads of a grid of three dimensions.
func TestIndices(t *testing.T) {
	g := newGPU(t, "")
	got, err := g.run("om_test_index", driver.Grid{Blocks: [3]uint32{3, 4, 5}, Threads: [3]uint32{7, 3, 2}}, 4)
	if want := []int32{3 * 4 * 5 * 7 * 3 * 2, 20, 11, 9}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v: %v", got, want, err)
	}
}

// TestStuck finds threads that wait for what cannot come. The context is lost then, and a new one works.
func TestStuck(t *testing.T) {
	for name, says := range map[string]string{
		"om_test_diverged": "threads.cu:", "om_test_deadlock": "wait for each other",
	} {
		g := newGPU(t, "")
		_, err := g.run(name, threads(1, 32), 32)
		if !errors.Is(err, driver.LaunchFailed) || !strings.Contains(g.l.Report().Message, says) {
			t.Errorf("%s: %v, %q", name, err, g.l.Report().Message)
		}
	}
	g := newGPU(t, "")
	if got, err := g.run("om_test_index", threads(1, 32), 4); err != nil || got[0] != 32 {
		t.Errorf("after a context that was lost: %v, %v", got, err)
	}
}

// TestMissingBarrier: threads that take turns in another order give other results where a barrier is missing.
func TestMissingBarrier(t *testing.T) {
	results := make(map[string]bool)
	for _, order := range orders {
		got, err := newGPU(t, order).run("om_test_hasty", threads(1, 64), 64)
		if err != nil {
			t.Fatal(err)
		}
		results[fmt.Sprint(got)] = true
	}
	if len(results) < 2 {
		t.Error("all orders give the same")
	}
}

// TestSettings refuses what it does not know.
func TestSettings(t *testing.T) {
	l := New(t, "memory=3M cc=90")
	for settings, ok := range map[string]bool{
		"": true, "memory=1K  devices=2": true, "fault=late:cuLaunchKernel:2:719:+": true,
		"size=3": false, "memory": false, "fault=x": false, "order=sometimes": false, "devices=9": false,
	} {
		if got := l.set(settings); got != ok {
			t.Errorf("%q: %v", settings, got)
		}
	}
}
