package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve"
)

// A Progress sees that passes go on. Its Observe is for [runtime.Options].
type Progress struct{ last atomic.Int64 }

// Observe notes that a step of a pass is done.
func (p *Progress) Observe(runtime.Event) { p.last.Store(time.Now().UnixNano()) }

// since is how long ago the last step was, or begun if that is later.
func (p *Progress) since(begun time.Time) time.Duration {
	return min(time.Since(time.Unix(0, p.last.Load())), time.Since(begun))
}

// WorkerOptions say how a worker works. The zero value is right on the CPU, but for Progress.
type WorkerOptions struct {
	// Models are those to take work for; nil is all of the registry that take tensors, write text or make vectors.
	Models []string
	// Device is what kind of device computes: its name is part of the outputs' keys, since bits differ by it; "" is "cpu".
	Device string
	// Progress is told of passes by the registry's sessions.
	Progress *Progress
	// AckWait is after what time without a sign of a worker its items go to others, where the consumer is made now; 0 is 30 s.
	AckWait time.Duration
	// Patience is how long a pass may do no step before its items are left to others; 0 is 5 min.
	Patience time.Duration
	// Attempts is how often an item is begun before it is given up; 0 is 5.
	Attempts uint64
	// RetryAfter is when an item that did not fit, or failed, may be taken again; 0 is 10 s.
	RetryAfter time.Duration
	// Stay is how long no worker takes items of a model until this one turns to it; 0 is 1 min. Else a model has the
	// worker as long as it has items.
	Stay time.Duration
	// MaxBytes bounds the inputs of all items that are under way, of which there is a copy for a moment, and what pictures
	// among them take while they are decoded; 0 is 256 MiB.
	MaxBytes int64
	// Shared is a folder that submitters share, from which inputs are read that notes name by their paths there; nil is
	// none, and such items are left to other workers.
	Shared *os.Root
	// Ready, where it is not nil, is called when the worker has told of its models and takes items.
	Ready func()
	// Log takes what happens; nil drops it.
	Log *slog.Logger
}

// A worker is one run of [Queue.Work].
type worker struct {
	q        *Queue
	registry *serve.Registry
	opts     WorkerOptions
	// memory bounds bytes of inputs.
	memory   *semaphore.Weighted
	turn     *turn
	darkroom *darkroom
}

// A station is a worker's part for one model.
type station struct {
	*worker
	model  string
	number int
	told   told
	// writing is how a model that writes does.
	writing  serve.Writing
	consumer jetstream.Consumer
	ackWait  time.Duration
	// slots bounds the items under way: those of a pass, and of the next.
	slots *semaphore.Weighted
	// left is closed when the station asks for no more items: what it gives back then goes to others.
	left chan struct{}
}

// Work takes items until ctx is done, which is no error: what is under way then is given back at once.
func (q *Queue) Work(ctx context.Context, registry *serve.Registry, opts WorkerOptions) error {
	opts.Device = cmp.Or(opts.Device, "cpu")
	opts.AckWait = cmp.Or(opts.AckWait, 30*time.Second)
	opts.Patience = cmp.Or(opts.Patience, 5*time.Minute)
	opts.Attempts = cmp.Or(opts.Attempts, 5)
	opts.RetryAfter = cmp.Or(opts.RetryAfter, 10*time.Second)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, 256<<20)
	opts.Stay = cmp.Or(opts.Stay, time.Minute)
	if opts.Progress == nil {
		return errors.New("work: without Progress a pass that is stuck would look like one that goes on")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	w := &worker{
		q: q, registry: registry, opts: opts, memory: semaphore.NewWeighted(opts.MaxBytes),
		turn: newTurn(opts.Stay, time.Now), darkroom: newDarkroom(),
	}
	if opts.Models == nil {
		for _, m := range registry.Models() {
			if (m.Kind == serve.Tensors || m.Kind == serve.Text || m.Kind == serve.Embeddings) &&
				m.State == serve.Ready && !slices.Contains(opts.Models, m.Name) {
				opts.Models = append(opts.Models, m.Name)
			}
		}
	}
	if len(opts.Models) == 0 {
		return errors.New("work: no model that takes tensors, writes text or makes vectors is ready")
	}
	var stations []*station
	for _, model := range opts.Models {
		s, err := w.station(ctx, model)
		if err != nil {
			return fmt.Errorf("model %s: %w", model, err)
		}
		stations = append(stations, s)
	}
	if opts.Ready != nil {
		opts.Ready()
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range stations {
		s.number = i
		group.Go(func() error { return s.take(ctx) })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// station tells of a model and opens its consumer.
func (w *worker) station(ctx context.Context, model string) (*station, error) {
	files, err := w.registry.Digest(ctx, model)
	if err != nil {
		return nil, err
	}
	// "cuda:1" computes as "cuda:0" does.
	kind, _, _ := strings.Cut(w.opts.Device, ":")
	kind += "/" + goruntime.GOARCH
	s := &station{worker: w, model: model, told: told{Files: files, Device: kind}, left: make(chan struct{})}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.slots = semaphore.NewWeighted(int64(2 * s.told.Join))
	err = patiently(ctx, func() (err error) {
		s.consumer, err = w.q.stream.Consumer(ctx, s.told.Class)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			s.consumer, err = w.q.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
				Durable: s.told.Class, FilterSubject: w.q.workSubject(s.told.Class),
				AckPolicy: jetstream.AckExplicitPolicy,
				AckWait:   w.opts.AckWait, MaxDeliver: -1, MaxAckPending: 1 << 16, Description: model + " on " + kind,
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.ackWait = s.consumer.CachedInfo().Config.AckWait
	text, err := json.Marshal(s.told)
	if err != nil {
		return nil, err
	}
	return s, patiently(ctx, func() error {
		_, err := w.q.models.Put(ctx, model, text)
		return err
	})
}

// look finds out what the model takes, and its class.
func (s *station) look(ctx context.Context) error {
	if s.is(serve.Embeddings) {
		s.told.Vectors, s.told.Join, s.told.Class = true, vectorsJoin, vectorClassOf(s.told.Files, s.told.Device)
		return nil
	}
	if s.is(serve.Text) {
		w, err := s.registry.Writing(ctx, s.model)
		if err != nil {
			return err
		}
		s.writing, s.told.Writes, s.told.Join = w, true, w.Sequences
		s.told.Class = textClassOf(s.told.Files, s.told.Device, w.Context, w.KV.String())
		return nil
	}
	inputs, join, err := s.registry.Inputs(ctx, s.model)
	if err != nil {
		return err
	}
	s.told.Class, s.told.Join = classOf(s.told.Files, s.told.Device), join
	for _, p := range inputs {
		s.told.Inputs = append(s.told.Inputs, Port{Name: p.Name, DType: p.DType.String(), Shape: p.Shape,
			Optional: p.Optional})
	}
	return nil
}

// vectorsJoin is how many items are taken at once of a model that makes vectors, whose texts share passes within an
// item.
const vectorsJoin = 4

// is reports whether the model is of a kind.
func (s *station) is(kind serve.Kind) bool {
	return slices.ContainsFunc(s.registry.Models(),
		func(m serve.Model) bool { return m.Name == s.model && m.Kind == kind })
}

// take takes items: as many as share a pass, so that the next is full while one runs.
func (s *station) take(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	defer close(s.left)
	for {
		n := 0
		for n < min(s.told.Join, maxPull) && (n == 0 || s.slots.TryAcquire(1)) {
			if n == 0 {
				if err := s.slots.Acquire(ctx, 1); err != nil {
					return err
				}
			}
			n++
		}
		s.turn.wait(ctx, s.number, func() bool { return s.starves(ctx) })
		messages, err := s.fetch(ctx, n)
		s.turn.took(s.number, len(messages))
		for _, m := range messages {
			under.Go(func() {
				defer s.slots.Release(1)
				defer s.turn.ended(s.number)
				s.do(ctx, m)
			})
		}
		s.slots.Release(int64(n - len(messages)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.q.lostConn:
			return errors.New("the connection was closed")
		default:
		}
		if err != nil {
			s.opts.Log.Warn("no work could be taken", "model", s.model, "error", err)
			pause(ctx, time.Second)
		}
	}
}

// starves reports whether the model has items, and no worker took one for as long as a turn may be.
func (s *station) starves(ctx context.Context) bool {
	info, err := s.consumer.Info(ctx)
	if err != nil || info.NumPending == 0 {
		return false
	}
	last := info.Delivered.Last
	return last == nil || info.TimeStamp.Sub(*last) >= s.opts.Stay
}

// fetch returns n items at most: those that are there, or the next.
func (s *station) fetch(ctx context.Context, n int) ([]*nats.Msg, error) {
	messages, err := s.q.pull(ctx, s.told.Class, pullRequest{Batch: n, NoWait: true})
	if err != nil || len(messages) > 0 || ctx.Err() != nil {
		return messages, err
	}
	return s.q.pull(ctx, s.told.Class, pullRequest{Batch: 1, Expires: pullWait})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// errStuck ends an item whose pass does nothing any more.
var errStuck = errors.New("the pass does no step any more")

// do runs an item and answers its message.
func (s *station) do(ctx context.Context, m *nats.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		s.opts.Log.Error("a message without metadata", "error", err)
		return
	}
	n, err := parseNote(m.Data)
	key := digest("no note\n", string(m.Data))
	if err != nil {
		err = poison("%v", err)
	} else if key = n.key(s.told.Class); meta.NumDelivered > s.opts.Attempts {
		err = poison("given up: it was begun %d times, and never ended", meta.NumDelivered-1)
	}
	if err == nil {
		running, cancel := context.WithCancelCause(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.renew(running, m, cancel)
		}()
		err = s.run(running, n, key)
		if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
			err = cause
		}
		cancel(nil)
		<-stopped
	}
	s.answer(ctx, m, n, key, meta.NumDelivered, err)
}

// renew keeps an item from going to others, as long as passes go on.
func (s *station) renew(ctx context.Context, m *nats.Msg, cancel context.CancelCauseFunc) {
	begun := time.Now()
	tick := time.NewTicker(s.ackWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.opts.Progress.since(begun) > s.opts.Patience {
			cancel(errStuck)
			return
		}
		if err := m.InProgress(); err != nil {
			s.opts.Log.Debug("an item was not renewed", "model", s.model, "error", err)
		}
	}
}

// run has the output of an item in the store when it returns nil.
func (s *station) run(ctx context.Context, n *note, key string) error {
	info, sequence, err := s.q.out.find(ctx, key)
	if err != nil {
		return err
	}
	if info != nil {
		if whole, err := s.q.out.whole(ctx, info); whole || err != nil {
			return err // somebody was here
		}
	}
	need := n.bytes()
	if need > s.opts.MaxBytes/2 {
		return poison("its inputs take %d bytes: %d are the most", need, s.opts.MaxBytes/2)
	}
	if !s.told.Writes && !s.told.Vectors {
		in, held, err := s.inputs(ctx, n)
		defer func() { s.memory.Release(held) }()
		if err != nil {
			return err
		}
		out, err := s.registry.Infer(ctx, s.model, in)
		if err != nil {
			return err
		}
		return s.q.write(ctx, key, sequence == 0, out)
	}
	if err := s.memory.Acquire(ctx, 2*need); err != nil {
		return err
	}
	defer s.memory.Release(2 * need)
	if s.told.Writes {
		return s.write(ctx, n, key)
	}
	return s.embed(ctx, n, key)
}

// write puts an output into the store, where nobody sees it before it is whole, and which takes the first of those that
// are put. isNew says that there was no word of it a moment ago.
func (q *Queue) write(ctx context.Context, key string, isNew bool, out runtime.Values) error {
	var tensors []loader.TensorData
	for name, t := range out {
		x := t.Contiguous()
		tensors = append(tensors, loader.TensorData{
			Name: name, DType: x.DType, Shape: x.Layout.Shape,
			ReadAt: func(ctx context.Context, p []byte, off int64) error {
				copy(p, x.Data[off:])
				return ctx.Err()
			},
		})
	}
	slices.SortFunc(tensors, func(a, b loader.TensorData) int { return cmp.Compare(a.Name, b.Name) })
	c := content{write: func(w io.Writer) error {
		return loader.WriteSafetensors(ctx, w, tensors, map[string]string{"format": "pt"})
	}}
	if isNew {
		return q.out.putNew(ctx, key, c)
	}
	return q.out.put(ctx, key, c)
}

// answer acknowledges an item, lets it go to others, or puts it aside.
func (s *station) answer(ctx context.Context, m *nats.Msg, n *note, key string, attempt uint64, err error) {
	stopped := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var said error
	var item *poisonError
	var refused *serve.Error
	switch {
	case err == nil:
		said = m.AckSync(nats.Context(ctx))
	case stopped:
		<-s.left // else it might be sent to this worker again
		said = m.Nak()
	case errors.As(err, &item):
		said = s.bury(ctx, m, n, key, item.reason)
	case errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 413 || refused.Status == 501):
		said = s.bury(ctx, m, n, key, refused.Msg)
	case attempt >= s.opts.Attempts:
		said = s.bury(ctx, m, n, key, fmt.Sprintf("given up after %d attempts: %v", attempt, err))
	default: // it does not fit here, or something failed: a larger worker may take it, or this one later
		s.opts.Log.Warn("an item was left to others", "model", s.model, "key", key, "error", err)
		said = m.NakWithDelay(s.opts.RetryAfter)
	}
	if said != nil { // it is delivered again, and found done
		s.opts.Log.Warn("an item was not acknowledged", "model", s.model, "key", key, "error", said)
	}
}

// bury puts an item into the dead-letter stream, and then takes it from the queue.
func (s *station) bury(ctx context.Context, m *nats.Msg, n *note, key, reason string) error {
	l := letter{Key: key, Reason: reason, Class: s.told.Class}
	if n != nil {
		l.Item, l.Note = n.Item, m.Data
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	err = patiently(ctx, func() error { // the stream keeps the last for each subject
		_, err := s.q.js.Publish(ctx, s.q.deadSubject(key), text)
		return err
	})
	if err != nil {
		return err
	}
	s.opts.Log.Warn("an item was put aside", "model", s.model, "key", key, "reason", reason)
	return m.AckSync(nats.Context(ctx))
}
