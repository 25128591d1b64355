package quantize

import (
	"context"
	"errors"
	"fmt"
)

// inputs are those of layers that a calibration knows: their sums are made for as many at a time as memory allows, in
// the order of the files, and forgotten after the last layer that is given them.
type inputs struct {
	// layers counts those of each input that are still to come.
	layers map[string]int
	sums   map[string][]float64
	made   map[string]*hessian
	// few are inputs of too few rows: see [fewRows].
	few map[string]bool
}

// fewRows is for how many columns an expert has to be given a row at least. Of fewer rows the sums say next to nothing of
// others: codes are chosen without them then.
const fewRows = 4

// isFew reports whether a layer was given too few rows, of how many at least, and how many they were; it is false where
// they are all there is.
func (f *Folder) isFew(it *item) (few bool) {
	if f.opts.Calibration == nil {
		return false
	}
	rows, routed := f.opts.Calibration.Routed(f.opts.Calibration.Input(it.weight.Name))
	return routed && rows < max(1, it.columns/fewRows)
}

// hessian returns what a layer's errors are weighed by, nil where its input is not known.
func (x *inputs) hessian(ctx context.Context, f *Folder, it *item) (*hessian, error) {
	if f.opts.Calibration == nil || f.opts.Channels {
		return nil, nil
	}
	input := f.opts.Calibration.Input(it.weight.Name)
	if input == "" {
		return nil, nil
	}
	if x.few[input] {
		return nil, nil
	}
	if h := x.made[input]; h != nil {
		return h, nil
	}
	if x.sums[input] == nil {
		if err := x.add(ctx, f, it); err != nil {
			return nil, err
		}
	}
	sums := x.sums[input]
	if int64(len(sums)) != it.columns*it.columns {
		return nil, fmt.Errorf("%w: %d numbers of an input's sums for %d columns", errInputs, len(sums), it.columns)
	}
	if f.isFew(it) {
		delete(x.sums, input)
		x.few[input] = true
		return nil, nil
	}
	h := newHessian(sums, int(it.columns), f.opts.ByUse)
	delete(x.sums, input)
	if err := h.invert(ctx); err != nil {
		return nil, err
	}
	x.made[input] = h
	return h, nil
}

// errInputs says that a calibration is not this folder's.
var errInputs = errors.New("calibration of another model")

// add has the sums made of the input of a layer, and of those that follow.
func (x *inputs) add(ctx context.Context, f *Folder, it *item) error {
	if x.layers == nil {
		x.layers, x.sums = make(map[string]int), make(map[string][]float64)
		x.made, x.few = make(map[string]*hessian), make(map[string]bool)
		f.eachInput(func(_ *item, input string) { x.layers[input]++ })
	}
	var wanted []string
	named := make(map[string]bool)
	f.eachInput(func(other *item, input string) {
		if (other == it || len(wanted) > 0) && x.layers[input] > 0 && x.sums[input] == nil &&
			x.made[input] == nil && !x.few[input] && !named[input] {
			wanted, named[input] = append(wanted, input), true
		}
	})
	held := int64(0)
	for _, sums := range x.sums {
		held += 8 * int64(len(sums))
	}
	for _, h := range x.made {
		held += 8 * int64(len(h.upper))
	}
	sums, err := f.opts.Calibration.Sums(ctx, wanted, held)
	if err != nil {
		return err
	}
	if len(sums) == 0 || len(sums) > len(wanted) {
		return fmt.Errorf("%w: sums of %d inputs of %d", errInputs, len(sums), len(wanted))
	}
	for i, s := range sums {
		x.sums[wanted[i]] = s
	}
	return nil
}

// eachInput calls do for each layer whose input is known, in the order of the files.
func (f *Folder) eachInput(do func(it *item, input string)) {
	for _, s := range f.shards {
		for i := range s.items {
			if it := &s.items[i]; it.module != "" {
				if input := f.opts.Calibration.Input(it.weight.Name); input != "" {
					do(it, input)
				}
			}
		}
	}
}

// done forgets what no layer needs that is still to come.
func (x *inputs) done(f *Folder, it *item) {
	if f.opts.Calibration == nil || f.opts.Channels {
		return
	}
	input := f.opts.Calibration.Input(it.weight.Name)
	if input == "" {
		return
	}
	if x.layers[input]--; x.layers[input] <= 0 {
		delete(x.made, input)
	}
}
