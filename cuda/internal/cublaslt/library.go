//go:build linux && (amd64 || arm64) && !nocuda

package cublaslt

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// names are those of the calls; the fields of calls are in their order.
var names = []string{
	"cublasLtCreate", "cublasLtDestroy", "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy",
	"cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy",
	"cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy",
	"cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulAlgoCheck", "cublasLtMatmul",
}

// The calls.
const (
	create = iota
	destroy
	descCreate
	descDestroy
	descSet
	layoutCreate
	layoutDestroy
	layoutSet
	preferenceCreate
	preferenceDestroy
	preferenceSet
	heuristic
	check
	matmul
)

// Attributes of descriptions, of layouts and of preferences.
const (
	descTransA      = 3
	descTransB      = 4
	descEpilogue    = 7
	descBias        = 8
	layoutBatch     = 5
	layoutStep      = 6
	preferenceWork  = 1
	preferenceParts = 3
	preferenceAlign = 5 // of A; B, C and D follow
)

// Endings of products, to be added, and the one without any.
const (
	endingNone = 1
	endingClip = 2
	endingBias = 4
)

// partsInWork has sums of parts lie in memory besides, and be added in an order that does not change. Others may add them
// as they come.
const partsInWork = 2

// A Library is opened.
type Library struct {
	calls [matmul + 1]uintptr
}

// Open opens the library at a path, or for "auto" the first one found: in Python environments, where the loader finds it, and in
// toolkits, which env, the environment, names. driver is the release of CUDA that the driver is of, which does not take libraries that are
// too new.
func Open(path string, driver int, env func(string) string) (*Library, error) {
	tried := []string{path}
	if path == "auto" {
		tried = host{env: env}.places(driver)
	}
	first := errors.New("the driver takes none")
	for i, p := range tried {
		l, err := openAt(p)
		if err == nil {
			return l, nil
		}
		if i == 0 {
			first = err
		}
	}
	return nil, first
}

// openAt opens the library at a path.
func openAt(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	l := &Library{}
	for i, name := range names {
		if l.calls[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%s is not cuBLASLt: it lacks %s", path, name)
		}
	}
	return l, nil
}

// call calls the library. Pointers to Go memory must be converted in the list of arguments, where they are kept alive and
// in place.
//
//go:uintptrescapes
func (l *Library) call(f int, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.calls[f], args...)
	if int32(r) != 0 {
		return &Error{names[f], int32(r)}
	}
	return nil
}

// A Handle is the library on one GPU, with the ways that were found to compute products.
type Handle struct {
	l      *Library
	handle uintptr

	mu   sync.Mutex
	ways map[Product]*way
}

// mostWays bounds those that a handle keeps.
const mostWays = 4096

// A way is how a product is computed.
type way struct {
	desc, a, b, c, d uintptr
	algo             [8]uint64
	work             uint64
	// err says that there is none.
	err error
}

// New returns the library on the GPU of the context. The caller closes it.
func (l *Library) New() (*Handle, error) {
	h := &Handle{l: l, ways: make(map[Product]*way)}
	if err := l.call(create, uintptr(unsafe.Pointer(&h.handle))); err != nil {
		return nil, err
	}
	return h, nil
}

// Close gives all back. Nothing may be under way.
func (h *Handle) Close() error {
	var errs []error
	for _, w := range h.ways {
		errs = append(errs, h.drop(w))
	}
	h.ways = nil
	return errors.Join(append(errs, h.l.call(destroy, h.handle))...)
}

func (h *Handle) drop(w *way) error {
	var errs []error
	for _, o := range []struct {
		call int
		at   uintptr
	}{{descDestroy, w.desc}, {layoutDestroy, w.a}, {layoutDestroy, w.b}, {layoutDestroy, w.c}, {layoutDestroy, w.d}} {
		if o.at != 0 {
			errs = append(errs, h.l.call(o.call, o.at))
		}
	}
	return errors.Join(errs...)
}

// Product gives a product to a stream of the driver. The way to compute it is looked for once, and depends on nothing but
// the product; where there is none the error is a *NoWayError, each time.
func (h *Handle) Product(p *Product, at *Places, stream uintptr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, err := h.way(p, at)
	if err != nil {
		return err
	}
	if p.Bias {
		if err := set(h.l, descSet, w.desc, descBias, &at.Bias); err != nil {
			return err
		}
	}
	c := at.D
	if p.AddsC {
		c = at.C
	}
	numbers := &[2]float32{at.Alpha, 0}
	if p.AddsC {
		numbers[1] = at.Beta
	}
	err = h.l.call(matmul, h.handle, w.desc, uintptr(unsafe.Pointer(&numbers[0])), uintptr(at.A), w.a,
		uintptr(at.B), w.b,
		uintptr(unsafe.Pointer(&numbers[1])), uintptr(c), w.c, uintptr(at.D), w.d, uintptr(unsafe.Pointer(&w.algo[0])),
		uintptr(at.Work), uintptr(w.work), stream)
	goruntime.KeepAlive(numbers)
	return err
}

// set sets an attribute.
func set[T int32 | uint32 | int64 | uint64](l *Library, call int, object uintptr, attribute int, to *T) error {
	return l.call(call, object, uintptr(attribute), uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to))
}

// A result is a cublasLtMatmulHeuristicResult_t.
type result struct {
	algo     [8]uint64
	work     uint64
	state    int32
	waves    float32
	reserved [4]int32
}

// way returns the way to compute a product, which is looked for where it is not known. The handle is locked.
func (h *Handle) way(p *Product, at *Places) (*way, error) {
	w, known := h.ways[*p]
	if known {
		return w, w.err
	}
	w, err := h.find(p, at)
	if err != nil {
		w = &way{err: &NoWayError{err}}
	}
	if len(h.ways) >= mostWays {
		for other, old := range h.ways { // any: a model has few shapes
			delete(h.ways, other)
			if err := h.drop(old); err != nil {
				return w, err
			}
			break
		}
	}
	h.ways[*p] = w
	return w, w.err
}

// find describes a product to the library, and asks it for a way.
func (h *Handle) find(p *Product, at *Places) (_ *way, err error) {
	w := &way{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.drop(w))
		}
	}()
	if err := h.describe(p, at, w); err != nil {
		return nil, err
	}
	r := &result{}
	if p.Whole > p.D.Rows {
		err = h.takeWhole(p, at, w, r)
	} else {
		err = h.ask(p, w, r)
	}
	if err != nil {
		return nil, err
	}
	if r.state != 0 || r.work > uint64(p.MostWork) {
		return nil, &Error{names[heuristic], notSupported}
	}
	w.algo, w.work = r.algo, r.work
	return w, nil
}

// notSupported is the status of what there is no way for.
const notSupported = 15

// ask asks the library for the way that it thinks the best.
func (h *Handle) ask(p *Product, w *way, r *result) (err error) {
	var preference uintptr
	if err := h.l.call(preferenceCreate, uintptr(unsafe.Pointer(&preference))); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.l.call(preferenceDestroy, preference)) }()
	parts, most := uint32(partsInWork), uint64(p.MostWork)
	errs := []error{
		set(h.l, preferenceSet, preference, preferenceWork, &most),
		set(h.l, preferenceSet, preference, preferenceParts, &parts),
	}
	for i := range 4 {
		errs = append(errs, set(h.l, preferenceSet, preference, preferenceAlign+i, &p.AlignTo))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var found int32
	if err := h.l.call(heuristic, h.handle, w.desc, w.a, w.b, w.c, w.d, preference, 1, uintptr(unsafe.Pointer(r)),
		uintptr(unsafe.Pointer(&found))); err != nil {
		return err
	}
	if found == 0 {
		return &Error{names[heuristic], notSupported}
	}
	return nil
}

// takeWhole takes the way of the product that p is a part of, if the library takes that for p.
func (h *Handle) takeWhole(p *Product, at *Places, w *way, r *result) error {
	whole := p.whole()
	of, err := h.way(&whole, at)
	if err != nil {
		return err
	}
	algo := of.algo
	if err := h.l.call(check, h.handle, w.desc, w.a, w.b, w.c, w.d, uintptr(unsafe.Pointer(&algo[0])),
		uintptr(unsafe.Pointer(r))); err != nil {
		return err
	}
	r.algo = algo
	return nil
}

// describe makes the description and the layouts of a product.
func (h *Handle) describe(p *Product, at *Places, w *way) error {
	if err := h.l.call(descCreate, uintptr(unsafe.Pointer(&w.desc)), uintptr(p.Sum), uintptr(Float32)); err != nil {
		return err
	}
	ending := uint32(0)
	if p.Bias {
		ending |= endingBias
	}
	if p.Clip {
		ending |= endingClip
	}
	if ending == 0 {
		ending = endingNone
	}
	errs := []error{set(h.l, descSet, w.desc, descEpilogue, &ending)}
	if p.Bias { // the way depends on how it is aligned
		errs = append(errs, set(h.l, descSet, w.desc, descBias, &at.Bias))
	}
	added := &p.D
	if p.AddsC {
		added = &p.C
	}
	for _, m := range []struct {
		lies      *Matrix
		layout    *uintptr
		attribute int
	}{{&p.A, &w.a, descTransA}, {&p.B, &w.b, descTransB}, {added, &w.c, 0}, {&p.D, &w.d, 0}} {
		if m.attribute != 0 && m.lies.Transposed {
			transposed := int32(1)
			errs = append(errs, set(h.l, descSet, w.desc, m.attribute, &transposed))
		}
		if err := h.l.call(layoutCreate, uintptr(unsafe.Pointer(m.layout)), uintptr(p.Type), uintptr(m.lies.Rows),
			uintptr(m.lies.Columns), uintptr(m.lies.Pitch)); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(
			errs, set(h.l, layoutSet, *m.layout, layoutBatch, &p.Batch),
			set(h.l, layoutSet, *m.layout, layoutStep, &m.lies.Step),
		)
	}
	return errors.Join(errs...)
}

// whole is the product that p is a part of.
func (p *Product) whole() Product {
	w := *p
	w.D.Rows, w.D.Pitch, w.D.Step = p.Whole, p.Whole, p.Whole*p.D.Columns
	if p.AddsC {
		w.C.Rows = p.Whole
	}
	if w.A.Transposed {
		w.A.Columns = p.Whole
	} else {
		w.A.Rows, w.A.Pitch = p.Whole, max(p.A.Pitch, p.Whole)
	}
	return w
}
