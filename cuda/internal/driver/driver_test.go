//go:build linux && (amd64 || arm64) && !nocuda

package driver_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/sim"
)

// open returns the simulated driver with a context on the test's thread.
func open(t *testing.T, settings string) (*driver.Library, *sim.Library) {
	t.Helper()
	s := sim.New(t, settings)
	lib, err := driver.Open(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	goruntime.LockOSThread()
	d := must(lib.Device(0))(t)
	c := must(lib.RetainPrimary(d))(t)
	check(t, lib.SetCurrent(c))
	t.Cleanup(func() {
		check(t, lib.SetCurrent(0))
		check(t, lib.ReleasePrimary(d))
		goruntime.UnlockOSThread()
		s.Check(t)
	})
	return lib, s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return x
	}
}

func TestAbsent(t *testing.T) {
	if _, err := driver.Open(filepath.Join(t.TempDir(), "libcuda.so.1")); !errors.Is(err, driver.ErrAbsent) {
		t.Error(err)
	}
	// A library that is none of CUDA.
	if _, err := driver.Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "lacks cuInit") {
		t.Error(err)
	}
}

func TestInit(t *testing.T) {
	s := sim.New(t, "init=100")
	_, err := driver.Open(s.Path)
	var failed *driver.Error
	if !errors.Is(err, driver.NoDevice) || !errors.As(err, &failed) || failed.Call != "cuInit" || failed.Text == "" {
		t.Errorf("%v", err)
	}
}

func TestDescription(t *testing.T) {
	lib, _ := open(t, "devices=3 memory=12M cc=89 driver=12080")
	d := must(lib.Device(2))(t)
	if n := must(lib.DeviceCount())(t); n != 3 {
		t.Errorf("%d devices", n)
	}
	if v := must(lib.Version())(t); v != 12080 {
		t.Errorf("driver %d", v)
	}
	if name := must(lib.DeviceName(d))(t); name != "Simulated GPU 2" {
		t.Errorf("name %q", name)
	}
	if n := must(lib.DeviceMemory(d))(t); n != 12<<20 {
		t.Errorf("%d bytes", n)
	}
	if c := must(lib.Capability(d))(t); c != 89 {
		t.Errorf("capability %d", c)
	}
	if !lib.Simulated() || lib.Path() == "" {
		t.Error("not the simulated driver")
	}
	if _, err := lib.Device(3); !errors.Is(err, driver.InvalidDevice) {
		t.Error(err)
	}
}

// TestMemory fills the device, is honest about what is free, and refuses more.
func TestMemory(t *testing.T) {
	lib, s := open(t, "memory=1M")
	a := must(lib.Alloc(512 << 10))(t)
	b := must(lib.Alloc(256 << 10))(t)
	s.Take(0, 100<<10)
	free, total, err := lib.MemInfo()
	if err != nil || free != 156<<10 || total != 1<<20 {
		t.Errorf("%d of %d bytes free: %v", free, total, err)
	}
	if _, err := lib.Alloc(200 << 10); !errors.Is(err, driver.OutOfMemory) || !adapt.IsOutOfMemory(err) {
		t.Error(err)
	}
	check(t, lib.Free(a))
	if err := lib.Free(a); !errors.Is(err, driver.InvalidValue) || adapt.IsOutOfMemory(err) {
		t.Errorf("freed twice: %v", err)
	}
	c := must(lib.Alloc(500 << 10))(t)
	check(t, errors.Join(lib.Free(b), lib.Free(c)))
	if s.Report().PeakBytes != 768<<10 {
		t.Errorf("%+v", s.Report())
	}
}

// TestNoContext calls from a thread that has no context.
func TestNoContext(t *testing.T) {
	lib, _ := open(t, "")
	const invalidContext = driver.Code(201)
	failed := make(chan error)
	go func() {
		goruntime.LockOSThread() // and never unlocked: the thread ends
		_ = lib.SetCurrent(0)    // a thread that was used before may have one
		_, err := lib.Alloc(1)
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, invalidContext) {
		t.Error(err)
	}
}

// TestCopies moves bytes in and out, page-locked and not, behind each other.
func TestCopies(t *testing.T) {
	lib, s := open(t, "order=lazy:4")
	const n = 10000
	p := must(lib.Alloc(n))(t)
	stream := must(lib.NewStream())(t)
	pinned := must(lib.AllocHost(n))(t)
	for i := range pinned {
		pinned[i] = byte(i * 7)
	}
	check(t, lib.CopyIn(p, pinned, stream))
	back := must(lib.AllocHost(n))(t)
	check(t, lib.CopyOut(back, p, stream))
	if bytes.Equal(back, pinned) {
		t.Error("the copy ran before anybody waited for it, which this order does not")
	}
	if done := must(lib.StreamDone(stream))(t); done {
		t.Error("the stream is done before anybody waited for it")
	}
	check(t, lib.SyncStream(stream))
	if !bytes.Equal(back, pinned) {
		t.Error("other bytes came back")
	}
	if s.Report().Unpinned != 0 {
		t.Errorf("%+v", s.Report())
	}
	loose := bytes.Repeat([]byte{3}, n)
	check(t, lib.CopyIn(p, loose, stream))
	clear(loose) // memory that is not page-locked has been read by now
	check(t, lib.Fill(p+5, 9, 2, stream))
	got := make([]byte, n)
	check(t, lib.CopyOut(got, p, stream))
	if got[0] != 3 || got[5] != 9 || got[6] != 9 || got[7] != 3 || s.Report().Unpinned != 2 {
		t.Errorf("% x, %+v", got[:8], s.Report())
	}
	if err := lib.CopyIn(p+1, loose, stream); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("a copy beyond the end: %v", err)
	}
	check(t, errors.Join(lib.DestroyStream(stream), lib.Free(p), lib.FreeHost(pinned), lib.FreeHost(back)))
}

// TestBytesBesidePointers copies bytes that are part of something larger.
func TestBytesBesidePointers(t *testing.T) {
	type linked struct {
		next *linked
		data [8]byte
	}
	lib, _ := open(t, "")
	p := must(lib.Alloc(8))(t)
	stream := must(lib.NewStream())(t)
	from, to := &linked{next: &linked{}, data: [8]byte{1, 2, 3}}, &linked{next: &linked{}}
	check(t, lib.CopyIn(p, from.data[:], stream))
	check(t, lib.CopyOut(to.data[:], p, stream))
	check(t, errors.Join(lib.RegisterHost(to.data[:]), lib.UnregisterHost(to.data[:])))
	if to.data != from.data {
		t.Errorf("got %v", to.data)
	}
	check(t, errors.Join(lib.DestroyStream(stream), lib.Free(p)))
}

// TestEvents orders two streams by an event; without it there is a race.
func TestEvents(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		s := sim.New(t, "order=lazy:2")
		lib := must(driver.Open(s.Path))(t)
		goruntime.LockOSThread()
		d := must(lib.Device(0))(t)
		check(t, lib.SetCurrent(must(lib.RetainPrimary(d))(t)))
		p := must(lib.Alloc(64))(t)
		a, b := must(lib.NewStream())(t), must(lib.NewStream())(t)
		e := must(lib.NewEvent())(t)
		check(t, lib.Fill(p, 1, 64, a))
		check(t, lib.RecordEvent(e, a))
		if done := must(lib.EventDone(e))(t); done {
			t.Error("an event is done before anybody waited")
		}
		if ordered {
			check(t, lib.WaitEvent(b, e))
		}
		check(t, lib.Fill(p, 2, 64, b))
		check(t, errors.Join(lib.SyncEvent(e), lib.SyncStream(b)))
		if done := must(lib.EventDone(e))(t); !done {
			t.Error("an event is not done after it was waited for")
		}
		if r := s.Report(); (r.Races == 0) != ordered || !ordered && !strings.Contains(r.FirstRace, "64 bytes") {
			t.Errorf("ordered %v: %d races: %s", ordered, r.Races, r.FirstRace)
		}
		check(t, errors.Join(lib.DestroyEvent(e), lib.DestroyStream(a), lib.DestroyStream(b), lib.Free(p)))
		check(t, errors.Join(lib.SetCurrent(0), lib.ReleasePrimary(d)))
		goruntime.UnlockOSThread()
	}
}

// TestModules loads PTX, and says of what cannot be loaded what the driver's compiler says.
func TestModules(t *testing.T) {
	image := must(kernels.Image("copy", 80))(t)
	for _, c := range []struct {
		settings, replace, with string
		code                    driver.Code
		says                    string
	}{
		{"driver=11080", "", "", 0, ""},
		{"driver=11070", "", "", driver.UnsupportedPTX, "Unsupported .version 7.8"},
		{"cc=61", "", "", driver.NoBinary, "newer than the GPU"},
		{"", ".target", ".aim", 200, "no PTX"},
		{"", "om_gather_4_param_2[176]", "om_gather_4_param_2[168]", driver.InvalidPTX, "om_gather_4"},
	} {
		t.Run(c.settings+c.with, func(t *testing.T) {
			lib, _ := open(t, c.settings)
			m, err := lib.LoadModule([]byte(strings.Replace(string(image), c.replace, c.with, 1)))
			if err == nil {
				_, err = lib.Function(m, "om_gather_4")
				_, missing := lib.Function(m, "om_none")
				if !errors.Is(missing, driver.Code(500)) {
					t.Errorf("a kernel that is not there: %v", missing)
				}
				check(t, lib.UnloadModule(m))
			}
			if c.code == 0 && err != nil || c.code != 0 && !errors.Is(err, c.code) {
				t.Errorf("%+v: %v", c, err)
			} else if c.code != 0 && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// TestLaunch runs a kernel, and has launches refused that a GPU would take and compute nonsense with.
func TestLaunch(t *testing.T) {
	lib, _ := open(t, "order=lazy:9")
	m := must(lib.LoadModule(must(kernels.Image("copy", 80))(t)))(t)
	f := must(lib.Function(m, "om_gather_4"))(t)
	const n = 6
	in, out := must(lib.Alloc(n*4))(t), must(lib.Alloc(n*4))(t)
	stream := must(lib.NewStream())(t)
	words := make([]byte, n*4)
	for i := range n {
		binary.LittleEndian.PutUint32(words[i*4:], uint32(i*i))
	}
	check(t, lib.CopyIn(in, words, stream))
	// A matrix of two rows and three columns, transposed.
	parameters := func(rank uint64) *driver.Parameters {
		p := &driver.Parameters{Offsets: []int32{0, 8, 16, 192}}
		put := func(x uint64) { p.Packed = binary.LittleEndian.AppendUint64(p.Packed, x) }
		put(uint64(out))
		put(uint64(in))
		put(rank)
		for _, x := range []uint64{3, 2, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} {
			put(x)
		}
		put(n)
		return p
	}
	grid := driver.Grid{Blocks: [3]uint32{2, 1, 1}, Threads: [3]uint32{4, 1, 1}}
	check(t, lib.Launch(f, grid, parameters(2), stream))
	got := make([]byte, n*4)
	check(t, lib.CopyOut(got, out, stream))
	for i, want := range []uint32{0, 9, 1, 16, 4, 25} {
		if x := binary.LittleEndian.Uint32(got[i*4:]); x != want {
			t.Errorf("element %d is %d, want %d", i, x, want)
		}
	}
	short := parameters(2)
	short.Packed = short.Packed[:len(short.Packed)-8]
	moved := parameters(2)
	moved.Offsets[3] = 184
	large, none := grid, grid
	large.Threads[0], none.Blocks[1] = 2048, 0
	for name, launch := range map[string]func() error{
		"a parameter less":  func() error { return lib.Launch(f, grid, short, stream) },
		"a parameter moved": func() error { return lib.Launch(f, grid, moved, stream) },
		"a large block":     func() error { return lib.Launch(f, large, parameters(2), stream) },
		"an empty grid":     func() error { return lib.Launch(f, none, parameters(2), stream) },
	} {
		if err := launch(); !errors.Is(err, driver.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, errors.Join(lib.DestroyStream(stream), lib.Free(in), lib.Free(out), lib.UnloadModule(m)))
}

// TestInjected makes the n-th call fail, once or from then on.
func TestInjected(t *testing.T) {
	lib, _ := open(t, "fault=cuMemAlloc:2:2 fault=cuStreamCreate:1:46:+")
	p := must(lib.Alloc(1))(t)
	if _, err := lib.Alloc(1); !errors.Is(err, driver.OutOfMemory) {
		t.Error(err)
	}
	q := must(lib.Alloc(1))(t)
	for range 2 {
		if _, err := lib.NewStream(); !errors.Is(err, driver.Unavailable) || !driver.Unavailable.Sticky() {
			t.Error(err)
		}
	}
	check(t, errors.Join(lib.Free(p), lib.Free(q)))
}

// TestPoison finds memory that was never written.
func TestPoison(t *testing.T) {
	lib, _ := open(t, "")
	p := must(lib.Alloc(4))(t)
	stream := must(lib.NewStream())(t)
	got := make([]byte, 4)
	check(t, lib.CopyOut(got, p, stream))
	if x := math.Float32frombits(binary.LittleEndian.Uint32(got)); !math.IsNaN(float64(x)) {
		t.Errorf("fresh memory is %v", x)
	}
	check(t, errors.Join(lib.DestroyStream(stream), lib.Free(p)))
}

// TestRegister has memory page-locked that is Go's, and memory that nobody may write to.
func TestRegister(t *testing.T) {
	lib, s := open(t, "pinned=64K")
	const n = 10000
	p := must(lib.Alloc(n))(t)
	stream := must(lib.NewStream())(t)
	mem := make([]byte, n)
	check(t, lib.RegisterHost(mem))
	if err := lib.RegisterHost(mem[n-1:]); !errors.Is(err, driver.Code(712)) {
		t.Errorf("registered twice: %v", err)
	}
	if err := lib.FreeHost(mem); !errors.Is(err, driver.InvalidValue) {
		t.Errorf("freed what was registered: %v", err)
	}
	mem[n-1] = 8
	check(t, lib.CopyIn(p, mem, stream))
	got := make([]byte, n)
	check(t, lib.CopyOut(got, p, stream))
	if got[n-1] != 8 || s.Report().Unpinned != 1 {
		t.Errorf("%d, %+v", got[n-1], s.Report())
	}
	check(t, lib.UnregisterHost(mem))
	if err := lib.UnregisterHost(mem); !errors.Is(err, driver.Code(713)) {
		t.Errorf("unregistered twice: %v", err)
	}
	if err := lib.RegisterHost(make([]byte, 65<<10)); !errors.Is(err, driver.OutOfMemory) {
		t.Errorf("more than can be page-locked: %v", err)
	}
	file := must(os.Open("driver_test.go"))(t)
	defer file.Close()
	mapped := must(unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE))(t)
	check(t, errors.Join(lib.RegisterHost(mapped), lib.UnregisterHost(mapped), unix.Munmap(mapped)))
	check(t, errors.Join(lib.DestroyStream(stream), lib.Free(p)))
}
