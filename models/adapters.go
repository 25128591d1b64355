package models

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/lora"
	"github.com/optimem/optimem/models/lora/stretch"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// An Adapter is a small change of a model that was trained beside it: a LoRA in the form of Python's peft.
type Adapter struct {
	// Name is what calls use it by.
	Name string
	// Checkpoint is its folder, as [loader.OpenAdapter] opens it. It must stay open as long as the model's own.
	Checkpoint *loader.Checkpoint
}

// AdapterInput is the input that says which adapter a call uses, of a model that has some: the number that
// [Model.AdapterNumber] gives. Without it a call uses that of [Options]. A model of [Model.Steps] has [StepAdapters] in its place.
const AdapterInput = "adapter"

// maxAdapters bounds the adapters of a model.
const maxAdapters = 64

// An AdapterError says that an adapter is not one of those that a model has.
type AdapterError struct {
	Name string
	// Known are those that it has.
	Known []string
}

// Error names the adapters that there are.
func (e *AdapterError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("no adapter %q: the model has none", e.Name)
	}
	return fmt.Sprintf("no adapter %q: there is %q", e.Name, e.Known)
}

// Adapters returns the names of the adapters that calls may use. All of them are part of the model: of its weights, of its
// plans, and of what they report.
func (m *Model) Adapters() []string { return slices.Clone(m.adapters) }

// AdapterNumber returns what [AdapterInput] and [StepAdapters] say for an adapter: its place in [Model.Adapters], counted from
// 1; 0 for "", which is the model without one. Another name is an [*AdapterError].
func (m *Model) AdapterNumber(name string) (int64, error) {
	if name == "" {
		return 0, nil
	}
	i := slices.Index(m.adapters, name)
	if i < 0 {
		return 0, &AdapterError{name, m.Adapters()}
	}
	return int64(i + 1), nil
}

// checkAdapters looks at the names of adapters.
func checkAdapters(opts Options) error {
	if len(opts.Adapters) > maxAdapters {
		return fmt.Errorf("%d adapters: %d are possible", len(opts.Adapters), maxAdapters)
	}
	var names []string
	for _, a := range opts.Adapters {
		switch {
		case a.Name == "" || a.Checkpoint == nil:
			return errors.New("an adapter without a name or a checkpoint")
		case slices.Contains(names, a.Name):
			return fmt.Errorf("two adapters %q", a.Name)
		}
		names = append(names, a.Name)
	}
	if opts.Adapter != "" && !slices.Contains(names, opts.Adapter) {
		return &AdapterError{opts.Adapter, names}
	}
	return nil
}

// The adapters of an architecture.
type adapters struct {
	list []*lora.Adapter
	// weights are their tensors by their names in the model.
	weights map[string]tensor.Weight
	// bytes is the memory of sources that compute some of them.
	bytes int64
	// usual is the number of the one that calls use which say nothing.
	usual int64
}

// useAdapters reads the adapters of the options for an architecture, and makes them part of m.
func (m *Model) useAdapters(
	ckpt *loader.Checkpoint, a *layers.Architecture, opts Options, rename func(string) string,
) (adapters, error) {
	var all adapters
	if len(opts.Adapters) == 0 {
		return all, nil
	}
	all.weights = make(map[string]tensor.Weight)
	taken := make(map[string]bool, len(m.weights))
	for _, w := range m.weights {
		taken[w.Name] = true
	}
	weights, names := slices.Clone(m.weights), []string(nil)
	store := stretch.NewStore()
	for i, given := range opts.Adapters {
		dicts := given.Checkpoint.StateDicts()
		if len(dicts) == 0 {
			return all, adapterError(&lora.Error{Adapter: given.Name, Msg: "it has no tensors"})
		}
		var dict layers.StateDict
		for _, w := range dicts[0].Weights {
			dict = append(dict, layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape})
			if w.Quant != nil || w.Conj || w.Neg || w.BigEndian {
				return all, &UnsupportedError{What: fmt.Sprintf("adapter %s: %s: quantized, conjugated or big-endian",
					given.Name, w.Name)}
			}
			w.Name = lora.TensorName(given.Name, w.Name)
			if taken[w.Name] {
				return all, adapterError(&lora.Error{Adapter: given.Name, Tensor: w.Name,
					Msg: "the model has a weight of that name"})
			}
			all.weights[w.Name] = w
			weights = append(weights, w)
		}
		adapter, err := lora.Read(given.Name, given.Checkpoint.Config, dict, a)
		if err != nil {
			return all, fmt.Errorf("%s: %w", given.Checkpoint.Path, adapterError(err))
		}
		adapter.Stretch(func(s lora.Stretched) bool { return all.stretch(ckpt, a, rename, store, s) })
		all.list, names = append(all.list, adapter), append(names, given.Name)
		if given.Name == opts.Adapter {
			all.usual = int64(i + 1)
		}
	}
	m.weights, m.adapters, all.bytes = weights, names, store.Bytes()
	m.inputs = append(slices.Clone(a.Inputs), Port{
		Name: AdapterInput, DType: tensor.Int64, Shape: tensor.Shape{}, Optional: true, Number: true,
	})
	return all, nil
}

// stretch makes the factors by which an adapter stretches the rows of a module a weight, whose source computes them
// once. It reports false where the module's own weight is not one of a file that lies as its numbers do.
func (all adapters) stretch(
	ckpt *loader.Checkpoint, a *layers.Architecture, rename func(string) string, store *stretch.Store, s lora.Stretched,
) bool {
	w, there := all.weights[s.Weight]
	if !there {
		name := cmp.Or(a.Weights[s.Weight], s.Weight)
		if rename != nil {
			name = rename(name)
		}
		if w, there = ckpt.Weight(name); !there {
			return false
		}
	}
	source, ok := store.Add(stretch.Parts{
		Weight: w, Turned: s.Turned, Scale: s.Scale,
		Down: all.weights[s.Down], Up: all.weights[s.Up], Strength: all.weights[s.Strength],
	})
	if !ok {
		return false
	}
	all.weights[s.Factors] = tensor.Weight{
		Name: s.Factors, DType: tensor.Float32, Layout: tensor.Contiguous(int(source.Size() / 4)),
		Extent: storage.Extent{Source: source, Bytes: source.Size()},
	}
	return true
}

// adapterError gives an error of an adapter its class.
func adapterError(err error) error {
	var unsupported *lora.UnsupportedError
	if errors.As(err, &unsupported) {
		return &UnsupportedError{What: err.Error(),
			Hint: "merge it in Python: model.merge_and_unload().save_pretrained(FOLDER)"}
	}
	return fmt.Errorf("%w: %w", loader.ErrFormat, err)
}

// traceError gives an error of a trace the class of what an adapter asks for and is not known.
func traceError(err error) error {
	var unsupported *lora.UnsupportedError
	if errors.As(err, &unsupported) {
		return adapterError(err)
	}
	return err
}

// choose returns the architecture with the adapter that a call says: the input for that, if the model has it.
func (all adapters) choose(r *recorder, a *layers.Architecture, input []layers.Tensor,
	numbers Numbers) (*layers.Architecture, error) {
	n := all.usual
	if len(input) == 1 && input[0] != nil {
		data := numbers[AdapterInput].Data
		if len(data) != tensor.Int64.Size() {
			return nil, &InputError{AdapterInput, "is not one number"}
		}
		n = int64(binary.LittleEndian.Uint64(data))
		r.Graph.Values[input[0].(*cells.Ref).Memory().Value()].Number = data
	}
	switch {
	case n < 0 || n > int64(len(all.list)):
		return nil, &InputError{AdapterInput, fmt.Sprintf("is %d: the model has adapters 1 to %d, and 0 is none", n,
			len(all.list))}
	case n == 0:
		return a, nil
	}
	return lora.With(a, all.list[n-1]), nil
}
