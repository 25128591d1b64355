//go:build !files

package running

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// randomInput is the word that stands for random numbers in a file's place.
const randomInput = "random"

// A RunInputs is what a run is given. Its tensors lie outside the heap until free.
type RunInputs struct {
	Values runtime.Values
	// Shapes are those of all inputs, also where a command makes no random numbers.
	Shapes map[string]tensor.Shape
	// random are the inputs that random numbers are for, and randomBytes what they take; they are made once it is known
	// that a run with them fits.
	random      []randomPort
	randomBytes int64
	// rows names the rows of the input where it is one file, "" else.
	rows    rowNames
	buffers []*hostmem.Buf
}

// A randomPort is an input of random numbers: which of the model's it is, and what it takes.
type randomPort struct {
	models.Port
	index int
	bytes int64
}

// Free gives back the memory of inputs outside the heap.
func (in *RunInputs) Free() {
	for _, b := range in.buffers {
		b.Free()
	}
}

// alloc returns memory for an input.
func (in *RunInputs) alloc(bytes int64) ([]byte, error) {
	b, err := hostmem.Alloc(bytes, hostmem.Staging)
	if err != nil {
		return nil, &device.OutOfMemoryError{Device: "the host", WantBytes: bytes}
	}
	in.buffers = append(in.buffers, b)
	return b.Bytes(), nil
}

// readInputs reads what --input names for the ports of a model, and notes which inputs are random. Inputs that are neither
// are missing, or random where the command takes them to be.
func (r *Run) readInputs(
	ctx context.Context, ckpt *loader.Checkpoint, ports []models.Port, limits loader.Limits,
) (_ *RunInputs, err error) {
	in := &RunInputs{Values: make(runtime.Values)}
	r.ranges = symbolRanges(ckpt)
	defer func() {
		if err != nil {
			in.Free()
		}
	}()
	shapes, err := r.parseShapes(ports)
	if err != nil {
		return nil, err
	}
	var random []models.Port
	rest := r.assume // the inputs that are not given are random
	for _, text := range r.inputs {
		port, file, err := r.parseInput(ports, text)
		switch {
		case err != nil:
			return nil, err
		case file == randomInput && port == nil:
			rest = true
		case file == randomInput:
			random = append(random, *port)
		case IsPicture(file):
			err = r.ReadPictures(ctx, in, ports, port, file)
		default:
			err = r.ReadFile(ctx, in, ports, port, file, limits)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Preprocess != "" && !slices.ContainsFunc(r.inputs, func(text string) bool { return IsPicture(text) }) {
		return nil, r.Usage("", "--preprocess is for pictures, and no input is one")
	}
	var missing []string
	var made []models.Port
	for _, p := range ports {
		named := slices.ContainsFunc(random, func(q models.Port) bool { return q.Name == p.Name })
		_, given := in.Values[p.Name]
		_, shaped := shapes[p.Name]
		switch {
		case given && named:
			return nil, r.Usage("", "input %s is given twice", p.Name)
		case given && shaped:
			return nil, r.Usage("", "--shape %s is for random inputs, and a file is given", p.Name)
		case given:
			shapes[p.Name] = in.Values[p.Name].Layout.Shape
		case p.Number && (named || shaped || rest && !p.Optional):
			if err := r.assumeNumber(in, p, shapes); err != nil {
				return nil, err
			}
		case named || rest && (!p.Optional || shaped):
			made = append(made, p)
		case !p.Optional:
			missing = append(missing, describePort(p))
		}
	}
	if len(missing) > 0 {
		name, _, _ := strings.Cut(missing[0], " ")
		return nil, r.Usage(fmt.Sprintf("give it with --input %s=FILE, or --input random", name),
			"missing input: %s", strings.Join(missing, "; "))
	}
	if err := r.completeShapes(ckpt, ports, made, shapes); err != nil {
		return nil, err
	}
	for _, p := range made {
		bytes, err := r.randomBytes(p, shapes[p.Name])
		if err != nil {
			return nil, err
		}
		index := slices.IndexFunc(ports, func(q models.Port) bool { return q.Name == p.Name })
		in.random = append(in.random, randomPort{p, index, bytes})
		in.randomBytes += min(bytes, math.MaxInt64-in.randomBytes)
	}
	in.Shapes = shapes
	return in, nil
}

func portNamed(ports []models.Port, name string) *models.Port {
	i := slices.IndexFunc(ports, func(p models.Port) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &ports[i]
}

// describePort writes an input as it is wanted: "x float32 [s77 1 8 8]".
func describePort(p models.Port) string { return p.Name + " " + wantedSpec(p) }

// OnlyNeeded returns the one input that must be given, nil where it is not one.
func OnlyNeeded(ports []models.Port) *models.Port {
	var needed *models.Port
	for i := range ports {
		if ports[i].Optional {
			continue
		}
		if needed != nil {
			return nil
		}
		needed = &ports[i]
	}
	return needed
}

func wantedSpec(p models.Port) string {
	if p.DType == tensor.Invalid {
		return "a value that is no tensor"
	}
	if p.Shape == nil {
		return p.DType.String() + " of any shape"
	}
	dims := make([]string, len(p.Shape))
	for i, d := range p.Shape {
		dims[i] = strconv.Itoa(d)
		if d < 0 {
			dims[i] = p.Dims[i]
		}
	}
	return fmt.Sprintf("%v [%s]", p.DType, strings.Join(dims, " "))
}

func describePorts(ports []models.Port) string {
	if len(ports) == 0 {
		return "the model takes no input"
	}
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = describePort(p)
		if p.Optional {
			all[i] += " (optional)"
		}
	}
	return "the model takes: " + strings.Join(all, "; ")
}

// parseInput reads NAME=FILE or FILE. The port is nil where none is named.
func (r *Run) parseInput(ports []models.Port, text string) (*models.Port, string, error) {
	name, file, ok := strings.Cut(text, "=")
	if !ok {
		return nil, text, nil
	}
	if p := portNamed(ports, name); p != nil {
		return p, file, nil
	}
	if _, err := os.Stat(text); err == nil { // a file with an equals sign in its name
		return nil, text, nil
	}
	return nil, "", r.Usage(describePorts(ports), "the model has no input %q", name)
}

// parseShapes reads --shape NAME=2,3 and, where there is one input, --shape 2,3.
func (r *Run) parseShapes(ports []models.Port) (map[string]tensor.Shape, error) {
	shapes := make(map[string]tensor.Shape)
	for _, text := range r.shapes {
		name, dims, named := strings.Cut(text, "=")
		switch {
		case !named && len(ports) == 1:
			name, dims = ports[0].Name, text
		case !named:
			return nil, r.Usage(describePorts(ports), "--shape %s names no input", text)
		case portNamed(ports, name) == nil:
			return nil, r.Usage(describePorts(ports), "the model has no input %q", name)
		}
		if _, twice := shapes[name]; twice {
			return nil, r.Usage("", "--shape gives %s twice", name)
		}
		shape := tensor.Shape{}
		for part := range strings.FieldsFuncSeq(dims, func(c rune) bool { return c == ',' }) {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < 0 {
				return nil, r.Usage("write it as --shape NAME=2,3,224,224", "--shape %s: %q is no size", text, part)
			}
			shape = append(shape, n)
		}
		shapes[name] = shape
	}
	return shapes, nil
}

// Fits compares a tensor with the input that it is for.
func (r *Run) Fits(p models.Port, d tensor.DType, shape tensor.Shape) error {
	ok := p.Shape == nil || len(shape) == len(p.Shape)
	for i := range p.Shape {
		ok = ok && (p.Shape[i] < 0 || p.Shape[i] == shape[i])
	}
	switch {
	case d != p.DType && !(p.Assumed && r.setDType != nil && r.setDType(p.Name, d)):
		return r.Usage(fmt.Sprintf("nothing is converted: in NumPy, x.astype(%q)", p.DType.String()),
			"input %s: %v %v, where %s is wanted", p.Name, d, shape, wantedSpec(p))
	case !ok:
		return r.Usage(r.inspectHint(),
			"input %s: %v %v, where %s is wanted", p.Name, d, shape, wantedSpec(p))
	}
	for i, symbol := range p.Dims {
		limits, known := r.ranges[symbol]
		if !known || r.batched && r.axes[p.Name] == i { // micro-batches are as many as a batch takes
			continue
		}
		if n := int64(shape[i]); n < min(limits[0], 1) || n > limits[1] {
			return r.Usage(r.inspectHint(),
				"input %s: %s is %d; the program was exported for %d to %d", p.Name, symbol, n, limits[0], limits[1])
		}
	}
	return nil
}

// randomBytes returns what an input of random numbers takes.
func (r *Run) randomBytes(p models.Port, shape tensor.Shape) (int64, error) {
	n, err := shape.NumElements()
	if err != nil {
		return 0, r.Usage("", "input %s: %v", p.Name, err)
	}
	bytes, ok := tensor.MulBytes(n, int64(p.DType.Size()))
	if !ok {
		return 0, r.Usage("", "input %s: %v %v takes more than 2^63 bytes", p.Name, p.DType, shape)
	}
	return bytes, nil
}

// makeRandom makes the inputs of seeded random numbers. The i-th input has a stream of its own.
func (r *Run) makeRandom(in *RunInputs) error {
	for _, p := range in.random {
		shape := in.Shapes[p.Name]
		data, err := in.alloc(p.bytes)
		if err != nil {
			return err
		}
		if err := fillRandom(data, p.DType, rand.New(rand.NewPCG(r.Seed, uint64(p.index)))); err != nil {
			return fmt.Errorf("input %s: %w", p.Name, err)
		}
		in.Values[p.Name] = &tensor.Tensor{DType: p.DType, Layout: tensor.Contiguous(shape...), Data: data}
	}
	return nil
}

func fillRandom(data []byte, d tensor.DType, rng *rand.Rand) error {
	uniform := func() float64 { return 2*rng.Float64() - 1 }
	size := d.Size()
	var element func(p []byte)
	switch d {
	case tensor.Float32, tensor.Complex64:
		size = 4
		element = func(p []byte) { _, _ = binary.Encode(p, binary.NativeEndian, float32(uniform())) }
	case tensor.Float64, tensor.Complex128:
		size = 8
		element = func(p []byte) { _, _ = binary.Encode(p, binary.NativeEndian, uniform()) }
	case tensor.Float16:
		element = func(p []byte) { binary.NativeEndian.PutUint16(p, tensor.Float16FromFloat32(float32(uniform()))) }
	case tensor.BFloat16:
		element = func(p []byte) { binary.NativeEndian.PutUint16(p, tensor.BFloat16FromFloat32(float32(uniform()))) }
	case tensor.UInt8:
		element = func(p []byte) { p[0] = byte(rng.Uint32()) }
	case tensor.Bool, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64,
		tensor.UInt16, tensor.UInt32, tensor.UInt64:
		// Zero and one are valid as indices, tokens and masks of almost any model.
		low := 0
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			low = size - 1
		}
		element = func(p []byte) { p[low] = byte(rng.Uint32() & 1) }
	default:
		return fmt.Errorf("%w: random numbers of %v", loader.ErrUnsupported, d)
	}
	for p := range slices.Chunk(data, size) {
		element(p)
	}
	return nil
}

// ReadFile reads an input, or where port is nil the inputs that the file's tensors are named for.
func (r *Run) ReadFile(
	ctx context.Context, in *RunInputs, ports []models.Port, port *models.Port, path string, limits loader.Limits,
) (err error) {
	f, err := r.openArrays(ctx, path, limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	single := len(f.Names) == 1 && (f.Names[0] == "" || len(ports) == 1)
	switch {
	case port == nil && single && len(ports) == 1:
		port = &ports[0]
	case port == nil && single && OnlyNeeded(ports) != nil:
		port = OnlyNeeded(ports)
	case port == nil && single:
		return r.Usage("name it: --input NAME="+path+"; "+describePorts(ports), "%s: which input is it?", path)
	}
	if port != nil {
		name := ""
		switch {
		case len(f.Names) == 1:
			name = f.Names[0]
		case slices.Contains(f.Names, port.Name):
			name = port.Name
		default:
			return r.Usage("it holds: "+listed(f.Names), "%s holds %s and none is called %s",
				path, Counted(len(f.Names), "tensor"), port.Name)
		}
		in.rows = rowNames{file: filepath.Base(path)}
		if len(in.Values) > 0 || len(ports) > 1 {
			in.rows = rowNames{}
		}
		return r.readTensor(ctx, in, f, name, *port)
	}
	for _, name := range f.Names {
		p := portNamed(ports, name)
		if p == nil {
			return r.Usage(describePorts(ports), "%s: the model has no input %q", path, name)
		}
		if err := r.readTensor(ctx, in, f, name, *p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) readTensor(ctx context.Context, in *RunInputs, f *arrays.File, name string, p models.Port) error {
	if _, twice := in.Values[p.Name]; twice {
		return r.Usage("", "input %s is given twice", p.Name)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := f.Read(ctx, name, in.alloc, func(d tensor.DType, s tensor.Shape) error { return r.Fits(p, d, s) })
	if err != nil {
		var placed *command.Failure
		if errors.As(err, &placed) {
			return err
		}
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if in.Values[p.Name] = t; p.Number && r.setNumber != nil {
		r.setNumber(p.Name, t)
	}
	if n := len(t.Layout.Shape); n > 0 {
		in.rows.n = t.Layout.Shape[0]
	}
	return nil
}

// listed writes some names.
func listed(names []string) string {
	const most = 12
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// OpenSized opens a file that a flag names and whose size is known.
func OpenSized(path string) (*os.File, int64, error) { return arrays.OpenFile(path) }

// openArrays opens an input by its name, or by its content where the name says nothing.
func (r *Run) openArrays(ctx context.Context, path string, limits loader.Limits) (*arrays.File, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case ext == ".npy":
		return arrays.OpenNPY(path)
	case ext == ".npz":
		return arrays.OpenNPZ(path)
	}
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{Limits: limits})
	if err != nil {
		return nil, err
	}
	f := &arrays.File{Path: path, Close: ckpt.Close}
	for _, w := range ckpt.Weights {
		f.Names = append(f.Names, w.Name)
	}
	if len(ckpt.Unreadable) > 0 {
		return nil, errors.Join(ckpt.Unreadable[0], ckpt.Close())
	}
	if len(f.Names) == 0 {
		return nil, errors.Join(r.Usage("", "%s holds no tensor", path), ckpt.Close())
	}
	f.Read = func(ctx context.Context, name string, _ arrays.Allocator, check arrays.Check) (*tensor.Tensor, error) {
		w, _ := ckpt.Weight(name)
		if err := check(w.DType, w.Layout.Shape); err != nil {
			return nil, err
		}
		return w.Contents(ctx)
	}
	return f, nil
}
