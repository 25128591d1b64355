package pipeline

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// StageOptions say how a stage computes and who may use it. The zero value is for loopback.
type StageOptions struct {
	// Session is how its range of the model runs: the memory, which is for all that the stage holds of tensors, the
	// device, ….
	Session runtime.Options
	// Token is what heads and stages know of each other; nil is none. It is proven and never sent.
	Token []byte
	// TLS is for those that connect, Dial for the stage behind; nil is no TLS.
	TLS, Dial *tls.Config
	// Patience is how long a neighbour may take to send what it began to send, or to take it; 0 is a minute.
	Patience time.Duration
	// Log is told who came and went; nil is nobody.
	Log *slog.Logger
}

// A Stage computes ranges of a model for heads, one at a time. The checkpoint must stay open as long as it serves.
type Stage struct {
	model *models.Model
	opts  StageOptions
	files string

	mu  sync.Mutex
	run *run
	// last is what the session of the run before did.
	last runtime.Metrics
}

// Bounds of who is connected: a head asks little and holds one run.
const maxLinks = 64

// NewStage returns a stage of a model. It reads a few bytes of each weight, to know which model it is.
func NewStage(ctx context.Context, model *models.Model, opts StageOptions) (*Stage, error) {
	if opts.Patience == 0 {
		opts.Patience = time.Minute
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	files, err := Identity(ctx, model)
	if err != nil {
		return nil, err
	}
	if opts.Session.Memory == 0 { // what is free now is the budget from here on
		asked := opts.Session
		asked.PlanOnly = true
		session, err := runtime.Start(ctx, model, asked)
		if err != nil {
			return nil, err
		}
		opts.Session.Memory, _ = session.Budget()
		opts.Session.MemoryShare, opts.Session.Reserve = 0, 0
		if err := session.Close(); err != nil {
			return nil, err
		}
	}
	return &Stage{model: model, opts: opts, files: files}, nil
}

// Memory returns the budget of the stage in bytes, 0 where none is known.
func (s *Stage) Memory() int64 { return s.opts.Session.Memory }

// Metrics tells what the session of the run that a head has opened did, or that of the last one.
func (s *Stage) Metrics() runtime.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return s.last
	}
	return s.run.metrics()
}

// Serve answers those that connect until ctx is done, closes the listener, and waits for what runs to end.
func (s *Stage) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	if s.opts.TLS != nil {
		listener = tls.NewListener(listener, s.opts.TLS)
	}
	var links sync.WaitGroup
	defer links.Wait()
	defer cancel()
	room := make(chan struct{}, maxLinks)
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // of one connection, or too many files: others may come
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case room <- struct{}{}:
		default: // whoever is there stays
			conn.Close()
			continue
		}
		links.Go(func() {
			defer func() { <-room }()
			s.serve(ctx, conn)
		})
	}
}

// serve answers one connection.
func (s *Stage) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without, hosts that are gone are noticed later
	}
	l, as, err := accept(conn, s.opts.Token, s.opts.Patience)
	from := conn.RemoteAddr().String()
	if err != nil {
		s.opts.Log.Warn("a connection was refused", "from", from, "error", err)
		return
	}
	if as == asFeed {
		s.join(ctx, l)
		return
	}
	s.opts.Log.Info("a head came", "from", from)
	err = s.head(ctx, l)
	s.opts.Log.Info("a head went", "from", from, "error", err)
}

// join has a stage before feed the run that it names, and returns when that is over.
func (s *Stage) join(ctx context.Context, l *link) {
	f, err := l.next()
	if err != nil || f.kind != kindJoin || f.n > 64 {
		return
	}
	name := make([]byte, f.n)
	if l.read(name) != nil {
		return
	}
	s.mu.Lock()
	r := s.run
	s.mu.Unlock()
	if r == nil || r.first || subtle.ConstantTimeCompare(name, []byte(r.name)) == 0 {
		return
	}
	select {
	case r.feeds <- l: // the one that there is room for
		select {
		case <-r.over:
		case <-ctx.Done():
		}
	default:
	}
}

// head answers a head until it opens a range, and then computes that until it goes away.
func (s *Stage) head(ctx context.Context, l *link) error {
	for {
		f, err := l.next()
		if err != nil {
			return err
		}
		if f.kind != kindAsk {
			return &ProtocolError{fmt.Sprintf("a frame of kind %d before a range is open", f.kind)}
		}
		var a ask
		if err := l.readJSON(f, &a); err != nil {
			return err
		}
		switch {
		case a.Open != nil:
			r, said, err := s.open(ctx, l, a.Open)
			if err != nil {
				if err := l.sendJSON(kindAnswer, f.id, answer{Error: failureOf(err)}); err != nil {
					return err
				}
				continue
			}
			if err := l.sendJSON(kindAnswer, f.id, said); err != nil {
				return errors.Join(err, s.end(r))
			}
			err = r.serve(ctx)
			return errors.Join(err, s.end(r))
		case a.Forecast != nil:
			said, err := s.forecast(ctx, a.Forecast)
			if err != nil {
				said.Error = failureOf(err)
			}
			if err := l.sendJSON(kindAnswer, f.id, said); err != nil {
				return err
			}
		default:
			if err := l.sendJSON(kindAnswer, f.id, s.who()); err != nil {
				return err
			}
		}
	}
}

// who says who is there.
func (s *Stage) who() *answer {
	a := &answer{Files: s.files, Device: s.opts.Session.Device, BudgetBytes: s.opts.Session.Memory}
	if a.Device == "" {
		a.Device = "cpu"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Busy = s.run != nil
	return a
}

// forecast plans a range and runs nothing. What it says beside an error is still true.
func (s *Stage) forecast(ctx context.Context, ask *rangeAsk) (*answer, error) {
	said := s.who()
	model, err := ask.Steps.model(s.model)
	if err != nil {
		return said, err
	}
	opts := s.opts.Session
	opts.PlanOnly, opts.Observe = true, nil
	opts.Range = graph.Range{From: ask.From, To: ask.To}
	session, err := runtime.Start(ctx, model, opts)
	if err != nil {
		return said, err
	}
	defer session.Close()
	if opts.Range == (graph.Range{}) {
		if said.Seams, said.WeightBytes, err = session.Seams(ctx, ask.Shapes); err != nil {
			return said, err
		}
	}
	said.Forecast, err = planned(ctx, session, ask)
	return said, err
}

// planned plans a range so that what is under way has room beside it, and returns what it takes. The session's budget
// is smaller by that afterwards.
func planned(ctx context.Context, session *runtime.Session, ask *rangeAsk) (*Forecast, error) {
	var bufferBytes, inputBytes, outputBytes, afterBytes int64
	if ask.From != "" || ask.To != "" {
		section, err := session.Section(ctx, ask.Shapes)
		if err != nil {
			return nil, err
		}
		l := layoutOf(section)
		room, err := roomOf(l)
		if err != nil {
			return nil, err
		}
		if outputBytes, err = bytesOf(l.Outputs); err != nil {
			return nil, err
		}
		inputBytes, afterBytes = room.inputs, room.after
		bufferBytes, _ = tensor.MulBytes(room.in+room.out, int64(min(max(ask.Window, 1), maxWindow)))
		if budget, _ := session.Budget(); budget > 0 {
			if budget <= bufferBytes {
				return nil, &runtime.CapacityError{NeedBytes: bufferBytes, HaveBytes: budget, MinBytes: bufferBytes + 1}
			}
			if err := session.Resize(ctx, budget-bufferBytes); err != nil {
				return nil, err
			}
		}
	}
	p, err := session.Plan(ctx, ask.Shapes)
	if err != nil {
		var full *runtime.CapacityError
		if errors.As(err, &full) { // as the stage's budget has it
			return nil, &runtime.CapacityError{
				Path: full.Path, NeedBytes: full.NeedBytes + bufferBytes, HaveBytes: full.HaveBytes + bufferBytes,
				MinBytes: full.MinBytes + bufferBytes,
			}
		}
		return nil, err
	}
	f := forecastOf(p)
	f.BufferBytes, f.InputBytes, f.OutputBytes, f.AfterBytes = bufferBytes, inputBytes, outputBytes, afterBytes
	return f, nil
}

// A room is what a pass takes of a stage's buffers: what comes in, what is computed, and what goes to the next stage.
type room struct{ inputs, before, in, out, after int64 }

func roomOf(l *layout) (r room, err error) {
	for _, part := range []struct {
		list []spec
		to   *int64
	}{{l.Inputs, &r.inputs}, {l.Before, &r.before}, {l.Outputs, &r.out}, {l.After, &r.after}} {
		if *part.to, err = bytesOf(part.list); err != nil {
			return r, err
		}
	}
	r.in = r.inputs + r.before
	made, err := bytesOf(made(l.After))
	r.out += made
	return r, err
}

// made are those that a stage computes itself, or reads.
func made(list []spec) []spec {
	var own []spec
	for _, s := range list {
		if s.own {
			own = append(own, s)
		}
	}
	return own
}

// open makes a run of a range. One is there at a time.
func (s *Stage) open(ctx context.Context, l *link, ask *openAsk) (_ *run, _ *answer, err error) {
	switch {
	case ask.Files != s.files:
		return nil, nil, fmt.Errorf("%w: other files", ErrModel)
	case len(ask.Run) < 16 || len(ask.Run) > 64 || ask.Window < 1 || ask.Window > maxWindow:
		return nil, nil, &ProtocolError{"a run without a name, or of too many passes"}
	}
	r := &run{
		stage: s, head: l, name: ask.Run, first: ask.First, window: ask.Window, feeds: make(chan *link, 1),
		over:  make(chan struct{}),
		beats: make(chan struct{}, 1), layouts: make(map[string]*ranged),
	}
	s.mu.Lock()
	if s.run != nil {
		s.mu.Unlock()
		return nil, nil, ErrBusy
	}
	s.run = r
	s.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(r))
		}
	}()
	said := s.who()
	if said.Forecast, err = r.begin(ctx, &ask.rangeAsk); err != nil {
		return nil, nil, err
	}
	if ask.Next != "" {
		if r.next, err = dial(ctx, ask.Next, s.opts.Dial, s.opts.Token, asFeed, s.opts.Patience); err != nil {
			return nil, nil, fmt.Errorf("to the next stage, %s: %w", ask.Next, err)
		}
		if err = r.next.send(kindJoin, 0, []byte(ask.Run)); err != nil {
			return nil, nil, fmt.Errorf("to the next stage, %s: %w", ask.Next, err)
		}
	}
	return r, said, nil
}

// end frees what a run has.
func (s *Stage) end(r *run) error {
	s.mu.Lock()
	if s.run == r {
		s.last = r.metrics()
		s.run = nil
	}
	s.mu.Unlock()
	return r.close()
}
