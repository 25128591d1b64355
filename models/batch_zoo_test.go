package models_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// unbatched are the models of the zoo that mix rows or change a state, with what the error says.
var unbatched = map[string]string{
	"extra/as_strided":      "add: operand 0: dimension 0 steps by 7 elements, and a row has 5",
	"extra/asserted":        "all: it mixes the rows in dimension 0",
	"extra/buffer_mutation": "steps: it is changed by every pass",
	"extra/complex":         "gain: it is changed by every pass",
	"extra/cond":            "sum: it mixes the rows in dimension 0",
	"extra/empty":           "sum: it mixes the rows in dimension 0",
	"extra/index_put":       "name it",
	"extra/input_mutation":  "name it",
	"extra/integers":        "sum: it mixes the rows in dimension 0",
	"extra/promote":         "cast: operand 0: it is one row of the batch",
	"extra/scalars":         "sum: it mixes the rows in dimension 0",
	"extra/special":         "sum: it mixes the rows in dimension 0",
	"extra/symbolic":        "cat: operand 1: it is one row of the batch",
	"extra/tuple_out":       "sum: it mixes the rows in dimension 0",
	"extra/views":           "mul: operand 0: it begins at row 1",
	"hf/mixtral":            "model.layers.0.mlp.experts: sort: it mixes the rows in dimension 0",
	"hf/qwen2_moe":          "model.layers.0.mlp.experts: sort: it mixes the rows in dimension 0",
}

// quickRows are models that -short runs besides the quick ones, which have a single row in part.
var quickRows = []string{
	"diff/dit", "extra/dict_out", "extra/kwargs", "extra/symbolic_out", "nn/Transformer", "nn/gru",
}

// batchNames are the axes of models whose inputs do not all have rows.
var batchNames = map[string]map[string]int{
	"extra/dict_out": {"x": 0, "pair.0": 0, "pair.1": 0},
	"extra/kwargs":   {"x": 0, "shift": 0},
}

// batchAxes are the axes of outputs, by name or by number in the order of the program, that are not 0.
var batchAxes = map[string][]int{
	"extra/dict_out":     {},
	"extra/symbolic_out": {},
	"nn/gru":             {0, 1},
	"nn/lstm":            {0, 1, 1},
}

// TestBatchZoo finds the batch axes of models of the zoo in both forms. Those with two rows or more then run, once
// as they are and once with the rows in another order and one of them replaced: the others' results are the same bits.
func TestBatchZoo(t *testing.T) {
	names, err := zoo.Names(zooFolder)
	if err != nil || len(names) == 0 {
		t.Fatalf("no zoo: %v", err)
	}
	ran := 0
	for i, name := range names {
		if !chosen(name) && !slices.Contains(quickRows, name) && !(testing.Short() && i%16 == 0) {
			continue
		}
		for _, form := range []string{"aten", "core"} {
			if testing.Short() && form == "core" {
				continue
			}
			ckpt, ref, err := zoo.Load(zooFolder, name, form)
			if err != nil {
				continue // the exporter could not make this form
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil || ref.Unsupported != "" {
				continue // TestZoo says which should build
			}
			shapes := make(map[string]tensor.Shape)
			for input, f := range ref.Cases[0].Inputs {
				shapes[input] = f.Shape
			}
			in, out, err := model.BatchAxes(shapes, batchNames[name])
			if want, refused := unbatched[name]; refused {
				if !errors.As(err, new(*graph.NotBatchableError)) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s %s: %v, want %q", name, form, err, want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %s: %v", name, form, err)
				continue
			}
			for i, output := range model.Outputs() {
				d, tensor := out[output]
				want := 0
				if axes, ok := batchAxes[name]; ok {
					if i >= len(axes) {
						continue
					}
					want = axes[i]
				}
				if tensor && d != want {
					t.Errorf("%s %s: the axis of output %s is %d, not %d", name, form, output, d, want)
				}
			}
			if testing.Short() && !slices.Contains(quick, name) && !slices.Contains(quickRows, name) {
				continue
			}
			if n, err := checkRows(t, model, ref.Cases[0], in, out); err != nil {
				t.Errorf("%s %s: %v", name, form, err)
			} else if n > 1 {
				ran++
			}
		}
	}
	t.Logf("%d programs ran", ran)
	if ran < 12 {
		t.Errorf("only %d programs ran", ran)
	}
}

// checkRows runs a model on n rows, and on the same in the opposite order with row 0 replaced.
func checkRows(t *testing.T, model *models.Model, c zoo.Case, in, out map[string]int) (n int, err error) {
	inputs, others := make(optimem.Values), make(optimem.Values)
	for name, f := range c.Inputs {
		x, err := f.Tensor(name)
		if err != nil {
			return 0, err
		}
		inputs[name], others[name] = x, x
		d := in[name]
		if d < 0 {
			continue
		}
		if n = x.Layout.Shape[d]; n < 2 {
			return n, nil
		}
		others[name] = take(replaced(x, d), d, backwards(n))
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		return n, err
	}
	defer session.Close()
	first, err := session.Run(t.Context(), inputs)
	if err != nil {
		return n, err
	}
	second, err := session.Run(t.Context(), others)
	if err != nil {
		return n, err
	}
	changed := false
	for _, name := range slices.Sorted(maps.Keys(first)) {
		x, y := first[name].Contiguous(), second[name].Contiguous()
		d, ok := out[name]
		switch {
		case !ok:
			return n, fmt.Errorf("output %s has no axis", name)
		case d < 0:
			if !bytes.Equal(x.Data, y.Data) {
				return n, fmt.Errorf("output %s depends on the rows", name)
			}
			continue
		case x.Layout.Shape[d] != n:
			return n, fmt.Errorf("output %s, %v, does not have %d rows along %d", name, x.Layout.Shape, n, d)
		}
		y = take(y, d, backwards(n))
		for i := range n {
			only := slices.Repeat([]int{i}, n)
			same := bytes.Equal(take(x, d, only).Data, take(y, d, only).Data)
			if i > 0 && !same {
				return n, fmt.Errorf("row %d of output %s changes with row 0", i, name)
			}
			changed = changed || i == 0 && !same
		}
	}
	if !changed {
		return n, errors.New("no output changes with row 0")
	}
	return n, nil
}

// replaced returns a tensor whose row 0 holds other elements of the tensor: those of row 1, turned by one.
func replaced(x *tensor.Tensor, d int) *tensor.Tensor {
	n := x.Layout.Shape[d]
	order := backwards(n)
	slices.Reverse(order)
	order[0] = 1
	y := take(x, d, order)
	size, inner := x.DType.Size(), x.DType.Size()
	for _, k := range x.Layout.Shape[d+1:] {
		inner *= k
	}
	for at := 0; at < len(y.Data); at += n * inner {
		row := y.Data[at : at+inner]
		copy(row, slices.Concat(row[size:], row[:size]))
	}
	return y
}

// TestCheckRows gives the check a program that mixes rows, to see it fail.
func TestCheckRows(t *testing.T) {
	ckpt, ref, err := zoo.Load(zooFolder, "extra/views", "aten")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int)
	for _, name := range model.Outputs() {
		out[name] = 0
	}
	_, err = checkRows(t, model, ref.Cases[0], map[string]int{"x": 0}, out)
	if err == nil || err.Error() != "row 1 of output clone changes with row 0" {
		t.Errorf("a program that mixes rows: %v", err)
	}
}
