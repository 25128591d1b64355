package transformers_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/storage/packed"
	"github.com/optimem/optimem/tensor"
)

// A watched source notes what is read of it, and does what a test wants before a read.
type watched struct {
	storage.Source
	all *watching
}

type watching struct {
	mu      sync.Mutex
	reads   []storage.Extent
	before  func(ctx context.Context, n int) error
	changed error
}

func (s *watched) ReadAt(ctx context.Context, p []byte, off int64) error {
	w := s.all
	w.mu.Lock()
	w.reads = append(w.reads, storage.Extent{Source: s, Offset: off, Bytes: int64(len(p))})
	n, before := len(w.reads), w.before
	w.mu.Unlock()
	if before != nil {
		if err := before(ctx, n); err != nil {
			return err
		}
	}
	return s.Source.ReadAt(ctx, p, off)
}

func (s *watched) Unchanged() error {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.all.changed
}

// begin forgets what was read.
func (w *watching) begin(before func(ctx context.Context, n int) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads, w.before = nil, before
}

// watchedModel returns a recorded model whose reads are watched.
func watchedModel(t *testing.T, kind string) (*recorded, *models.Model, *watching) {
	t.Helper()
	r, w := &recordedOf(t, kind)[0], &watching{}
	ckpt := r.folder(t)
	list := slices.Clone(ckpt.Weights)
	sources := make(map[storage.Source]*watched)
	for i := range list {
		e := &list[i].Extent
		if sources[e.Source] == nil {
			sources[e.Source] = &watched{e.Source, w}
		}
		e.Source = sources[e.Source]
	}
	again, err := loader.NewCheckpoint("watched", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Config = ckpt.Config
	model, err := models.Build(again, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r, model, w
}

// try is feed, which may fail and then changes nothing.
func (s *stepper) try(ctx context.Context, tokens []int64) ([]float32, error) {
	positions, wanted := make([]int64, len(tokens)), make([]int64, len(tokens))
	var tables []int64
	for i := range tokens {
		positions[i], wanted[i] = int64(s.at+i), int64(i)
		tables = append(tables, s.blocks...)
	}
	in := optimem.Values{
		models.StepTokens: tensor.Of(tokens, len(tokens)), models.StepPositions: tensor.Of(positions, len(tokens)),
		models.StepBlocks: tensor.Of(tables, len(tokens), len(s.blocks)), models.StepWanted: tensor.Of(wanted, len(tokens)),
	}
	out, err := s.session.Run(ctx, in)
	if err != nil {
		return nil, err
	}
	s.at += len(tokens)
	return tensor.Slice[float32](out[models.StepLogits])
}

// routes are the experts that rows went to, by module, since they were forgotten.
type routes map[string][]int32

func (r routes) note(module string, _ int, experts []int32) {
	r[module] = append(r[module], experts...)
}

// TestLentReads: where everything else stays, a pass reads the experts that its rows are sent to and that are in no
// slot, whole and once, and nothing else.
func TestLentReads(t *testing.T) {
	r, model, w := watchedModel(t, "mixtral")
	seen := make(routes)
	s := newStepper(t, model, 64, optimem.Options{Mode: plan.Auto, Memory: lentBudget(t, model), Routed: seen.note})
	if _, err := s.try(t.Context(), r.Greedy[:5]); err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Greedy[5:20] {
		p, err := s.session.Plan(t.Context(), s.shapes(1))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Experts) == 0 || p.MovedBytes > 0 {
			t.Fatalf("%d layers lend experts, and %d bytes are moved besides", len(p.Experts), p.MovedBytes)
		}
		clear(seen)
		w.begin(nil)
		before := s.session.Metrics()
		if _, err := s.try(t.Context(), []int64{x}); err != nil {
			t.Fatal(err)
		}
		after := s.session.Metrics()
		w.mu.Lock()
		left := slices.Clone(w.reads)
		w.mu.Unlock()
		whole := int64(0) // experts of which everything was read
		for i := range p.Experts {
			for _, e := range seen[p.Experts[i].Path] {
				found := 0
				for _, span := range p.Experts[i].Each[e].Spans {
					end := min(span.Extent.Offset+span.Extent.Bytes, span.Extent.Source.Size())
					var read int64
					left = slices.DeleteFunc(left, func(x storage.Extent) bool {
						in := x.Source == span.Extent.Source && x.Offset >= span.Extent.Offset && x.Offset+x.Bytes <= end
						if in {
							read += x.Bytes
						}
						return in
					})
					if read == end-span.Extent.Offset {
						found++
					}
				}
				if found == len(p.Experts[i].Each[e].Spans) {
					whole++
				}
			}
		}
		if len(left) > 0 {
			t.Fatalf("read, and not of an expert that rows were sent to: %+v", left)
		}
		if n := after.ExpertReads - before.ExpertReads; n != whole {
			t.Fatalf("%d experts were read, %d of them whole", n, whole)
		}
	}
}

// inOnePacked has the weights of a recorded model lie in one packed file, that of each expert one behind the other there
// and not in the original, where those of all come one after the other.
func inOnePacked(t *testing.T, ckpt *loader.Checkpoint) (*loader.Checkpoint, *watching) {
	t.Helper()
	list := slices.Clone(ckpt.Weights)
	var data []byte
	var runs []packed.Run
	wanted := make(map[packed.Run]string)
	for i := range list {
		e := &list[i].Extent
		p := make([]byte, e.Bytes)
		if err := e.ReadAt(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		e.Offset = int64(len(data))
		data = append(data, p...)
		name, of := list[i].Name, 1
		if layer, _, ok := strings.Cut(name, ".experts."); ok && len(list[i].Layout.Shape) == 3 {
			name, of = layer, list[i].Layout.Shape[0]
		}
		for k := range int64(of) {
			run := packed.Run{Offset: e.Offset + k*e.Bytes/int64(of), Bytes: e.Bytes / int64(of)}
			runs, wanted[run] = append(runs, run), fmt.Sprintf("%s %03d", name, k)
		}
	}
	slices.SortStableFunc(runs, func(a, b packed.Run) int { return cmp.Compare(wanted[a], wanted[b]) })
	file := filepath.Join(t.TempDir(), "packed")
	to, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	from := memorySource(data)
	if _, err := packed.Write(t.Context(), from, to, packed.Options{Runs: runs}); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{}
	source, err := packed.Open(t.Context(), &watched{memorySource(raw), w}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Extent.Source = source
	}
	again, err := loader.NewCheckpoint("packed", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Config = ckpt.Config
	return again, w
}

// memorySource is a source in memory.
type memorySource []byte

func (m memorySource) Size() int64    { return int64(len(m)) }
func (m memorySource) Memory() []byte { return m }
func (m memorySource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > m.Size() || copy(p, m[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// TestLentPacked: of a packed file each expert that a pass wants is one read, of its blocks and little more, and the bits
// are those of the file as it is.
func TestLentPacked(t *testing.T) {
	r := &recordedOf(t, "mixtral")[0]
	plain, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := newStepper(t, plain, 64, optimem.Options{Mode: plan.Resident})
	ckpt, w := inOnePacked(t, r.folder(t))
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStepper(t, model, 64, optimem.Options{Mode: plan.Auto, Memory: lentBudget(t, model)})
	lent := int64(0)
	for i, x := range r.Greedy[:20] {
		w.begin(nil)
		before := s.session.Metrics()
		got, err := s.try(t.Context(), []int64{x})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want.feed(t, []int64{x})) {
			t.Fatalf("token %d: other bits", i)
		}
		p, err := s.session.Plan(t.Context(), s.shapes(1))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Experts) == 0 || p.MovedBytes > 0 {
			t.Fatalf("%d layers lend experts, and %d bytes are moved besides", len(p.Experts), p.MovedBytes)
		}
		w.mu.Lock()
		reads := int64(len(w.reads))
		w.mu.Unlock()
		experts := s.session.Metrics().ExpertReads - before.ExpertReads
		if i > 0 && reads != experts { // the first pass brings what stays
			t.Fatalf("token %d: %d reads of %d experts", i, reads, experts)
		}
		lent += experts
	}
	if lent == 0 {
		t.Error("no expert was read")
	}
}

// lentBudget is one with which all stays but experts, and some of these have slots.
func lentBudget(t *testing.T, model *models.Model) int64 {
	t.Helper()
	s := newStepper(t, model, 64, optimem.Options{Mode: plan.Resident, PlanOnly: true})
	p, err := s.session.Plan(t.Context(), s.shapes(9))
	if err != nil {
		t.Fatal(err)
	}
	return p.DecodeBytes + (p.PeakBytes()-p.DecodeBytes)*4/5
}

// TestLentFaults: whichever read of an expert fails, panics, is cancelled or finds another file, the pass ends with an
// error that names the expert, and the next one gives what it would have given.
func TestLentFaults(t *testing.T) {
	r, model, w := watchedModel(t, "mixtral")
	tokens := r.Greedy[:12]
	want := newStepper(t, model, 64, optimem.Options{Mode: plan.Resident}).feed(t, tokens)
	boom := errors.New("boom")
	s := newStepper(t, model, 64, optimem.Options{Mode: plan.Auto, Memory: lentBudget(t, model)})
	p, err := s.session.Plan(t.Context(), s.shapes(len(tokens)))
	if err != nil || len(p.Experts) == 0 {
		t.Fatalf("no experts are lent: %v", err)
	}
	again := func(what string) {
		t.Helper()
		w.begin(nil)
		got, err := s.try(t.Context(), tokens)
		if err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		if s.at -= len(tokens); !slices.Equal(got, want) {
			t.Fatalf("after %s: other bits", what)
		}
	}
	again("nothing")
	failed := 0
	for n := 1; n < 400; n++ {
		reached := false
		ctx, cancel := context.WithCancel(t.Context())
		w.begin(func(_ context.Context, k int) error {
			if k != n {
				return nil
			}
			reached = true
			switch n % 3 {
			case 0:
				panic(boom)
			case 1:
				cancel()
				return nil
			}
			return boom
		})
		_, err := s.try(ctx, tokens)
		cancel()
		if err == nil {
			s.at -= len(tokens)
		}
		if !reached {
			break
		}
		if n%3 == 1 {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled in read %d: %v", n, err)
			}
		} else if err == nil || !errors.Is(err, boom) && !strings.Contains(err.Error(), "boom") || !strings.Contains(err.Error(), "experts") {
			t.Fatalf("read %d: %v", n, err)
		} else {
			failed++
		}
		again("a fault")
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	again("all")
	w.mu.Lock()
	reads := len(w.reads)
	w.mu.Unlock()
	w.begin(func(_ context.Context, k int) error { // what is read the last is an expert
		w.mu.Lock()
		defer w.mu.Unlock()
		if k >= reads {
			w.changed = storage.ErrChanged
		}
		return nil
	})
	if _, err := s.try(t.Context(), tokens); !errors.Is(err, storage.ErrChanged) || !strings.Contains(err.Error(), "experts") {
		t.Errorf("of a file that changed: %v", err)
	}
	w.mu.Lock()
	w.changed = nil
	w.mu.Unlock()
	again("a change")
}
