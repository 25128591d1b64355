package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// ResidentOptions change how a model is run whole. The zero value is right.
type ResidentOptions struct {
	// Threads is the number of threads that compute; 0 is one for each processor. Results do not depend on it.
	Threads int
	// Dump names modules whose outputs a run returns too, as "dump:" and the path. A module in a branch of a conditional
	// that was not taken gives none.
	Dump []string
	// Ops is the registry that the model was built with; nil is layers.Standard().
	Ops *layers.Registry
}

// Resident returns a session that holds the whole model in memory. Weights are read when a pass first needs them.
func Resident(ctx context.Context, model *models.Model, opts ResidentOptions) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Ops == nil {
		opts.Ops = layers.Standard()
	}
	s := &Session{
		model:    model,
		dev:      cpu.New(opts.Threads, opts.Ops),
		dump:     opts.Dump,
		weights:  make(map[tensor.Extent]*held),
		programs: make(map[*layers.Graph]*program),
		turn:     make(chan struct{}, 1),
	}
	s.release()
	var err error
	if s.stream, err = s.dev.NewStream(); err != nil {
		return nil, err
	}
	return s, nil
}

// maxPrograms bounds the plans kept, one for each set of input shapes.
const maxPrograms = 16

// program returns the graph planned and its weights on the device.
func (s *Session) program(ctx context.Context, g *layers.Graph) (*program, error) {
	if p, ok := s.programs[g]; ok {
		return p, nil
	}
	p := &program{}
	dumped, err := withDumps(g, s.dump)
	if err != nil {
		return nil, err
	}
	p.graph = layers.Prune(dumped)
	lowered, err := s.dev.Lower(p.graph)
	if err != nil {
		return nil, err
	}
	if p.plan, err = plan.Resident(lowered); err != nil {
		return nil, err
	}
	if err := s.place(ctx, p); err != nil {
		return nil, errors.Join(err, s.forget(p))
	}
	if len(s.programs) >= maxPrograms {
		for old, q := range s.programs { // any: a service has few shapes
			delete(s.programs, old)
			if err := s.forget(q); err != nil {
				return nil, err
			}
			break
		}
	}
	s.programs[g] = p
	return p, nil
}

// forget frees what a program has for itself.
func (s *Session) forget(p *program) error {
	if p.consts == nil {
		return nil
	}
	s.metrics.WeightBytes -= p.consts.Bytes()
	err := p.consts.Free()
	p.consts = nil
	return err
}

// withDumps returns the graph with the outputs of modules among its outputs.
func withDumps(g *layers.Graph, paths []string) (*layers.Graph, error) {
	if len(paths) == 0 {
		return g, nil
	}
	dumped := *g
	dumped.Values, dumped.Ops, dumped.Outputs = slices.Clip(g.Values), slices.Clip(g.Ops), slices.Clip(g.Outputs)
	for _, path := range paths {
		o, ok := g.Modules[path]
		if !ok {
			return nil, &InputError{"dump", fmt.Sprintf("no module %q gives a tensor", path)}
		}
		n, err := o.Layout.NumElements()
		if held, _ := g.Values[o.Value].Shape.NumElements(); err != nil || n > held {
			// A view of some elements many times: what a plan counts is the memory of a copy.
			out, err := dumped.Emit(layers.Standard(), layers.Op{
				Kind: "copy", Path: path, In: []layers.Operand{o}, Guard: guardOf(g, o.Value),
			})
			if err != nil {
				return nil, fmt.Errorf("dump: %s: %w", path, err)
			}
			o = dumped.Whole(out[0])
		}
		dumped.Outputs = append(dumped.Outputs, layers.Output{Name: "dump:" + path, Operand: o})
	}
	return &dumped, nil
}

// guardOf returns the guard of the op that computes a value.
func guardOf(g *layers.Graph, id layers.ValueID) []layers.Guard {
	for _, op := range g.Ops {
		if slices.Contains(op.Out, id) {
			return op.Guard
		}
	}
	return nil
}

// place gives every value of a program its region, and reads the weights that are not on the device yet.
func (s *Session) place(ctx context.Context, p *program) error {
	if err := s.grow(&s.arena, p.plan.ActivationBytes); err != nil {
		return err
	}
	if err := s.grow(&s.work, p.plan.WorkBytes); err != nil {
		return err
	}
	p.regions = make([]device.Region, len(p.graph.Values))
	var constBytes int64
	for id, v := range p.graph.Values {
		place := p.plan.Places[id]
		switch v.Role {
		case layers.Weight, layers.State:
			w, err := s.weight(ctx, v, place.Bytes)
			if err != nil {
				return err
			}
			p.regions[id] = w.region
		case layers.Const:
			p.regions[id] = device.Region{Offset: constBytes, Bytes: place.Bytes}
			constBytes += (place.Bytes + plan.Align - 1) &^ (plan.Align - 1)
		}
	}
	if constBytes > 0 {
		var err error
		if p.consts, err = s.dev.Alloc(constBytes); err != nil {
			return err
		}
		s.metrics.WeightBytes += constBytes
	}
	for id, v := range p.graph.Values {
		if v.Role == layers.Const {
			p.regions[id].Memory = p.consts
			if err := s.stream.CopyIn(p.regions[id], v.Const); err != nil {
				return err
			}
		}
	}
	s.bind(p)
	s.metrics.ActivationBytes = memoryBytes(s.arena)
	s.metrics.WorkBytes = memoryBytes(s.work)
	s.metrics.PeakBytes = max(s.metrics.PeakBytes, s.metrics.WeightBytes+s.metrics.ActivationBytes+s.metrics.WorkBytes)
	return nil
}

func memoryBytes(m device.Memory) int64 {
	if m == nil {
		return 0
	}
	return m.Bytes()
}

// grow makes a shared memory at least as large as wanted. Programs planned before are bound to the new one.
func (s *Session) grow(m *device.Memory, bytes int64) error {
	if memoryBytes(*m) >= bytes {
		return nil
	}
	if *m != nil {
		if err := (*m).Free(); err != nil {
			return err
		}
		*m = nil
	}
	larger, err := s.dev.Alloc(bytes)
	if err != nil {
		// Nothing that was planned has memory now: it is planned again when it is next run.
		for g, q := range s.programs {
			delete(s.programs, g)
			err = errors.Join(err, s.forget(q))
		}
		return err
	}
	*m = larger
	for _, q := range s.programs {
		s.bind(q)
	}
	return nil
}

// bind points a program's activations and launches at the shared memories.
func (s *Session) bind(p *program) {
	for id, v := range p.graph.Values {
		if v.Role == layers.Computed || v.Role == layers.Input {
			place := p.plan.Places[id]
			p.regions[id] = device.Region{Memory: s.arena, Offset: place.Offset, Bytes: place.Bytes}
		}
	}
	p.launches = make([]device.Launch, len(p.graph.Ops))
	for i, op := range p.graph.Ops {
		l := device.Launch{Step: p.plan.Lowered.Steps[i], Op: op}
		for _, o := range op.In {
			a := device.Argument{Operand: o, Spec: p.graph.Spec(o)}
			if o.Value != layers.NoValue {
				a.Region = p.regions[o.Value]
			}
			l.In = append(l.In, a)
		}
		for _, id := range op.Out {
			o := p.graph.Whole(id)
			l.Out = append(l.Out, device.Argument{Operand: o, Spec: p.graph.Spec(o), Region: p.regions[id]})
		}
		if n := l.Step.WorkBytes; n > 0 {
			l.Work = device.Region{Memory: s.work, Bytes: n}
		}
		p.launches[i] = l
	}
}

// weight returns a storage on the device, read from the checkpoint where it is not there yet. States begin as the
// checkpoint has them and live as long as the session.
func (s *Session) weight(ctx context.Context, v layers.Value, bytes int64) (*held, error) {
	if w, ok := s.weights[v.Weight.Extent]; ok {
		if w.region.Bytes < bytes {
			return nil, fmt.Errorf("BUG: storage of weight %s has two sizes", v.Name)
		}
		return w, nil
	}
	m, err := s.dev.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	w := &held{memory: m, region: device.Region{Memory: m, Bytes: bytes}}
	extent := v.Weight.Extent
	extent.Bytes = bytes
	if bytes > 0 {
		err = tensor.Read(ctx, 0, tensor.Request{Extent: extent, Into: cpu.HostBytes(w.region)})
	}
	if err != nil {
		m.Free()
		return nil, fmt.Errorf("weight %s: %w", v.Name, err)
	}
	s.weights[v.Weight.Extent] = w
	s.metrics.LoadedBytes += bytes
	s.metrics.WeightBytes += bytes
	return w, nil
}
