package cells

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Places are where a mask is true.
type Places struct {
	*Count
	// Flat are the places in the mask as a list, and 0 behind those that count.
	Flat *Ref
}

// maskDepth is through how many ops masks are compared, maskOperands how many operands those may have, maskConst how long the
// constants are that are.
const (
	maskDepth    = 3
	maskOperands = 4
	maskConst    = 64
)

// made returns a text that two values have alike only where the same ops made them of the same.
func (b *Builder) made(id graph.ValueID, depth int) string {
	v := &b.Graph.Values[id]
	if v.Role == graph.Const && len(v.Const) <= maskConst {
		return fmt.Sprintf("%v%v%x", v.DType, v.Shape, v.Const)
	}
	op := b.maker(id)
	if depth == 0 || op == nil || len(op.In) > maskOperands || len(op.Guard) > 0 {
		return fmt.Sprintf("v%d", id)
	}
	text := fmt.Sprintf("%s%v.%d(", op.Kind, op.Attrs, slices.Index(op.Out, id))
	for _, o := range op.In {
		if o.Value == graph.NoValue {
			text += "-,"
			continue
		}
		text += b.made(o.Value, depth-1) + fmt.Sprint(o.Layout, ",")
	}
	return text + ")"
}

// maker returns the op that made a value, nil for none.
func (b *Builder) maker(id graph.ValueID) *graph.Op {
	if b.makers == nil {
		b.makers = make(map[graph.ValueID]int)
	}
	for ; b.makersOf < len(b.Graph.Ops); b.makersOf++ {
		for _, out := range b.Graph.Ops[b.makersOf].Out {
			b.makers[out] = b.makersOf
		}
	}
	at, ok := b.makers[id]
	if !ok {
		return nil
	}
	return &b.Graph.Ops[at]
}

// Where returns how often a mask is true. The same mask gives the same count, also where it is computed twice, so that what it
// selects of several tensors has as many rows.
func (b *Builder) Where(mask *Ref) (*Places, error) {
	o := b.Read(Bare(mask))
	key := b.made(o.Value, maskDepth) + fmt.Sprint(o.Layout)
	if mask.IsCounted() {
		key += fmt.Sprint(mask.counted.Dim, mask.counted.Value.cell.value)
	}
	if p, ok := b.found[key]; ok && len(b.Guard) == 0 {
		return p, nil
	}
	all, err := b.FilledBehind(mask, 0)
	if err != nil {
		return nil, err
	}
	if all, err = b.Flat(all); err != nil {
		return nil, err
	}
	n, err := b.Fold("count_nonzero", all, []int{0}, false, nil)
	if err != nil {
		return nil, err
	}
	p := &Places{Count: &Count{Value: n, Most: all.Shape()[0]}}
	if mask.IsCounted() {
		p.Within = mask.counted.Count
	}
	list, err := b.Emit1("nonzero", graph.Attrs{"size": p.Most, "fill": 0}, b.Read(all))
	if err != nil {
		return nil, err
	}
	if p.Flat, err = b.Flat(list); err != nil {
		return nil, err
	}
	if len(b.Guard) == 0 { // what a branch computes is not there in another
		if b.found == nil {
			b.found = make(map[string]*Places)
		}
		b.found[key] = p
	}
	return p, nil
}

// Picked returns x[mask], where the mask stands for the dimensions of x from lead on.
func (b *Builder) Picked(r, mask *Ref, lead int) (*Ref, error) {
	if IsComplex(r.dtype) {
		return nil, b.Unsupported("what a mask selects of complex numbers: %s", SizeOfData)
	}
	if k := r.counted; k != nil {
		if m := mask.counted; m == nil || !m.Same(k.Count) || m.Dim+lead != k.Dim {
			return nil, b.Unsupported("a mask over rows that are not its own: %s", SizeOfData)
		}
	}
	p, err := b.Where(mask)
	if err != nil {
		return nil, err
	}
	shape := slices.Concat(r.Shape()[:lead], tensor.Shape{p.Most}, r.Shape()[lead+mask.Rank():])
	list, err := b.Reshape(Bare(r), shape)
	if err != nil {
		return nil, err
	}
	out, err := b.Emit1("index", graph.Attrs{"dim": lead}, b.Read(list), b.Read(p.Flat))
	if err != nil {
		return nil, err
	}
	return p.Of(out, lead), nil
}
