// Package models turns a checkpoint into a model that can run: a graph of ops for given input shapes, with the weights
// still in the file.
//
// It knows the meaning of model formats (what the nodes of an exported program compute, which architecture a state dict
// belongs to). It does not know devices, plans or file layouts.
//
//	ckpt, err := loader.Open("model.pt2")
//	model, err := models.Build(ckpt, models.Options{})
//	graph, err := model.Graph(map[string]tensor.Shape{"x": {1, 3, 224, 224}})
package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// Options change how a model is built. The zero value is right.
type Options struct {
	// Ops is the registry to use: graph.Standard(), or one with an embedder's own ops, which a program calls as
	// "torch.ops.<namespace>.<name>.<overload>" and the registry defines under the kind "<namespace>::<name>".
	// Its operands are the tensors among the arguments, in order, those of a list one after another; all else are
	// attributes by name, and "arg0", "arg1", … by position. Of a list of tensors the attribute is how many they are.
	Ops *graph.Registry
	// Arch is the architecture of a bare state dict, where its names and shapes do not tell. Here and in what follows a
	// whole pickled module counts as its state dict: the way to run one with classes whose code is not known.
	Arch string
	// Code is a checkpoint that holds the code for a bare state dict: an exported program, TorchScript or a whole
	// pickled module. It must stay open as long as the model's own checkpoint.
	Code *loader.Checkpoint
	// Architecture is the code of a bare state dict, as a tree of modules built in Go: layers.Sequential(…) and its kin.
	// It is not changed.
	Architecture *layers.Architecture
	// Config is the text of a config.json of a Hugging Face model, for a bare state dict of it. Arch may name another class
	// of the same family then.
	Config []byte
	// Steps bounds the expressions and statements of TorchScript that building a graph evaluates; 0 is ten million.
	Steps int64
	// Adapters are what calls may change the model by: see [Model.Adapters]. They are for Hugging Face folders and other models
	// whose modules are known. Adapter names the one that calls use which say nothing of it; "" is none.
	Adapters []Adapter
	Adapter  string
}

// A Port is an input of a model.
type Port = layers.Port

// A Model is a program with its weights in a file. It may be shared between goroutines; the checkpoint must stay open
// while graphs of it run.
type Model struct {
	arch    string
	notes   []string
	inputs  []Port
	outputs []string
	build   func(ctx context.Context, c Call) (*graph.Graph, error)
	// modules lists the paths of modules; nil where nothing is known of them.
	modules func() []string
	// numbers are those that graphs are built for where a call says no others.
	numbers Numbers
	// ops is the registry that graphs are built with.
	ops *graph.Registry
	// context and step are of a model that can be run step by step: see [Model.Steps].
	context int
	// source is how many positions a source may have, and sound is the port of one that is no text: see [Model.Source].
	source int
	sound  *Port
	// pictures says how pictures come into texts, nil of a model that sees none step by step.
	pictures *layers.Pictures
	// stretch and restarts are those of the architecture.
	stretch  int
	restarts bool
	// recurrent, keyless and window are, too.
	recurrent, keyless bool
	window             int
	step               func(StepOptions) *Model
	// lookup finds a weight by the end of its name in the modules, nil where those are not known, and depth is how many layers
	// there are. head says how it guesses for another model, nil of those that do not.
	lookup func(name string) (tensor.Weight, bool)
	depth  int
	head   *Head
	// adapters are the names of those that a call may use.
	adapters []string
	// weights are the checkpoint's.
	weights []tensor.Weight

	mu sync.Mutex
	// building holds a token while a graph is built; turn makes it. A lock could not be waited for with a context.
	building chan struct{}
	graphs   *recent.Map[string, *graph.Graph]
}

// maxGraphs bounds the graphs kept, one for each set of input shapes.
const maxGraphs = 32

// Build returns the model in a checkpoint. It fails with an [*UnsupportedError] that lists everything the model needs
// and optimem lacks.
func Build(ckpt *loader.Checkpoint, opts Options) (*Model, error) {
	if opts.Ops == nil {
		opts.Ops = graph.Standard()
	}
	m := newModel(opts.Ops, ckpt.Weights)
	if err := checkAdapters(opts); err != nil {
		return nil, err
	}
	switch {
	case opts.Code != nil:
		if err := m.useCode(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case opts.Architecture != nil:
		if err := m.useGiven(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case opts.Config != nil:
		if err := m.useConfig(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case ckpt.Program != nil && ckpt.Program.Exported != nil:
		if err := m.useExported(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case ckpt.Program != nil && ckpt.Program.Script != nil:
		if err := m.useScript(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case ckpt.Module != nil && opts.Arch == "":
		if err := m.usePickled(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case ckpt.Format == loader.FormatGGUF:
		if err := m.useGGUF(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	case ckpt.Config != nil:
		if err := m.useFolder(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	default:
		if err := m.useStateDict(ckpt, opts); err != nil {
			return nil, fmt.Errorf("%s: %w", ckpt.Path, err)
		}
	}
	if len(opts.Adapters) > 0 && m.adapters == nil {
		return nil, fmt.Errorf("%s: %w", ckpt.Path, &UnsupportedError{
			What: "adapters of a program, whose modules are not known",
			Hint: "give the Hugging Face folder of the model",
		})
	}
	return m, nil
}

func newModel(ops *graph.Registry, weights []tensor.Weight) *Model {
	return &Model{ops: ops, weights: weights, graphs: recent.New[string, *graph.Graph](maxGraphs)}
}

// Arch returns the name of the architecture that the checkpoint was recognised as, "" for programs.
func (m *Model) Arch() string { return m.arch }

// Notes returns what a user should know about how the checkpoint was understood: what was assumed, what was left out.
func (m *Model) Notes() []string { return slices.Clone(m.notes) }

// Weights returns the weights of the checkpoint, under all of their names. The caller does not change them.
func (m *Model) Weights() []tensor.Weight { return m.weights }

// Ops returns the registry that the model was built with.
func (m *Model) Ops() *graph.Registry { return m.ops }

// Inputs returns what a caller must give, in order.
func (m *Model) Inputs() []Port {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.inputs)
}

// SetDType says which dtype an input has, where that was assumed. It reports whether the input may have it. It is for
// before the model is first used.
func (m *Model) SetDType(input string, d tensor.DType) bool {
	turn := m.turn()
	turn <- struct{}{}
	defer func() { <-turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.inputs, func(p Port) bool { return p.Name == input })
	if i < 0 || !m.inputs[i].Assumed && m.inputs[i].DType != d {
		return false
	}
	if m.inputs[i].DType != d {
		m.inputs[i].DType = d
		m.graphs.Clear()
	}
	return true
}

// Outputs returns the names of the results, in order. A form of model that does not list them has them once a graph was
// built; nil before.
func (m *Model) Outputs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outputs)
}

// Numbers are values of inputs that are numbers of the program, by name.
type Numbers map[string]*tensor.Tensor

// SetNumber says for which value of an input that is a number of the program [Model.Graph] builds graphs. It reports
// whether the model has such an input and t is one number of its dtype.
func (m *Model) SetNumber(input string, t *tensor.Tensor) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.inputs, func(p Port) bool { return p.Name == input && p.Number })
	if i < 0 || t == nil || t.DType != m.inputs[i].DType || len(t.Layout.Shape) != 0 {
		return false
	}
	if m.numbers == nil {
		m.numbers = make(Numbers)
	}
	m.numbers[input] = ownNumber(t)
	return true
}

// HasNumber reports whether t is what SetNumber said of an input.
func (m *Model) HasNumber(input string, t *tensor.Tensor) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.numbers[input]
	return known != nil && t != nil && bytes.Equal(known.Data, t.Contiguous().Data)
}

// ownNumber copies a number, which a graph keeps and a caller may change.
func ownNumber(t *tensor.Tensor) *tensor.Tensor {
	t = t.Contiguous()
	return &tensor.Tensor{DType: t.DType, Layout: t.Layout, Data: bytes.Clone(t.Data)}
}

// Graph returns the model for inputs of the given shapes. Graphs are kept, the most recently used ones.
func (m *Model) Graph(inputs map[string]tensor.Shape) (*graph.Graph, error) {
	return m.GraphFor(inputs, nil)
}

// GraphFor is Graph for values of the inputs that are numbers of the program. Those that are not there are what
// [Model.SetNumber] said.
func (m *Model) GraphFor(inputs map[string]tensor.Shape, numbers Numbers) (*graph.Graph, error) {
	return m.GraphContext(context.Background(), inputs, numbers)
}

// GraphContext is GraphFor until ctx is done, whose error it returns then. A graph that is there is returned all the
// same.
func (m *Model) GraphContext(
	ctx context.Context, inputs map[string]tensor.Shape, numbers Numbers,
) (*graph.Graph, error) {
	return m.GraphOf(ctx, Call{Inputs: inputs, Numbers: numbers})
}

// A Call is what a graph is for.
type Call struct {
	// Inputs are the shapes of the inputs, Numbers the values of those that are numbers.
	Inputs  map[string]tensor.Shape
	Numbers Numbers
	// After is Leaves of the graph that computed the call before; "" is for the first.
	After string
}

// GraphOf is GraphContext for a call after others.
func (m *Model) GraphOf(ctx context.Context, c Call) (*graph.Graph, error) {
	key, own, err := m.graphKey(c.Inputs, c.Numbers)
	if err != nil {
		return nil, err
	}
	key += c.After
	if g, ok := m.graph(key); ok {
		return g, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	turn := m.turn()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-turn }()
	if g, ok := m.graph(key); ok { // another call built it
		return g, nil
	}
	g, err := m.build(ctx, Call{owned(c.Inputs), own, c.After})
	switch stopped := ctx.Err(); {
	case err != nil && stopped != nil && errors.Is(err, stopped):
		return nil, stopped // where it was says nothing about the model
	case err != nil:
		return nil, blame(err, false)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outputs == nil {
		for _, o := range g.Outputs {
			if !o.Counts {
				m.outputs = append(m.outputs, o.Name)
			}
		}
	}
	m.graphs.Put(key, g)
	return g, nil
}

// turn returns the channel that takes one token of whoever builds a graph.
func (m *Model) turn() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.building == nil {
		m.building = make(chan struct{}, 1)
	}
	return m.building
}

// graph returns the graph that is kept under a key.
func (m *Model) graph(key string) (*graph.Graph, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.graphs.Get(key)
}

// graphKey returns what tells a graph from others, and the numbers that it is for.
func (m *Model) graphKey(inputs map[string]tensor.Shape, numbers Numbers) (string, Numbers, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var key strings.Builder
	own := make(Numbers)
	for _, p := range m.inputs {
		shape, given := inputs[p.Name]
		fmt.Fprint(&key, p.Name, given, shape)
		if !p.Number || !given {
			continue
		}
		t := numbers[p.Name]
		if t == nil {
			t = m.numbers[p.Name]
		}
		if t == nil {
			return "", nil, &InputError{p.Name, "is a number of the program, whose graph depends on its value, and no value is given"}
		}
		own[p.Name] = ownNumber(t)
		fmt.Fprintf(&key, "=%x", own[p.Name].Data)
	}
	return key.String(), own, nil
}

// owned copies shapes, which a graph keeps and a caller may change.
func owned(shapes map[string]tensor.Shape) map[string]tensor.Shape {
	own := maps.Clone(shapes)
	for name, shape := range own {
		own[name] = slices.Clone(shape)
	}
	return own
}

// An InputError says that an input does not fit a model: it is missing or unknown, has another shape or dtype, or holds
// an index that is out of range.
type InputError struct {
	Input string
	Msg   string
}

// Error names the input.
func (e *InputError) Error() string { return "input " + e.Input + ": " + e.Msg }

// blame makes an error of which no one input and nothing that optimem lacks is the reason a [ProgramError].
func blame(err error, fixed bool) error {
	var (
		lacking *UnsupportedError
		shape   *InputError
		program *ProgramError
	)
	if errors.As(err, &lacking) || errors.As(err, &shape) || errors.As(err, &program) ||
		errors.Is(err, graph.ErrUnsupported) || loader.Class(err) != nil {
		return err
	}
	return &ProgramError{Err: err, Fixed: fixed}
}

// A ProgramError says that a program contradicts itself: an op cannot be computed with the arguments that it
// has, or gives something else than was recorded of it.
type ProgramError struct {
	Err error
	// Fixed says that the program takes inputs of one shape only, so that nothing but the file can be wrong; the error
	// is a [loader.ErrFormat] then. Else it may be that the program was never meant for inputs of these sizes.
	Fixed bool
}

// Error says which node it is, and what is wrong with it.
func (e *ProgramError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong, and the class of error where that is sure.
func (e *ProgramError) Unwrap() []error {
	if e.Fixed {
		return []error{e.Err, loader.ErrFormat}
	}
	return []error{e.Err}
}
