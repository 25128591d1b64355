// Package devicetest is the compliance suite of devices, as a library: calls of PyTorch's ops with PyTorch's results,
// recorded by the scripts in testdata. Every device, and every variant of a kernel, runs all of it.
//
// It compares results and does not know how a device computes. Package models turns a call into ops.
//
//	devicetest.Run(t, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
//		return cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
//	})
package devicetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// recorded is where the calls lie, from the root of the module.
const recorded = "device/devicetest/testdata"

// files opens the recorded calls. They are found from the directory that a test runs in, somewhere below the root: a module of
// their own, so that who builds the program does not download them.
var files = sync.OnceValues(func() (fs.FS, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		folder := filepath.Join(dir, filepath.FromSlash(recorded))
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return os.DirFS(folder), nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return nil, fmt.Errorf("no %s here or above: the recorded calls are in the repository alone", recorded)
		}
		dir = above
	}
})

// A Case is one recorded call.
type Case struct {
	// Name is "family/target/number".
	Name   string
	Target string
	Note   string
	// Bound is the error allowed, as a part of the largest magnitude of a result; 0 means exact.
	Bound   float64
	Args    map[string]any
	Inputs  map[string]*tensor.Tensor
	Outputs []*tensor.Tensor
}

// A Runner computes a graph on the device under test.
type Runner func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error)

// Run runs every case.
func Run(t *testing.T, run Runner) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
			if err != nil {
				t.Fatalf("%s%v: %v", c.Target, c.Args, err)
			}
			out, err := run(g, c.Inputs)
			if err != nil {
				t.Fatalf("%s%v: %v", c.Target, c.Args, err)
			}
			if len(out) != len(c.Outputs) {
				t.Fatalf("%s: %d results, PyTorch gave %d", c.Target, len(out), len(c.Outputs))
			}
			for i, want := range c.Outputs {
				if err := Compare(out[strconv.Itoa(i)], want, c.Bound); err != nil {
					t.Errorf("%s%v: result %d: %v", c.Target, c.Args, i, err)
				}
			}
		})
	}
}

// Cases returns the recorded calls of all families.
func Cases() ([]Case, error) {
	fsys, err := files()
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(fsys, "*.zst")
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, name := range names {
		family := strings.TrimSuffix(path.Base(name), ".zst")
		cases, err := read(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range cases {
			cases[i].Name = fmt.Sprintf("%s/%s/%d", family, strings.TrimPrefix(cases[i].Target, "torch.ops.aten."), i)
		}
		all = append(all, cases...)
	}
	return all, nil
}

type fileTensor struct {
	Tensor  int
	DType   string
	Shape   []int
	Strides []int
	Offset  int
}

// A fileMemory is what an argument or a result holds: so many bytes, which lie behind all calls.
type fileMemory struct {
	DType string
	Shape []int // of a result
	Data  int
}

type fileArg struct {
	Tensor *int
	fileTensorRest
	Tensors []*fileTensor
	List    []fileArg
	Bool    *bool
	Int     *int
	Float   *string
	Complex *[2]float64
	Str     *string
}

type fileTensorRest struct {
	DType   string
	Shape   []int
	Strides []int
	Offset  int
}

type fileCase struct {
	Target  string
	Args    map[string]fileArg
	Inputs  []fileMemory
	Outputs []fileMemory
	Bound   float64
	Note    string
}

// read reads a family's file: a list of calls, and behind it the bytes of tensors. testdata/calls.py writes it.
func read(fsys fs.FS, name string) ([]Case, error) {
	packed, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	end := []byte("\n]\n")
	n := bytes.Index(all, end) + len(end)
	var list []fileCase
	if err := json.Unmarshal(all[:n], &list); err != nil {
		return nil, err
	}
	memory := behind(all[n:], list)
	cases := make([]Case, len(list))
	for i, f := range list {
		c := Case{
			Target: f.Target, Note: f.Note, Bound: f.Bound,
			Args: make(map[string]any), Inputs: make(map[string]*tensor.Tensor),
		}
		for k, in := range f.Inputs {
			d, data, err := memory(in)
			if err != nil {
				return nil, err
			}
			c.Inputs[strconv.Itoa(k)] = &tensor.Tensor{DType: d,
				Layout: tensor.Contiguous(len(data) / d.Size()), Data: data}
		}
		for arg, v := range f.Args {
			if c.Args[arg], err = v.value(c.Inputs); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", f.Target, arg, err)
			}
		}
		for _, o := range f.Outputs {
			d, data, err := memory(o)
			if err != nil {
				return nil, err
			}
			c.Outputs = append(c.Outputs, &tensor.Tensor{DType: d, Layout: tensor.Contiguous(o.Shape...), Data: data})
		}
		cases[i] = c
	}
	return cases, nil
}

// behind returns a function that gives each memory of the calls, in their order, its bytes. Those of elements of one byte
// lie first, then those of two, four, and eight and more.
func behind(all []byte, calls []fileCase) func(fileMemory) (tensor.DType, []byte, error) {
	group := func(d tensor.DType) int { return min(d.Size(), 8) }
	var begins [9]int
	for _, c := range calls {
		for _, m := range slices.Concat(c.Inputs, c.Outputs) {
			if d, ok := tensor.ParseDType(m.DType); ok {
				for larger := group(d) + 1; larger < len(begins); larger++ {
					begins[larger] += m.Data
				}
			}
		}
	}
	return func(m fileMemory) (tensor.DType, []byte, error) {
		d, ok := tensor.ParseDType(m.DType)
		if !ok {
			return d, nil, fmt.Errorf("dtype %q", m.DType)
		}
		begin := begins[group(d)]
		begins[group(d)] += m.Data
		return d, bytes.Clone(all[begin:begins[group(d)]]), nil
	}
}

// value returns an argument as aten.BuildCall takes it.
func (a fileArg) value(inputs map[string]*tensor.Tensor) (any, error) {
	given := func(index int, dtype string, shape, strides []int, offset int) (aten.Given, error) {
		d, ok := tensor.ParseDType(dtype)
		if !ok {
			return aten.Given{}, fmt.Errorf("dtype %q", dtype)
		}
		name := strconv.Itoa(index)
		n, _ := inputs[name].Layout.NumElements()
		return aten.Given{
			Name: name, DType: d, Elements: int(n),
			Layout: tensor.Layout{Shape: append(tensor.Shape{}, shape...), Strides: append([]int{}, strides...),
				Offset: offset},
		}, nil
	}
	switch {
	case a.Tensor != nil:
		return given(*a.Tensor, a.DType, a.Shape, a.Strides, a.Offset)
	case a.Tensors != nil:
		list := make([]aten.Given, len(a.Tensors))
		for i, t := range a.Tensors {
			if t == nil {
				continue
			}
			var err error
			if list[i], err = given(t.Tensor, t.DType, t.Shape, t.Strides, t.Offset); err != nil {
				return nil, err
			}
		}
		return list, nil
	case a.Bool != nil:
		return *a.Bool, nil
	case a.Int != nil:
		return *a.Int, nil
	case a.Float != nil:
		return strconv.ParseFloat(*a.Float, 64)
	case a.Complex != nil:
		return complex(a.Complex[0], a.Complex[1]), nil
	case a.Str != nil:
		return *a.Str, nil
	case a.DType != "":
		d, ok := tensor.ParseDType(a.DType)
		if !ok {
			return nil, fmt.Errorf("dtype %q", a.DType)
		}
		return d, nil
	}
	return listValue(a.List)
}

func listValue(list []fileArg) (any, error) {
	ints, floats, bools := []int{}, []float64{}, []bool{}
	for _, e := range list {
		switch {
		case e.Bool != nil:
			bools = append(bools, *e.Bool)
		case e.Int != nil:
			ints = append(ints, *e.Int)
		case e.Float != nil:
			x, err := strconv.ParseFloat(*e.Float, 64)
			if err != nil {
				return nil, err
			}
			floats = append(floats, x)
		}
	}
	switch len(list) {
	case len(ints):
		return ints, nil
	case len(floats):
		return floats, nil
	case len(bools):
		return bools, nil
	}
	return nil, fmt.Errorf("a list of several types")
}

// Compare returns an error that says where got differs from want by more than bound × the largest magnitude in want.
// Bound 0, and every dtype that is not a float, means the same bits but for the sign of NaN.
func Compare(got, want *tensor.Tensor, bound float64) error {
	if got == nil {
		return fmt.Errorf("no result")
	}
	if got.DType != want.DType || !got.Layout.Shape.Equal(want.Layout.Shape) {
		return fmt.Errorf("%v %v, PyTorch gave %v %v", got.DType, got.Layout.Shape, want.DType, want.Layout.Shape)
	}
	a, b := Floats(got), Floats(want)
	if a == nil {
		if !bytes.Equal(got.Data, want.Data) {
			at := slices.IndexFunc(want.Data, func(byte) bool { return true })
			for i := range want.Data {
				if got.Data[i] != want.Data[i] {
					at = i / want.DType.Size()
					break
				}
			}
			return fmt.Errorf("element %d differs: % x, PyTorch gave % x", at, element(got, at), element(want, at))
		}
		return nil
	}
	largest := 1e-30
	for _, x := range b {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i := range b {
		switch {
		case math.IsNaN(a[i]) && math.IsNaN(b[i]), a[i] == b[i]:
		case math.IsNaN(a[i]) || math.IsNaN(b[i]) || math.IsInf(a[i], 0) || math.IsInf(b[i], 0),
			math.Abs(a[i]-b[i]) > bound*largest:
			return fmt.Errorf("element %d is %v, PyTorch gave %v (off by %.3g of the largest, %.3g allowed)",
				i, a[i], b[i], math.Abs(a[i]-b[i])/largest, bound)
		}
	}
	return nil
}

func element(t *tensor.Tensor, i int) []byte {
	size := t.DType.Size()
	return t.Data[i*size : (i+1)*size]
}

// Floats returns the elements of a contiguous tensor of a float or complex dtype as float64 (real and imaginary parts
// in turn), nil for other dtypes.
func Floats(t *tensor.Tensor) []float64 {
	le := func(i, size int) uint64 {
		var bits uint64
		for k := range size {
			bits |= uint64(t.Data[i*size+k]) << (8 * k)
		}
		return bits
	}
	var out []float64
	switch t.DType {
	case tensor.Float32, tensor.Complex64:
		out = make([]float64, len(t.Data)/4)
		for i := range out {
			out[i] = float64(math.Float32frombits(uint32(le(i, 4))))
		}
	case tensor.Float64, tensor.Complex128:
		out = make([]float64, len(t.Data)/8)
		for i := range out {
			out[i] = math.Float64frombits(le(i, 8))
		}
	case tensor.Float16:
		out = make([]float64, len(t.Data)/2)
		for i := range out {
			out[i] = float64(tensor.Float16ToFloat32(uint16(le(i, 2))))
		}
	case tensor.BFloat16:
		out = make([]float64, len(t.Data)/2)
		for i := range out {
			out[i] = float64(tensor.BFloat16ToFloat32(uint16(le(i, 2))))
		}
	default:
		return nil
	}
	return out
}
