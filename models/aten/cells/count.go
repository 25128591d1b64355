package cells

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Count is a number of the program that only data says: how many rows a tensor has.
type Count struct {
	// Value is an int64 without dimensions, which nobody writes to.
	Value *Ref
	// Most is the largest that it can be.
	Most int
	// Within is a count that this one is 0 with; nil where none is known. multiple says that it is 0 with this one, too.
	Within   *Count
	multiple bool
	// Parts, which are no sums, and plus are what it is a sum of, where it is one of few.
	Parts []*Count
	plus  int
}

// maxParted bounds the parts of a sum; one of more is as any number. mostSum bounds how large a sum can be.
const (
	maxParted = 64
	mostSum   = 1 << 48
)

// SumOf makes n a sum of counts and a number.
func (n *Count) SumOf(plus int, counts ...*Count) *Count {
	n.Parts, n.plus = nil, plus
	for _, k := range counts {
		n.plus += k.plus
		if len(k.Parts) == 0 {
			n.Parts = append(n.Parts, k)
		}
		n.Parts = append(n.Parts, k.Parts...)
	}
	if len(n.Parts) > maxParted {
		n.Parts, n.plus = nil, 0
	}
	return n
}

// EmptyWith returns the dimension of which a tensor has nothing when a count is 0, −1 where that is not known.
func (r *Ref) EmptyWith(n *Count) int {
	for n.multiple {
		n = n.Within
	}
	if r.counted != nil {
		for k := r.counted.Count; k != nil; k = k.Within {
			if k.Same(n) {
				return r.counted.Dim
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
		always, never = k.Most < n, n <= 0
	case "gt", "le":
		always, never = n < 0, k.Most <= n
	case "eq", "ne":
		never = n < 0 || n > k.Most
	}
	inverse := operator == "ge" || operator == "le" || operator == "ne"
	return always != inverse, always || never
}

// Tensor returns the number as a tensor.
func (n *Count) Tensor() *Ref { return n.Value }

// Same reports whether two counts are one number.
func (n *Count) Same(m *Count) bool {
	if n.Most != m.Most {
		return false
	}
	if n.Value.cell.value == m.Value.cell.value && n.Value.layout.Offset == m.Value.layout.Offset {
		return true
	}
	return len(n.Parts) > 0 && len(m.Parts) > 0 && n.Sum() == m.Sum()
}

// Sum is a text that sums of the same terms have alike.
func (n *Count) Sum() string {
	terms := make([]string, len(n.Parts))
	for i, k := range n.Parts {
		terms[i] = fmt.Sprint(k.Value.cell.value, "@", k.Value.layout.Offset)
	}
	slices.Sort(terms)
	return fmt.Sprint(n.plus, terms)
}

// Rows say that of a dimension of a tensor as much is there as a count says. The shape has the most that can be: what
// lies behind the rows that count is memory that ops compute with, whatever it holds, and nobody gets to see.
type Rows struct {
	*Count
	// Dim is the dimension.
	Dim int
}

// Counted returns how much of dimension d there is, which may be counted from the end, where only data says that.
func (r *Ref) Counted(d int) (*Count, bool) {
	if d < 0 {
		d += r.Rank()
	}
	if r.counted == nil || r.counted.Dim != d {
		return nil, false
	}
	return r.counted.Count, true
}

// Rows returns how much there is of a dimension of a tensor where only data says that, nil where its shape does.
func (r *Ref) Rows() *Rows { return r.counted }

// IsCounted reports whether only data knows the size of a tensor.
func (r *Ref) IsCounted() bool { return r != nil && r.counted != nil }

// RowDim returns the dimension of which only data knows how much there is, −1 for none.
func (r *Ref) RowDim() int {
	if r.counted == nil {
		return -1
	}
	return r.counted.Dim
}

// Bare returns a tensor with everything that its memory holds.
func Bare(r *Ref) *Ref {
	if !r.IsCounted() {
		return r
	}
	all := *r
	all.counted = nil
	return &all
}

// Of returns a tensor of which only the first rows of a dimension count.
func (n *Count) Of(r *Ref, dim int) *Ref {
	counted := *r
	counted.counted = &Rows{n, dim}
	return &counted
}

// Elements returns how many elements a tensor has that only data knows the size of.
func (b *Builder) Elements(r *Ref) (*Count, error) {
	k := r.counted
	shape := slices.Clone(r.Shape())
	shape[k.Dim] = 1
	return b.Multiple(k.Count, int(NumElements(shape)))
}

// Multiple returns a count n times as large.
func (b *Builder) Multiple(k *Count, n int) (*Count, error) {
	if n == 1 {
		return k, nil
	}
	most, ok := tensor.MulBytes(int64(k.Most), int64(n))
	if !ok {
		return nil, fmt.Errorf("%d times %d elements", k.Most, n)
	}
	value, err := b.Combine("mul", nil, k.Value, n)
	return &Count{Value: value, Most: int(most), Within: k, multiple: n > 0}, err
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
			n, err = b.Multiple(k, number)
			return n, true, err
		}
	case "_operator.add":
		if isNumber && number == 0 {
			return k, true, nil
		}
		total := (&Count{Most: k.Most + number}).SumOf(number, k)
		value := Argument(number)
		if isCount {
			total = (&Count{Most: k.Most + m.Most}).SumOf(0, k, m)
			value = m.Value
		}
		if total.Most > mostSum {
			return nil, false, nil
		}
		total.Value, err = b.Combine("add", nil, k.Value, value)
		return total, true, err
	case "torch.sym_min":
		n, err = b.Within(k, 0, other)
		return n, true, err
	}
	return nil, false, nil
}

// Within returns how much is left of a count that begins at start and ends at end, of which the latter may be a count.
func (b *Builder) Within(k *Count, start int, end any) (*Count, error) {
	most, value := k.Most, k.Value
	var err error
	switch e := end.(type) {
	case *Count:
		if !e.Same(k) {
			most = min(most, e.Most)
			value, err = b.Combine("minimum", nil, value, e.Value)
		}
	case int:
		switch {
		case e < 0:
			most += e
			value, err = b.Combine("add", nil, value, e)
		case e < most:
			most = e
			value, err = b.Combine("minimum", nil, value, e)
		}
	}
	if err == nil && start > 0 {
		most -= start
		value, err = b.Combine("sub", nil, value, start)
	}
	if n, negative := end.(int); err == nil && (start > 0 || negative && n < 0) {
		value, err = b.Combine("maximum", nil, value, 0)
	}
	if err == nil && value == k.Value {
		return k, nil
	}
	return &Count{Value: value, Most: max(most, 0), Within: k}, err
}

// Among returns which of the first n places a count reaches.
func (b *Builder) Among(k *Count, n int) (*Ref, error) {
	at, err := b.Emit1("arange", graph.Attrs{"start": 0, "step": 1, "size": n, "dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	return b.Combine("lt", nil, at, k.Value)
}

// FilledBehind returns all of a counted tensor with a number behind the rows that count.
func (b *Builder) FilledBehind(r *Ref, fill Number) (*Ref, error) {
	if !r.IsCounted() {
		return r, nil
	}
	k := r.counted
	is, err := b.Among(k.Count, r.Shape()[k.Dim])
	if err != nil {
		return nil, err
	}
	shape := slices.Repeat(tensor.Shape{1}, r.Rank())
	shape[k.Dim] = r.Shape()[k.Dim]
	if is, err = b.Reshape(is, shape); err != nil {
		return nil, err
	}
	return b.Choose(is, r.dtype, Bare(r), fill)
}

// Output makes a tensor the next output of the graph, with another that says how much of it there is where data does.
func (b *Builder) Output(name string, r *Ref) error {
	operand, err := b.Result(Bare(r))
	if err != nil {
		return err
	}
	out := graph.Output{Name: name, Operand: operand}
	if k := r.counted; k != nil {
		out.Count, out.Dim = "count:"+name, k.Dim
		b.Graph.Outputs = append(b.Graph.Outputs, out)
		out = graph.Output{Name: out.Count, Operand: b.Read(k.Value), Counts: true}
	}
	b.Graph.Outputs = append(b.Graph.Outputs, out)
	return nil
}
