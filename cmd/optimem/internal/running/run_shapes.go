//go:build !files

package running

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// Sizes that stand for those a program leaves open, where the file does not tell a better one.
const (
	assumedRows     = 1
	assumedChannels = 3
	assumedPixels   = 224
	assumedSequence = 128
)

// A shapeGuess finds shapes for inputs that no file and no flag gives.
type shapeGuess struct {
	r *Run
	// sizes are those of symbols; a symbol has one size wherever it stands.
	sizes map[string]int
	// hints are the sizes that the program was exported with.
	hints map[string]int64
	// assumed says that nobody gave some of the sizes.
	assumed bool
}

func (r *Run) newShapeGuess(ckpt *loader.Checkpoint) *shapeGuess {
	g := &shapeGuess{r: r, sizes: make(map[string]int)}
	if ckpt.Program != nil && ckpt.Program.Exported != nil {
		g.hints = ckpt.Program.Exported.Hints
	}
	return g
}

// symbolRanges returns the constraints of a program on its symbols: the least and the largest size.
func symbolRanges(ckpt *loader.Checkpoint) map[string][2]int64 {
	ranges := make(map[string][2]int64)
	if ckpt.Program != nil && ckpt.Program.Exported != nil {
		for _, s := range ckpt.Program.Exported.Ranges {
			ranges[s.Symbol] = [2]int64{s.Min, s.Max}
		}
	}
	return ranges
}

// learn takes the sizes of symbols from the shape of an input that is given.
func (g *shapeGuess) learn(p models.Port, shape tensor.Shape) {
	if len(shape) != len(p.Shape) {
		return
	}
	for i, symbol := range p.Dims {
		if symbol != "" && p.Shape[i] < 0 {
			g.sizes[symbol] = shape[i]
		}
	}
}

// shape returns the shape of an input that is not given. Sizes that nobody gave are assumed; how many dimensions there
// are is not.
func (g *shapeGuess) shape(p models.Port) (tensor.Shape, error) {
	if p.Shape == nil {
		return nil, g.r.Usage(fmt.Sprintf("for instance --shape %s=1,3,224,224", p.Name),
			"input %s: %s, so --shape or --input has to say which", p.Name, wantedSpec(p))
	}
	shape := slices.Clone(p.Shape)
	for i, n := range shape {
		if n >= 0 {
			continue
		}
		shape[i] = g.size(p, i)
	}
	return shape, nil
}

// size returns the size of an open dimension: that which --batch or another input gives, else an assumption.
func (g *shapeGuess) size(p models.Port, axis int) int {
	symbol := p.Dims[axis]
	if n, ok := g.sizes[symbol]; ok {
		return n
	}
	batchAxis, named := g.r.axes[p.Name]
	isBatch := named && batchAxis == axis || !named && axis == 0
	var n int
	switch {
	case isBatch && g.r.batch > 0:
		n = g.r.batch
	case isBatch:
		n = g.within(symbol, assumedRows)
		g.assumed = true
	default:
		n = g.within(symbol, g.usual(p, axis))
		g.assumed = true
	}
	g.sizes[symbol] = n
	return n
}

// usual returns a size that the dimension of an input often has.
func (g *shapeGuess) usual(p models.Port, axis int) int {
	if n, ok := g.hints[p.Dims[axis]]; ok && n > 0 && n < math.MaxInt32 {
		return int(n)
	}
	switch {
	case len(p.Shape) == 4 && axis == 1:
		return assumedChannels
	case len(p.Shape) == 4:
		return assumedPixels
	}
	return assumedSequence
}

// within moves a size into the range of a symbol.
func (g *shapeGuess) within(symbol string, n int) int {
	r, ok := g.r.ranges[symbol]
	if !ok {
		return n
	}
	return int(min(max(int64(n), r[0]), r[1]))
}

// assumption says what was assumed of the inputs, "" where nothing was.
func (g *shapeGuess) assumption(ports []models.Port, shapes map[string]tensor.Shape) string {
	if !g.assumed {
		return ""
	}
	var list []string
	for _, p := range ports {
		if shape, ok := shapes[p.Name]; ok && slices.Contains(p.Shape, -1) {
			list = append(list, p.Name+"="+strings.ReplaceAll(strings.Trim(shape.String(), "[]"), " ", ","))
		}
	}
	return "assumed --shape " + strings.Join(list, " --shape ")
}

// completeShapes finds the shapes of the inputs that are made up, beside those that files and --shape give.
func (r *Run) completeShapes(
	ckpt *loader.Checkpoint, ports, made []models.Port, shapes map[string]tensor.Shape,
) error {
	guess := r.newShapeGuess(ckpt)
	for _, p := range ports {
		if shape, ok := shapes[p.Name]; ok {
			guess.learn(p, shape)
		}
	}
	for _, p := range made {
		if shapes[p.Name] == nil {
			shape, err := guess.shape(p)
			if err != nil {
				return err
			}
			shapes[p.Name] = shape
		}
		if err := r.Fits(p, p.DType, shapes[p.Name]); err != nil {
			return err
		}
	}
	r.assumed = guess.assumed
	if text := guess.assumption(ports, shapes); text != "" && !r.Quiet {
		r.Say("note", text)
	}
	return guess.checkRows(ports, shapes)
}

// checkRows holds --batch against the rows of the inputs.
func (g *shapeGuess) checkRows(ports []models.Port, shapes map[string]tensor.Shape) error {
	if g.r.batch == 0 {
		return nil
	}
	for _, p := range ports {
		axis, shape := g.r.axes[p.Name], shapes[p.Name]
		open := axis >= 0 && axis < len(shape) && (p.Shape == nil || p.Shape[axis] < 0)
		if open && shape[axis] != g.r.batch {
			return g.r.Usage("", "--batch %d: input %s has %s", g.r.batch, p.Name, Counted(shape[axis], "row"))
		}
	}
	return nil
}

// ports returns the inputs of a model. With --batch, inputs whose rows the program fixes may have any number of them:
// they go through in micro-batches. That needs a program that keeps rows apart; one that takes any number of rows at
// once need not.
func (r *Run) ports(ckpt *loader.Checkpoint, model *models.Model) ([]models.Port, error) {
	ports := model.Inputs()
	r.setDType, r.setNumber = model.SetDType, model.SetNumber
	named, err := r.parseBatchAxes()
	if err != nil {
		return nil, err
	}
	for name, axis := range named {
		p := portNamed(ports, name)
		if p == nil {
			return nil, r.Usage(describePorts(ports), "--batch-axis: the model has no input %q", name)
		}
		if p.Shape != nil && axis >= len(p.Shape) {
			return nil, r.Usage("", "--batch-axis %s=%d: the input is %s", name, axis, wantedSpec(*p))
		}
	}
	r.axes = named
	if r.batch == 0 {
		return ports, nil
	}
	r.ranges = symbolRanges(ckpt)
	axes, _, err := model.BatchAxes(r.newShapeGuess(ckpt).examples(ports), named)
	if err != nil {
		if slices.ContainsFunc(ports, func(p models.Port) bool {
			axis := named[p.Name]
			return p.Shape == nil || axis >= 0 && axis < len(p.Shape) && p.Shape[axis] < 0
		}) {
			return ports, nil // it takes all rows at once
		}
		return nil, r.Usage(batchAxisHint, "--batch %d: %w", r.batch, err)
	}
	r.axes, r.batched = axes, true
	opened := slices.Clone(ports)
	for i, p := range opened {
		axis := axes[p.Name]
		if axis < 0 || axis >= len(p.Shape) || p.Shape[axis] < 0 {
			continue
		}
		opened[i].Shape, opened[i].Dims = slices.Clone(p.Shape), slices.Clone(p.Dims)
		opened[i].Shape[axis], opened[i].Dims[axis] = -1, "rows"
	}
	return opened, nil
}

// examples returns shapes that inputs could have, to look at what a program does with rows: those that would be assumed, for
// not every program takes pictures of few pixels.
func (g *shapeGuess) examples(ports []models.Port) map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape)
	for _, p := range ports {
		if p.Optional || p.Shape == nil {
			continue
		}
		shape := slices.Clone(p.Shape)
		for i, n := range shape {
			if n < 0 {
				shape[i] = g.size(p, i)
			}
		}
		shapes[p.Name] = shape
	}
	return shapes
}

// lookAgain looks for the rows of inputs whose shapes are known now, where those that were assumed showed none.
func (r *Run) lookAgain(model *models.Model, shapes map[string]tensor.Shape) {
	if r.batch == 0 || r.batched {
		return
	}
	if axes, _, err := model.BatchAxes(shapes, r.axes); err == nil {
		r.axes, r.batched = axes, true
	}
}
