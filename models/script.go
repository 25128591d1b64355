package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/torchscript"
	"github.com/optimem/optimem/tensor"
)

// useScript makes m the program of a TorchScript archive.
func (m *Model) useScript(ckpt *loader.Checkpoint, opts Options) error {
	program := ckpt.Program.Script
	sig, err := torchscript.Inspect(program)
	if err != nil {
		return scriptError(err)
	}
	m.inputs = sig.Ports
	if training, _ := program.Root.Attribute("training"); training == true {
		m.notes = append(m.notes, "the program was saved in training mode, and runs so; save it after model.eval()")
	}
	m.modules = func() []string { return scriptModules(program.Root) }
	states := newScriptStates()
	m.build = func(ctx context.Context, c Call) (*graph.Graph, error) {
		evaluate := func(before torchscript.Attributes) (*scriptRecorder, *torchscript.Result, error) {
			r := &scriptRecorder{recorder: newRecorder(ckpt, opts.Ops), folded: make(map[*cells.Cell]graph.ValueID),
				contents: make(map[graph.ValueID][]byte), states: states}
			r.Ctx, r.site = ctx, call.Site{Selects: true}
			tensors, err := r.bind(sig.Ports, c.Inputs)
			if err != nil {
				return nil, nil, err
			}
			args, err := r.numbers(sig.Ports, tensors, c.Numbers)
			if err != nil {
				return nil, nil, err
			}
			if at := sig.Gap(args); at >= 0 {
				return nil, nil, &InputError{sig.Ports[at].Name,
					"is missing in a list of which a later tensor is given"}
			}
			result, err := torchscript.Evaluate(program, r, sig.Arguments(args), torchscript.Options{
				Steps: opts.Steps, Stop: ctx.Err, Attributes: before,
			})
			if stopped := ctx.Err(); err != nil && stopped != nil {
				return nil, nil, stopped
			}
			if err != nil {
				return nil, nil, lacking(program, opts.Ops, scriptError(err))
			}
			return r, result, nil
		}
		before, err := states.form(c.After)
		if err != nil {
			return nil, err
		}
		r, result, err := evaluate(before)
		if err != nil {
			return nil, err
		}
		if err := r.finish(result); err != nil {
			return nil, err
		}
		r.Graph.Finds = c.After
		if same, err := sameAgain(r.Graph, before, result.Attributes, evaluate); err != nil {
			return nil, err
		} else if same {
			r.Graph.Leaves = c.After
			return r.Graph, nil
		}
		if err := settle(before, result.Attributes, func(a torchscript.Attributes) (torchscript.Attributes, error) {
			_, next, err := evaluate(a)
			if err != nil {
				return nil, err
			}
			return next.Attributes, nil
		}); err != nil {
			return nil, err
		}
		r.Graph.Leaves, err = states.add(result.Attributes)
		return r.Graph, err
	}
	return nil
}

// numbers puts values in the place of inputs that are numbers, and holds the graph to them. What is not given is nil.
func (r *scriptRecorder) numbers(ports []Port, tensors []layers.Tensor, numbers Numbers) ([]any, error) {
	args := make([]any, len(ports))
	for i, p := range ports {
		x, given := tensors[i].(*cells.Ref)
		switch {
		case !given:
		case p.Number:
			t := numbers[p.Name]
			n, ok := torchscript.Number(t)
			if !ok || t.DType != p.DType {
				return nil, &InputError{p.Name, fmt.Sprintf("is not one number of %v", p.DType)}
			}
			r.Graph.Values[x.Memory().Value()].Number = t.Data
			args[i] = n
		default:
			args[i] = x
		}
	}
	return args, nil
}

// scriptError gives what a program needs and optimem lacks its place in the code, and what is wrong with it whatever its
// inputs are the class that a file with that mistake has.
func scriptError(err error) error {
	var place torchscript.Error
	var placed *torchscript.Error
	if errors.As(err, &placed) {
		place = *placed
	}
	var op *torchscript.OpError
	var inOp *UnsupportedError
	var unsupported *torchscript.UnsupportedError
	switch {
	case errors.Is(err, torchscript.ErrLimit):
		return fmt.Errorf("%w: %w", loader.ErrLimit, err)
	case errors.Is(err, torchscript.ErrMalformed):
		return &ProgramError{Err: err, Fixed: true}
	case errors.As(err, &unsupported):
		hint := exportHint
		if unsupported.OfData() {
			hint = dataHint
		} else if unsupported.OfState() {
			hint = stateHint
		}
		return &UnsupportedError{Hint: hint, Missing: []Missing{{
			Name: unsupported.What, Path: place.Path, Source: place.Source, Uses: 1, Reason: unsupported.Reason,
		}}}
	case errors.As(err, &op) && errors.As(err, &inOp):
		missing := []Missing{{Name: opTarget(op.Op), Path: place.Path, Source: place.Source, Uses: 1,
			Reason: inOp.What}}
		return &UnsupportedError{Missing: missing, Hint: cmp.Or(inOp.Hint, opHint(missing))}
	}
	return err
}

// lacking adds to an error that names an op which optimem lacks the others that the code reaches, as they are all in the way.
func lacking(p *script.Program, ops *graph.Registry, err error) error {
	var e *UnsupportedError
	if !errors.As(err, &e) || len(e.Missing) != 1 || e.Missing[0].Reason != "" ||
		!strings.HasPrefix(e.Missing[0].Name, "torch.ops.") {
		return err
	}
	all := &UnsupportedError{Hint: e.Hint, Missing: slices.Clone(e.Missing)}
	all.Missing[0].Uses = 0
	index := map[string]int{e.Missing[0].Name: 0}
	for _, use := range torchscript.Uses(p) {
		name := opTarget(use.Op)
		_, custom := ops.Lookup(graph.Kind(use.Op))
		if custom || aten.HasMeaning(name) {
			continue
		}
		at, seen := index[name]
		if !seen {
			at = len(all.Missing)
			index[name] = at
			all.Missing = append(all.Missing, Missing{Name: name, Path: use.Path, Source: use.Source})
		}
		all.Missing[at].Uses++
	}
	all.Missing[0].Uses = max(all.Missing[0].Uses, 1)
	all.Hint = opHint(all.Missing)
	return all
}

const (
	// dataHint is for what PyTorch cannot export either.
	dataHint = "compute both ways and choose with torch.where, or trace the module (torch.jit.trace) where all inputs go one way"
	// stateHint is for state that an export loses too.
	stateHint = "keep the state in tensors, such as those that register_buffer was given"
)

// opHint says what helps against ops that are lacking: an export of a program decomposes ops of PyTorch, but not those that have no
// meaning before a run, nor a library's own.
func opHint(missing []Missing) string {
	if customMissing(missing) {
		return customHint
	}
	for _, m := range missing {
		if m.Why() != "" {
			return ""
		}
	}
	return decomposedHint
}

// opTarget returns the name of an op as exported programs have it.
func opTarget(op string) string { return "torch.ops." + strings.Replace(op, "::", ".", 1) }

// A scriptRecorder is what TorchScript writes to.
type scriptRecorder struct {
	*recorder
	// folded holds the constants of the checkpoint that were read, and the values that they had.
	folded map[*cells.Cell]graph.ValueID
	// contents are their bytes.
	contents map[graph.ValueID][]byte
	// states are those of the program, keeps the ones of them that the graph has.
	states *scriptStates
	keeps  []graph.ValueID
}

// At implements torchscript.Recorder.
func (r *scriptRecorder) At(source string) { r.Source = source }

// Layout implements torchscript.Recorder.
func (r *scriptRecorder) Layout(t layers.Tensor) tensor.Layout { return t.(*cells.Ref).Layout() }

// Counted implements torchscript.Recorder.
func (r *scriptRecorder) Counted(t layers.Tensor) (int, any, error) {
	if s, ok := t.(*cells.Selection); ok {
		n, err := s.Count(r.Builder)
		return s.RowDim(), n, err
	}
	x := t.(*cells.Ref)
	d := x.RowDim()
	if d < 0 {
		return -1, nil, nil
	}
	n, _ := x.Counted(d)
	return d, n, nil
}

// CountOf implements torchscript.Recorder.
func (r *scriptRecorder) CountOf(operator string, args []any) (v any, ok bool, err error) {
	_, name, _ := strings.Cut(operator, "::")
	if holds, certain := cells.CompareCount(name, args); certain {
		return holds, true, nil
	}
	if name == "min" {
		operator = "torch.sym_min"
	} else {
		operator = "_operator." + name
	}
	n, ok, err := r.Builder.CountOf(operator, args)
	return n, ok, err
}

// EmptyWith implements torchscript.Recorder.
func (r *scriptRecorder) EmptyWith(t layers.Tensor, number any) int {
	n, ok := number.(*cells.Count)
	if !ok {
		return -1
	}
	x, err := r.whole(t)
	if err != nil {
		return -1
	}
	return x.EmptyWith(n)
}

// Depends implements torchscript.Recorder.
func (r *scriptRecorder) Depends(t, other layers.Tensor) bool {
	if x, ok := t.(*cells.Ref); !ok || x.IsCounted() || cells.IsSelection(other) {
		return true // only a run has as much of it as there is
	}
	depends := make(map[graph.ValueID]bool)
	for _, id := range slices.Concat(r.Graph.Inputs, r.keeps) {
		depends[id] = true
	}
	for _, w := range r.weights {
		if w.cell.Value() != w.origin {
			depends[w.origin] = true
		}
	}
	if x, ok := other.(*cells.Ref); ok {
		depends[x.Memory().Value()] = true
	}
	for _, op := range r.Graph.Ops {
		if slices.ContainsFunc(op.In, func(o graph.Operand) bool { return depends[o.Value] }) {
			for _, id := range op.Out {
				depends[id] = true
			}
		}
	}
	return depends[t.(*cells.Ref).Memory().Value()]
}

// maxKnownElements is the size of the constants that are read while a graph is built: sizes and short lists of them.
const maxKnownElements = 1 << 12

// Known implements torchscript.Recorder: constants are known, those that the checkpoint holds as such included.
// Parameters and buffers are not, because a state dict may replace them, or the program itself.
func (r *scriptRecorder) Known(t layers.Tensor) (*tensor.Tensor, error) {
	x, ok := t.(*cells.Ref)
	if !ok || x.IsCounted() {
		return nil, nil
	}
	v := &r.Graph.Values[x.Memory().Value()]
	if n, err := x.Shape().NumElements(); err != nil || n > maxKnownElements || v.DType != x.DType() {
		return nil, nil
	}
	known := &tensor.Tensor{DType: x.DType(), Layout: r.Builder.Read(x).Layout}
	switch {
	case v.Role == graph.Const:
		known.Data = v.Const
	case v.Role == graph.Weight && strings.HasPrefix(v.Weight.Name, "CONSTANTS."):
		if v.Weight.Extent.Bytes > maxKnownElements*int64(v.DType.Size()) {
			return nil, nil
		}
		data, ok := r.contents[x.Memory().Value()]
		if !ok {
			data = make([]byte, v.Weight.Extent.Bytes)
			if err := v.Weight.Extent.ReadAt(r.Ctx, data, 0); err != nil {
				return nil, fmt.Errorf("%s: %w", v.Weight.Name, err)
			}
			r.contents[x.Memory().Value()] = data
		}
		known.Data = data
		r.folded[x.Memory()] = x.Memory().Value()
	default:
		return nil, nil
	}
	return known, nil
}

// finish makes the result the outputs of the graph, and then the buffers what the program set them to: outputs are what
// they were before.
func (r *scriptRecorder) finish(result *torchscript.Result) error {
	r.Path, r.Source = "", ""
	outputs := &outputs{recorder: r.recorder, seen: make(map[string]bool)}
	if err := outputs.add("", result.Value); err != nil {
		return err
	}
	if err := r.update(result.Updates); err != nil {
		return err
	}
	for c, was := range r.folded {
		if c.Value() != was {
			return &UnsupportedError{What: "a constant that the program computes sizes with and changes"}
		}
	}
	return r.updateStates()
}

// outputs names the tensors of a result: by the fields and keys that hold them, else by their number.
type outputs struct {
	*recorder
	seen map[string]bool
	n    int
}

func (o *outputs) add(name string, v any) error {
	inside := func(i int) string {
		if name == "" {
			return ""
		}
		return layers.Join(name, strconv.Itoa(i))
	}
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			if err := o.add(inside(i), x); err != nil {
				return err
			}
		}
		return nil
	case layers.Fields:
		for _, f := range v {
			if err := o.add(layers.Join(name, f.Name), f.Value); err != nil {
				return err
			}
		}
		return nil
	}
	if name == "" || o.seen[name] {
		name = "output_" + strconv.Itoa(o.n)
	}
	o.seen[name] = true
	o.n++
	x, err := o.output(v)
	if err == nil && x != nil { // None and texts are nothing that a tensor can hold
		err = o.Output(name, x)
	}
	if err != nil {
		return fmt.Errorf("output %s: %w", name, err)
	}
	return nil
}
