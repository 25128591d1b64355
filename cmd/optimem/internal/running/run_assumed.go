//go:build !files

package running

import (
	"encoding/binary"
	"fmt"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// assumeNumber finds a value for a number of the program that is to be made up: its default, for which it is left out,
// else 1. Random ones would choose at random which program it is.
func (r *Run) assumeNumber(in *RunInputs, p models.Port, shapes map[string]tensor.Shape) error {
	if shape, ok := shapes[p.Name]; ok {
		if err := r.Fits(p, p.DType, shape); err != nil {
			return err
		}
	}
	if p.Optional {
		delete(shapes, p.Name)
		if !r.Quiet {
			r.Say("note", fmt.Sprintf("input %s, a number of the program, has its default", p.Name))
		}
		return nil
	}
	data, err := in.alloc(int64(p.DType.Size()))
	if err != nil {
		return err
	}
	var one any
	switch p.DType {
	case tensor.Bool:
		one = true
	case tensor.Int64:
		one = int64(1)
	case tensor.Float64:
		one = 1.0
	default:
		return fmt.Errorf("BUG: input %s is a number of %v", p.Name, p.DType)
	}
	if _, err := binary.Encode(data, binary.NativeEndian, one); err != nil {
		return fmt.Errorf("BUG: input %s: %w", p.Name, err)
	}
	t := &tensor.Tensor{DType: p.DType, Layout: tensor.Contiguous(), Data: data}
	in.Values[p.Name], shapes[p.Name] = t, t.Layout.Shape
	r.setNumber(p.Name, t)
	r.assumedNumbers = append(r.assumedNumbers, p.Name)
	if !r.Quiet {
		r.Say("note", fmt.Sprintf("assumed that input %s, a number of the program, is %v", p.Name, one))
	}
	return nil
}
