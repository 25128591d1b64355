package plan

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// lower is a device whose ops need scratch memory for a row of their weights, and take them packed in pairs of rows. Sums
// may be written over what is added.
func lower(g *layers.Graph) (*layers.Lowered, error) {
	l := &layers.Lowered{Graph: g, Steps: make([]layers.Step, len(g.Ops))}
	for i, op := range g.Ops {
		switch op.Kind {
		case "add":
			l.Steps[i].InPlace = []int{0, 1}
		case "relu":
			l.Steps[i].InPlace = []int{0}
		case "linear":
			n, k := op.In[1].Layout.Shape[0], op.In[1].Layout.Shape[1]
			l.Steps[i].WorkBytes = int64(n) * 4
			l.Steps[i].Packs = []layers.Pack{{In: 1, Bytes: int64((n + 1) / 2 * 2 * k * 4), Form: "pairs", Step: 2, Copy: n%2 == 0}}
		}
	}
	return l, nil
}

// A builder makes graphs for tests.
type builder struct {
	t   fatal
	g   *layers.Graph
	src *nowhere
}

func newBuilder(t fatal) *builder { return &builder{t: t, g: &layers.Graph{}, src: &nowhere{}} }

func (b *builder) weight(name string, shape ...int) layers.Operand {
	n := int64(4)
	for _, d := range shape {
		n *= int64(d)
	}
	w := b.g.AddWeight(tensor.Weight{
		Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(shape...),
		Extent: tensor.Extent{Source: b.src, Offset: b.src.bytes, Bytes: n},
	}, layers.Weight)
	b.src.bytes += n
	return layers.Operand{Value: w, Layout: tensor.Contiguous(shape...)}
}

func (b *builder) emit(path string, kind layers.Kind, attrs layers.Attrs, in ...layers.Operand) layers.ValueID {
	out, err := b.g.Emit(layers.Standard(), layers.Op{Kind: kind, Path: path, Attrs: attrs, In: in})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

// drawGraph returns a graph of layers with weights of all sizes, some of them tied, skips, an embedding at the start, and
// weights that cannot be split.
func drawGraph(t *rapid.T) *layers.Graph {
	b := newBuilder(t)
	rows := rapid.IntRange(1, 20).Draw(t, "rows")
	width := rapid.IntRange(1, 60).Draw(t, "width") * 8
	ids := b.g.AddInput("ids", tensor.Int64, tensor.Shape{rows})
	table := b.weight("table", rapid.IntRange(2, 2000).Draw(t, "table"), width)
	values := []layers.ValueID{b.emit("embed", "embedding", nil, table, b.g.Whole(ids))}
	var squares []layers.Operand
	for i := range rapid.IntRange(1, 12).Draw(t, "layers") {
		path := fmt.Sprintf("layers.%d", i)
		x := values[rapid.IntRange(max(0, len(values)-2), len(values)-1).Draw(t, "from")]
		switch kind := rapid.SampledFrom([]string{"linear", "wide", "matmul", "tied", "add", "relu", "first", "turned"}).Draw(t, "kind"); {
		case kind == "linear" || kind == "tied" && len(squares) == 0:
			w := b.weight(path+".weight", width, width)
			squares = append(squares, w)
			values = append(values, b.emit(path, "linear", nil, b.g.Whole(x), w, b.weight(path+".bias", width)))
		case kind == "tied":
			w := squares[rapid.IntRange(0, len(squares)-1).Draw(t, "tied")]
			values = append(values, b.emit(path, "linear", nil, b.g.Whole(x), w))
		case kind == "wide":
			n := rapid.IntRange(1, 3000).Draw(t, "wide")
			h := b.emit(path+".up", "linear", nil, b.g.Whole(x), b.weight(path+".up.weight", n, width))
			values = append(values, b.emit(path+".down", "linear", nil, b.g.Whole(h), b.weight(path+".down.weight", width, n)))
		case kind == "matmul":
			values = append(values, b.emit(path, "matmul", layers.Attrs{"alpha": 1.0}, b.g.Whole(x), b.weight(path+".weight", width, width)))
		case kind == "add":
			y := values[rapid.IntRange(0, len(values)-1).Draw(t, "skip")]
			values = append(values, b.emit(path, "add", nil, b.g.Whole(x), b.g.Whole(y)))
		case kind == "turned": // a matrix whose columns lie one after the other
			w := b.weight(path+".weight", rapid.IntRange(1, 3000).Draw(t, "columns"), width)
			w.Layout.Shape[0], w.Layout.Shape[1] = w.Layout.Shape[1], w.Layout.Shape[0]
			w.Layout.Strides[0], w.Layout.Strides[1] = w.Layout.Strides[1], w.Layout.Strides[0]
			h := b.emit(path+".up", "matmul", layers.Attrs{"alpha": 1.0}, b.g.Whole(x), w)
			values = append(values, b.emit(path+".down", "linear", nil, b.g.Whole(h), b.weight(path+".down.weight", width, w.Layout.Shape[1])))
		case kind == "first": // a value and its first row
			row := b.g.Whole(x)
			row.Layout.Strides = []int{0, 1}
			values = append(values, b.emit(path, "add", nil, b.g.Whole(x), row))
		default:
			values = append(values, b.emit(path, "relu", nil, b.g.Whole(x)))
		}
	}
	logits := b.emit("head", "linear", nil, b.g.Whole(values[len(values)-1]), table)
	b.g.Outputs = []layers.Output{{Name: "logits", Operand: b.g.Whole(logits)}}
	if rapid.Bool().Draw(t, "hidden") {
		b.g.Outputs = append(b.g.Outputs, layers.Output{Name: "hidden", Operand: b.g.Whole(values[0])})
	}
	return b.g
}

// drawOptions returns options without a budget.
func drawOptions(t *rapid.T) Options {
	o := Options{
		Mode:      rapid.SampledFrom([]Mode{Page, Auto, Chunk}).Draw(t, "mode"),
		Target:    rapid.SampledFrom([]Target{CPU, {Name: "emu", AlignBytes: 256}}).Draw(t, "target"),
		Instances: rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "instances"),
		Slots:     rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "slots"),
		Once:      rapid.Bool().Draw(t, "once"),
	}
	if rapid.Bool().Draw(t, "slow bus") {
		o.Rates.CopyBytes = 100e6
	}
	if rapid.Bool().Draw(t, "lower") {
		o.Lower = lower
		if !o.Target.Direct && rapid.Bool().Draw(t, "host") {
			o.HostLower = lower
		}
	}
	if o.Mode == Chunk {
		o.Capacity = Limit{N: rapid.Int64Range(0, 1<<21).Draw(t, "capacity"), Unit: Params}
	}
	if rapid.Bool().Draw(t, "groups") {
		o.MaxGroup = Limit{N: rapid.Int64Range(0, 1<<20).Draw(t, "max group"), Unit: Params}
	}
	return o
}

// TestLeastBudget: what a plan says is the least budget works, and one byte less does not.
func TestLeastBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t)
		free, err := New(l, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, free, o)
		if free.MinBytes < 2 { // the host computes everything
			return
		}
		most := max(free.PeakBytes(), free.MinBytes)
		for _, memory := range []int64{free.MinBytes, rapid.Int64Range(free.MinBytes, most).Draw(t, "memory")} {
			o.MemoryBytes = memory
			p, err := New(l, o)
			if err != nil {
				t.Fatalf("%d bytes, where the least is %d: %v", memory, free.MinBytes, err)
			}
			if p.MinBytes != free.MinBytes {
				t.Fatalf("the least is %d bytes without a limit and %d with one of %d", free.MinBytes, p.MinBytes, memory)
			}
			checkPlan(t, p, o)
		}
		o.MemoryBytes = free.MinBytes - 1
		_, err = New(l, o)
		var c *CapacityError
		if !errors.As(err, &c) || c.MinBytes != free.MinBytes || c.HaveBytes >= c.NeedBytes {
			t.Fatalf("a byte less than %d: got %#v", free.MinBytes, err)
		}
	})
}

// checkPlan fails where following a plan to the letter would lose or mix up bytes.
func checkPlan(t *rapid.T, p *Plan, o Options) {
	if o.MemoryBytes > 0 && p.PeakBytes() > o.MemoryBytes {
		t.Fatalf("takes %d of %d bytes\n%v", p.PeakBytes(), o.MemoryBytes, p)
	}
	if s := p.Sides; s != nil {
		device, host := o, o
		host.MemoryBytes, host.Target = 0, CPU
		checkPlan(t, s.Device, device)
		checkPlan(t, s.Host, host)
		return
	}
	if o.Once && p.Target.Direct && len(p.Fixed.Packed) > 0 {
		t.Fatalf("%d weights are packed for one pass\n%v", len(p.Fixed.Packed), p)
	}
	checkRing(t, p)
	checkWeights(t, p)
	checkActivations(t, p)
	checkBytes(t, p)
	checkSwaps(t, p)
	checkFirstReads(t, p)
}

// checkRing: no slot is filled while a group that has bytes there may be under way or in use.
func checkRing(t *rapid.T, p *Plan) {
	var visits []*Group
	var moved, most int64
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Paged() {
			visits = append(visits, g)
			moved += g.SlotBytes
			most = max(most, g.SlotOffset+g.SlotBytes)
		} else if g.SlotBytes != 0 || len(g.Spans) != 0 {
			t.Fatalf("group %d is not paged and has a slot", i)
		}
	}
	if moved != p.MovedBytes || most != p.RingBytes {
		t.Fatalf("%d bytes moved and a ring of %d, want %d and %d", p.MovedBytes, p.RingBytes, moved, most)
	}
	align := p.Target.AlignBytes
	if p.Target.Direct {
		align = tensor.AlignBytes
	}
	for k, g := range visits {
		if g.SlotOffset%align != 0 {
			t.Fatalf("visit %d lies at %d, which is not a multiple of %d\n%v", k, g.SlotOffset, align, p)
		}
		if g.After < 1 || g.After > len(visits) {
			t.Fatalf("visit %d of %d waits for the one %d before", k, len(visits), g.After)
		}
		for back := 1; back < g.After; back++ {
			other := visits[((k-back)%len(visits)+len(visits))%len(visits)]
			if g.SlotOffset < other.SlotOffset+other.SlotBytes && other.SlotOffset < g.SlotOffset+g.SlotBytes {
				t.Fatalf("visit %d overlaps that %d before, and waits for that %d before\n%v", k, back, g.After, p)
			}
		}
	}
}

// checkWeights: all that ops read of weights is in the group's slot or stays, where a span brings it.
func checkWeights(t *rapid.T, p *Plan) {
	g := p.Lowered.Graph
	inside := func(parts []Part, spans []Span, bytes int64) {
		var last int64
		for _, part := range slices.SortedFunc(slices.Values(parts), func(a, b Part) int { return int(a.Offset - b.Offset) }) {
			n := part.High - part.Low
			if part.Offset < 0 || part.Offset+n > bytes {
				t.Fatalf("%d bytes of value %d at %d of %d", n, part.Value, part.Offset, bytes)
			}
			if !p.Target.Direct && part.Offset < last {
				t.Fatalf("value %d overlaps what is before it", part.Value)
			}
			last = part.Offset + n
			at := part.Offset
			if !p.Target.Direct {
				at = part.Staged
			}
			e := g.Values[part.Value].Weight.Extent
			if !slices.ContainsFunc(spans, func(s Span) bool {
				return s.Offset <= at && at+n <= s.Offset+s.Extent.Bytes && s.Extent.Source == e.Source &&
					at-s.Offset == e.Offset+part.Low-s.Extent.Offset
			}) {
				t.Fatalf("no read brings value %d to %d\n%v", part.Value, at, p)
			}
		}
	}
	inside(p.Fixed.Parts, p.Fixed.Spans, p.Fixed.Bytes)
	checkPacked(t, p)
	has := func(parts []Part, want Part) bool {
		return slices.ContainsFunc(parts, func(h Part) bool {
			return h.Value == want.Value && h.Low <= want.Low && want.High <= h.High
		})
	}
	next := 0
	for i := range p.Groups {
		group := &p.Groups[i]
		inside(group.Parts, group.Spans, group.SlotBytes)
		if group.First != next {
			t.Fatalf("group %d begins at op %d, want %d", i, group.First, next)
		}
		next = group.End
		for k := group.First; k < group.End; k++ {
			for _, part := range opParts(g, &g.Ops[k]) {
				packed := slices.ContainsFunc(p.Fixed.Packed, func(c Packed) bool {
					return c.Operand.Value == part.Value && c.Low == part.Low && c.High == part.High && g.Ops[k].Kind == "linear"
				})
				for _, c := range p.Fixed.Packed {
					shares := c.Operand.Value == part.Value && c.Low < part.High && part.Low < c.High
					if c.Copy && shares && !has(p.Fixed.Parts, part) && g.Ops[k].Kind != "linear" {
						t.Fatalf("op %d reads value %d, of which only a copy stays\n%v", k, part.Value, p)
					}
				}
				if !has(group.Parts, part) && !has(p.Fixed.Parts, part) && !packed {
					t.Fatalf("op %d reads value %d from %d to %d, which is not there\n%v", k, part.Value, part.Low, part.High, p)
				}
			}
		}
	}
	if next != len(g.Ops) {
		t.Fatalf("%d ops of %d are in groups", next, len(g.Ops))
	}
	for _, tied := range p.Tied {
		moves := 0
		for i := range p.Groups {
			if slices.ContainsFunc(p.Groups[i].Parts, func(part Part) bool { return part.Value == tied.Value }) {
				moves++
			}
		}
		if moves != tied.Moves || tied.Readers < 2 {
			t.Fatalf("value %d is %v, and %d groups bring it", tied.Value, tied, moves)
		}
	}
}

// checkFirstReads: cut by group, reads are those of what stays, no byte twice, and before a group runs all is there that it
// reads of that and no group before it has read.
func checkFirstReads(t *rapid.T, p *Plan) {
	reads := p.FirstReads()
	if reads == nil {
		if p.Target.Direct && len(p.Fixed.Packings) == 0 && len(p.Fixed.Spans) > 0 {
			t.Fatalf("no first reads\n%v", p)
		}
		return
	}
	there := make([]bool, p.Fixed.Bytes/tensor.AlignBytes)
	for k := range p.Groups {
		for _, r := range reads[k] {
			if !slices.ContainsFunc(p.Fixed.Spans, func(s Span) bool {
				return s.Extent.Source == r.Extent.Source && s.Offset <= r.Offset &&
					r.Offset+r.Extent.Bytes <= s.Offset+s.Extent.Bytes && r.Offset-s.Offset == r.Extent.Offset-s.Extent.Offset
			}) {
				t.Fatalf("group %d reads %v to %d, which is in no read of what stays\n%v", k, r.Extent, r.Offset, p)
			}
			for at := r.Offset; at < r.Offset+r.Extent.Bytes; at += tensor.AlignBytes {
				if there[at/tensor.AlignBytes] {
					t.Fatalf("byte %d is read twice\n%v", at, p)
				}
				there[at/tensor.AlignBytes] = true
			}
		}
		for i := p.Groups[k].First; i < p.Groups[k].End; i++ {
			for _, want := range opParts(p.Lowered.Graph, &p.Lowered.Graph.Ops[i]) {
				held, ok := covering(p.Fixed.Parts, want)
				low := held.Offset + want.Low - held.Low
				for at := low; ok && at < low+want.High-want.Low; at++ {
					if !there[at/tensor.AlignBytes] {
						t.Fatalf("op %d reads byte %d of what stays before it is there\n%v", i, at, p)
					}
				}
			}
		}
	}
	if slices.Contains(there, false) {
		t.Fatalf("some of what stays is not read\n%v", p)
	}
}

// checkPacked: what is packed lies behind what is not, nothing overlaps, and all of it is made of raw bytes that lie in
// the memory for them.
func checkPacked(t *rapid.T, p *Plan) {
	f := &p.Fixed
	var end int64
	for _, s := range f.Spans {
		if p.Target.Direct {
			end = max(end, s.Offset+s.Extent.Bytes)
		}
	}
	made := make([]int64, len(f.Packed))
	for i := range f.Packed {
		c := &f.Packed[i]
		if i == 0 {
			for _, part := range f.Parts {
				end = max(end, part.Offset+part.High-part.Low)
			}
		}
		if c.Offset < end || c.Offset%p.Target.AlignBytes != 0 || c.Offset+c.Pack.Bytes > f.Bytes {
			t.Fatalf("%d packed bytes at %d of %d, where %d are taken\n%v", c.Pack.Bytes, c.Offset, f.Bytes, end, p)
		}
		end = c.Offset + c.Pack.Bytes
	}
	for _, k := range f.Packings {
		for _, piece := range k.Pieces {
			c := &f.Packed[piece.Of]
			if piece.Offset != c.Offset+made[piece.Of] || piece.Part.Offset < 0 ||
				piece.Part.Offset+piece.Part.High-piece.Part.Low > f.PackingBytes {
				t.Fatalf("a piece at %d, %d of %d bytes were made\n%v", piece.Offset, made[piece.Of], c.Pack.Bytes, p)
			}
			made[piece.Of] += piece.Bytes
		}
	}
	for i, n := range made {
		if n != f.Packed[i].Pack.Bytes {
			t.Fatalf("%d of %d bytes are packed", n, f.Packed[i].Pack.Bytes)
		}
	}
}

// checkActivations: every op's operands were made, by an op or a copy, and nothing else lies there until they were read.
func checkActivations(t *rapid.T, p *Plan) {
	g := p.Lowered.Graph
	size := func(id int) int64 {
		if place := &p.Places[id]; place.Stride == 0 {
			return place.Bytes
		}
		return p.Places[id].Stride*int64(p.Instances-1) + p.Places[id].Bytes
	}
	for id := range p.Places {
		place := &p.Places[id]
		if place.First >= 0 && place.Bytes > 0 && (place.Offset < 0 || place.Offset+size(id) > p.ActivationBytes) {
			t.Fatalf("value %d lies at %d of %d", id, place.Offset, p.ActivationBytes)
		}
	}
	made := make([]bool, len(g.Values))
	alive := func(id layers.ValueID, op int) {
		if place := &p.Places[id]; op < place.First || op > place.Last {
			t.Fatalf("op %d has to do with value %d, which is alive from %d to %d", op, id, place.First, place.Last)
		}
	}
	use := func(id layers.ValueID, op int) {
		if role := g.Values[id].Role; role != layers.Computed && role != layers.Input {
			return
		}
		if !made[id] {
			t.Fatalf("op %d reads value %d, which nothing made\n%v", op, id, p)
		}
		alive(id, op)
	}
	given := make([]bool, len(g.Outputs))
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, id := range group.Inputs {
			made[id] = true
			alive(id, group.First)
		}
		for _, s := range group.SwapIn {
			made[s.Value] = true
			alive(s.Value, group.First)
		}
		for k := group.First; k < group.End; k++ {
			for _, o := range g.Ops[k].In {
				if o.Value != layers.NoValue {
					use(o.Value, k)
				}
			}
			for _, id := range g.Ops[k].Out {
				made[id] = true
				alive(id, k)
			}
		}
		for _, s := range group.SwapOut {
			use(s.Value, group.End-1)
		}
		for _, k := range group.Outputs {
			use(g.Outputs[k].Operand.Value, max(group.End-1, 0))
			given[k] = true
		}
		if p.Instances == 1 {
			continue
		}
		for id := range made { // the next instance overwrites it
			if made[id] && p.Places[id].Stride == 0 && g.Values[id].Role != layers.Const {
				made[id] = false
			}
		}
	}
	if slices.Contains(given, false) {
		t.Fatalf("outputs given: %v", given)
	}
}

// checkSwaps: what comes back from host memory is what left, and nothing else was put there meanwhile.
func checkSwaps(t *rapid.T, p *Plan) {
	type there struct {
		low, high int64
		bytes     int64
	}
	var held []there
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, s := range group.SwapIn {
			n := p.Lowered.Graph.Values[s.Value].Bytes()
			at := slices.IndexFunc(held, func(h there) bool { return h.low == s.Offset && h.bytes == n })
			if at < 0 {
				t.Fatalf("value %d comes back from %d, and nothing is there", s.Value, s.Offset)
			}
		}
		for _, s := range group.SwapOut {
			n := p.Lowered.Graph.Values[s.Value].Bytes()
			now := there{s.Offset, s.Offset + int64(p.Instances)*s.Stride, n}
			if n > s.Stride || now.high > p.SwapBytes {
				t.Fatalf("value %d goes to %d of %d", s.Value, s.Offset, p.SwapBytes)
			}
			held = slices.DeleteFunc(held, func(h there) bool { return h.low < now.high && now.low < h.high })
			held = append(held, now)
		}
	}
}
