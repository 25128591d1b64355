package generate

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A row is a token of a sequence at its place.
type row struct {
	s      *sequence
	at, id int
	// length is how long the sequence is for it, where that matters.
	length int
	// from and to are where it finds the state of the sequence, and where it leaves it, of a model that keeps some.
	from, to int64
	// branch is the branch of its sequence that it belongs to, nil for none.
	branch *branch
}

// stepInputs are the inputs of passes that write: an engine's, or a draft's, which has fewer.
type stepInputs struct {
	// width is how many blocks a sequence has, sourceWidth how many a source has, and mirrors how many further blocks a
	// row may be written to; 0 for none.
	width, sourceWidth, mirrors int
	// adapted and lengthened say that rows have an adapter, and a length.
	adapted, lengthened bool
	// keyless says that no keys and values are kept, recurrent that states are.
	keyless, recurrent bool
	// windowed says that there are caches with tables of their own for windows.
	windowed bool
	// drafts says that they are those of a draft.
	drafts bool

	tokens, positions, tables, windows, mirrored, places, wanted, adapters, lengths, sourceAt, sourceTables []int64
	rows                                                                                                    int
}

// begin makes room for as many rows as a pass has that is to have so many, and forgets what was there.
func (in *stepInputs) begin(rows int) {
	n := bucket(rows)
	in.rows, in.wanted = 0, in.wanted[:0]
	in.tokens, in.positions, in.tables = resized(in.tokens, n), resized(in.positions, n), resized(in.tables, n*in.width)
	in.adapters, in.lengths, in.sourceAt = resized(in.adapters, n), resized(in.lengths, n), resized(in.sourceAt, n)
	in.sourceTables = resized(in.sourceTables, n*in.sourceWidth)
	in.places, in.mirrored = resized(in.places, 2*n), resized(in.mirrored, n*in.mirrors)
	if in.windowed {
		in.windows = resized(in.windows, n*in.width)
	}
}

// add adds a row; wanted says that its logits are.
func (in *stepInputs) add(r row, wanted bool) {
	i := in.rows
	in.rows++
	in.tokens[i], in.positions[i], in.adapters[i], in.lengths[i] = int64(r.id), int64(r.at), r.s.adapter, int64(r.length)
	in.places[2*i], in.places[2*i+1] = r.from, r.to
	putTable(in.tables[i*in.width:][:in.width], 0, r.s.table)
	if x := r.branch; x != nil {
		for k, block := range x.blocks[:min(len(x.blocks), in.width-x.from)] {
			in.tables[i*in.width+x.from+k] = int64(block)
		}
	}
	for k := range in.mirrors {
		in.mirrored[i*in.mirrors+k] = in.own(i)
	}
	if in.windowed {
		seen := &r.s.window
		if in.drafts {
			seen = &r.s.draftWindow
		}
		putTable(in.windows[i*in.width:][:in.width], seen.from, seen.blocks)
	}
	if in.sourceWidth > 0 {
		var table []int
		if in.sourceAt[i] = r.s.sees(r.at); r.s.source != nil {
			table = r.s.source.table
		}
		putTable(in.sourceTables[i*in.sourceWidth:][:in.sourceWidth], 0, table)
	}
	if wanted {
		in.wanted = append(in.wanted, int64(i))
	}
}

// own is the block that a row lies in.
func (in *stepInputs) own(row int) int64 {
	return in.tables[row*in.width+int(in.positions[row])/graph.BlockRows]
}

// mirror has a row written to a further block, at the same place in it.
func (in *stepInputs) mirror(row, block int) {
	of := in.mirrored[row*in.mirrors:][:in.mirrors]
	of[slices.Index(of, in.own(row))] = int64(block) // there are as many as branches
}

// putTable writes the blocks of a table, which are those from one on.
func putTable(to []int64, from int, table []int) {
	clear(to)
	for k, block := range table {
		to[from+k] = int64(block)
	}
}

// values fills the rows that are left with such that are no tokens, and returns the inputs.
func (in *stepInputs) values() runtime.Values {
	n := len(in.tokens)
	for i := in.rows; i < n; i++ {
		in.tokens[i], in.positions[i], in.adapters[i], in.lengths[i], in.sourceAt[i] = 0, -1, 0, 0, -1
		in.places[2*i], in.places[2*i+1] = graph.StateAbsent, graph.StateNone
		clear(in.tables[i*in.width:][:in.width])
		clear(in.mirrored[i*in.mirrors:][:in.mirrors])
		if in.windowed {
			clear(in.windows[i*in.width:][:in.width])
		}
		clear(in.sourceTables[i*in.sourceWidth:][:in.sourceWidth])
	}
	for m := bucket(max(len(in.wanted), 1)); len(in.wanted) < m; {
		in.wanted = append(in.wanted, 0)
	}
	values := runtime.Values{
		models.StepTokens: tensor.Of(in.tokens, n), models.StepPositions: tensor.Of(in.positions, n),
		models.StepWanted: tensor.Of(in.wanted, len(in.wanted)),
	}
	if !in.keyless {
		values[models.StepBlocks] = tensor.Of(in.tables, n, in.width)
	}
	if in.mirrors > 0 {
		values[models.StepMirrors] = tensor.Of(in.mirrored, n, in.mirrors)
	}
	if in.windowed {
		values[models.StepWindowBlocks] = tensor.Of(in.windows, n, in.width)
	}
	if in.recurrent {
		values[models.StepStates] = tensor.Of(in.places, n, 2)
	}
	if in.adapted {
		values[models.StepAdapters] = tensor.Of(in.adapters, n)
	}
	if in.lengthened {
		values[models.StepLengths] = tensor.Of(in.lengths, n)
	}
	if in.sourceWidth > 0 {
		values[models.StepSourceAt] = tensor.Of(in.sourceAt, n)
		values[models.StepSourceBlocks] = tensor.Of(in.sourceTables, n, in.sourceWidth)
	}
	return values
}

// shapes are those of the inputs of a pass.
func (in *stepInputs) shapes(rows, wanted int) map[string]tensor.Shape {
	shapes := map[string]tensor.Shape{models.StepTokens: {rows}, models.StepPositions: {rows}, models.StepWanted: {wanted}}
	if !in.keyless {
		shapes[models.StepBlocks] = tensor.Shape{rows, in.width}
	}
	if in.mirrors > 0 {
		shapes[models.StepMirrors] = tensor.Shape{rows, in.mirrors}
	}
	if in.windowed {
		shapes[models.StepWindowBlocks] = tensor.Shape{rows, in.width}
	}
	if in.recurrent {
		shapes[models.StepStates] = tensor.Shape{rows, 2}
	}
	if in.adapted {
		shapes[models.StepAdapters] = tensor.Shape{rows}
	}
	if in.lengthened {
		shapes[models.StepLengths] = tensor.Shape{rows}
	}
	if in.sourceWidth > 0 {
		shapes[models.StepSourceAt], shapes[models.StepSourceBlocks] = tensor.Shape{rows}, tensor.Shape{rows, in.sourceWidth}
	}
	return shapes
}

func resized(list []int64, n int) []int64 {
	if cap(list) < n {
		return make([]int64, n)
	}
	return list[:n]
}
