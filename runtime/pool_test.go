package runtime_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/share"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// writeStack writes layers of one width, with weights drawn from a seed.
func writeStack(t *testing.T, path string, layers, width int, seed uint64) {
	t.Helper()
	header := make(map[string]any)
	each := width * width * 4
	for i := range layers {
		header[fmt.Sprintf("%d.weight", 2*i)] = map[string]any{
			"dtype": "F32", "shape": []int{width, width}, "data_offsets": []int{i * each, (i + 1) * each},
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	draw := rand.New(rand.NewPCG(seed, 7))
	scale := 2 / math.Sqrt(float64(width))
	for range layers * width * width {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(float32((draw.Float64()-0.4)*scale)))
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pooled is a model of a pool's test with an input and what a session alone makes of it.
type pooled struct {
	name  string
	model *models.Model
	in    optimem.Values
	want  []byte
}

func bytesOf(out optimem.Values) []byte {
	for _, x := range out {
		return x.Data
	}
	return nil
}

// stacks makes so many models, of sizes that differ.
func stacks(t *testing.T, n int) []pooled {
	t.Helper()
	list := make([]pooled, n)
	for i := range list {
		layers, width := 3+i%4, 48+(i*37)%11*16
		path := filepath.Join(t.TempDir(), "m.safetensors")
		writeStack(t, path, layers, width, uint64(i))
		x := make([]float32, width)
		for k := range x {
			x[k] = float32((k*7+i)%13) - 5
		}
		list[i] = pooled{
			name: fmt.Sprint("model ", i), model: build(t, path, nil), in: optimem.Values{"x": tensor.Of(x, 1, width)},
		}
		s, err := optimem.Resident(t.Context(), list[i].model, optimem.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Run(t.Context(), list[i].in)
		if err != nil {
			t.Fatal(err)
		}
		if list[i].want = bytesOf(out); len(bytes.Trim(list[i].want, "\x00")) == 0 {
			t.Fatal("the model gives zeros")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// newPool makes a pool that the test closes, and holds it to leaving nothing behind.
func newPool(t *testing.T, o optimem.PoolOptions) *optimem.Pool {
	t.Helper()
	idle := offHeap()
	p, err := optimem.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := offHeap(); n != idle {
			t.Errorf("%d bytes are left", n-idle)
		}
	})
	return p
}

// withinBudget returns an observer that compares what devices of the process hold on the CPU with a budget. Staging is not theirs: a
// file that is opened has a page of it for a moment.
func withinBudget(t *testing.T, budget int64) func(optimem.Event) {
	held := func() int64 { return offHeap() - hostmem.InUse(hostmem.Staging) }
	idle := held()
	var once sync.Once
	return func(optimem.Event) {
		if n := held() - idle; n > budget {
			once.Do(func() { t.Errorf("%d bytes are held, %d more than the budget", n, n-budget) })
		}
	}
}

// call runs a model of the pool and compares bits.
func (x *pooled) call(t *testing.T, p *optimem.Pool) {
	out, err := p.Run(t.Context(), x.name, x.in)
	if err != nil {
		t.Errorf("%s: %v", x.name, err)
	} else if !bytes.Equal(bytesOf(out), x.want) {
		t.Errorf("%s: other bits than a session alone", x.name)
	}
}

// zipf draws which of n is called: the first most often.
func zipf(n int, draw *rand.Rand) int {
	var sum float64
	for i := range n {
		sum += 1 / float64(i+1)
	}
	at := draw.Float64() * sum
	for i := range n {
		if at -= 1 / float64(i+1); at <= 0 {
			return i
		}
	}
	return n - 1
}

// leastRead returns what the best choice of a level for each model, made once and in hindsight, reads for so many calls.
func leastRead(menus [][]share.Level, calls []int64, budget int64) int64 {
	const unit = 1024
	best := int64(math.MaxInt64)
	var works []int64
	for _, levels := range menus {
		for _, of := range levels {
			works = append(works, of.PassBytes-of.KeepBytes)
		}
	}
	slices.Sort(works)
	for _, work := range slices.Compact(works) { // what passes may take beside the weights that stay
		room := (budget - work) / unit
		if room < 0 {
			continue
		}
		least := make([]int64, room+1) // by what stays
		for i, levels := range menus {
			next := make([]int64, room+1)
			for at := range next {
				next[at] = math.MaxInt64 / 2
				for _, of := range levels {
					keep := int(of.KeepBytes / unit)
					if of.PassBytes-of.KeepBytes > work && calls[i] > 0 || keep > at {
						continue
					}
					read := calls[i] * of.ReadBytes
					if calls[i] > 0 {
						read += of.KeepBytes
					}
					next[at] = min(next[at], least[at-keep]+read)
				}
			}
			least = next
		}
		best = min(best, least[room])
	}
	return best
}

// TestPoolOfFortyModels: forty models run in a third of the memory that their weights take, with Zipf's traffic. None is
// refused, the budget is kept to the byte, the bits are those of sessions alone, and at most a fifth more is read than by the best choice
// of what stays, made in hindsight.
func TestPoolOfFortyModels(t *testing.T) {
	all := stacks(t, 40)
	var weights int64
	for _, x := range all {
		for _, w := range x.model.Weights() {
			weights += w.Extent.Bytes
		}
	}
	budget := weights / 3
	p := newPool(t, optimem.PoolOptions{Memory: budget})
	watch := withinBudget(t, budget)
	for _, x := range all {
		if _, err := p.Open(t.Context(), x.name, x.model, optimem.Options{Observe: watch}); err != nil {
			t.Fatal(err)
		}
	}
	traffic := 4000
	if testing.Short() {
		traffic = 1500
	}
	draw := rand.New(rand.NewPCG(5, 5))
	calls := make([]int64, len(all))
	for range traffic {
		i := zipf(len(all), draw)
		calls[i]++
		all[i].call(t, p)
	}
	m := p.Metrics()
	if m.Refused != 0 || m.Waiting != 0 || m.BudgetBytes != budget || m.PeakBytes > budget || m.HeldBytes > budget {
		t.Errorf("%+v", m)
	}
	if m.Turns != int64(traffic) || m.Freed == 0 {
		t.Errorf("%d turns of %d calls, %d times weights gave way", m.Turns, traffic, m.Freed)
	}
	var read int64
	menus := make([][]share.Level, len(all))
	for i := range all {
		if m.Members[i].Calls != calls[i] || m.Members[i].Name != all[i].name {
			t.Errorf("%s: %d calls, and %d were made of %s", m.Members[i].Name, m.Members[i].Calls, calls[i], all[i].name)
		}
		read += m.Members[i].Session.LoadedBytes
		menus[i] = p.Member(all[i].name).Levels()
	}
	if n := len(menus[1]); n < 4 || menus[1][0].KeepBytes > menus[1][n-1].KeepBytes/4 || menus[1][n-1].ReadBytes != 0 {
		t.Errorf("levels %+v", menus[1])
	}
	least := leastRead(menus, calls, budget)
	t.Logf("%d bytes read, %.3f of the least", read, float64(read)/float64(least))
	if float64(read) > 1.2*float64(least) {
		t.Errorf("%d bytes read, %.2f of the least", read, float64(read)/float64(least))
	}
}

// TestPoolWithManyCallers: calls of many goroutines run beside each other and together, within the budget, while members are
// given back, closed and opened.
func TestPoolWithManyCallers(t *testing.T) {
	all := stacks(t, 9)
	const budget = 700_000
	p := newPool(t, optimem.PoolOptions{Memory: budget, Passes: 3})
	watch := withinBudget(t, budget)
	for i, x := range all[:8] {
		if _, err := p.Open(t.Context(), x.name, x.model, optimem.Options{Observe: watch, Threads: 1 + i%2}); err != nil {
			t.Fatal(err)
		}
	}
	var callers sync.WaitGroup
	for c := range uint64(12) {
		draw := rand.New(rand.NewPCG(c, 9))
		callers.Go(func() {
			for range 60 {
				all[zipf(8, draw)].call(t, p)
			}
		})
	}
	callers.Go(func() {
		for i := range 40 {
			if err := p.Member(all[i%8].name).GiveBack(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	callers.Go(func() {
		for range 10 {
			m, err := p.Open(t.Context(), all[8].name, all[8].model, optimem.Options{Observe: watch})
			if err != nil {
				t.Error(err)
				return
			}
			all[8].call(t, p)
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	callers.Wait()
	m := p.Metrics()
	var calls, runs int64
	for _, x := range m.Members {
		calls += x.Calls
		runs += x.Session.Runs
	}
	if calls != 12*60 || m.Waiting != 0 || m.PeakBytes > budget || len(m.Members) != 8 {
		t.Errorf("%d calls: %+v", calls, m)
	}
	if runs > calls {
		t.Errorf("%d passes for %d calls", runs, calls)
	}
}

// A held pool has one member whose pass waits until the test lets it go, and another one.
func heldPool(t *testing.T, o optimem.PoolOptions) (p *optimem.Pool, all []pooled, free func(), begun <-chan struct{}) {
	t.Helper()
	all = stacks(t, 3)
	p = newPool(t, o)
	hold, started := make(chan struct{}), make(chan struct{}, 100)
	for i, x := range all {
		opts := optimem.Options{}
		if i == 0 {
			opts.Observe = func(e optimem.Event) {
				if e.Kind == optimem.GroupDone && e.Group == 0 {
					started <- struct{}{}
					<-hold
				}
			}
		}
		if _, err := p.Open(t.Context(), x.name, x.model, opts); err != nil {
			t.Fatal(err)
		}
	}
	return p, all, sync.OnceFunc(func() { close(hold) }), started
}

// waitingCalls returns once so many calls wait.
func waitingCalls(p *optimem.Pool, n int) {
	for p.Metrics().Waiting != n {
		time.Sleep(time.Millisecond)
	}
}

// TestPoolQueue: while one pass runs others run beside it; calls of its model wait, and go together; those that give up are gone, and more
// than may wait are refused.
func TestPoolQueue(t *testing.T) {
	p, all, free, begun := heldPool(t, optimem.PoolOptions{Memory: 1 << 20, MaxWaiting: 4})
	defer free()
	var calls sync.WaitGroup
	calls.Go(func() { all[0].call(t, p) })
	<-begun
	all[1].call(t, p) // beside it
	before := p.Metrics()
	for range 3 {
		calls.Go(func() { all[0].call(t, p) })
	}
	waitingCalls(p, 3)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Run(ctx, all[0].name, all[0].in)
		ended <- err
	}()
	waitingCalls(p, 4)
	if m := p.Metrics().Members[0]; m.Waiting != 4 || !m.Running {
		t.Errorf("%+v", m)
	}
	if _, err := p.Run(t.Context(), all[1].name, all[1].in); !errors.Is(err, optimem.ErrPoolFull) {
		t.Errorf("a fifth waits: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	waitingCalls(p, 3)
	all[2].call(t, p)
	free()
	calls.Wait()
	m := p.Metrics()
	if m.Refused != 1 || m.Turns-before.Turns != 2 {
		t.Errorf("%d refused, %d turns", m.Refused, m.Turns-before.Turns)
	}
	if s := m.Members[0].Session; s.Calls != 4 {
		t.Errorf("%d calls", s.Calls)
	}
}

// TestPoolJoins: calls that wait with inputs of the same shapes read paged weights once.
func TestPoolJoins(t *testing.T) {
	p, all, free, begun := heldPool(t, optimem.PoolOptions{Memory: 120_000, Passes: 1})
	defer free()
	big := &all[2]
	big.call(t, p)
	before := p.Metrics().Members[2].Session
	var calls sync.WaitGroup
	calls.Go(func() { all[0].call(t, p) })
	<-begun
	for range 4 {
		calls.Go(func() { big.call(t, p) })
	}
	waitingCalls(p, 4)
	free()
	calls.Wait()
	m := p.Metrics().Members[2].Session
	if m.Calls != 5 || m.Runs != 2 || before.MovedBytes == 0 || m.MovedBytes != 2*before.MovedBytes {
		t.Errorf("%d passes of %d calls, %d bytes moved, %d by the first", m.Runs, m.Calls, m.MovedBytes, before.MovedBytes)
	}
}

// TestPoolPlans: a member tells what a call would take before there was one, what does not fit, and nothing once it is closed.
func TestPoolPlans(t *testing.T) {
	m := stacks(t, 1)[0]
	p := newPool(t, optimem.PoolOptions{Memory: 8 << 20})
	member, err := p.Open(t.Context(), "a", m.model, optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s := member.ForecastSeconds(); s != 0 {
		t.Errorf("%g seconds before a plan", s)
	}
	width := m.in["x"].Layout.Shape[1]
	pl, err := member.Plan(t.Context(), map[string]tensor.Shape{"x": {1, width}})
	if err != nil {
		t.Fatal(err)
	}
	if pl.PeakBytes() <= 0 || pl.Forecast.Seconds <= 0 || member.ForecastSeconds() != pl.Forecast.Seconds {
		t.Errorf("%d bytes, %g seconds, and a forecast of %g", pl.PeakBytes(), pl.Forecast.Seconds, member.ForecastSeconds())
	}
	var capacity *optimem.CapacityError
	if _, err := member.Plan(t.Context(), map[string]tensor.Shape{"x": {1 << 20, width}}); !errors.As(err, &capacity) || capacity.MinBytes <= 8<<20 {
		t.Errorf("a million rows: %v", err)
	}
	if out, err := member.Run(t.Context(), m.in); err != nil || !bytes.Equal(bytesOf(out), m.want) {
		t.Errorf("other bits than alone, %v", err)
	}
	if told, ok := member.Metrics(); !ok || told.Calls != 1 || told.Session.Runs != 1 || told.HeldBytes <= 0 {
		t.Errorf("%+v", told)
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := member.Metrics(); ok {
		t.Error("a closed member has metrics")
	}
	if _, err := member.Plan(t.Context(), map[string]tensor.Shape{"x": {1, width}}); !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("a closed member plans: %v", err)
	}
}

// TestPoolCloses: closing ends calls that wait, and waits for the pass that runs.
func TestPoolCloses(t *testing.T) {
	p, all, free, begun := heldPool(t, optimem.PoolOptions{Memory: 1 << 20})
	defer free()
	var calls sync.WaitGroup
	calls.Go(func() { all[0].call(t, p) })
	<-begun
	ended := make(chan error)
	go func() {
		_, err := p.Run(t.Context(), all[0].name, all[0].in)
		ended <- err
	}()
	waitingCalls(p, 1)
	m := p.Member(all[0].name)
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	if err := <-ended; !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("who waited: %v", err)
	}
	select {
	case err := <-closed:
		t.Fatalf("closed while a pass runs: %v", err)
	default:
	}
	free()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	calls.Wait()
	if _, err := m.Run(t.Context(), all[0].in); !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if p.Member(all[0].name) != nil || len(p.Metrics().Members) != 2 {
		t.Error("it is still there")
	}
	if m := p.Metrics(); m.HeldBytes != m.Members[0].HeldBytes+m.Members[1].HeldBytes {
		t.Errorf("what it held still counts: %+v", m)
	}
	if err := m.GiveBack(t.Context()); !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Open(t.Context(), "late", all[0].model, optimem.Options{}); !errors.Is(err, optimem.ErrClosed) {
		t.Errorf("a closed pool: %v", err)
	}
}

// TestPoolCancelled: a call whose context ends during its pass ends, and the next ones have their results.
func TestPoolCancelled(t *testing.T) {
	p, all, free, begun := heldPool(t, optimem.PoolOptions{Memory: 1 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Run(ctx, all[0].name, all[0].in)
		ended <- err
	}()
	<-begun
	cancel()
	free()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for range 2 {
		for i := range all {
			all[i].call(t, p)
		}
	}
}

// TestPoolOtherShapes: a member takes inputs of several shapes, and its weights stay for all of them.
func TestPoolOtherShapes(t *testing.T) {
	model := build(t, digitsModel, nil)
	const budget = 2 << 20
	sizes := []int{3, 40, 20} // for one row the CPU has weights in another form
	wants := make(map[int][]byte)
	for _, rows := range sizes {
		s, err := optimem.Resident(t.Context(), model, optimem.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wants[rows] = runDigits(t, s, pictures(rows))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, optimem.PoolOptions{Memory: budget})
	m, err := p.Open(t.Context(), "digits", model, optimem.Options{Observe: withinBudget(t, budget)})
	if err != nil {
		t.Fatal(err)
	}
	var loaded int64
	for round := range 3 {
		for _, rows := range sizes {
			want := wants[rows]
			out, err := m.Run(t.Context(), digitsInput(pictures(rows)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(bytesOf(out), want) {
				t.Errorf("%d rows: other bits", rows)
			}
		}
		now := p.Metrics().Members[0].Session.LoadedBytes
		if round > 0 && now != loaded {
			t.Errorf("%d bytes read again", now-loaded)
		}
		loaded = now
	}
	if err := m.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x := p.Metrics(); x.HeldBytes != 0 || x.Members[0].KeptBytes != 0 || x.Members[0].Session.WeightBytes != 0 {
		t.Errorf("%+v", x)
	}
	into := optimem.Values{}
	out, err := m.Run(t.Context(), digitsInput(pictures(1)))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range out {
		into[name] = tensor.Of(make([]float32, 10), x.Layout.Shape...)
	}
	if err := m.RunInto(t.Context(), digitsInput(pictures(1)), into); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytesOf(into), bytesOf(out)) {
		t.Error("other bits into tensors of the caller")
	}
}

// TestPoolOnADevice: models on a device with memory of its own share that, and the host's.
func TestPoolOnADevice(t *testing.T) {
	all := stacks(t, 3)
	p := newPool(t, optimem.PoolOptions{Memory: 400_000, Device: "emu:memory=1MiB", HostMemory: 10 << 20})
	for _, x := range all {
		if _, err := p.Open(t.Context(), x.name, x.model, optimem.Options{HostMemory: 3 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		for i := range all {
			all[i].call(t, p)
			var held int64
			for _, m := range p.Metrics().Members {
				s := m.Session
				held += s.WeightBytes + s.RingBytes + s.ActivationBytes + s.WorkBytes
				if s.HostPeakBytes > 3<<20 {
					t.Errorf("%d bytes of the host's memory", s.HostPeakBytes)
				}
			}
			if held > 400_000 {
				t.Errorf("%d bytes are held", held)
			}
		}
	}
	var pool *optimem.PoolError
	if _, err := p.Open(t.Context(), "one more", all[0].model, optimem.Options{HostMemory: 2 << 20}); !errors.As(err, &pool) {
		t.Errorf("more of the host's memory than there is: %v", err)
	}
	if err := p.Member(all[2].name).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), "one more", all[0].model, optimem.Options{HostMemory: 2 << 20}); err != nil {
		t.Errorf("as much as another one had: %v", err)
	}
}

// TestPoolRefuses: what cannot be in a pool is refused when it comes, with what is wrong.
func TestPoolRefuses(t *testing.T) {
	var option *optimem.OptionError
	for _, o := range []optimem.PoolOptions{
		{Memory: -1}, {HostMemory: -1}, {Passes: -1}, {MaxWaiting: -1}, {Device: "cuda:0,cuda:1", Memory: 1 << 20},
		{Device: "emu:memory=1MiB"},
	} {
		if _, err := optimem.NewPool(o); !errors.As(err, &option) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	model := build(t, digitsModel, nil)
	p := newPool(t, optimem.PoolOptions{Memory: 1 << 20})
	for _, o := range []optimem.Options{
		{Memory: 1}, {MemoryShare: 0.5}, {Reserve: 1}, {Device: "emu"}, {Mode: plan.Chunk}, {PlanOnly: true}, {HostMemory: -1},
	} {
		if _, err := p.Open(t.Context(), "digits", model, o); !errors.As(err, &option) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	var pool *optimem.PoolError
	if _, err := p.Open(t.Context(), "", model, optimem.Options{}); !errors.As(err, &pool) {
		t.Errorf("no name: %v", err)
	}
	m, err := p.Open(t.Context(), "digits", model, optimem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), "digits", model, optimem.Options{}); !errors.As(err, &pool) {
		t.Errorf("the same name: %v", err)
	}
	if _, err := p.Run(t.Context(), "letters", nil); !errors.As(err, &pool) {
		t.Errorf("no such name: %v", err)
	}
	var input *optimem.InputError
	if _, err := m.Run(t.Context(), optimem.Values{}); !errors.As(err, &input) {
		t.Errorf("no input: %v", err)
	}
	var capacity *optimem.CapacityError
	if _, err := m.Run(t.Context(), digitsInput(pictures(1000))); !errors.As(err, &capacity) || capacity.MinBytes <= 1<<20 {
		t.Errorf("more than the budget: %v", err)
	}
	states := build(t, "testdata/states.pt2", nil)
	if _, err = p.Open(t.Context(), "states", states, optimem.Options{}); err == nil {
		_, err = p.Run(t.Context(), "states", recorded(t, "states")[0].input())
	}
	if !errors.As(err, &pool) {
		t.Errorf("a program that changes buffers: %v", err)
	}
	if x := p.Metrics(); x.Waiting != 0 || x.Running != 0 || x.HeldBytes != 0 {
		t.Errorf("%+v", x)
	}
	small := newPool(t, optimem.PoolOptions{Memory: 100})
	_, err = small.Open(t.Context(), "conjugated", build(t, "testdata/conjugated.pt2", nil), optimem.Options{})
	if !errors.As(err, &capacity) || len(small.Metrics().Members) != 0 {
		t.Errorf("a model of known shapes that does not fit: %v", err)
	}
}

// TestPoolSurvivesAFault: a pass that fails gives its caller the error, and the model's next call the same bits.
func TestPoolSurvivesAFault(t *testing.T) {
	x := stacks(t, 2)
	p := newPool(t, optimem.PoolOptions{Memory: 1 << 20})
	fails := false
	if _, err := p.Open(t.Context(), x[0].name, x[0].model, optimem.Options{Observe: func(e optimem.Event) {
		if fails && e.Kind == optimem.GroupDone {
			panic("observer")
		}
	}}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if fails = i%2 == 1; !fails {
			x[0].call(t, p)
			continue
		}
		var panicked *optimem.PanicError
		if _, err := p.Run(t.Context(), x[0].name, x[0].in); !errors.As(err, &panicked) {
			t.Errorf("an observer that panics: %v", err)
		}
	}
}

// TestPoolInTheLeastMemory: calls that would go together go one by one where there is no memory for that.
func TestPoolInTheLeastMemory(t *testing.T) {
	x := stacks(t, 1)[0]
	var capacity *optimem.CapacityError
	small := newPool(t, optimem.PoolOptions{Memory: 1000})
	if _, err := small.Open(t.Context(), x.name, x.model, optimem.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Run(t.Context(), x.name, x.in); !errors.As(err, &capacity) {
		t.Fatal(err)
	}
	p := newPool(t, optimem.PoolOptions{Memory: capacity.MinBytes})
	hold, begun := make(chan struct{}), make(chan struct{}, 100)
	if _, err := p.Open(t.Context(), x.name, x.model, optimem.Options{Observe: func(e optimem.Event) {
		if e.Kind == optimem.GroupDone && e.Group == 0 {
			begun <- struct{}{}
			<-hold
		}
	}}); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	calls.Go(func() { x.call(t, p) })
	<-begun
	for range 4 {
		calls.Go(func() { x.call(t, p) })
	}
	waitingCalls(p, 4)
	close(hold)
	calls.Wait()
	if m := p.Metrics(); m.PeakBytes != capacity.MinBytes || m.Members[0].Session.Calls != 5 {
		t.Errorf("%+v", m)
	}
}

// TestPoolPlansAnew: where the process has no memory for what was planned, a call runs in less, and what it leaves is given back,
// since it is not what the pool knows of.
func TestPoolPlansAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	const width, weights = 1024, 16 * 1024 * 1024 * 4
	writeStack(t, path, 16, width, 1)
	in := optimem.Values{"x": tensor.Of(make([]float32, width), 1, width)}
	p := newPool(t, optimem.PoolOptions{Memory: 2 * weights})
	if _, err := p.Open(t.Context(), "m", build(t, path, nil), optimem.Options{}); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	before := hostmem.Limit(offHeap() + int64(stats.HeapAlloc) + weights*3/4)
	_, err := p.Run(t.Context(), "m", in)
	hostmem.Limit(before)
	if err != nil {
		t.Fatal(err)
	}
	for p.Metrics().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	m := p.Metrics()
	if x := m.Members[0]; x.Session.Replans == 0 || x.HeldBytes != 0 || x.KeptBytes != 0 || x.Session.HeldBytes != 0 {
		t.Errorf("%+v", x)
	}
	if _, err := p.Run(t.Context(), "m", in); err != nil {
		t.Fatal(err)
	}
	for p.Metrics().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	if x := p.Metrics().Members[0]; x.KeptBytes < weights {
		t.Errorf("%d bytes of weights stay", x.KeptBytes)
	}
}
