package graph

// A Side is the part of a graph that one of two devices computes.
type Side struct {
	Graph *Graph
	// Values maps the whole graph's values to the side's, [NoValue] for those that the side has nothing to do with.
	Values []ValueID
	// Ops has the index in the whole graph of each op of the side.
	Ops []int
	// Outputs has the index in the whole graph of each of the side's first outputs; the rest are what it gives to the
	// other side.
	Outputs []int
}

// A Crossing is a value that one side computes and the other reads.
type Crossing struct {
	// From is the number of the side that computes it, as its output Output; the other reads it as its input Input.
	From   int
	Output int
	Input  ValueID
}

// Divide makes two graphs of one: of the ops for which second is false, and of the others, each in their order. Values
// that cross become outputs of the one and inputs of the other. A state belongs to every side that reads it, and each
// updates its own.
func Divide(g *Graph, second func(op int) bool) (sides [2]*Side, crossings []Crossing) {
	d := &division{g: g, at: make([]int, len(g.Values))}
	for i := range d.sides {
		d.sides[i] = &Side{Graph: &Graph{Modules: make(map[string]Operand)}, Values: make([]ValueID, len(g.Values))}
		for id := range d.sides[i].Values {
			d.sides[i].Values[id] = NoValue
		}
	}
	for id := range d.at {
		d.at[id] = -1
	}
	for i, op := range g.Ops {
		side := 0
		if second(i) {
			side = 1
		}
		d.op(side, i, op)
	}
	for i, o := range g.Outputs {
		side := d.at[o.Operand.Value]
		if side < 0 {
			side = d.sideOfGiven(o.Operand.Value)
		}
		s := d.sides[side]
		o.Operand = d.operand(side, o.Operand)
		s.Graph.Outputs = append(s.Graph.Outputs, o)
		s.Outputs = append(s.Outputs, i)
	}
	for _, u := range g.Updates {
		for side, s := range d.sides {
			if s.Values[u.State] != NoValue ||
				d.at[u.Operand.Value] == side && d.sides[1-side].Values[u.State] == NoValue {
				s.Graph.Updates = append(s.Graph.Updates, StateUpdate{
					State: d.value(side, u.State), Operand: d.operand(side, u.Operand),
				})
			}
		}
	}
	for i := range d.crossings { // behind the outputs that the caller sees
		c := &d.crossings[i]
		s := d.sides[c.From]
		c.Output += len(s.Outputs)
		s.Graph.Outputs = append(s.Graph.Outputs, Output{Operand: s.Graph.Whole(d.from[i])})
	}
	return d.sides, d.crossings
}

// sideOfGiven returns which side gives an output that no op computes: one that has the value, and none without ops, for such
// a side runs nothing.
func (d *division) sideOfGiven(id ValueID) int {
	if len(d.sides[0].Graph.Ops) == 0 || d.sides[0].Values[id] == NoValue && d.sides[1].Values[id] != NoValue {
		return 1
	}
	return 0
}

// A division is two graphs being made.
type division struct {
	g     *Graph
	sides [2]*Side
	// at is the side that computes a value, −1 for what no op computes.
	at        []int
	crossings []Crossing
	// from has the value of each crossing on the side that computes it.
	from []ValueID
	// given counts the crossings that each side gives.
	given [2]int
}

func (d *division) op(side, index int, op Op) {
	s := d.sides[side]
	op.In = append([]Operand(nil), op.In...)
	for k, o := range op.In {
		op.In[k] = d.operand(side, o)
	}
	op.Guard = append([]Guard(nil), op.Guard...)
	for k, c := range op.Guard {
		op.Guard[k].Predicate = d.operand(side, c.Predicate)
	}
	op.Out = append([]ValueID(nil), op.Out...)
	for k, id := range op.Out {
		s.Values[id] = s.Graph.AddValue(d.g.Values[id])
		d.at[id] = side
		op.Out[k] = s.Values[id]
	}
	s.Graph.Ops = append(s.Graph.Ops, op)
	s.Ops = append(s.Ops, index)
}

func (d *division) operand(side int, o Operand) Operand {
	if o.Value != NoValue {
		o.Value = d.value(side, o.Value)
	}
	return o
}

// value returns a value of the whole graph on a side, where it crosses to if need be.
func (d *division) value(side int, id ValueID) ValueID {
	s := d.sides[side]
	if s.Values[id] != NoValue {
		return s.Values[id]
	}
	v := d.g.Values[id]
	if from := d.at[id]; from >= 0 {
		v.Role = Input
		s.Values[id] = s.Graph.AddValue(v)
		s.Graph.Inputs = append(s.Graph.Inputs, s.Values[id])
		d.crossings = append(d.crossings, Crossing{From: from, Output: d.given[from], Input: s.Values[id]})
		d.from = append(d.from, d.sides[from].Values[id])
		d.given[from]++
		return s.Values[id]
	}
	s.Values[id] = s.Graph.AddValue(v)
	if v.Role == Input {
		s.Graph.Inputs = append(s.Graph.Inputs, s.Values[id])
	}
	return s.Values[id]
}
