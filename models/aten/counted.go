package aten

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Count is a number of the program that only data says: how many rows a tensor has.
type Count struct {
	// value is an int64 without dimensions, which nobody writes to.
	value *Ref
	// most is the largest that it can be.
	most int
	// within is a count that this one is 0 with; nil where none is known. multiple says that it is 0 with this one, too.
	within   *Count
	multiple bool
	// parts and plus are what it is a sum of, where it is one.
	parts []*Count
	plus  int
}

// EmptyWith returns the dimension of which a tensor has nothing when a count is 0, −1 where that is not known.
func (r *Ref) EmptyWith(n *Count) int {
	for n.multiple {
		n = n.within
	}
	if r.counted != nil {
		for k := r.counted.Count; k != nil; k = k.within {
			if k.same(n) {
				return r.counted.dim
			}
		}
	}
	return -1
}

// CompareCount returns what a comparison of a count and a number gives, where that is certain before a run.
func CompareCount(operator string, args []any) (holds, certain bool) {
	mirrored := map[string]string{"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
	if len(args) != 2 {
		return false, false
	}
	k, ok := args[0].(*Count)
	n, isInt := args[1].(int)
	if !ok {
		k, ok = args[1].(*Count)
		n, isInt = args[0].(int)
		operator = mirrored[operator]
	}
	if !ok || !isInt {
		return false, false
	}
	never, always := false, false // of k < n, k > n or k = n
	switch operator {
	case "lt", "ge":
		always, never = k.most < n, n <= 0
	case "gt", "le":
		always, never = n < 0, k.most <= n
	case "eq", "ne":
		never = n < 0 || n > k.most
	}
	inverse := operator == "ge" || operator == "le" || operator == "ne"
	return always != inverse, always || never
}

// Tensor returns the number as a tensor.
func (n *Count) Tensor() *Ref { return n.value }

// same reports whether two counts are one number.
func (n *Count) same(m *Count) bool {
	if n.most != m.most {
		return false
	}
	if n.value.cell.value == m.value.cell.value && n.value.layout.Offset == m.value.layout.Offset {
		return true
	}
	return len(n.parts) > 0 && len(m.parts) > 0 && n.sum() == m.sum()
}

// sum is a text that counts with the same terms have.
func (n *Count) sum() string {
	var terms []string
	plus := 0
	var add func(n *Count)
	add = func(n *Count) {
		plus += n.plus
		if len(n.parts) == 0 {
			terms = append(terms, fmt.Sprint(n.value.cell.value, "@", n.value.layout.Offset))
		}
		for _, k := range n.parts {
			add(k)
		}
	}
	add(n)
	slices.Sort(terms)
	return fmt.Sprint(plus, terms)
}

// rows say that of a dimension of a tensor as much is there as a count says. The shape has the most that can be: what lies
// behind the rows that count is memory that ops compute with, whatever it holds, and nobody gets to see.
type rows struct {
	*Count
	dim int
}

// Counted returns how much of dimension d there is, which may be counted from the end, where only data says that.
func (r *Ref) Counted(d int) (*Count, bool) {
	if d < 0 {
		d += r.rank()
	}
	if r.counted == nil || r.counted.dim != d {
		return nil, false
	}
	return r.counted.Count, true
}

// IsCounted reports whether only data knows the size of a tensor.
func (r *Ref) IsCounted() bool { return r != nil && r.counted != nil }

// RowDim returns the dimension of which only data knows how much there is, −1 for none.
func (r *Ref) RowDim() int {
	if r.counted == nil {
		return -1
	}
	return r.counted.dim
}

// bare returns a tensor with everything that its memory holds.
func bare(r *Ref) *Ref {
	if !r.IsCounted() {
		return r
	}
	all := *r
	all.counted = nil
	return &all
}

// of returns a tensor of which only the first rows of a dimension count.
func (n *Count) of(r *Ref, dim int) *Ref {
	counted := *r
	counted.counted = &rows{n, dim}
	return &counted
}

// Elements returns how many elements a tensor has that only data knows the size of.
func (b *Builder) Elements(r *Ref) (*Count, error) {
	k := r.counted
	shape := slices.Clone(r.shape())
	shape[k.dim] = 1
	return b.multiple(k.Count, int(NumElements(shape)))
}

// multiple returns a count n times as large.
func (b *Builder) multiple(k *Count, n int) (*Count, error) {
	if n == 1 {
		return k, nil
	}
	most, ok := tensor.MulBytes(int64(k.most), int64(n))
	if !ok {
		return nil, fmt.Errorf("%d times %d elements", k.most, n)
	}
	value, err := b.combine("mul", nil, k.value, n)
	return &Count{value: value, most: int(most), within: k, multiple: n > 0}, err
}

// CountOf returns what an operator gives of counts and numbers, where that is a count too.
func (b *Builder) CountOf(operator string, args []any) (n *Count, ok bool, err error) {
	if len(args) != 2 {
		return nil, false, nil
	}
	k, first := args[0].(*Count)
	other := args[1]
	if !first {
		k, ok = args[1].(*Count)
		if other = args[0]; !ok {
			return nil, false, nil
		}
	}
	number, isNumber := other.(int)
	m, isCount := other.(*Count)
	if !isCount && !(isNumber && number >= 0 && number < math.MaxInt32) {
		return nil, false, nil
	}
	switch operator {
	case "_operator.mul":
		if isNumber {
			n, err = b.multiple(k, number)
			return n, true, err
		}
	case "_operator.add":
		if isNumber && number == 0 {
			return k, true, nil
		}
		total := &Count{most: k.most + number, parts: []*Count{k}, plus: number}
		value := operandArg(number)
		if isCount {
			total = &Count{most: k.most + m.most, parts: []*Count{k, m}}
			value = m.value
		}
		total.value, err = b.combine("add", nil, k.value, value)
		return total, true, err
	case "torch.sym_min":
		n, err = b.within(k, 0, other)
		return n, true, err
	}
	return nil, false, nil
}

// within returns how much is left of a count that begins at start and ends at end, of which the latter may be a count.
func (b *Builder) within(k *Count, start int, end any) (*Count, error) {
	most, value := k.most, k.value
	var err error
	switch e := end.(type) {
	case *Count:
		if !e.same(k) {
			most = min(most, e.most)
			value, err = b.combine("minimum", nil, value, e.value)
		}
	case int:
		switch {
		case e < 0:
			most += e
			value, err = b.combine("add", nil, value, e)
		case e < most:
			most = e
			value, err = b.combine("minimum", nil, value, e)
		}
	}
	if err == nil && start > 0 {
		most -= start
		value, err = b.combine("sub", nil, value, start)
	}
	if n, negative := end.(int); err == nil && (start > 0 || negative && n < 0) {
		value, err = b.combine("maximum", nil, value, 0)
	}
	if err == nil && value == k.value {
		return k, nil
	}
	return &Count{value: value, most: max(most, 0), within: k}, err
}

// among returns which of the first n places a count reaches.
func (b *Builder) among(k *Count, n int) (*Ref, error) {
	at, err := b.Emit1("arange", graph.Attrs{"start": 0, "step": 1, "size": n, "dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	return b.combine("lt", nil, at, k.value)
}

// filled returns all of a counted tensor with a number behind the rows that count.
func (b *Builder) filledBehind(r *Ref, fill number) (*Ref, error) {
	if !r.IsCounted() {
		return r, nil
	}
	k := r.counted
	is, err := b.among(k.Count, r.shape()[k.dim])
	if err != nil {
		return nil, err
	}
	shape := slices.Repeat(tensor.Shape{1}, r.rank())
	shape[k.dim] = r.shape()[k.dim]
	if is, err = b.Reshape(is, shape); err != nil {
		return nil, err
	}
	return b.choose(is, r.dtype, bare(r), fill)
}

// places are where a mask is true.
type places struct {
	*Count
	// flat are the places in the mask as a list, and 0 behind those that count.
	flat *Ref
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
	if depth > 0 {
		for _, op := range slices.Backward(b.Graph.Ops) {
			at := slices.Index(op.Out, id)
			if at < 0 {
				continue
			}
			if len(op.In) > maskOperands || len(op.Guard) > 0 {
				break
			}
			text := fmt.Sprintf("%s%v.%d(", op.Kind, op.Attrs, at)
			for _, o := range op.In {
				if o.Value == graph.NoValue {
					text += "-,"
					continue
				}
				text += b.made(o.Value, depth-1) + fmt.Sprint(o.Layout, ",")
			}
			return text + ")"
		}
	}
	return fmt.Sprintf("v%d", id)
}

// where returns how often a mask is true. The same mask gives the same count, also where it is computed twice, so that what it
// selects of several tensors has as many rows.
func (b *Builder) where(mask *Ref) (*places, error) {
	o := b.Read(bare(mask))
	key := b.made(o.Value, maskDepth) + fmt.Sprint(o.Layout)
	if mask.IsCounted() {
		key += fmt.Sprint(mask.counted.dim, mask.counted.value.cell.value)
	}
	if p, ok := b.found[key]; ok && len(b.Guard) == 0 {
		return p, nil
	}
	all, err := b.filledBehind(mask, 0)
	if err != nil {
		return nil, err
	}
	if all, err = b.flat(all); err != nil {
		return nil, err
	}
	n, err := b.fold("count_nonzero", all, []int{0}, false, nil)
	if err != nil {
		return nil, err
	}
	p := &places{Count: &Count{value: n, most: all.shape()[0]}}
	if mask.IsCounted() {
		p.within = mask.counted.Count
	}
	list, err := b.Emit1("nonzero", graph.Attrs{"size": p.most, "fill": 0}, b.Read(all))
	if err != nil {
		return nil, err
	}
	if p.flat, err = b.flat(list); err != nil {
		return nil, err
	}
	if len(b.Guard) == 0 { // what a branch computes is not there in another
		if b.found == nil {
			b.found = make(map[string]*places)
		}
		b.found[key] = p
	}
	return p, nil
}

// picked returns x[mask], where the mask stands for the dimensions of x from lead on.
func (b *Builder) picked(r, mask *Ref, lead int) (*Ref, error) {
	if IsComplex(r.dtype) {
		return nil, b.Unsupported("what a mask selects of complex numbers: %s", SizeOfData)
	}
	if k := r.counted; k != nil {
		if m := mask.counted; m == nil || !m.same(k.Count) || m.dim+lead != k.dim {
			return nil, b.Unsupported("a mask over rows that are not its own: %s", SizeOfData)
		}
	}
	p, err := b.where(mask)
	if err != nil {
		return nil, err
	}
	shape := slices.Concat(r.shape()[:lead], tensor.Shape{p.most}, r.shape()[lead+mask.rank():])
	list, err := b.Reshape(bare(r), shape)
	if err != nil {
		return nil, err
	}
	out, err := b.Emit1("index", graph.Attrs{"dim": lead}, b.Read(list), b.Read(p.flat))
	if err != nil {
		return nil, err
	}
	return p.of(out, lead), nil
}

// Output makes a tensor the next output of the graph, with another that says how much of it there is where data does.
func (b *Builder) Output(name string, r *Ref) error {
	operand, err := b.Result(bare(r))
	if err != nil {
		return err
	}
	out := graph.Output{Name: name, Operand: operand}
	if k := r.counted; k != nil {
		out.Count, out.Dim = "count:"+name, k.dim
		b.Graph.Outputs = append(b.Graph.Outputs, out)
		out = graph.Output{Name: out.Count, Operand: b.Read(k.value), Counts: true}
	}
	b.Graph.Outputs = append(b.Graph.Outputs, out)
	return nil
}

// hasCounted reports whether an argument of the call has a size that only data says, or is one.
func (c *call) hasCounted() bool {
	for _, v := range c.args {
		switch v := v.(type) {
		case *Ref:
			if v.IsCounted() {
				return true
			}
		case []*Ref:
			if slices.ContainsFunc(v, (*Ref).IsCounted) {
				return true
			}
		case *Count:
			return true
		case []any:
			if slices.ContainsFunc(v, func(x any) bool { _, is := x.(*Count); return is }) {
				return true
			}
		}
	}
	return false
}

// bareArgument returns an argument with the most that there can be in the place of what data says.
func bareArgument(v any) any {
	switch v := v.(type) {
	case *Ref:
		return bare(v)
	case []*Ref:
		list := make([]*Ref, len(v))
		for i, r := range v {
			list[i] = bare(r)
		}
		return list
	case *Count:
		return v.most
	case []any:
		list := make([]int, len(v))
		for i, x := range v {
			switch x := x.(type) {
			case *Count:
				list[i] = x.most
			case int:
				list[i] = x
			default:
				return v
			}
		}
		return list
	}
	return v
}

// bareRun builds the call of everything that memory holds, with some arguments changed.
func (c *call) bareRun(t Target, changed map[string]any) ([]any, error) {
	args := make(map[string]any, len(c.args))
	for name, v := range c.args {
		args[name] = bareArgument(v)
	}
	for name, v := range changed {
		args[name] = v
	}
	at := c.Site
	at.Selects = false
	return t.Call(c.Builder, at, args)
}

// giveCounted gives results of which the first rows of a dimension count.
func (c *call) giveCounted(results []any, k *Count, dim int) error {
	for i, v := range results {
		switch v := v.(type) {
		case *Ref:
			if v != nil {
				results[i] = k.of(v, dim)
			}
		case []*Ref:
			list := make([]*Ref, len(v))
			for j, r := range v {
				list[j] = k.of(r, dim)
			}
			results[i] = list
		}
	}
	c.set(results...)
	return nil
}

// ofCounted builds a call with arguments whose sizes only data says.
func (t Target) ofCounted(c *call) error {
	if c.isComplex() {
		return c.Unsupported("of complex numbers: %s", SizeOfData)
	}
	if elementwise[t.schema.target] {
		return t.eachCounted(c)
	}
	rule, ok := countedRules[baseName(t.schema.target)]
	if !ok {
		return c.Unsupported("of a tensor whose size depends on data: %s", SizeOfData)
	}
	err := rule(c, t)
	if err == nil {
		err = c.err
	}
	return err
}

// eachCounted computes each element by itself: with those behind the rows that count, too.
func (t Target) eachCounted(c *call) error {
	var k *rows
	back := 0 // of the rows' dimension, counted from the end
	for _, p := range t.schema.params {
		switch v := c.args[p.name].(type) {
		case *Ref:
			if !v.IsCounted() {
				continue
			}
			if k != nil && (!k.same(v.counted.Count) || back != v.rank()-v.counted.dim) {
				return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
			}
			k, back = v.counted, v.rank()-v.counted.dim
		case *Count, []any:
			return c.Unsupported("with a number of rows: %s", SizeOfData)
		}
	}
	own, _ := c.args["self"].(*Ref)
	name := baseName(t.schema.target)
	if strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__") && !own.IsCounted() {
		return c.Unsupported("written into a tensor of another size: %s", SizeOfData)
	}
	for _, p := range t.schema.params {
		v, ok := c.args[p.name].(*Ref)
		if ok && v != nil && !v.IsCounted() && v.rank() >= back && v.shape()[v.rank()-back] != 1 {
			return c.Unsupported("of %v beside rows that data counts: %s", v.shape(), SizeOfData)
		}
	}
	before := len(c.Graph.Ops)
	results, err := c.bareRun(t, nil)
	if err != nil {
		return err
	}
	if other, ok := c.args["other"].(*Ref); ok && other.IsCounted() {
		if err := c.refuseFailing(before); err != nil {
			return err
		}
	}
	for i, v := range results {
		if r, ok := v.(*Ref); ok {
			results[i] = k.of(r, r.rank()-back)
		}
	}
	c.set(results...)
	return nil
}

// refuseFailing refuses ops since a place that fail because of a divisor, which may be one that does not count.
func (c *call) refuseFailing(since int) error {
	for _, op := range c.Graph.Ops[since:] {
		if failing[op.Kind] && isIntegral(c.Graph.Values[op.Out[0]].DType) {
			return c.Unsupported("a division of integers that a mask selects: %s", SizeOfData)
		}
	}
	return nil
}
