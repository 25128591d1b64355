package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A run is a range that a stage computes for a head. Four goroutines work on different passes at once: one reads the
// model's inputs, one what the stage before computed, one computes, one sends. What they have under way lies in a
// window of buffers that the plan knows.
type run struct {
	stage  *Stage
	head   *link
	next   *link
	name   string
	first  bool
	window int

	session *runtime.Session
	// shapes says how inputs of other shapes go through the range while the session computes a pass; nil has the session
	// asked, which waits for that pass.
	shapes *runtime.Session
	// most is what a pass takes at most.
	most    room
	buffers chan *buffer
	// feeds has the connection of the stage before, once it is there; over is closed when the run is.
	feeds chan *link
	over  chan struct{}
	// beats has a token when there is progress to tell of.
	beats chan struct{}

	mu      sync.Mutex
	layouts map[string]*ranged
	closed  bool
}

// A buffer holds what a pass takes and gives.
type buffer struct{ in, out []byte }

// A ranged is how inputs of some shapes go through the range.
type ranged struct {
	shapes map[string]tensor.Shape
	layout *layout
	digest []byte
	room   room
	// outputs are what the range computes: the model's, then what the next stage reads.
	outputs []spec
}

// A pass is one on its way through the stage.
type pass struct {
	id  uint64
	of  *ranged
	buf *buffer
	// skipped says that a stage before could not compute it, err that this one could not.
	skipped bool
	err     error
}

// begin plans and takes the memory for what is under way.
func (r *run) begin(ctx context.Context, ask *rangeAsk) (*Forecast, error) {
	model, err := ask.Steps.model(r.stage.model)
	if err != nil {
		return nil, err
	}
	opts := r.stage.opts.Session
	opts.Range = graph.Range{From: ask.From, To: ask.To}
	if opts.Range == (graph.Range{}) {
		return nil, &ProtocolError{"a run of the whole model"}
	}
	opts.Observe = runtime.TeeObserver(opts.Observe, r.observe)
	session, err := runtime.Start(ctx, model, opts)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.session = session
	r.mu.Unlock()
	forecast, err := planned(ctx, r.session, ask)
	if err != nil {
		return nil, err
	}
	section, err := r.session.Section(ctx, ask.Shapes)
	if err != nil {
		return nil, err
	}
	if r.first != (len(section.Before) == 0) {
		return nil, &ProtocolError{"a range that begins the model has no stage before it, and any other has one"}
	}
	if r.most, err = roomOf(layoutOf(section)); err != nil {
		return nil, err
	}
	opts.PlanOnly, opts.Observe = true, nil
	if r.shapes, err = aside(ctx, model, opts, ask.Shapes, section); err != nil {
		return nil, err
	}
	r.buffers = make(chan *buffer, r.window)
	for range r.window {
		r.buffers <- &buffer{in: make([]byte, r.most.in), out: make([]byte, r.most.out)}
	}
	return forecast, nil
}

// aside starts a session that computes nothing and tells sections of the same range, nil where it would tell others.
func aside(
	ctx context.Context, model *models.Model, opts runtime.Options, shapes map[string]tensor.Shape, like *graph.Section,
) (*runtime.Session, error) {
	if opts.Memory == 0 { // it takes none of the device's, and what is free there is of no matter to it
		opts.Memory, opts.MemoryShare = math.MaxInt64/4, 0
	}
	session, err := runtime.Start(ctx, model, opts)
	if err != nil {
		return nil, err
	}
	section, err := session.Section(ctx, shapes)
	if err != nil || section.Digest != like.Digest {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

// metrics tells what the session did, nothing while there is none.
func (r *run) metrics() runtime.Metrics {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == nil {
		return runtime.Metrics{}
	}
	return r.session.Metrics()
}

// observe notes progress; it does not wait.
func (r *run) observe(e runtime.Event) {
	select {
	case r.beats <- struct{}{}:
	default:
	}
}

func (r *run) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	close(r.over)
	var err error
	if r.next != nil {
		err = r.next.close()
	}
	for _, session := range []*runtime.Session{r.session, r.shapes} {
		if session != nil {
			err = errors.Join(err, session.Close())
		}
	}
	return err
}

// serve computes passes until the head or a neighbour goes away.
func (r *run) serve(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { // whoever reads or writes stops
		r.head.close()
		if r.next != nil {
			r.next.close()
		}
		select {
		case l := <-r.feeds:
			l.close()
		default:
		}
	})
	defer stop()
	given, fed, computed := make(chan *pass, r.window), make(chan *pass, r.window), make(chan *pass, r.window)
	work.Go(func() error { return r.readPasses(ctx, given) })
	work.Go(func() error { return r.readFeed(ctx, given, fed) })
	work.Go(func() error { return r.compute(ctx, fed, computed) })
	work.Go(func() error { return r.send(ctx, computed) })
	work.Go(func() error { return r.beat(ctx) })
	return work.Wait()
}

// take takes a pass from a queue.
func take(ctx context.Context, from <-chan *pass) (*pass, error) {
	select {
	case p := <-from:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// layoutFor returns how inputs of these shapes go through. What takes more than what the run began with is refused.
func (r *run) layoutFor(ctx context.Context, shapes map[string]tensor.Shape) (*ranged, error) {
	key := shapesKey(shapes)
	r.mu.Lock()
	known := r.layouts[key]
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	asked := r.shapes
	if asked == nil {
		asked = r.session
	}
	section, err := asked.Section(ctx, shapes)
	if err != nil {
		return nil, err
	}
	one := &ranged{shapes: shapes, layout: layoutOf(section), digest: section.Digest[:]}
	if one.room, err = roomOf(one.layout); err != nil {
		return nil, err
	}
	if one.room.in > r.most.in || one.room.out > r.most.out {
		return nil, &runtime.CapacityError{NeedBytes: one.room.in + one.room.out, HaveBytes: r.most.in + r.most.out}
	}
	one.outputs = append(append(one.outputs, one.layout.Outputs...), made(one.layout.After)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.layouts) >= maxLayouts {
		clear(r.layouts)
	}
	r.layouts[key] = one
	return one, nil
}

// maxLayouts bounds how many shapes are remembered.
const maxLayouts = 256

// shapesKey is equal for equal shapes.
func shapesKey(shapes map[string]tensor.Shape) string { return fmt.Sprint(shapes) }

// readPasses reads what the head sends: passes, and questions about shapes.
func (r *run) readPasses(ctx context.Context, given chan<- *pass) error {
	for {
		f, err := r.head.next()
		if err != nil {
			return err
		}
		switch f.kind {
		case kindAsk:
			var a ask
			if err := r.head.readJSON(f, &a); err != nil {
				return err
			}
			said := answer{}
			if one, err := r.layoutFor(ctx, a.Shapes); err != nil {
				said.Error = failureOf(err)
			} else {
				said.Layout = one.layout
			}
			if err := r.head.sendJSON(kindAnswer, f.id, said); err != nil {
				return err
			}
		case kindPass:
			p, err := r.readPass(ctx, f)
			if err != nil {
				return err
			}
			given <- p // which has room for as many as there are buffers
		default:
			return &ProtocolError{fmt.Sprintf("a frame of kind %d from a head", f.kind)}
		}
	}
}

// readPass reads the shapes and inputs of a pass.
func (r *run) readPass(ctx context.Context, f frame) (*pass, error) {
	size := make([]byte, 4)
	if f.n < 4 {
		return nil, &ProtocolError{"a pass without shapes"}
	}
	if err := r.head.read(size); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(size))
	if n > maxJSONBytes || n > f.n-4 {
		return nil, &ProtocolError{fmt.Sprintf("%d bytes of shapes", n)}
	}
	text := make([]byte, n)
	if err := r.head.read(text); err != nil {
		return nil, err
	}
	var shapes map[string]tensor.Shape
	if err := json.Unmarshal(text, &shapes); err != nil {
		return nil, &ProtocolError{err.Error()}
	}
	one, err := r.layoutFor(ctx, shapes)
	if err != nil {
		return nil, err
	}
	if f.n-4-n != one.room.inputs {
		return nil, &ProtocolError{fmt.Sprintf("%d bytes of inputs, and %d are wanted", f.n-4-n, one.room.inputs)}
	}
	p := &pass{id: f.id, of: one}
	select {
	case p.buf = <-r.buffers:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return p, r.head.read(p.buf.in[:one.room.inputs])
}

// errPrevious and errNext say who went away.
var (
	errPrevious = errors.New("the stage before is gone")
	errNext     = errors.New("the stage behind is gone")
)

// What a frame between stages, or one of results, begins with.
const (
	statusDone byte = iota
	statusFailed
	statusSkipped
)

// readFeed reads, for each pass in its turn, what the stage before computed.
func (r *run) readFeed(ctx context.Context, given <-chan *pass, fed chan<- *pass) error {
	var feed *link
	for {
		p, err := take(ctx, given)
		if err != nil {
			return err
		}
		if !r.first {
			if feed == nil {
				select {
				case feed = <-r.feeds:
					defer context.AfterFunc(ctx, func() { feed.close() })()
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := r.readFed(feed, p); err != nil {
				var bad *ProtocolError
				if !errors.As(err, &bad) && ctx.Err() == nil {
					_ = r.head.send(kindLost, 0, []byte{0}) // it may be gone, too
					err = fmt.Errorf("%w: %w", errPrevious, err)
				}
				return err
			}
		}
		fed <- p
	}
}

// readFed reads what the stage before has for a pass.
func (r *run) readFed(feed *link, p *pass) error {
	f, err := feed.next()
	if err != nil {
		return err
	}
	if f.kind != kindFeed || f.id != p.id || f.n < 1 {
		return &ProtocolError{fmt.Sprintf("a frame of kind %d for pass %d, and pass %d is next", f.kind, f.id, p.id)}
	}
	status := make([]byte, 1)
	if err := feed.read(status); err != nil {
		return err
	}
	if status[0] != statusDone {
		p.skipped = true
		if f.n != 1 {
			return &ProtocolError{"values of a pass that failed"}
		}
		return nil
	}
	digest := make([]byte, len(p.of.digest))
	if f.n != int64(1+len(digest))+p.of.room.before {
		return &ProtocolError{fmt.Sprintf("%d bytes of a pass, and %d are wanted", f.n,
			int64(1+len(digest))+p.of.room.before)}
	}
	if err := feed.read(digest); err != nil {
		return err
	}
	if string(digest) != string(p.of.digest) {
		return &ProtocolError{"the stage before computes another graph"}
	}
	return feed.read(p.buf.in[p.of.room.inputs:][:p.of.room.before])
}

// compute computes passes in their order.
func (r *run) compute(ctx context.Context, fed <-chan *pass, computed chan<- *pass) error {
	for {
		p, err := take(ctx, fed)
		if err != nil {
			return err
		}
		if !p.skipped {
			p.err = r.one(ctx, p)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		computed <- p
	}
}

// one computes a pass.
func (r *run) one(ctx context.Context, p *pass) error {
	in, err := over(p.of.layout.Inputs, p.buf.in)
	if err != nil {
		return err
	}
	before, err := over(p.of.layout.Before, p.buf.in[p.of.room.inputs:])
	if err != nil {
		return err
	}
	for _, s := range p.of.layout.Before {
		if s.own {
			in[s.Name] = before[s.Name]
		}
	}
	out, err := over(p.of.outputs, p.buf.out)
	if err != nil {
		return err
	}
	return r.session.RunSection(ctx, p.of.shapes, in, out)
}

// send sends what passes gave, to the next stage first, which waits for it.
func (r *run) send(ctx context.Context, computed <-chan *pass) error {
	for {
		p, err := take(ctx, computed)
		if err != nil {
			return err
		}
		if r.next != nil {
			if err := r.feedNext(p); err != nil {
				if ctx.Err() == nil {
					_ = r.head.send(kindLost, 0, []byte{1})
				}
				return fmt.Errorf("%w: %w", errNext, err)
			}
		}
		if err := r.tell(p); err != nil {
			return err
		}
		r.buffers <- p.buf
	}
}

// feedNext sends what the next stage reads.
func (r *run) feedNext(p *pass) error {
	if p.skipped || p.err != nil {
		return r.next.send(kindFeed, p.id, []byte{statusFailed})
	}
	parts := [][]byte{{statusDone}, p.of.digest}
	outputs, err := over(p.of.outputs, p.buf.out)
	if err != nil {
		return err
	}
	before, err := over(p.of.layout.Before, p.buf.in[p.of.room.inputs:])
	if err != nil {
		return err
	}
	for _, s := range p.of.layout.After {
		if s.own {
			parts = append(parts, outputs[s.Name].Data)
		} else {
			parts = append(parts, before[s.Name].Data)
		}
	}
	return r.next.send(kindFeed, p.id, parts...)
}

// tell sends the head the outputs of a pass.
func (r *run) tell(p *pass) error {
	switch {
	case p.skipped:
		return r.head.send(kindResult, p.id, []byte{statusSkipped})
	case p.err != nil:
		text, err := json.Marshal(failureOf(p.err))
		if err != nil {
			return err
		}
		return r.head.send(kindResult, p.id, []byte{statusFailed}, text)
	}
	n, err := bytesOf(p.of.layout.Outputs)
	if err != nil {
		return err
	}
	return r.head.send(kindResult, p.id, []byte{statusDone}, p.buf.out[:n])
}

// beatEvery is how often the head hears of progress at most.
const beatEvery = time.Second

// beat tells the head of progress.
func (r *run) beat(ctx context.Context) error {
	for {
		select {
		case <-r.beats:
			if err := r.head.send(kindBeat, 0); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(beatEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
