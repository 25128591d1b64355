package main

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
	r *run
	// sizes are those of symbols; a symbol has one size wherever it stands.
	sizes map[string]int
	// ranges are the constraints of the program, hints the sizes that it was exported with.
	ranges map[string][2]int64
	hints  map[string]int64
	axes   map[string]int
	// assumed says that nobody gave some of the sizes.
	assumed bool
}

func (r *run) newShapeGuess(ckpt *loader.Checkpoint) (*shapeGuess, error) {
	axes, err := r.parseBatchAxes()
	if err != nil {
		return nil, err
	}
	g := &shapeGuess{r: r, sizes: make(map[string]int), ranges: make(map[string][2]int64), axes: axes}
	if ckpt.Program != nil && ckpt.Program.Exported != nil {
		for _, s := range ckpt.Program.Exported.Ranges {
			g.ranges[s.Symbol] = [2]int64{s.Min, s.Max}
		}
		g.hints = ckpt.Program.Exported.Hints
	}
	return g, nil
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
		return nil, g.r.usage(fmt.Sprintf("for instance --shape %s=1,3,224,224", p.Name),
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
	batchAxis, named := g.axes[p.Name]
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
	r, ok := g.ranges[symbol]
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
func (r *run) completeShapes(
	ckpt *loader.Checkpoint, ports, made []models.Port, shapes map[string]tensor.Shape,
) error {
	guess, err := r.newShapeGuess(ckpt)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if shape, ok := shapes[p.Name]; ok {
			guess.learn(p, shape)
		}
	}
	for _, p := range made {
		if shapes[p.Name] == nil {
			if shapes[p.Name], err = guess.shape(p); err != nil {
				return err
			}
		}
		if err := r.fits(p, p.DType, shapes[p.Name]); err != nil {
			return err
		}
	}
	r.assumed = guess.assumed
	if text := guess.assumption(ports, shapes); text != "" && !r.quiet {
		r.say("note", text)
	}
	return guess.checkRows(ports, shapes)
}

// checkRows holds --batch against the rows of the inputs.
func (g *shapeGuess) checkRows(ports []models.Port, shapes map[string]tensor.Shape) error {
	for name := range g.axes {
		if portNamed(ports, name) == nil {
			return g.r.usage(describePorts(ports), "--batch-axis: the model has no input %q", name)
		}
	}
	if g.r.batch == 0 {
		return nil
	}
	open := false // some input leaves its rows open; those of others are not rows of the batch
	for _, p := range ports {
		axis := g.axes[p.Name]
		open = open || axis >= 0 && axis < len(p.Shape) && p.Shape[axis] < 0
	}
	for _, p := range ports {
		axis, shape := g.axes[p.Name], shapes[p.Name]
		switch {
		case shape == nil || axis < 0 || axis >= len(shape) || shape[axis] == g.r.batch:
		case p.Shape == nil || p.Shape[axis] < 0:
			return g.r.usage("", "--batch %d: input %s has %s", g.r.batch, p.Name, counted(shape[axis], "row"))
		case !open:
			return g.r.usage("", "--batch %d: the program takes %s at a time, and to run it several times is not built yet",
				g.r.batch, counted(p.Shape[axis], "row"))
		}
	}
	return nil
}
