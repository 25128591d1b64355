package models

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// bindInputs gives every input of the graph its tensor: the caller's inputs with the shapes given, parameters, buffers
// and constants with their weights. It learns what the program's symbols stand for.
func (b *programBuilder) bindInputs(s *scope, shapes map[string]tensor.Shape) error {
	ports := make(map[string]exported.Port)
	for _, p := range b.program.Inputs() {
		ports[p.Value] = p
	}
	for _, spec := range b.program.Signature.Inputs {
		name := spec.Arg.Name
		switch spec.Kind {
		case exported.UserInput:
			port, ok := ports[name]
			if !ok {
				continue // constant when exported, or not a tensor
			}
			r, err := b.userInput(port, shapes)
			if err != nil {
				return err
			}
			s.set(name, r)
		case exported.Parameter, exported.Buffer, exported.TensorConstant:
			r, err := b.weight(spec.Target)
			if err != nil {
				return err
			}
			s.set(name, r)
		case exported.ConstantInput:
		case exported.InputToken:
			s.values[name] = nil
		case exported.CustomObject:
			return &UnsupportedError{What: fmt.Sprintf("the custom object %s", spec.Target)}
		}
	}
	return b.checkRanges()
}

// set names a value. Tensors are also found by their ref, for what the program recorded of them.
func (s *scope) set(name string, v any) {
	s.values[name] = v
	if r, ok := v.(*cells.Ref); ok && name != "" {
		s.names[r] = name
	}
}

// userInput adds an input of the caller's, whose shape binds symbols.
func (b *programBuilder) userInput(port exported.Port, shapes map[string]tensor.Shape) (any, error) {
	if port.DType == tensor.Invalid {
		return nil, &UnsupportedError{What: fmt.Sprintf("input %s of type %s", port.Name, port.Tag)}
	}
	shape, ok := shapes[port.Name]
	if !ok {
		return nil, &InputError{port.Name, "is missing"}
	}
	if len(shape) != len(port.Shape) {
		return nil, &InputError{port.Name, fmt.Sprintf("shape %v where %v is wanted", shape, portShape(port))}
	}
	for i, want := range port.Shape {
		got := int64(shape[i])
		switch {
		case want.Expr == nil:
			if got != want.Int {
				return nil, &InputError{port.Name, fmt.Sprintf("shape %v where %v is wanted", shape, portShape(port))}
			}
		default:
			for _, symbol := range want.Expr.Symbols() {
				if b.binders[symbol] == "" {
					b.binders[symbol] = port.Name
				}
			}
			if err := b.bindSymbol(want, got); err != nil {
				return nil, &InputError{port.Name,
					fmt.Sprintf("shape %v where %v is wanted: %v", shape, portShape(port), err)}
			}
		}
	}
	n, err := shape.NumElements()
	if _, ok := tensor.MulBytes(n, int64(port.DType.Size())); err == nil && !ok {
		err = fmt.Errorf("%v of %v takes more than 2^63 bytes", shape, port.DType)
	}
	if err != nil {
		return nil, &InputError{port.Name, err.Error()}
	}
	return b.Input(port.Name, port.DType, shape)
}

// bindSymbol makes a symbolic size equal to what an input has.
func (b *programBuilder) bindSymbol(want exported.SymInt, got int64) error {
	free := want.Expr.Symbols()
	if len(free) == 1 && want.Expr.String() == free[0] {
		if known, ok := b.symbols[free[0]]; ok && known != got {
			return fmt.Errorf("%s is %d already", free[0], known)
		}
		b.symbols[free[0]] = got
		return nil
	}
	v, err := want.Expr.Eval(b.symbols)
	if err != nil {
		// A compound size of a symbol that no input has alone: find the one value that fits.
		if len(free) != 1 {
			return err
		}
		return b.solve(want, free[0], got)
	}
	if v != got {
		return fmt.Errorf("%s is %d, not %d", want, v, got)
	}
	return nil
}

// solve finds the value of a symbol for which an expression gives a size; sizes grow with their symbols.
func (b *programBuilder) solve(want exported.SymInt, symbol string, got int64) error {
	low, high := int64(0), got+1
	for low <= high {
		mid := low + (high-low)/2
		v, err := want.Expr.Eval(map[string]int64{symbol: mid})
		if err != nil {
			return err
		}
		switch {
		case v == got:
			b.symbols[symbol] = mid
			return nil
		case v < got:
			low = mid + 1
		default:
			high = mid - 1
		}
	}
	return fmt.Errorf("no %s makes %s equal to %d", symbol, want, got)
}

// checkRanges holds the symbols against the program's constraints.
func (b *programBuilder) checkRanges() error {
	for _, r := range b.program.Ranges {
		v, ok := b.symbols[r.Symbol]
		if !ok {
			continue
		}
		// A symbol that may be 2 or more was exported so because 0 and 1 are special; PyTorch lets 1 pass in practice
		// and so do graphs without guards on it, but shapes below one never ran.
		if v < min(r.Min, 1) || v > r.Max {
			return &InputError{b.binders[r.Symbol],
				fmt.Sprintf("%s is %d; the program was exported for %d to %d", r.Symbol, v, r.Min, r.Max)}
		}
	}
	return nil
}

func portShape(p exported.Port) []string {
	out := make([]string, len(p.Shape))
	for i, s := range p.Shape {
		out[i] = s.String()
	}
	return out
}

// weight returns the tensor of a weight's name. Weights over one storage share a cell, as their tensors do in PyTorch.
func (b *programBuilder) weight(name string) (*cells.Ref, error) {
	w, ok := b.ckpt.Weight(name)
	if !ok {
		return nil, fmt.Errorf("weight %s is not in the checkpoint", name)
	}
	if w.Quant != nil || w.Conj || w.Neg || w.BigEndian {
		return nil, &UnsupportedError{What: fmt.Sprintf("weight %s: quantized, conjugated or big-endian", name)}
	}
	return b.stored(w), nil
}

// stored returns a tensor of what a weight's extent holds.
func (b *programBuilder) stored(w tensor.Weight) *cells.Ref {
	layout, dtype := w.Layout, w.DType
	if cells.IsComplex(w.DType) {
		w.DType, w.Layout = cells.PartOf(w.DType), cells.PairLayout(w.Layout)
	}
	c, ok := b.storages[w.Extent]
	if !ok || w.Extent.Bytes == 0 || b.Graph.Values[c.Value()].DType != w.DType {
		c = cells.NewCell(b.Graph.AddWeight(w, graph.Weight))
		b.storages[w.Extent] = c
		b.weights = append(b.weights, weightCell{c, c.Value()})
	}
	return cells.NewRef(c, layout, dtype)
}

// bindOutputs names the results of the graph and what becomes of the buffers that it changed.
func (b *programBuilder) bindOutputs(s *scope) error {
	b.Path, b.Source = "", ""
	ports := b.program.Outputs()
	for _, spec := range b.program.Signature.Outputs {
		var v any
		if spec.Arg.Tag != exported.None {
			var err error
			if v, err = b.argument(s, spec.Arg); err != nil {
				return err
			}
		}
		switch spec.Kind {
		case exported.UserOutput, exported.LossOutput:
			if len(ports) == 0 {
				return fmt.Errorf("BUG: more outputs than names")
			}
			port := ports[0]
			ports = ports[1:]
			r, err := b.output(v)
			if err == nil && r != nil { // None, text: nothing a tensor can hold
				err = b.Output(port.Name, r)
			}
			if err != nil {
				return fmt.Errorf("output %s: %w", port.Name, err)
			}
		case exported.BufferMutation, exported.ParameterMutation:
			r, ok := v.(*cells.Ref)
			if !ok {
				return fmt.Errorf("buffer %s becomes something that is not a tensor", spec.Target)
			}
			if r.IsCounted() {
				return b.Unsupported("buffer %s: %s", spec.Target, cells.SizeOfData)
			}
			w, err := b.weight(spec.Target)
			if err != nil {
				return err
			}
			if err := b.Write(w, r); err != nil {
				return fmt.Errorf("buffer %s: %w", spec.Target, err)
			}
		}
	}
	return b.updateStates()
}

// output returns a result of the program as a tensor, nil where none can hold it.
func (b *programBuilder) output(v any) (*cells.Ref, error) {
	switch v := v.(type) {
	case *cells.Ref:
		return v, nil
	case *cells.Selection:
		return v.Made(b.Builder)
	case *cells.Count:
		return v.Tensor(), nil
	case dataNumber:
		return nil, b.Unsupported("%s", cells.SizeOfData)
	}
	r, _ := b.numberOutput(v)
	return r, nil
}

// updateStates notes what becomes of the weights that the program changed.
func (b *programBuilder) updateStates() error {
	for _, w := range b.weights {
		if w.cell.Value() != w.origin {
			b.Graph.Values[w.origin].Role = graph.State
		}
	}
	for _, w := range b.weights {
		if w.cell.Value() == w.origin {
			continue
		}
		o, err := b.Stored(w.cell)
		if err != nil {
			return err
		}
		b.Graph.Updates = append(b.Graph.Updates, graph.StateUpdate{State: w.origin, Operand: o})
	}
	return nil
}

// numberOutput makes a tensor of a result that is a number.
func (b *programBuilder) numberOutput(v any) (*cells.Ref, bool) {
	switch v.(type) {
	case int, float64, bool:
		d := cells.NumberDType(v)
		if d == tensor.Float32 {
			d = tensor.Float64
		}
		r, err := b.Scalar(v, d)
		return r, err == nil
	}
	return nil, false
}
