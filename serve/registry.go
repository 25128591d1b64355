// Package serve answers requests for many models under one budget: the Open Inference Protocol, version 2, in REST and gRPC,
// and OpenAI's, by package openai. It knows a directory of models, who may wait and how long, and what is told of it.
//
// Models that take tensors are members of one [runtime.Pool]; a request that waits joins the next pass of its model. Models
// that write, and those that make vectors, keep something from pass to pass or have sessions of their own, and run beside the
// pool with a share of the budget that is said at the start.
//
// It does not know how a model runs, or where its memory lies, and opens nothing but what is in its directory: no address, no
// upload.
//
//	registry, err := serve.Open(ctx, "models", serve.Options{Memory: 4 << 30}) // defer registry.Close()
//	http.ListenAndServe("127.0.0.1:8000", registry.Handler())
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/otlp"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/top"
)

// Options say what a registry may take. The zero value is right on the CPU.
type Options struct {
	// Memory is the budget in bytes of all models together; 0 is what [runtime.PoolOptions] says. The bodies of requests are
	// beside it: MaxBodies bounds them.
	Memory int64
	// Session is how all models run: device, threads, rates. Its budget must be 0.
	Session runtime.Options
	// HostMemory is [runtime.PoolOptions.HostMemory].
	HostMemory int64
	// MaxBody bounds the body of a request, also as it is unpacked, and the tensors that are made of it; 0 is 64 MiB. A
	// picture takes as much while it is decoded, and again while it is resized: one at a time, beside MaxBodies.
	MaxBody int64
	// MaxBodies bounds the bodies and tensors of all requests that are under way together; 0 is four times MaxBody.
	MaxBodies int64
	// MaxQueue is how many requests of a model wait or run; 0 is 256. One more is refused with when to come back.
	MaxQueue int
	// Context is how many tokens a sequence has at most, and KV the dtype of keys and values, where model.json does not say; the zero
	// values are [generate.Options]'s, and the dtype of most weights.
	Context int
	KV      tensor.DType
	// Speculate is that of [generate.Options].
	Speculate int
	// Remote has the passes of models that write run elsewhere, over several devices for instance: it returns what is to be
	// [generate.Options.Remote] of an engine whose session would have these options, with its share of the budget, which is for
	// each device then. Nil has the session run them. What runs elsewhere gives back no memory.
	Remote func(session runtime.Options) generate.OpenRemote
	// Defaults changes what a folder says of how its model writes; nil leaves it.
	Defaults func(generate.Defaults) generate.Defaults
	// Stop, Schema, Grammar and Logprobs hold where a request to write does not say, as those of [openai.WriterLease].
	// A model whose tokens cannot follow the schema or the grammar is not opened.
	Stop     []string
	Schema   json.RawMessage
	Grammar  string
	Logprobs int
	// Adapters are folders of adapters for all models that write, by name, beside those of model.json: requests ask for
	// MODEL:NAME. Adapter is that of requests that ask for MODEL; "" is none.
	Adapters map[string]string
	Adapter  string
	// OnDemand opens models with their first request instead of at the start.
	OnDemand bool
	// Limits bound what opening a file may cost. Files are opened strictly ([loader.Options.Strict]) but for whole modules.
	Limits loader.Limits
	// TritonMetrics adds counters with the names of NVIDIA Triton's to the metrics.
	TritonMetrics bool
	// Version is what the server says of itself to those who ask; "" is "dev".
	Version string
	// Log takes what happens; nil drops it.
	Log *slog.Logger
	// Top is told of the pool and of the sessions beside it; nil tells nobody. It is the caller's to close.
	Top *top.Server
	// Traces takes the spans of requests and of the passes that they share; nil traces nothing. It is the caller's to
	// close.
	Traces *otlp.Exporter
}

// defaultJoin is how many requests share a pass if the plan admits it, where model.json does not say.
const defaultJoin = 32

// A Registry has models by name. Any number of goroutines call any methods.
type Registry struct {
	opts Options
	dir  string
	root *os.Root
	pool *runtime.Pool
	log  *slog.Logger
	// ctx is that of what goes on beside requests: opening.
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	models map[string]*served
	closed bool
	// background counts what goes on: opening and closing.
	background sync.WaitGroup

	bodies bodies
	// decoding is had by who decodes a picture.
	decoding chan struct{}
	gate     gate
	draining atomic.Bool
	counts   counts
	began    time.Time
	shares   shares
}

// A served is what is behind a name.
type served struct {
	name string
	// versions are in order, the newest last. Aliases share them.
	versions []*version
	alias    bool
}

// New returns a registry without a directory, for models that are given with [Registry.Add].
func New(opts Options) (*Registry, error) {
	if opts.Session.Memory != 0 || opts.Session.MemoryShare != 0 || opts.Session.Reserve != 0 {
		return nil, &runtime.OptionError{Option: "Session.Memory", Msg: "the budget is the registry's"}
	}
	if opts.MaxBody < 0 || opts.MaxQueue < 0 || opts.MaxBodies < 0 || opts.Memory < 0 {
		return nil, &runtime.OptionError{Option: "MaxBody", Msg: "a bound below zero"}
	}
	opts.MaxBody = cmp.Or(opts.MaxBody, 64<<20)
	opts.Version = cmp.Or(opts.Version, "dev")
	opts.MaxBodies = max(cmp.Or(opts.MaxBodies, 4*opts.MaxBody), opts.MaxBody)
	opts.MaxQueue = cmp.Or(opts.MaxQueue, 256)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Memory == 0 {
		pool, err := runtime.NewPool(runtime.PoolOptions{Device: opts.Session.Device})
		if err != nil {
			return nil, err
		}
		opts.Memory = pool.Metrics().BudgetBytes
		if err := pool.Close(); err != nil {
			return nil, err
		}
	}
	r := &Registry{opts: opts, log: opts.Log, models: make(map[string]*served), began: time.Now(), decoding: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.bodies.most = opts.MaxBodies
	r.counts.init()
	return r, nil
}

// Open returns a registry of a directory. Models that cannot be opened are listed with why, and are no error.
func Open(ctx context.Context, dir string, opts Options) (*Registry, error) {
	r, err := New(opts)
	if err != nil {
		return nil, err
	}
	if r.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if r.root, err = os.OpenRoot(r.dir); err != nil {
		return nil, err
	}
	all, err := scan(r.root)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), r.root.Close())
	}
	r.list(all)
	if err := r.divide(); err != nil {
		return nil, errors.Join(err, r.root.Close())
	}
	if !opts.OnDemand {
		r.openAll(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// list takes up what was found.
func (r *Registry) list(all []found) {
	for _, f := range all {
		s := r.models[f.name]
		if s == nil {
			s = &served{name: f.name}
			r.models[f.name] = s
		}
		s.versions = append(s.versions, newVersion(r, f))
	}
	for _, f := range all {
		for _, a := range f.settings.Aliases {
			if taken := r.models[a]; taken != nil {
				if taken.versions[0].model != f.name {
					r.log.Warn("an alias is taken", "model", f.name, "alias", a)
				}
				continue
			}
			r.models[a] = &served{name: a, versions: r.models[f.name].versions, alias: true}
		}
	}
}

// openAll opens the newest version of each model, one after another.
func (r *Registry) openAll(ctx context.Context) {
	for _, s := range r.list1() {
		v := s.versions[len(s.versions)-1]
		f := v.what()
		if s.alias || f.settings.OnDemand {
			continue
		}
		if err := v.load(ctx); err != nil {
			r.log.Info("a model was not opened", "model", s.name, "version", v.number, "error", err, "cause", errors.Unwrap(err))
		} else {
			r.log.Info("a model is ready", "model", s.name, "version", v.number, "kind", f.kind)
		}
	}
}

// list1 returns all names in order.
func (r *Registry) list1() []*served {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*served
	for _, s := range r.models {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *served) int { return cmp.Compare(a.name, b.name) })
	return all
}

// Add serves a model of the caller's under a name, in the pool. The caller keeps its checkpoint open until the registry is
// closed. A name that is taken is an error.
func (r *Registry) Add(ctx context.Context, name string, model *models.Model) error {
	if !modelName.MatchString(name) {
		return fmt.Errorf("serve: %q is no name of a model", name)
	}
	r.mu.Lock()
	if r.models[name] != nil {
		r.mu.Unlock()
		return fmt.Errorf("serve: there is a model %q", name)
	}
	v := newVersion(r, found{name: name, version: "1", kind: Tensors})
	v.given = model
	r.models[name] = &served{name: name, versions: []*version{v}}
	r.mu.Unlock()
	err := r.divide()
	if err == nil {
		err = v.load(ctx)
	}
	if err != nil {
		r.mu.Lock()
		delete(r.models, name)
		r.mu.Unlock()
	}
	return err
}

// find returns a version of a model; "" is the newest that is ready, else the newest.
func (r *Registry) find(name, number string) (*version, error) {
	r.mu.Lock()
	s := r.models[name]
	r.mu.Unlock()
	if s == nil {
		return nil, refuse(404, "Request for unknown model: %.140q is not found", name) // words that Triton's clients look for
	}
	if number == "" {
		for _, v := range slices.Backward(s.versions) {
			if v.isReady() {
				return v, nil
			}
		}
		return s.versions[len(s.versions)-1], nil
	}
	for _, v := range s.versions {
		if v.number == number {
			return v, nil
		}
	}
	return nil, refuse(404, "Request for unknown model: %q version %.40q is not found", name, number)
}

// Rescan looks at the directory again: models and versions that are new are listed, and opened with their first request.
func (r *Registry) rescan() error {
	if r.root == nil {
		return nil
	}
	all, err := scan(r.root)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range all {
		s := r.models[f.name]
		if s == nil {
			s = &served{name: f.name}
			r.models[f.name] = s
		}
		at := slices.IndexFunc(s.versions, func(v *version) bool { return v.number == f.version })
		if at >= 0 {
			s.versions[at].refresh(f)
			continue
		}
		versions := append(slices.Clone(s.versions), newVersion(r, f)) // aliases and readers have the old list
		slices.SortFunc(versions, func(a, b *version) int { return compareVersions(a.number, b.number) })
		for _, x := range r.models {
			if x != s && x.alias && len(x.versions) > 0 && x.versions[0].model == f.name {
				x.versions = versions
			}
		}
		s.versions = versions
	}
	return nil
}

// siblings returns all versions of a model.
func (r *Registry) siblings(name string) []*version {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.models[name]; s != nil {
		return s.versions
	}
	return nil
}

// opensByItself reports whether a request may open a version. Of a model beside the pool only the newest is open, since its
// versions have one share: else clients could have them change places.
func (r *Registry) opensByItself(v *version) bool {
	all := r.siblings(v.model)
	return v.what().kind == Tensors || len(all) == 0 || all[len(all)-1] == v
}

// Load opens a model anew, as it is in the directory now, and puts it in the place of the one that is there, which ends what
// it has begun. Where it cannot be opened the old one stays.
func (r *Registry) Load(ctx context.Context, name string) error {
	if err := r.rescan(); err != nil {
		return loadError(err)
	}
	r.mu.Lock()
	s := r.models[name]
	r.mu.Unlock()
	if s == nil {
		return refuse(404, "failed to load %.140q: it is not in the directory", name)
	}
	return s.versions[len(s.versions)-1].load(ctx)
}

// Unload closes all versions of a model once their requests are over. It is not opened again before [Registry.Load].
func (r *Registry) Unload(name string) error {
	r.mu.Lock()
	s := r.models[name]
	r.mu.Unlock()
	if s == nil {
		return refuse(404, "failed to unload %.140q: it is not in the directory", name)
	}
	if !r.enter() {
		return nil // all of them are closed
	}
	defer r.background.Done()
	for _, v := range s.versions {
		v.unload()
	}
	return nil
}

// enter counts something that goes on in the background, unless the registry is closed.
func (r *Registry) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.background.Add(1)
	}
	return !r.closed
}

// Drain says that no more requests are taken: those that are there go on.
func (r *Registry) Drain() { r.draining.Store(true) }

// GiveBack frees the memory of all models, and has requests wait until [Registry.Resume]. Models that write, or make vectors, stop
// in the middle of a pass; those in the pool answer who is there first.
func (r *Registry) GiveBack(ctx context.Context) error {
	r.gate.shut()
	defer r.bodies.drop()
	var errs []error
	for _, pooled := range []bool{false, true} {
		if pooled { // those of the pool that are there are answered: they would take the memory again
			if err := r.gate.settle(ctx); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
		for _, v := range r.all() {
			if i := v.current(); i != nil && (v.what().kind == Tensors) == pooled {
				errs = append(errs, i.giveBack(ctx))
			}
		}
	}
	return errors.Join(errs...)
}

// Resume ends what [Registry.GiveBack] began.
func (r *Registry) Resume() {
	for _, v := range r.all() {
		if i := v.current(); i != nil {
			i.resume()
		}
	}
	r.gate.open()
}

// all returns all versions of all models, once each.
func (r *Registry) all() []*version {
	var all []*version
	for _, s := range r.list1() {
		if !s.alias {
			all = append(all, s.versions...)
		}
	}
	return all
}

// Close ends all requests and closes all models.
func (r *Registry) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if !first {
		return nil
	}
	r.Drain()
	r.cancel()
	r.Resume()
	for _, v := range r.all() {
		v.end()
	}
	r.background.Wait()
	r.bodies.drop()
	var errs []error
	if r.pool != nil {
		errs = append(errs, r.pool.Close())
	}
	if r.root != nil {
		errs = append(errs, r.root.Close())
	}
	return errors.Join(errs...)
}

// Pool returns the pool, nil where no model is in one, for who wants to watch it. It is the registry's.
func (r *Registry) Pool() *runtime.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool
}

// Memory is the budget of all models together, in bytes.
func (r *Registry) Memory() int64 { return r.opts.Memory }

// A Model is what is told of a version of a model.
type Model struct {
	Name, Version string
	Kind          Kind
	State         State
	// Reason says why it is not ready.
	Reason string
	// BudgetBytes is its share, where it runs beside the pool.
	BudgetBytes int64
}

// Models tells of all models, by name and version.
func (r *Registry) Models() []Model {
	var all []Model
	for _, v := range r.all() {
		m := Model{Name: v.model, Version: v.number, Kind: v.what().kind}
		m.State, m.Reason = v.state()
		if i := v.current(); i != nil {
			m.BudgetBytes = i.facts().budgetBytes
		}
		all = append(all, m)
	}
	return all
}
