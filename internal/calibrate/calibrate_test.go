package calibrate

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/storage"
)

// A slice of memory that is said to lie on a disk.
type saidSource struct {
	storage.Source
	on storage.Disk
}

func (s saidSource) Disk() storage.Disk { return s.on }

// zeros is a source of nothing but zeros.
type zeros int64

func (z zeros) Size() int64 { return int64(z) }
func (z zeros) ReadAt(ctx context.Context, p []byte, _ int64) error {
	clear(p)
	return ctx.Err()
}

// TestDisksAreToldApart: each disk that extents lie on is measured, the one with most first, and what is too small to tell
// is left out; rates are kept by disk, and those of disks that were not measured again stay.
func TestDisksAreToldApart(t *testing.T) {
	extent := func(disk storage.Disk, pieces int64) storage.Extent {
		n := pieces * pieceBytes
		return storage.Extent{Source: saidSource{zeros(n), disk}, Bytes: n}
	}
	rates, err := Disks(t.Context(), []storage.Extent{extent(7, 8), extent(8, 1), extent(9, 10)}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(rates) != 2 || rates[0].Disk != 9 || rates[1].Disk != 7 || !(rates[1].BytesPerSecond > 0) {
		t.Errorf("%+v", rates)
	}
	if _, err := Disks(t.Context(), []storage.Extent{extent(7, 1), extent(8, 1)}, time.Second); !errors.Is(err, ErrTooSmall) {
		t.Errorf("too little: %v", err)
	}
	path, host := filepath.Join(t.TempDir(), "c.json"), Host{"x", 1}
	for _, disks := range []map[storage.Disk]cost.Disk{{7: {Bytes: 5, ReadSeconds: 1}, 9: {Bytes: 6}}, {9: {Bytes: 8}}} {
		if err := Save(path, host, cost.Rates{FLOPs: 1, Disks: disks}); err != nil {
			t.Fatal(err)
		}
	}
	kept, ok, err := Load(path, host)
	if err != nil || !ok || kept.On(7).DiskBytes != 5 || kept.On(9).DiskBytes != 8 || kept.On(10).DiskBytes != 0 {
		t.Errorf("%+v %v %v", kept.Disks, ok, err)
	}
}

// Every rate is a number that can be, of kinds that there are, and nothing is left behind.
func TestCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	last, of := -1, 0
	r, err := CPU(t.Context(), Options{Threads: 1, Time: time.Millisecond, Observe: func(done, n int) {
		if done != last+1 {
			t.Errorf("%d is done after %d", done, last)
		}
		last, of = done, n
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last != of || of == 0 {
		t.Errorf("%d of %d were measured", last, of)
	}
	for name, x := range map[string]float64{
		"arithmetic": r.FLOPs, "memory": r.MemoryBytes, "op": r.OpSeconds, "copy": r.CopyBytes,
	} {
		if !(x > 0) || math.IsInf(x, 0) {
			t.Errorf("%s: %v", name, x)
		}
	}
	for class, points := range r.Points {
		for _, p := range points {
			if p.M < 1 || p.N < 1 || p.K < 1 || !(p.FLOPs > 0) || math.IsInf(p.FLOPs, 0) {
				t.Errorf("%s: %+v", class, p)
			}
		}
	}
	depthwise := func(class string) bool { return strings.HasSuffix(class, " depthwise") }
	if len(r.Points["linear"]) == 0 || !slices.ContainsFunc(slices.Collect(maps.Keys(r.Points)), depthwise) {
		t.Errorf("products of %v were measured", slices.Sorted(maps.Keys(r.Points)))
	}
	if !r.Measured || r.FLOPs != r.KindFLOPs["linear"] {
		t.Errorf("%+v", r)
	}
	for kind, x := range r.KindFLOPs {
		if _, known := graph.Standard().Lookup(kind); !known && kind != "conv16" || !(x > 0) || math.IsInf(x, 0) {
			t.Errorf("%s: %v, known %v", kind, x, known)
		}
	}
	for p := hostmem.Weights; p <= hostmem.Staging; p++ {
		if n := hostmem.InUse(p); n != 0 {
			t.Errorf("%d bytes of %v are still in use", n, p)
		}
	}
}

func TestCPUCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CPU(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A clocked source takes a while for every read, and remembers what was read.
type clocked struct {
	bytes, least, most int64
	err                error
}

func (c *clocked) Size() int64 { return c.bytes }

func (c *clocked) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < c.least || off+int64(len(p)) > c.most {
		return errors.New("outside of the extent")
	}
	time.Sleep(time.Millisecond)
	return c.err
}

// A queuedClock is a clocked source that queues reads, of which the first refused ones are not begun.
type queuedClock struct {
	clocked
	refused, begun, closed, deepest int
}

func (q *queuedClock) ReadBulk(ctx context.Context, p []byte, off int64) error {
	return q.ReadAt(ctx, p, off)
}
func (q *queuedClock) Queue(n int) (storage.ReadQueue, error) { return &clockQueue{q, nil}, nil }

type clockQueue struct {
	*queuedClock
	underWay []int
}

func (q *clockQueue) Begin(number int, _ []byte, off int64) bool {
	if q.refused > 0 || off < q.least || off+queuedBytes > q.most {
		q.refused--
		return false
	}
	q.begun++
	q.underWay = append(q.underWay, number)
	q.deepest = max(q.deepest, len(q.underWay))
	return true
}

func (q *clockQueue) Flush() {}

func (q *clockQueue) Wait(context.Context) (int, bool, error) {
	time.Sleep(time.Millisecond)
	number := q.underWay[0]
	q.underWay = q.underWay[1:]
	return number, true, q.err
}

func (q *clockQueue) Close() error {
	q.closed++
	return nil
}

// TestDiskQueued measures a file that queues reads by its queue, unless it does not begin them.
func TestDiskQueued(t *testing.T) {
	src := &queuedClock{clocked: clocked{bytes: 1 << 30, least: 1000, most: 1000 + 64<<20}}
	whole := []storage.Extent{{Source: src, Offset: 1000, Bytes: 64 << 20}}
	r, err := Disk(t.Context(), whole, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.ReadBytes != 60<<20 || src.begun != 60 || src.closed != 1 {
		t.Errorf("%d bytes were read, %d reads begun, %d queues closed", r.ReadBytes, src.begun, src.closed)
	}
	if r.BytesPerSecond <= 0 || r.BytesPerSecond > queuedBytes/1e-3 {
		t.Errorf("%v bytes a second, one read after the other", r.BytesPerSecond)
	}
	src.begun = 0
	if r, err := Disk(t.Context(), whole, 1); err != nil || r.ReadBytes > queued*queuedBytes {
		t.Errorf("the time was up, and %d bytes were read: %v", r.ReadBytes, err)
	}
	src.refused = 1
	if r, err := Disk(t.Context(), whole, time.Minute); err != nil || r.ReadBytes != 60<<20 || src.closed != 3 {
		t.Errorf("of a cached file: %d bytes, %v, %d queues closed", r.ReadBytes, err, src.closed)
	}
}

// TestReadRate: there are as many reads under way as a pager has, nothing else is read, and what is not queued is read all
// the same.
func TestReadRate(t *testing.T) {
	src := &queuedClock{clocked: clocked{bytes: 1 << 30, least: 1000, most: 1000 + 256<<20}}
	whole := []storage.Extent{{Source: src, Offset: 1000, Bytes: 256 << 20}}
	rate, err := ReadRate(t.Context(), whole, time.Minute)
	if err != nil || rate <= 0 || rate > queuedBytes/1e-3 {
		t.Errorf("%v bytes a second, one read after the other: %v", rate, err)
	}
	if src.begun != 252 || src.deepest != deep || src.closed != 1 {
		t.Errorf("%d reads begun, %d under way at most, %d queues closed", src.begun, src.deepest, src.closed)
	}
	src.refused = 1
	if rate, err := ReadRate(t.Context(), whole, time.Minute); err != nil || rate <= 0 {
		t.Errorf("of a cached file: %v bytes a second: %v", rate, err)
	}
	if _, err := ReadRate(t.Context(), []storage.Extent{{Source: src, Offset: 1000, Bytes: 8 << 20}}, time.Minute); !errors.Is(err, ErrTooSmall) {
		t.Errorf("of 8 MiB: %v", err)
	}
}

// A doubtful source is one that asks what the page cache holds only when it is told to, of which that keeps so many bytes.
type doubtful struct {
	queuedClock
	keeps         int64
	asks          int
	mu            sync.Mutex
	through, past [2]int // reads before and after it was told
}

func (d *doubtful) LookAgain() { d.asks++ }

func (d *doubtful) ReadAt(ctx context.Context, p []byte, off int64) error {
	d.mu.Lock()
	d.through[min(d.asks, 1)]++
	d.mu.Unlock()
	return d.queuedClock.ReadAt(ctx, p, off)
}

func (d *doubtful) ReadBulk(ctx context.Context, p []byte, off int64) error {
	d.mu.Lock()
	d.past[min(d.asks, 1)]++
	d.mu.Unlock()
	return d.queuedClock.ReadAt(ctx, p, off)
}

func (d *doubtful) CachedBytes(off, n int64) (int64, bool) {
	return max(min(n, d.least+d.keeps-off), 0), true
}

// TestDiskLooksAgain: a file takes the page cache to hold for a while what it held, which then is nothing; and where it does
// not keep what was read, its rate is not known.
func TestDiskLooksAgain(t *testing.T) {
	measured := func(keeps int64) (*doubtful, DiskRate) {
		src := &doubtful{queuedClock: queuedClock{clocked: clocked{bytes: 1 << 30, most: 64 << 20}}, keeps: keeps}
		r, err := Disk(t.Context(), []storage.Extent{{Source: src, Bytes: 64 << 20}}, time.Minute)
		if err != nil || r.BytesPerSecond <= 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return src, r
	}
	src, r := measured(64 << 20)
	if src.asks != 1 || src.through != [2]int{16, 0} || src.past[1] != cachedRounds*16 || r.CachedBytesPerSecond <= 0 {
		t.Errorf("told %d times, read through the page cache %v, and as a pager does %v: %+v", src.asks, src.through, src.past, r)
	}
	if src, r = measured(48 << 20); src.past[1] != 0 || r.CachedBytesPerSecond != 0 {
		t.Errorf("of a file that is not kept: %v, %+v", src.past, r)
	}
}

func TestDisk(t *testing.T) {
	src := &clocked{bytes: 1 << 30, least: 1000, most: 1000 + 64<<20}
	whole := []storage.Extent{{Source: src, Offset: 1000, Bytes: 64 << 20}}
	r, err := Disk(t.Context(), whole, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if r.ReadBytes != 60<<20 { // the first and the last piece are cut into by the alignment
		t.Errorf("%d bytes were read", r.ReadBytes)
	}
	// Each read takes a millisecond or more, so none of the rates can be faster than that.
	if r.ReadSeconds < 1e-3 || r.BytesPerSecond <= 0 || r.BytesPerSecond > float64(readers*pieceBytes)/1e-3 {
		t.Errorf("%+v", r)
	}
	if r.CachedBytesPerSecond <= 0 || r.CachedBytesPerSecond > float64(readers*pieceBytes)/1e-3 {
		t.Errorf("from the page cache: %+v", r)
	}
	if r, err := Disk(t.Context(), whole, 1); err != nil || r.ReadBytes > readers*pieceBytes {
		t.Errorf("the time was up, and %d bytes were read: %v", r.ReadBytes, err)
	}
	small := []storage.Extent{{Source: src, Bytes: 1 << 20}}
	if _, err := Disk(t.Context(), small, time.Second); !errors.Is(err, ErrTooSmall) {
		t.Errorf("of a small file: %v", err)
	}
	src.err = errors.New("broken")
	if _, err := Disk(t.Context(), whole, time.Minute); !errors.Is(err, src.err) {
		t.Errorf("of a broken disk: %v", err)
	}
}

// TestCorrect: a rate that a disk was read at takes the place of a calibrated one that is more than 15 % off, of that disk alone, and
// nothing is written where it is not, or where nothing was calibrated.
func TestCorrect(t *testing.T) {
	path, host := filepath.Join(t.TempDir(), "c.json"), Host{"x", 1}
	if before, changed, err := Correct(path, host, 7, 5); before != 0 || changed || err != nil {
		t.Errorf("of nothing: %v, %v, %v", before, changed, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is there: %v", err)
	}
	rates := cost.Rates{FLOPs: 1, DiskBytes: 100, ReadSeconds: 2, Disks: map[storage.Disk]cost.Disk{7: {Bytes: 10, ReadSeconds: 1}, 9: {Bytes: 6}}}
	if err := Save(path, host, rates); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		disk         storage.Disk
		rate, before float64
		changed      bool
	}{
		{7, 11.4, 10, false}, {7, 8.6, 10, false}, {7, 12, 10, true}, {7, 10, 12, true}, {8, 110, 100, false}, {8, 50, 100, true},
		{7, math.Inf(1), 10, false}, {7, math.NaN(), 10, false}, {7, 0, 10, false},
	} {
		before, changed, err := Correct(path, host, c.disk, c.rate)
		if before != c.before || changed != c.changed || err != nil {
			t.Errorf("%+v: %v, %v, %v", c, before, changed, err)
		}
	}
	kept, _, err := Load(path, host)
	want := map[storage.Disk]cost.Disk{7: {Bytes: 10, ReadSeconds: 1}, 8: {Bytes: 50, ReadSeconds: 2}, 9: {Bytes: 6}}
	if err != nil || !maps.Equal(kept.Disks, want) || kept.DiskBytes != 100 {
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "calibration.json")
	here, other := Host{"A CPU / of sorts", 2}, Host{"A CPU / of sorts", 4}
	if _, ok, err := Load(path, here); ok || err != nil {
		t.Errorf("from nowhere: %v, %v", ok, err)
	}
	want := cost.Rates{
		FLOPs: 1e10, KindFLOPs: map[graph.Kind]float64{"linear": 1e10, "conv": 5e9},
		Points:      map[string][]cost.Point{"conv 1": {{M: 64, N: 49, K: 3, FLOPs: 1e9}, {M: 1, FLOPs: 2}}},
		MemoryBytes: 8e9, OpSeconds: 1e-6,
		CopyBytes: 5e9, DiskBytes: 1.5e9, ReadSeconds: 1e-4, CachedBytes: 9e9, DecodeBytes: 4e9, Measured: true,
	}
	for _, r := range []cost.Rates{{FLOPs: 1}, want} {
		if err := Save(path, here, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := Save(path, other, cost.Rates{FLOPs: 2}); err != nil {
		t.Fatal(err)
	}
	got, ok, err := Load(path, here)
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("%v, %v: %s", ok, err, diff)
	}
	if got, ok, err := Load(path, other); !ok || err != nil || got.FLOPs != 2 {
		t.Errorf("of another number of threads: %+v, %v, %v", got, ok, err)
	}
	if _, ok, _ := Load(path, Host{"another", 2}); ok {
		t.Error("another host has rates")
	}
	// A build without the processor's own kernels has rates of its own.
	f, err := read(path)
	if err != nil || len(f.Hosts) != 2 {
		t.Errorf("%d hosts, %v", len(f.Hosts), err)
	}
	for key := range f.Hosts {
		if strings.HasSuffix(key, " / Go") == cpu.Vectors() {
			t.Errorf("a host is called %q", key)
		}
	}
	const zero = `"kind_flops_per_second": {"conv": 0}`
	const negative = `"product_flops_per_second": {"conv": [[1, 2, -3, 4]]}`
	for text, wants := range map[string]string{
		"{":              "unexpected",
		`{"version": 2}`: "",
		`{"version": 1}`: "",
		`{"version": 2, "hosts": {"KEY": {"flops_per_second": -1}}}`:                        "not numbers",
		`{"version": 2, "hosts": {"KEY": {"flops_per_second": 1, ` + zero + `}}}`:           "not numbers",
		`{"version": 2, "hosts": {"KEY": {"flops_per_second": 1, ` + negative + `}}}`:       "not numbers",
		`{"version": 2, "hosts": {"KEY": {"flops_per_second": 1, "read_seconds": "fast"}}}`: "cannot unmarshal",
	} {
		if err := os.WriteFile(path, []byte(strings.Replace(text, "KEY", Host{"x", 1}.key(), 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		_, ok, err := Load(path, Host{"x", 1})
		if ok || (err == nil) != (wants == "") || err != nil && !strings.Contains(err.Error(), wants) {
			t.Errorf("%s: %v, %v", text, ok, err)
		}
		if err := Save(path, here, want); err != nil {
			t.Errorf("over %s: %v", text, err)
		}
	}
}

// TestArithmetic: a thread gives what threads of processors give, or nothing where there are no kernels for them.
func TestArithmetic(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a moment of a processor")
	}
	if peak := Arithmetic(1); peak != 0 && !(peak > 1e8 && peak < 1e13) {
		t.Errorf("a thread's arithmetic gives %v FLOP/s", peak)
	}
}
