package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/models"
)

// A State is that of a version, as the protocol's repository extension names it.
type State string

// The states.
const (
	Ready       State = "READY"
	Unavailable State = "UNAVAILABLE"
	Loading     State = "LOADING"
	Unloading   State = "UNLOADING"
)

// A version is one of a model. What runs it comes and goes.
type version struct {
	registry      *Registry
	model, number string
	// given is a model of an embedder's.
	given *models.Model
	stats stats

	mu    sync.Mutex
	found found
	inst  *instance
	// closing counts instances that end what they have begun.
	closing int
	reason  *Error
	// loading is closed when what opens the version now is done; nil where nothing does.
	loading chan struct{}
	// unwanted says that it was unloaded, and is not to be opened with the next request.
	unwanted   bool
	generation int
}

func newVersion(r *Registry, f found) *version {
	v := &version{registry: r, model: f.name, number: f.version, found: f}
	if f.err != nil {
		v.reason = loadError(f.err)
	}
	v.stats.init()
	return v
}

// refresh takes up what is in the directory now, for the next load.
func (v *version) refresh(f found) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found = f
}

// An instance is an open model. It closes when it is retired and nobody uses it any more.
type instance struct {
	runner
	// turn is closed when the instance before it has given its memory back.
	turn <-chan struct{}
	done chan struct{}

	mu      sync.Mutex
	users   int
	retired bool
}

// A runner is what an instance does, by its kind.
type runner interface {
	// ports are the inputs and outputs as metadata tell them.
	ports() (inputs, outputs []portJSON)
	// infer answers a request; ports that a raw request leaves open are the model's.
	infer(ctx context.Context, c *call) error
	facts() facts
	giveBack(ctx context.Context) error
	resume()
	close() error
}

// facts are what a runner tells of itself.
type facts struct {
	// heldBytes is what it may hold now, weightBytes the weights among it, allBytes all weights of the model.
	heldBytes, weightBytes, cacheBytes, ringBytes, activationBytes, workBytes, allBytes int64
	budgetBytes                                                                         int64
	passes, calls, joined, rows, tokens, movedBytes, loadedBytes                        int64
	passing, stall                                                                      time.Duration
	// passSeconds is what a pass takes, as it is planned or as passes took.
	passSeconds      float64
	waiting, running int
	join             int
}

func (v *version) isReady() bool { return v.current() != nil }

func (v *version) current() *instance {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.inst
}

// state says where the version is, and why it is not ready.
func (v *version) state() (State, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.inst != nil:
		return Ready, ""
	case v.loading != nil:
		return Loading, ""
	case v.closing > 0:
		return Unloading, ""
	case v.reason != nil:
		return Unavailable, v.reason.Msg
	case v.unwanted:
		return Unavailable, "unloaded"
	}
	return Unavailable, "not opened yet"
}

// use lends the open instance, which it opens first where the version was never asked for. The caller calls release.
func (v *version) use(ctx context.Context) (i *instance, release func(), err error) {
	for {
		v.mu.Lock()
		i, loading, unwanted, reason := v.inst, v.loading, v.unwanted, v.reason
		if i != nil {
			i.mu.Lock()
			i.users++
			i.mu.Unlock()
		}
		v.mu.Unlock()
		switch {
		case i != nil:
			select {
			case <-i.turn:
				return i, i.release, nil
			case <-ctx.Done():
				i.release()
				return nil, nil, ctx.Err()
			}
		case loading != nil:
			select {
			case <-loading:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		case unwanted:
			return nil, nil, refuse(http.StatusServiceUnavailable, "model %q was unloaded", v.model)
		case reason != nil:
			return nil, nil, &Error{Status: http.StatusServiceUnavailable, Err: reason,
				Msg: fmt.Sprintf("model %q could not be opened: %s", v.model, reason.Msg)}
		case !v.registry.opensByItself(v):
			return nil, nil, refuse(http.StatusServiceUnavailable, "of model %q only the newest version is open", v.model)
		default:
			if err := v.load(ctx); err != nil {
				return nil, nil, err
			}
		}
	}
}

func (i *instance) release() {
	i.mu.Lock()
	i.users--
	last := i.users == 0 && i.retired
	i.mu.Unlock()
	if last {
		close(i.done)
	}
}

// load opens the version and puts it in the place of what is there. It goes on when ctx is done, which only its caller does not
// wait for any longer.
func (v *version) load(ctx context.Context) error {
	r := v.registry
	if !r.enter() {
		return refuse(http.StatusServiceUnavailable, "the server ends")
	}
	v.mu.Lock()
	if v.loading != nil { // somebody does, and what they open is as new
		loading := v.loading
		v.mu.Unlock()
		r.background.Done()
		select {
		case <-loading:
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.reason != nil {
				return v.reason
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	v.unwanted = false
	v.generation++
	loading := make(chan struct{})
	f, generation := v.found, v.generation
	v.loading = loading
	v.mu.Unlock()
	result := make(chan error, 1)
	go func() {
		defer r.background.Done()
		err := v.open(f, generation)
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open does what load promises.
func (v *version) open(f found, generation int) error {
	r := v.registry
	var opened runner
	err := f.err
	if err == nil {
		opened, err = r.open(v, f, fmt.Sprintf("%s/%s#%d", f.name, f.version, generation))
	}
	var others sync.WaitGroup
	if err == nil && f.kind != Tensors {
		v.replace(&others) // they have one share
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() { close(v.loading); v.loading = nil }()
	if err != nil {
		told := *loadError(err)
		v.reason = &told
		v.reason.Msg = firstLine(told.Msg)
		if r.dir != "" {
			v.reason.Msg = strings.ReplaceAll(v.reason.Msg, r.dir+string(filepath.Separator), "")
		}
		return v.reason
	}
	v.reason = nil
	i := &instance{runner: opened, done: make(chan struct{})}
	if old := v.inst; old != nil {
		if f.kind == Tensors { // the pool sees to it that both fit
			v.retire(old, func() {})
		} else {
			others.Add(1)
			v.retire(old, others.Done)
		}
	}
	free := make(chan struct{})
	i.turn = free
	go func() {
		others.Wait()
		close(free)
	}()
	v.inst = i
	if v.unwanted || r.ctx.Err() != nil {
		v.inst = nil
		v.retire(i, func() {})
	}
	return nil
}

// replace retires what is open of the model's other versions.
func (v *version) replace(others *sync.WaitGroup) {
	for _, s := range v.registry.siblings(v.model) {
		if s == v {
			continue
		}
		s.mu.Lock()
		if i := s.inst; i != nil {
			s.inst, s.unwanted = nil, true
			others.Add(1)
			s.retire(i, others.Done)
		}
		s.mu.Unlock()
	}
}

// firstLine cuts a reason to what fits into a line.
func firstLine(text string) string {
	const most = 400
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// retire closes an instance when its requests are over. The version's mutex is held.
func (v *version) retire(i *instance, closed func()) {
	v.closing++
	i.mu.Lock()
	i.retired = true
	idle := i.users == 0
	i.mu.Unlock()
	if idle {
		close(i.done)
	}
	v.registry.background.Add(1)
	go func() {
		defer v.registry.background.Done()
		select {
		case <-i.done:
		case <-v.registry.ctx.Done(): // the server ends, and whoever still waits with it
		}
		err := i.close()
		closed()
		v.mu.Lock()
		v.closing--
		v.mu.Unlock()
		if err != nil {
			v.registry.log.Warn("a model was not closed as it should", "model", v.name(), "error", err)
		}
	}()
}

// unload closes the version when its requests are over.
func (v *version) unload() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unwanted = true
	if v.inst != nil {
		i := v.inst
		v.inst = nil
		v.retire(i, func() {})
	}
}

// end closes the version for good.
func (v *version) end() { v.unload() }

// closers end what an instance has open, in their order.
type closers []func() error

func (c closers) close() error {
	var errs []error
	for _, f := range c {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// name is by which the version is told in logs.
func (v *version) name() string { return v.model + "/" + v.number }

// what is what was found of the version.
func (v *version) what() found {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.found
}
