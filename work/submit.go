package work

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/runtime"
)

// An Item is something to run a model over.
type Item struct {
	// Name is for people.
	Name string
	// Inputs are the model's, contiguous.
	Inputs runtime.Values
	// Prompt is what a model that writes is asked, in the place of Inputs: a JSON object with prompt or messages, and
	// max_tokens, seed (0 where it is not there), temperature, top_k, top_p, min_p, stop, schema or grammar where they
	// are wanted. An id may be there, and says nothing. One that cannot be read is an item all the same, which goes to
	// the dead letters. A model that makes vectors is asked an object with text or texts, and prompt where it is
	// wanted.
	Prompt []byte
	// Files are inputs beside those, by the input's name, as they lie in files.
	Files map[string]File
	// Err says that there are no inputs, and why. The item has this as its result.
	Err error
}

// A File is an input as a file has it: an array of NumPy, .npy, or a picture.
type File struct {
	// Data is what the file has. It is not read any more when the next item is asked for.
	Data []byte
	// Path is where the file lies in the folder that workers share, with slashes, in the place of Data: workers read it
	// there, and the queue stores its hash alone.
	Path string
	// Preprocess is how a picture becomes numbers, which workers have it become: imagenet, or another of package
	// preprocess. It is "" for an array.
	Preprocess string
}

// A Result is what became of an item.
type Result struct {
	// Index is which item it was, from 0.
	Index int
	Name  string
	// Key is that of the output, for [Queue.Output].
	Key string
	// Reason says why there is no output; "" where there is one.
	Reason string
}

// SubmitOptions say how items are submitted. The zero value is right.
type SubmitOptions struct {
	// InFlight is how many items are in the queue or under way at most; 0 is 256.
	InFlight int
	// Again has items that were put aside before run once more.
	Again bool
	// Shared is the folder that workers share, for items with Files.
	Shared *os.Root
}

// A submission is one run of [Queue.Submit].
type submission struct {
	q      *Queue
	opts   SubmitOptions
	told   told
	result func(Result) error
	slots  chan struct{}
	// letters says that reasons of before are looked for: there may be some.
	letters bool

	mu sync.Mutex
	// waiting has the items of each key that has no result yet.
	waiting map[string][]Result
	// finishing counts the keys whose results are being told.
	finishing int

	// telling has results told one after another.
	telling sync.Mutex
	// failed is the first error of result; over says that the submission has ended, after which nothing is told.
	failed error
	over   bool
	stop   context.CancelCauseFunc
}

// ErrNoWorker says that no worker has told of the model.
var ErrNoWorker = errors.New("no worker with this model was there yet")

// Inputs tells what inputs a model has, by what workers said of it.
func (q *Queue) Inputs(ctx context.Context, model string) ([]Port, error) {
	t, err := q.told(ctx, model)
	if err == nil && t.Writes {
		err = fmt.Errorf("model %.100q writes: it takes prompts", model)
	}
	if err == nil && t.Vectors {
		err = fmt.Errorf("model %.100q makes vectors: it takes texts", model)
	}
	return t.Inputs, err
}

// Vectors tells whether a model makes vectors, by what workers said of it.
func (q *Queue) Vectors(ctx context.Context, model string) (bool, error) {
	t, err := q.told(ctx, model)
	return t.Vectors, err
}

func (q *Queue) told(ctx context.Context, model string) (t told, err error) {
	var entry jetstream.KeyValueEntry
	err = patiently(ctx, func() (err error) {
		entry, err = q.models.Get(ctx, model)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		return t, fmt.Errorf("model %.100q: %w", model, ErrNoWorker)
	}
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(entry.Value(), &t); err != nil || !hexDigest.MatchString(t.Class) {
		return t, fmt.Errorf("model %.100q: what a worker told of it is damaged", model)
	}
	return t, nil
}

// Submit has workers run a model over items, and calls result for each, one call after another, in any order. Outputs that are
// there already are found by their keys: what was submitted before, in whole or in part, is not run again. It returns when all
// items have results, or ctx is done: then what is in the queue stays there.
func (q *Queue) Submit(ctx context.Context, model string, items iter.Seq[Item], opts SubmitOptions,
	result func(Result) error) error {
	told, err := q.told(ctx, model)
	if err != nil {
		return err
	}
	s := &submission{q: q, opts: opts, told: told, result: result, waiting: make(map[string][]Result)}
	s.slots = make(chan struct{}, cmp.Or(max(opts.InFlight, 0), 256))
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	group, ctx := errgroup.WithContext(ctx)
	sent := make(chan struct{})
	listening := make(chan struct{})
	group.Go(func() error { return s.listen(ctx, listening, sent) })
	group.Go(func() error {
		defer close(sent)
		select {
		case <-listening: // before anything is asked for, so that no result is missed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.lookForLetters(ctx); err != nil {
			return err
		}
		index := 0
		for item := range items {
			if err := s.send(ctx, index, item); err != nil {
				return err
			}
			index++
		}
		return nil
	})
	err = group.Wait()
	s.telling.Lock() // who listens to letters may be at it still
	defer s.telling.Unlock()
	s.over = true
	return cmp.Or(s.failed, err)
}

// lookForLetters looks whether there are any: those that come later are heard of.
func (s *submission) lookForLetters(ctx context.Context) error {
	if s.opts.Again {
		return nil
	}
	return patiently(ctx, func() error {
		info, err := s.q.dead.Info(ctx)
		s.letters = err != nil || info.State.Msgs > 0
		return err
	})
}

// send puts an item into the queue, unless its output is there.
func (s *submission) send(ctx context.Context, index int, item Item) error {
	r := Result{Index: index, Name: item.Name}
	if item.Err != nil {
		r.Reason = item.Err.Error()
		s.tell(r)
		return context.Cause(ctx)
	}
	n, files, err := s.note(ctx, item)
	if err != nil {
		r.Reason = err.Error()
		s.tell(r)
		return context.Cause(ctx)
	}
	r.Key = n.key(s.told.Class)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	list := s.waiting[r.Key]
	s.waiting[r.Key] = append(list, r)
	s.mu.Unlock()
	if list != nil { // the same inputs are under way
		return nil
	}
	if found, err := s.look(ctx, r.Key, s.letters); found || err != nil {
		return err
	}
	if s.opts.Again {
		err := patiently(ctx, func() error {
			return s.q.dead.Purge(ctx, jetstream.WithPurgeSubject(s.q.deadSubject(r.Key)))
		})
		if err != nil {
			return err
		}
	}
	for object, data := range files {
		sum, err := hex.DecodeString(object)
		if err != nil {
			return err
		}
		if err := s.q.in.put(ctx, object, contentOf(data, sum)); err != nil {
			return err
		}
	}
	return s.publish(ctx, n)
}

// note makes the note of an item, and the objects that it names.
func (s *submission) note(ctx context.Context, item Item) (*note, map[string][]byte, error) {
	n := &note{Item: item.Name}
	if len(n.Item) > 1000 {
		n.Item = n.Item[:1000]
	}
	files := make(map[string][]byte)
	add := func(name string, data []byte) {
		sum := sha256.Sum256(data)
		object := hex.EncodeToString(sum[:])
		files[object] = data
		n.Inputs = append(n.Inputs, noteInput{Name: name, SHA256: object, Bytes: int64(len(data))})
	}
	switch {
	case s.told.Writes && item.Prompt == nil:
		return nil, nil, errors.New("the model writes: it takes prompts")
	case s.told.Vectors && item.Prompt == nil:
		return nil, nil, errors.New("the model makes vectors: it takes texts")
	case s.told.Vectors:
		data := item.Prompt
		if t, err := parseTexts(data); err == nil { // else a worker says why not
			data = t.canonical()
		}
		add(promptInput, data)
	case !s.told.Writes && item.Prompt != nil:
		return nil, nil, errors.New("the model takes tensors, and no prompts")
	case item.Prompt != nil:
		data := item.Prompt
		if p, err := parsePrompt(data); err == nil { // else a worker says why not
			data = p.canonical()
		}
		add(promptInput, data)
	}
	for name, f := range item.Files {
		if f.Path == "" {
			add(name, f.Data)
		} else {
			in, err := sharedInput(ctx, s.opts.Shared, name, f.Path)
			if err != nil {
				return nil, nil, fmt.Errorf("input %s: %w", name, err)
			}
			n.Inputs = append(n.Inputs, in)
		}
		n.Inputs[len(n.Inputs)-1].Preprocess = f.Preprocess
	}
	for name, t := range item.Inputs {
		if _, twice := item.Files[name]; twice {
			return nil, nil, fmt.Errorf("input %s is given twice", name)
		}
		var b bytes.Buffer
		if err := npy.Write(&b, t); err != nil {
			return nil, nil, fmt.Errorf("input %s: %w", name, err)
		}
		add(name, b.Bytes())
	}
	return n, files, nil
}

// queueFull is what a stream answers that takes no more: maximum messages exceeded.
const queueFull jetstream.ErrorCode = 10077

// publish puts a note into the queue, and waits while that is full.
func (s *submission) publish(ctx context.Context, n *note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	id := rand.Text() // so that a note that was put, but not acknowledged in time, is there once
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := patiently(ctx, func() error {
			_, err := s.q.js.Publish(ctx, s.q.workSubject(s.told.Class), text, jetstream.WithMsgID(id))
			return err
		})
		var full *jetstream.APIError
		if !errors.As(err, &full) || full.ErrorCode != queueFull {
			return err
		}
		pause(ctx, wait)
	}
}

// look tells the result of a key if there is one.
func (s *submission) look(ctx context.Context, key string, letters bool) (bool, error) {
	has, err := s.q.out.has(ctx, key)
	if has {
		s.finish(key, "")
	}
	if has || err != nil || !letters {
		return has, err
	}
	var m *jetstream.RawStreamMsg
	err = patiently(ctx, func() (err error) {
		m, err = s.q.dead.GetLastMsgForSubject(ctx, s.q.deadSubject(key))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.buried(m.Data)
	return true, nil
}

// buried takes up a dead letter.
func (s *submission) buried(text []byte) {
	var l letter
	if json.Unmarshal(text, &l) == nil {
		s.finish(l.Key, cmp.Or(l.Reason, "no reason was given"))
	}
}

// finish tells the results of a key, the first time.
func (s *submission) finish(key, reason string) {
	s.mu.Lock()
	list := s.waiting[key]
	delete(s.waiting, key)
	s.finishing++
	s.mu.Unlock()
	for _, r := range list {
		r.Reason = reason
		s.tell(r)
		<-s.slots
	}
	s.mu.Lock()
	s.finishing--
	s.mu.Unlock()
}

func (s *submission) tell(r Result) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.failed != nil || s.over {
		return
	}
	if err := s.result(r); err != nil {
		s.failed = err
		s.stop(err)
	}
}

// lookEvery is how often what waits is looked for, should the store's word of it have been lost: lookAt of all, or each
// where the connection was.
const (
	lookEvery = 5 * time.Second
	lookAt    = 16
)

// listen takes up results until all have one.
func (s *submission) listen(ctx context.Context, listening, sent chan struct{}) error {
	var watch jetstream.ObjectWatcher
	err := patiently(ctx, func() (err error) {
		watch, err = s.q.out.Watch(ctx, jetstream.UpdatesOnly())
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	var reading jetstream.ConsumeContext
	err = patiently(ctx, func() error {
		letters, err := s.q.js.OrderedConsumer(ctx, s.q.name+"-dead", jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{s.q.deadSubject(">")}, DeliverPolicy: jetstream.DeliverNewPolicy,
		})
		if err == nil {
			reading, err = letters.Consume(func(m jetstream.Msg) { s.buried(m.Data()) })
		}
		return err
	})
	if err != nil {
		return err
	}
	defer reading.Stop()
	close(listening)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	quick := time.NewTicker(20 * time.Millisecond)
	defer quick.Stop()
	updates, connected := watch.Updates(), uint64(0)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.q.lostConn:
			return errors.New("the connection was closed")
		case info, ok := <-updates:
			if !ok {
				updates = nil
			} else if info != nil && !info.Deleted {
				s.finish(info.Name, "")
			}
		case <-quick.C:
			select {
			case <-sent:
				if s.done() {
					return nil
				}
			default:
			}
		case <-tick.C:
			most := lookAt
			if again := s.q.conn.Stats().Reconnects; again != connected {
				connected, most = again, math.MaxInt
			}
			for _, key := range s.keys(most) {
				if _, err := s.look(ctx, key, !s.opts.Again); err != nil && ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
		}
	}
}

// done reports whether all results have been told.
func (s *submission) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)+s.finishing == 0
}

// keys are some of those that wait, others each time.
func (s *submission) keys(most int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key := range s.waiting { // in an order that is drawn
		if len(keys) == most {
			break
		}
		keys = append(keys, key)
	}
	return keys
}
