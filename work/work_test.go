package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve"
	"github.com/optimem/optimem/tensor"
)

const digits = "../examples/digits/digits.pt2"

func embedded(t *testing.T) *Server {
	t.Helper()
	s, err := Embed(t.TempDir(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func connect(t *testing.T, s *Server) *Queue {
	t.Helper()
	q, err := Connect(t.Context(), Options{URL: s.URL(), Stream: "pictures"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

// A hand is a worker that works in the background.
type hand struct {
	q      *Queue
	passes atomic.Int64
	cancel context.CancelFunc
	done   chan error
}

// hire starts a worker with the digits model, and waits until it has told of it. Passes call before at each step, and wait for it;
// nil is nothing.
func hire(t *testing.T, s *Server, opts WorkerOptions, before func(runtime.Event)) *hand {
	t.Helper()
	return hireAt(t, Options{Server: s, Stream: "pictures"}, opts, before)
}

func hireAt(t *testing.T, at Options, opts WorkerOptions, before func(runtime.Event)) *hand {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(digits)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "digits.pt2"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return hireFor(t, at, dir, "digits", opts, before)
}

// hireFor starts a worker for a directory with one model.
func hireFor(t *testing.T, at Options, dir, model string, opts WorkerOptions, before func(runtime.Event)) *hand {
	t.Helper()
	return hireSized(t, at, dir, model, 64<<20, opts, before)
}

// hireSized is hireFor with so much memory for models.
func hireSized(t *testing.T, at Options, dir, model string, memory int64, opts WorkerOptions, before func(runtime.Event)) *hand {
	t.Helper()
	q, err := Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	h := &hand{q: q, done: make(chan error, 1)}
	opts.Progress, opts.RetryAfter = new(Progress), 200*time.Millisecond
	registry, err := serve.Open(t.Context(), dir, serve.Options{Memory: memory, Session: runtime.Options{Observe: func(e runtime.Event) {
		if e.Kind == runtime.PassDone {
			h.passes.Add(1)
		}
		if before != nil {
			before(e)
		}
		opts.Progress.Observe(e)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.cancel = cancel
	go func() { h.done <- h.q.Work(ctx, registry, opts) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-h.done:
		case <-time.After(5 * time.Minute):
			t.Error("the worker does not end")
		}
		if err := registry.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 20000 {
		if _, err := h.q.told(t.Context(), model); err == nil {
			return h
		} else if !errors.Is(err, ErrNoWorker) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the worker does not tell of its model")
	return nil
}

// picture is the i-th of random pictures.
func picture(i int) *tensor.Tensor {
	random := rand.New(rand.NewPCG(uint64(i), 7))
	x := make([]float32, 64)
	for k := range x {
		x[k] = random.Float32()
	}
	return tensor.Of(x, 1, 1, 8, 8)
}

func pictures(from, to int) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for i := from; i < to; i++ {
			if !yield(Item{Name: fmt.Sprint("picture ", i), Inputs: runtime.Values{input: picture(i)}}) {
				return
			}
		}
	}
}

// input is the model's.
var input = func() string {
	ckpt, model := open()
	defer ckpt.Close()
	return model.Inputs()[0].Name
}()

func open() (*loader.Checkpoint, *models.Model) {
	ckpt, err := loader.Open(digits)
	if err != nil {
		panic(err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		panic(err)
	}
	return ckpt, model
}

// plain is what a session alone makes of pictures.
func plain(t *testing.T, n int) []runtime.Values {
	t.Helper()
	ckpt, model := open()
	defer ckpt.Close()
	s, err := runtime.Resident(t.Context(), model, runtime.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := make([]runtime.Values, n)
	for i := range all {
		if all[i], err = s.Run(t.Context(), runtime.Values{input: picture(i)}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// output is the output of a key.
func output(t *testing.T, q *Queue, key string) []byte {
	t.Helper()
	var b bytes.Buffer
	err := q.Output(context.Background(), key, func() (io.Writer, error) {
		b.Reset()
		return &b, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// check compares the output of a key with what a session gave.
func check(t *testing.T, q *Queue, r Result, want runtime.Values) {
	t.Helper()
	if r.Reason != "" {
		t.Errorf("%s: %s", r.Name, r.Reason)
		return
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	b := output(t, q, r.Key)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	if len(ckpt.Weights) != len(want) {
		t.Fatalf("%d outputs, want %d", len(ckpt.Weights), len(want))
	}
	for _, w := range ckpt.Weights {
		got, err := w.Contents(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data, want[w.Name].Contiguous().Data) {
			t.Errorf("%s: %s has other bits than a run by itself", r.Name, w.Name)
		}
	}
}

// Two workers share 200 items. One dies without a word in the middle of passes: nothing is lost, nothing comes twice, and every
// bit is that of a session that runs alone.
func TestWorkerDies(t *testing.T) {
	const n = 200
	server := embedded(t)
	dying := make(chan struct{})
	hold := make(chan struct{})
	defer close(hold)
	opts := WorkerOptions{AckWait: time.Second}
	passes := 0
	first := hire(t, server, opts, func(e runtime.Event) {
		if e.Kind != runtime.PassDone {
			return
		}
		if passes++; passes == 2 {
			close(dying)
			<-hold // what was computed gets no further
		}
	})
	second := hire(t, server, opts, nil)
	q := connect(t, server)
	results := make(map[int]Result)
	done := make(chan error, 1)
	go func() {
		done <- q.Submit(t.Context(), "digits", pictures(0, n), SubmitOptions{InFlight: 100}, func(r Result) error {
			if _, twice := results[r.Index]; twice {
				t.Errorf("%s has two results", r.Name)
			}
			results[r.Index] = r
			return nil
		})
	}()
	<-dying
	first.q.conn.Close() // no acknowledgement gets out any more, as from a process that was killed
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if second.passes.Load() == 0 {
		t.Error("the second worker did nothing")
	}
	want := plain(t, n)
	if len(results) != n {
		t.Errorf("%d results, want %d", len(results), n)
	}
	for i, r := range results {
		check(t, q, r, want[i])
	}
	stored, err := q.out.List(t.Context())
	if err != nil || len(stored) != n {
		t.Errorf("%d outputs are stored, want %d: %v", len(stored), n, err)
	}
	waitEmpty(t, q)
}

// What nobody can run goes to the dead letters with the reason, and the others go on.
func TestPoison(t *testing.T) {
	server := embedded(t)
	hire(t, server, WorkerOptions{MaxBytes: 1000}, nil)
	q := connect(t, server)
	items := func(yield func(Item) bool) {
		_ = yield(Item{Name: "good", Inputs: runtime.Values{input: picture(1)}}) &&
			yield(Item{Name: "shape", Inputs: runtime.Values{input: tensor.Of(make([]float32, 14), 1, 1, 7, 2)}}) &&
			yield(Item{Name: "name", Inputs: runtime.Values{"nothing": picture(1)}}) &&
			yield(Item{Name: "large", Inputs: runtime.Values{input: tensor.Of(make([]float32, 128), 2, 1, 8, 8)}}) &&
			yield(Item{Name: "unread", Err: errors.New("no such file")}) &&
			yield(Item{Name: "good again", Inputs: runtime.Values{input: picture(1)}})
	}
	for i, sent := range []uint64{4, 4, 7} { // the second time, reasons are found; the third they are not looked for
		reasons := make(map[string]string)
		err := q.Submit(t.Context(), "digits", items, SubmitOptions{Again: i == 2}, func(r Result) error {
			reasons[r.Name] = r.Reason
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, part := range map[string]string{"good": "", "good again": "", "shape": "8", "name": "missing", "large": "500 are the most", "unread": "no such file"} {
			if got, ok := reasons[name]; !ok || (got == "") != (part == "") || !strings.Contains(got, part) {
				t.Errorf("%s: %q, want …%s…", name, got, part)
			}
		}
		if info, err := q.stream.Info(t.Context()); err != nil || info.State.LastSeq != sent {
			t.Errorf("%d items were sent, want %d: %v", info.State.LastSeq, sent, err)
		}
	}
	if info, err := q.dead.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("%d dead letters, want 3: %v", info.State.Msgs, err)
	}
	other := digest("another")
	if _, err := q.in.PutBytes(t.Context(), other, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"{", `{"inputs":[]}`, `{"inputs":[{"name":"x","sha256":"../../x"}]}`, `{"inputs":[{"name":"x","sha256":"` + other + `","bytes":3}]}`,
		`{"inputs":[{"name":"y","sha256":"` + other + `","bytes":4}]}`, `{"inputs":[{"name":"z","sha256":"` + digest("gone") + `","bytes":4}]}`,
	} {
		if _, err := q.js.Publish(t.Context(), q.workSubject(mustTold(t, q).Class), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "what is no note is put aside", func() bool {
		info, err := q.dead.Info(t.Context())
		return err == nil && info.State.Msgs == 9
	})
	n := note{Inputs: []noteInput{{Name: "x", SHA256: other}}}
	m, err := q.dead.GetLastMsgForSubject(t.Context(), q.deadSubject(n.key(mustTold(t, q).Class)))
	if err != nil || !bytes.Contains(m.Data, []byte("not what its name says")) {
		t.Errorf("another input than its name says: %v, %v", m, err)
	}
}

// An item that workers began and never ended is put aside in the end; one that a worker leaves as it ends goes to others at once.
func TestGivenUp(t *testing.T) {
	server := embedded(t)
	hold, begun := make(chan struct{}), make(chan struct{}, 100)
	first := hire(t, server, WorkerOptions{AckWait: time.Hour}, func(runtime.Event) {
		begun <- struct{}{}
		<-hold
	})
	q := connect(t, server)
	results := make(chan Result, 1)
	submit := func(i int) {
		_ = q.Submit(t.Context(), "digits", pictures(i, i+1), SubmitOptions{}, func(r Result) error {
			results <- r
			return nil
		})
	}
	go submit(0)
	<-begun
	first.cancel()
	close(hold)
	for range 2 { // they get it at once, though there is an hour to acknowledge it
		messages, err := q.pull(t.Context(), mustTold(t, q).Class, pullRequest{Batch: 1, Expires: 4 * time.Minute})
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d messages: %v", len(messages), err)
		}
		if err := messages[0].Nak(); err != nil {
			t.Fatal(err)
		}
	}
	hire(t, server, WorkerOptions{Attempts: 2}, nil)
	if r := <-results; !strings.Contains(r.Reason, "begun 3 times") {
		t.Errorf("an item that was begun three times: %q", r.Reason)
	}
	submit(1)
	if r := <-results; r.Reason != "" {
		t.Errorf("the next: %q", r.Reason)
	}
}

func mustTold(t *testing.T, q *Queue) told {
	t.Helper()
	told, err := q.told(t.Context(), "digits")
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !waited(done) {
		t.Fatal("not after three minutes: ", what)
	}
}

// waited reports whether something came to be.
func waited(done func() bool) bool {
	for range 20000 {
		if done() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// waitEmpty waits until all items are acknowledged, which they are after their outputs are there.
func waitEmpty(t *testing.T, q *Queue) {
	t.Helper()
	wait(t, "the queue is empty", func() bool {
		info, err := q.stream.Info(t.Context())
		return err == nil && info.State.Msgs == 0
	})
}

// A submitter that is killed finds, the next time, what was computed, also of what it did not wait for.
func TestSubmitAgain(t *testing.T) {
	server := embedded(t)
	h := hire(t, server, WorkerOptions{}, nil)
	q := connect(t, server)
	stop := errors.New("killed")
	got := 0
	err := q.Submit(t.Context(), "digits", pictures(0, 40), SubmitOptions{InFlight: 8}, func(Result) error {
		if got++; got == 5 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || got != 5 {
		t.Fatalf("%v after %d results", err, got)
	}
	want := plain(t, 40)
	for round := range 2 {
		passes := h.passes.Load()
		results := make(map[int]Result)
		again := connect(t, server)
		err := again.Submit(t.Context(), "digits", pictures(0, 40), SubmitOptions{InFlight: 8}, func(r Result) error {
			results[r.Index] = r
			return nil
		})
		if err != nil || len(results) != 40 {
			t.Fatalf("%v, %d results", err, len(results))
		}
		for i, r := range results {
			check(t, q, r, want[i])
		}
		waitEmpty(t, q) // also of what the first left there
		if round == 1 && passes != h.passes.Load() {
			t.Error("what has outputs was run again")
		}
	}
}

// No more items than allowed are in the queue at any time.
func TestInFlight(t *testing.T) {
	server := embedded(t)
	q := connect(t, server)
	hold := make(chan struct{})
	hire(t, server, WorkerOptions{}, func(runtime.Event) { <-hold })
	done := make(chan error, 1)
	go func() {
		done <- q.Submit(t.Context(), "digits", pictures(0, 20), SubmitOptions{InFlight: 3}, func(Result) error { return nil })
	}()
	wait(t, "three items are in the queue", func() bool {
		info, err := q.stream.Info(t.Context())
		return err == nil && info.State.Msgs == 3
	})
	time.Sleep(200 * time.Millisecond)
	if info, err := q.stream.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("%d items, want 3: %v", info.State.Msgs, err)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A pass that goes on keeps its items beyond the server's patience; one that does nothing gives them up.
func TestStuck(t *testing.T) {
	for name, patience := range map[string]time.Duration{"goes on": time.Hour, "stuck": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := embedded(t)
			hold := make(chan struct{})
			hire(t, server, WorkerOptions{AckWait: 600 * time.Millisecond, Patience: patience}, func(runtime.Event) { <-hold })
			q := connect(t, server)
			said := make(chan string, 1000)
			if _, err := q.conn.Subscribe("$JS.ACK.>", func(m *nats.Msg) { said <- strings.Fields(string(m.Data))[0] }); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- q.Submit(t.Context(), "digits", pictures(0, 1), SubmitOptions{}, func(r Result) error {
					check(t, q, r, plain(t, 1)[0])
					return nil
				})
			}()
			if name == "goes on" {
				for range 6 { // twice the server's patience
					if word := <-said; word != "+WPI" {
						t.Errorf("the worker said %s", word)
					}
				}
			} else {
				for word := ""; word != "-NAK"; {
					word = <-said
				}
			}
			close(hold)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// An output's key says who computed it, and of what.
func TestKey(t *testing.T) {
	n := note{Inputs: []noteInput{{Name: "a", SHA256: "1"}, {Name: "b", SHA256: "2"}}}
	same := note{Item: "x", Inputs: []noteInput{{Name: "b", SHA256: "2"}, {Name: "a", SHA256: "1"}}}
	key := n.key("c")
	if same.key("c") != key {
		t.Error("the order of inputs, or a name for people, changes the key")
	}
	for what, other := range map[string]string{
		"class": n.key("d"),
		"input": (&note{Inputs: []noteInput{{Name: "a", SHA256: "1"}, {Name: "b", SHA256: "3"}}}).key("c"),
		"name":  (&note{Inputs: []noteInput{{Name: "a", SHA256: "2"}, {Name: "b", SHA256: "1"}}}).key("c"),
	} {
		if other == key {
			t.Errorf("another %s has the same key", what)
		}
	}
	if classOf("x", "cpu") == classOf("x", "cuda") || classOf("x", "cpu") == classOf("y", "cpu") {
		t.Error("other files or devices are of the same class")
	}
}

// Names and addresses that are refused.
func TestRefused(t *testing.T) {
	if s, err := Embed(t.TempDir(), "0.0.0.0:0"); err == nil {
		s.Close()
		t.Error("a server for everybody")
	}
	if _, err := Connect(t.Context(), Options{URL: "nats://127.0.0.1:1", Stream: "a.b"}); err == nil || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("a name with a dot: %v", err)
	}
	_, err := Connect(t.Context(), Options{URL: "nats://user:secret@127.0.0.1:1", Stream: "a"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is told: %v", err)
	}
	q := connect(t, embedded(t))
	if err := q.Submit(t.Context(), "digits", pictures(0, 1), SubmitOptions{}, nil); !errors.Is(err, ErrNoWorker) {
		t.Errorf("without a worker: %v", err)
	}
	if _, err := q.in.GetInfo(t.Context(), "x"); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Error(err)
	}
}

// What does not fit a worker goes to a larger one, and is not put aside.
func TestLargerWorker(t *testing.T) {
	server, dir := embedded(t), lookFolder(t)
	at, opts := Options{Server: server, Stream: "pictures"}, WorkerOptions{Attempts: 1 << 20}
	small := hireSized(t, at, dir, "look", 200_000, opts, nil)
	q := connect(t, server)
	large := tensor.Of(make([]float32, 3*160*160), 1, 3, 160, 160)
	done := make(chan error, 1)
	go func() {
		item := func(yield func(Item) bool) { yield(Item{Name: "large", Inputs: runtime.Values{"x": large}}) }
		done <- q.Submit(t.Context(), "look", item, SubmitOptions{}, func(r Result) error {
			if r.Reason != "" || !bytes.Contains(output(t, q, r.Key), large.Data) {
				t.Errorf("it has no output: %s", r.Reason)
			}
			return nil
		})
	}()
	class := func() string {
		told, err := q.told(t.Context(), "look")
		if err != nil {
			t.Fatal(err)
		}
		return told.Class
	}()
	wait(t, "the small worker has left it", func() bool {
		c, err := q.stream.Consumer(t.Context(), class)
		return err == nil && c.CachedInfo().NumRedelivered > 0
	})
	if small.passes.Load() > 0 {
		t.Error("it fits")
	}
	hireSized(t, at, dir, "look", 64<<20, opts, nil)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A queue that is full has its submitter wait, and loses nothing.
func TestQueueIsFull(t *testing.T) {
	const most, n = 3, 12
	server := embedded(t)
	hold := make(chan struct{})
	hire(t, server, WorkerOptions{}, func(runtime.Event) { <-hold })
	q := connect(t, server)
	config := q.stream.CachedInfo().Config
	config.MaxMsgs = most
	if _, err := q.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	results := make(map[int]Result)
	done := make(chan error, 1)
	go func() {
		done <- q.Submit(t.Context(), "digits", pictures(0, n), SubmitOptions{}, func(r Result) error {
			results[r.Index] = r
			return nil
		})
	}()
	wait(t, "the queue is full, and an input more is there", func() bool {
		info, err := q.stream.Info(t.Context())
		inputs, failed := q.in.stream.Info(t.Context())
		return err == nil && failed == nil && info.State.Msgs == most && inputs.State.Msgs == 2*(most+1)
	})
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := plain(t, n)
	for i := range n {
		check(t, q, results[i], want[i])
	}
}
