package serve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// shares say how the budget is divided: what the pool has, and what each model beside it has, by name.
type shares struct {
	poolBytes int64
	beside    map[string]int64
}

// divide divides the budget, once, by what lies in the directory: models beside the pool have what their model.json says, else
// as much of the rest as their files are of all files.
func (r *Registry) divide() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool != nil {
		return nil
	}
	rest, pooled, all := r.opts.Memory, int64(0), int64(0)
	r.shares.beside = make(map[string]int64)
	weights := make(map[string]int64)
	for name, s := range r.models {
		if s.alias {
			continue
		}
		f := s.versions[len(s.versions)-1].what()
		switch {
		case f.kind == Tensors:
			pooled += max(f.fileBytes, 1)
			all += max(f.fileBytes, 1)
		case f.settings.Memory > 0:
			r.shares.beside[name] = int64(f.settings.Memory)
			rest -= int64(f.settings.Memory)
		default:
			weights[name] = max(f.fileBytes, 1)
			all += max(f.fileBytes, 1)
		}
	}
	if rest < 0 {
		return fmt.Errorf("serve: the shares in model.json are %s more than the budget of %s",
			ascii.FormatSize(-rest), ascii.FormatSize(r.opts.Memory))
	}
	for name, w := range weights {
		r.shares.beside[name] = int64(float64(rest) * (float64(w) / float64(all)))
	}
	r.shares.poolBytes = rest
	for name := range weights {
		r.shares.poolBytes -= r.shares.beside[name]
	}
	if pooled == 0 && len(r.models) > 0 {
		return nil // a pool is made when a model for it comes
	}
	return r.newPool()
}

// newPool makes the pool. The registry's mutex is held.
func (r *Registry) newPool() error {
	if r.shares.poolBytes <= 0 {
		return errors.New("serve: models beside the pool have all of the budget, and nothing is left for those in it")
	}
	pool, err := runtime.NewPool(runtime.PoolOptions{
		Memory: r.shares.poolBytes, Device: r.opts.Session.Device, HostMemory: r.opts.HostMemory, MaxWaiting: 1 << 20,
	})
	if err == nil {
		r.pool = pool
		if r.opts.Top != nil {
			r.opts.Top.Enter(filepath.Base(filepath.Clean(r.dir))).Pool(pool)
		}
	}
	return err
}

// told has a session of a model told of to those who ask with 'optimem top'. started says which session it is, ended
// that it is none any more.
func (r *Registry) told(name string, opts *runtime.Options) (started func(*runtime.Session), ended func() error) {
	if r.opts.Top == nil {
		return func(*runtime.Session) {}, func() error { return nil }
	}
	entry := r.opts.Top.Enter(name)
	opts.Observe = runtime.TeeObserver(opts.Observe, entry.Observe)
	return entry.Session, func() error { entry.Leave(); return nil }
}

// share is what a model beside the pool has. One that came later has none but what its model.json says.
func (r *Registry) share(f found) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.shares.beside[f.name]; n > 0 {
		return n, nil
	}
	return 0, refuse(507, "the budget was divided when the server began, and the model was not there: start it again")
}

// open opens what was found.
func (r *Registry) open(v *version, f found, member string) (runner, error) {
	if v.given != nil {
		return r.openMember(v, f, member, v.given, nil, nil)
	}
	if f.settings.Preprocess != nil && f.kind != Tensors {
		return nil, refuse(422, "preprocess: the model takes no tensors: say \"kind\" in model.json")
	}
	switch f.kind {
	case Text:
		return r.openText(f)
	case Embeddings:
		return r.openEmbeddings(f)
	}
	ckpt, model, done, err := r.openModel(f, f.place(r.dir), f.settings.Arch)
	if err != nil {
		return nil, err
	}
	m, err := r.openMember(v, f, member, model, ckpt, done)
	if err != nil {
		return nil, errors.Join(err, done.close())
	}
	return m, nil
}

// openModel opens a checkpoint and builds its model.
func (r *Registry) openModel(f found, place, arch string) (_ *loader.Checkpoint, _ *models.Model, done closers, err error) {
	defer func() {
		if err != nil {
			_ = done.close()
		}
	}()
	opts := loader.Options{Limits: r.opts.Limits}
	ckpt, err := loader.OpenWith(r.ctx, place, opts)
	if err != nil {
		return nil, nil, nil, err
	}
	done = closers{ckpt.Close}
	build := models.Options{Arch: arch}
	if f.settings.Code != "" {
		folder := path.Dir(f.path)
		if build.Code, err = loader.OpenWith(r.ctx, filepath.Join(r.dir, filepath.FromSlash(folder), f.settings.Code), opts); err != nil {
			return nil, nil, done, err
		}
		done = append(done, build.Code.Close)
	}
	for _, name := range slices.Sorted(maps.Keys(f.settings.Adapters)) {
		a, err := loader.OpenAdapter(r.ctx, filepath.Join(r.dir, filepath.FromSlash(f.settings.folder), f.settings.Adapters[name]), opts)
		if err != nil {
			return nil, nil, done, fmt.Errorf("adapter %s: %w", name, err)
		}
		done = append(done, a.Close)
		build.Adapters = append(build.Adapters, models.Adapter{Name: name, Checkpoint: a})
	}
	if f.kind == Text {
		for _, name := range slices.Sorted(maps.Keys(r.opts.Adapters)) {
			if f.settings.Adapters[name] != "" {
				continue // the model has its own of that name
			}
			a, err := loader.OpenAdapter(r.ctx, r.opts.Adapters[name], opts)
			if err != nil {
				return nil, nil, done, fmt.Errorf("adapter %s: %w", name, err)
			}
			done = append(done, a.Close)
			build.Adapters = append(build.Adapters, models.Adapter{Name: name, Checkpoint: a})
		}
	}
	model, err := models.Build(ckpt, build)
	return ckpt, model, done, err
}

// openDraft opens what guesses for a model that writes, nil where nothing does.
func (r *Registry) openDraft(f found, of *models.Model) (_ *models.Model, done closers, err error) {
	if f.settings.Draft == "" || r.opts.Speculate == generate.NoSpeculation {
		return nil, nil, nil
	}
	defer func() {
		if err != nil {
			_ = done.close()
			why := loadError(err)
			done, err = nil, &Error{Status: why.Status, Msg: "draft: " + why.Msg, Err: err}
		}
	}()
	place := filepath.Join(r.dir, filepath.FromSlash(f.settings.folder), f.settings.Draft)
	ckpt, err := loader.OpenWith(r.ctx, place, loader.Options{Limits: r.opts.Limits})
	if err != nil {
		return nil, nil, err
	}
	done = closers{ckpt.Close}
	var model *models.Model
	if models.IsHead(ckpt) {
		model, err = models.BuildHead(ckpt, of)
	} else {
		model, err = models.Build(ckpt, models.Options{})
	}
	return model, done, err
}

// openMember puts a model into the pool.
func (r *Registry) openMember(
	v *version, f found, name string, model *models.Model, ckpt *loader.Checkpoint, done closers,
) (runner, error) {
	r.mu.Lock()
	if r.pool == nil {
		if err := r.newPool(); err != nil {
			r.mu.Unlock()
			return nil, err
		}
	}
	pool := r.pool
	r.mu.Unlock()
	m := &tensorRunner{version: v, model: model, done: done, pool: pool, join: cmp.Or(f.settings.MaxJoin, defaultJoin)}
	var err error
	if p := f.settings.Preprocess; p != nil {
		if m.pictures, err = r.newPictures(*p, model.Inputs()); err != nil {
			return nil, err
		}
	} else if v.given == nil {
		m.pictures, m.unseen = r.folderPictures(f, model.Inputs())
	}
	if f.settings.Draft != "" {
		return nil, errors.New("model.json: draft: nothing is to be guessed for a model that does not write")
	}
	opts := r.opts.Session
	opts.Mode, opts.MaxJoin = f.settings.Mode, m.join
	opts.Observe = runtime.TeeObserver(opts.Observe, m.observe)
	if m.member, err = pool.Open(r.ctx, name, model, opts); err != nil {
		return nil, err
	}
	if err := m.tryPlan(r.ctx); err != nil {
		return nil, errors.Join(err, m.member.Close())
	}
	m.allBytes = weightBytes(model)
	return m, nil
}

// openText starts an engine.
func (r *Registry) openText(f found) (_ runner, err error) {
	share, err := r.share(f)
	if err != nil {
		return nil, err
	}
	place := f.place(r.dir)
	text, err := generate.OpenText(place)
	if err != nil {
		return nil, err
	}
	arch := f.settings.Arch
	if sees := text.Defaults().Sees; sees != nil && arch == "" && len(f.settings.Adapters)+len(r.opts.Adapters) == 0 && r.prepares(f) {
		arch = sees.Class
	}
	ckpt, model, done, err := r.openModel(f, place, arch)
	if err != nil {
		return nil, err
	}
	grammars := &grammarMemory{bodies: &r.bodies}
	text.Reserve(grammars.reserve)
	done = append(done, grammars.close)
	defer func() {
		if err != nil {
			_ = done.close()
		}
	}()
	if model.Context() == 0 {
		if _, err := model.Steps(models.StepOptions{}); err != nil {
			return nil, err
		}
		return nil, refuse(501, "the model does not write: say \"kind\" in model.json")
	}
	draft, more, err := r.openDraft(f, model)
	if done = append(done, more...); err != nil {
		return nil, err
	}
	opts := generate.Options{Session: r.opts.Session, Speculate: r.opts.Speculate, Draft: draft,
		Sequences: f.settings.Sequences,
		Context:   cmp.Or(f.settings.Context, r.opts.Context), Grow: true}
	opts.Session.Memory, opts.Session.Mode, opts.Session.HostMemory = share, f.settings.Mode, 0
	if _, places := model.Pictures(); places > 0 {
		opts.Pictures = defaultPictures
	}
	started, ended := r.told(f.name, &opts.Session)
	done = append(done, ended)
	if opts.KV = cmp.Or(generate.KVTypes[f.settings.KV], r.opts.KV); opts.KV == tensor.Invalid {
		opts.KV = generate.KVType(ckpt.Weights)
	}
	t := &textRunner{name: f.name, budgetBytes: share, base: generate.TextRequest{Stop: r.opts.Stop, Schema: r.opts.Schema, Grammar: r.opts.Grammar}}
	t.base.Request.Logprobs, t.base.Request.Adapter = r.opts.Logprobs, r.opts.Adapter
	if r.opts.Schema != nil || r.opts.Grammar != "" {
		if _, err := text.Constraint(t.base); err != nil {
			return nil, fmt.Errorf("what answers must be: %w", err)
		}
	}
	engine, err := r.newEngine(model, &opts)
	if err != nil {
		return nil, err
	}
	started(engine.Session())
	if engine.MostPictures() > 0 {
		if t.pictures, err = r.folderPictures(f, model.Inputs()); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
	}
	t.Writer = generate.NewWriter(text, engine)
	t.defaults, t.kv, t.sequences = text.Defaults(), opts.KV, opts.Sequences
	if r.opts.Defaults != nil {
		t.defaults = r.opts.Defaults(t.defaults)
	}
	t.done = append(closers{engine.Close}, done...)
	t.elsewhere = opts.Remote != nil
	if seconds, err := engine.PassSeconds(r.ctx); err == nil {
		t.passSeconds = seconds
	}
	t.allBytes = weightBytes(model)
	return t, nil
}

// weightBytes is what a model's weights take in all.
func weightBytes(model *models.Model) (n int64) {
	for _, w := range model.Weights() {
		n += w.Bytes()
	}
	return n
}

// newEngine starts an engine for as many sequences as are usual, or for no more than were asked for; opts say then which.
func (r *Registry) newEngine(model *models.Model, opts *generate.Options) (engine *generate.Engine, err error) {
	if r.opts.Remote != nil {
		opts.Remote = r.opts.Remote(opts.Session)
	}
	for _, n := range []int{max(opts.Sequences, defaultSequences), max(opts.Sequences, 1)} {
		opts.Sequences = n
		var capacity *runtime.CapacityError
		if engine, err = generate.New(r.ctx, model, *opts); !errors.As(err, &capacity) {
			break
		}
	}
	return engine, err
}

// defaultSequences is for how many sequences of a full context there is room if the share admits it.
const defaultSequences = 4

// defaultPictures is how many pictures a conversation may have.
const defaultPictures = 4

// openEmbeddings starts an embedder.
func (r *Registry) openEmbeddings(f found) (_ runner, err error) {
	share, err := r.share(f)
	if err != nil {
		return nil, err
	}
	folder, err := embed.OpenContext(r.ctx, f.place(r.dir))
	if err != nil {
		return nil, err
	}
	e := &vectorRunner{name: f.name, budgetBytes: share, done: closers{folder.Close}}
	defer func() {
		if err != nil {
			_ = e.done.close()
		}
	}()
	opts := embed.Options{Session: r.opts.Session}
	opts.Session.Memory, opts.Session.Mode, opts.Session.HostMemory = share, f.settings.Mode, 0
	started, ended := r.told(f.name, &opts.Session)
	e.done = append(closers{ended}, e.done...)
	var model *models.Model
	if place := folder.Checkpoint(); place != "" {
		var done closers
		if _, model, done, err = r.openModel(f, place, cmp.Or(f.settings.Arch, folder.Class())); err != nil {
			return nil, err
		}
		e.done = append(done, e.done...)
		for _, w := range model.Weights() {
			e.allBytes += w.Bytes()
		}
	}
	if e.Embedder, err = embed.New(r.ctx, folder, model, opts); err != nil {
		return nil, err
	}
	started(e.Embedder.Session())
	e.done = append(closers{e.Embedder.Close}, e.done...)
	return e, nil
}
