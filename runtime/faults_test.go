package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// offHeap returns what is allocated outside the heap.
func offHeap() int64 {
	var n int64
	for _, p := range []hostmem.Purpose{
		hostmem.Weights, hostmem.Activations, hostmem.Workspace, hostmem.Staging, hostmem.Caches,
	} {
		n += hostmem.InUse(p)
	}
	return n
}

// emulate starts a session on an emulated device with faults, and holds it to leaving nothing behind.
func emulate(
	t *testing.T, model *models.Model, m plan.Mode, o optimem.Options, e emulated.Options,
) (*optimem.Session, *emulated.Device) {
	t.Helper()
	before := offHeap()
	s, dev, err := optimem.StartEmulated(t.Context(), model, m, o, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := offHeap() - before; left != 0 {
			t.Errorf("%d bytes are left", left)
		}
	})
	return s, dev
}

// An emulatedMode is a way to run the digits on an emulated device.
type emulatedMode struct {
	name string
	mode plan.Mode
	opts optimem.Options
}

func emulatedModes() []emulatedMode {
	return []emulatedMode{
		{"resident", plan.Resident, optimem.Options{}},
		{"page", plan.Page, optimem.Options{}},
		{"page, little host memory", plan.Page, optimem.Options{HostMemory: 500 << 10}},
		{"chunk", plan.Chunk, optimem.Options{Capacity: plan.Limit{N: 30_000, Unit: plan.Params}}},
		{"auto", plan.Auto, optimem.Options{Memory: 330 << 10}},
	}
}

// TestAllocationRefused makes each allocation of the device fail once: sessions that can take less do, tell of it and go
// on; the others fail with the device's error, and work when they are called again.
func TestAllocationRefused(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(3))
	for _, m := range emulatedModes() {
		replans := 0
		for n := 1; n <= 8; n++ {
			t.Run(fmt.Sprintf("%s/%d", m.name, n), func(t *testing.T) {
				var told optimem.Event
				o := m.opts
				o.Observe = func(e optimem.Event) {
					if e.Kind == optimem.Replanned {
						told = e
					}
				}
				s, dev := emulate(t, model, m.mode, o, emulated.Options{MemoryBytes: 64 << 20, FailAlloc: n})
				out, err := s.Run(t.Context(), digitsInput(pictures(3)))
				var full *device.OutOfMemoryError
				if err != nil {
					if m.mode != plan.Resident || !errors.As(err, &full) {
						t.Fatal(err)
					}
					if out, err = s.Run(t.Context(), digitsInput(pictures(3))); err != nil {
						t.Fatalf("the second time: %v", err)
					}
				}
				if !bytes.Equal(out["linear_1"].Data, want) {
					t.Error("other bits")
				}
				if s.Metrics().Replans > 0 {
					replans++
					if !errors.As(told.Err, &full) || told.PeakBytes <= 0 {
						t.Errorf("told %+v", told)
					}
				}
				if peak := s.Metrics().PeakBytes; peak > dev.PeakBytes() || peak == 0 {
					t.Errorf("a peak of %d bytes, the device says %d", peak, dev.PeakBytes())
				}
			})
		}
		if m.mode != plan.Resident && replans == 0 {
			t.Errorf("%s: no plan was made again", m.name)
		}
	}
}

// TestMemoryTaken: others take the device's memory away. The session goes on with less, and fails where the least does not
// fit, with the device's error and the budget that would do; what they give back it may use.
func TestMemoryTaken(t *testing.T) {
	const memoryBytes = 4 << 20
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(3))
	shapes := map[string]tensor.Shape{"input": {3, 1, 8, 8}}
	for _, mode := range []plan.Mode{plan.Page, plan.Auto} {
		s, dev := emulate(t, model, mode, optimem.Options{}, emulated.Options{MemoryBytes: memoryBytes})
		pl, err := s.Plan(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		left := pl.MinBytes + pl.MinBytes/20
		dev.Take(memoryBytes - left)
		for range 2 {
			if got := runDigits(t, s, pictures(3)); !bytes.Equal(got, want) {
				t.Errorf("%s: other bits", mode)
			}
		}
		m := s.Metrics()
		if m.PeakBytes > left || m.Replans == 0 {
			t.Errorf("%s: %d of %d bytes, %d plans made again", mode, m.PeakBytes, left, m.Replans)
		}
		// A pass of other shapes needs more than there is now.
		dev.Take(memoryBytes - 10_000)
		_, err = s.Run(t.Context(), digitsInput(pictures(8)))
		var full *device.OutOfMemoryError
		var capacity *plan.CapacityError
		if !errors.As(err, &full) || !errors.As(err, &capacity) || capacity.MinBytes <= 10_000 {
			t.Errorf("%s: nothing is left, and got %v", mode, err)
		}
		dev.Take(0)
		if got := runDigits(t, s, pictures(3)); !bytes.Equal(got, want) {
			t.Errorf("%s: other bits after all", mode)
		}
	}
}

// TestBatchTaken: a batch goes on in smaller parts where the device has less than was planned with.
func TestBatchTaken(t *testing.T) {
	const memoryBytes, rows = 4 << 20, 32
	model := build(t, digitsModel, nil)
	in, _ := rowsOf(model, rows)
	for _, micro := range []int{0, 1} {
		want := oneByOne(t, model, optimem.Options{}, rows, 1)
		s, dev := emulate(t, model, plan.Page, optimem.Options{MicroBatch: micro}, emulated.Options{MemoryBytes: memoryBytes})
		pl, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {1, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		left := pl.MinBytes * 5 / 4
		dev.Take(memoryBytes - left)
		out, err := s.RunBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		m := s.Metrics()
		if m.Replans == 0 || m.PeakBytes > left {
			t.Errorf("%d plans made again, %d of %d bytes", m.Replans, m.PeakBytes, left)
		}
		if micro == 1 && !bytes.Equal(out["linear_1"].Data, want) {
			t.Error("other bits")
		}
	}
}

// TestCopyFails makes each copy to and from the device fail: the error is that of the copy and says where, and the session
// goes on.
func TestCopyFails(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(2))
	for _, m := range emulatedModes() {
		failed := 0
		for n := 1; n <= 40; n++ {
			s, _ := emulate(t, model, m.mode, m.opts, emulated.Options{MemoryBytes: 64 << 20, FailCopy: n})
			for range 3 {
				out, err := s.Run(t.Context(), digitsInput(pictures(2)))
				if err == nil {
					if !bytes.Equal(out["linear_1"].Data, want) {
						t.Errorf("%s, copy %d: other bits", m.name, n)
					}
					continue
				}
				failed++
				var where *pager.GroupError
				if !errors.Is(err, emulated.ErrCopy) || !errors.As(err, &where) || where.Path == "" {
					t.Errorf("%s, copy %d: %v does not say where", m.name, n, err)
				}
			}
		}
		if failed < 10 {
			t.Errorf("%s: %d of 40 copies failed", m.name, failed)
		}
	}
}

// copied returns the model of a copy of the digits that the test may change, and the copy.
func copied(t *testing.T) (*models.Model, string) {
	t.Helper()
	data, err := os.ReadFile(digitsModel)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.pt2")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return build(t, path, nil), path
}

// TestFileChanges: a checkpoint that shrinks or changes after it was opened is an error that names file and group, in
// every mode, and not a wrong result.
func TestFileChanges(t *testing.T) {
	changes := map[string]func(path string) error{
		"shrinks": func(path string) error { return os.Truncate(path, 3000) },
		"touched": func(path string) error {
			return os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour))
		},
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("more")
			return errors.Join(err, f.Close())
		},
	}
	for name, change := range changes {
		for _, m := range smallModes() {
			for _, runs := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s/%s on %s/after %d runs", name, m.name, m.opts.Device, runs), func(t *testing.T) {
					before := offHeap()
					model, path := copied(t)
					s, err := m.start(t.Context(), model, m.opts)
					if err != nil {
						t.Fatal(err)
					}
					for range runs {
						runDigits(t, s, pictures(1))
					}
					if err := change(path); err != nil {
						t.Fatal(err)
					}
					for range 3 { // what was brought ahead before is good
						if _, err = s.Run(t.Context(), digitsInput(pictures(1))); err != nil {
							break
						}
					}
					// What stays is there after the first run, in the device's memory or in the host's.
					stays := strings.HasPrefix(m.name, "resident") || m.opts.Device != "cpu" ||
						strings.HasPrefix(m.name, "auto") && s.Metrics().MovedBytes == 0
					var where *pager.GroupError
					switch {
					case runs == 0 || !stays:
						if !errors.Is(err, storage.ErrChanged) || !errors.As(err, &where) || where.Step != "load" {
							t.Errorf("got %v", err)
						} else if !strings.Contains(err.Error(), path) {
							t.Errorf("%v does not name the file", err)
						}
						if name == "shrinks" && runs == 1 && !errors.Is(err, io.ErrUnexpectedEOF) {
							t.Errorf("%v does not say that the file is short", err)
						}
					case err != nil:
						t.Errorf("nothing is read any more, and got %v", err)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					if left := offHeap() - before; left != 0 {
						t.Errorf("%d bytes are left", left)
					}
				})
			}
		}
	}
}

// TestChecksumWhereAsked: a checkpoint of the same size and time with other bytes runs as it is, and is refused where
// checksums are asked for, with the record that differs.
func TestChecksumWhereAsked(t *testing.T) {
	_, path := copied(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := ckpt.Weight("hidden.weight")
	if err := ckpt.Close(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	data[w.Extent.Offset+3] ^= 1 // of the first element, sign or exponent
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	want := runDigits(t, start(t, build(t, digitsModel, nil), optimem.Options{}), pictures(2))
	if got := runDigits(t, start(t, build(t, path, nil), optimem.Options{}), pictures(2)); bytes.Equal(got, want) {
		t.Error("the same bits: nothing was changed")
	}
	var placed *loader.Error
	ckpt, err = loader.OpenWith(t.Context(), path, loader.Options{Verify: true})
	if !errors.Is(err, loader.ErrFormat) || !errors.As(err, &placed) || !strings.Contains(placed.Record, "weight") {
		t.Errorf("got %v, %v", ckpt, err)
	}
}

// TestCancelAtEveryStep cancels a run in every mode after each event of it.
func TestCancelAtEveryStep(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(2))
	for _, m := range smallModes() {
		before := offHeap()
		for at := range 12 {
			ctx, cancel := context.WithCancel(t.Context())
			events, passed := 0, false
			m.opts.Observe = func(e optimem.Event) {
				if events == at {
					cancel()
				}
				passed = passed || e.Kind == optimem.PassDone
				events++
			}
			s, err := m.start(t.Context(), model, m.opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Run(ctx, digitsInput(pictures(2)))
			cancelled := ctx.Err() != nil
			var where *pager.GroupError
			switch {
			case err == nil && cancelled && !passed:
				t.Errorf("%s on %s, step %d: no error", m.name, m.opts.Device, at)
			case err != nil && (!cancelled || !errors.Is(err, context.Canceled)):
				t.Errorf("%s on %s, step %d: %v", m.name, m.opts.Device, at, err)
			case err != nil && (!errors.As(err, &where) || where.Path == "" && where.Step == ""):
				t.Errorf("%s on %s, step %d: %v does not say where", m.name, m.opts.Device, at, err)
			}
			if got := runDigits(t, s, pictures(2)); !bytes.Equal(got, want) {
				t.Errorf("%s on %s, step %d: other bits afterwards", m.name, m.opts.Device, at)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			cancel()
		}
		if left := offHeap() - before; left != 0 {
			t.Errorf("%s on %s: %d bytes are left", m.name, m.opts.Device, left)
		}
	}
}

// TestMemoryOfChunkTaken: where others take the device's memory, fewer weights stay than the capacity says.
func TestMemoryOfChunkTaken(t *testing.T) {
	const memoryBytes = 4 << 20
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(3))
	pages, _ := emulate(t, model, plan.Page, optimem.Options{}, emulated.Options{MemoryBytes: memoryBytes})
	least, err := pages.Plan(t.Context(), pictureShapes(3))
	if err != nil {
		t.Fatal(err)
	}
	o := optimem.Options{Capacity: plan.Limit{N: 1 << 20, Unit: plan.Bytes}} // all of them
	s, dev := emulate(t, model, plan.Chunk, o, emulated.Options{MemoryBytes: memoryBytes})
	before, err := s.Plan(t.Context(), pictureShapes(3))
	if err != nil {
		t.Fatal(err)
	}
	left := least.MinBytes + least.MinBytes/10
	if before.PeakBytes() <= left {
		t.Fatalf("takes %d bytes, and %d are left", before.PeakBytes(), left)
	}
	dev.Take(memoryBytes - left)
	if got := runDigits(t, s, pictures(3)); !bytes.Equal(got, want) {
		t.Error("other bits")
	}
	if m := s.Metrics(); m.PeakBytes > left || m.Replans == 0 {
		t.Errorf("%d of %d bytes, %d plans made again", m.PeakBytes, left, m.Replans)
	}
}
