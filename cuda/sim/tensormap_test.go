//go:build linux && (amd64 || arm64) && !nocuda

package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/sim/ptx"
)

// described is what cuTensorMapEncodeTiled is told of a matrix of 50 × 40 half floats, whose lines are 96 bytes apart.
type described struct {
	kind, rank, interleave, swizzle, promotion, fill uintptr
	address                                          uint64
	dims                                             [5]uint64
	strides                                          [4]uint64
	box, steps                                       [5]uint32
	shift                                            int // of the map from a multiple of 64
}

func halves(address uint64) described {
	return described{
		kind: 6, rank: 2, swizzle: 3, promotion: 2, address: address, dims: [5]uint64{40, 50, 1, 1, 1},
		strides: [4]uint64{96}, box: [5]uint32{64, 32, 1, 1, 1}, steps: [5]uint32{1, 1, 1, 1, 1},
	}
}

// mapOf is the map of what halves returned.
func mapOf(d described, allocation uint64) ptx.TensorMap {
	return ptx.TensorMap{
		Type: 6, Rank: 2, Swizzle: 3, Promotion: 2, Address: d.address, Dims: d.dims, Strides: d.strides,
		Box: [5]uint16{64, 32, 1, 1, 1}, Steps: [5]uint16{1, 1, 1, 1, 1}, Allocation: allocation,
	}
}

// encode asks the driver for a map.
func (g *gpu) encode(d described) ([]byte, int) {
	g.t.Helper()
	handle := must(purego.Dlopen(g.l.Path, purego.RTLD_NOW|purego.RTLD_GLOBAL))(g.t)
	call := must(purego.Dlsym(handle, "cuTensorMapEncodeTiled"))(g.t)
	room := make([]byte, 256)
	at := int(-uintptr(unsafe.Pointer(&room[0]))%64) + d.shift
	code, _, _ := purego.SyscallN(call, uintptr(unsafe.Pointer(&room[at])), d.kind, d.rank, uintptr(d.address),
		uintptr(unsafe.Pointer(&d.dims[0])), uintptr(unsafe.Pointer(&d.strides[0])), uintptr(unsafe.Pointer(&d.box[0])),
		uintptr(unsafe.Pointer(&d.steps[0])), d.interleave, d.swizzle, d.promotion, d.fill)
	return room[at : at+ptx.TensorMapBytes], int(int32(code))
}

// TestTensorMaps: what the driver writes is what the interpreter reads, and what no driver takes is refused.
func TestTensorMaps(t *testing.T) {
	g := newGPU(t, "cc=90")
	p := must(g.lib.Alloc(5000))(t)
	good := halves(uint64(p))
	got, code := g.encode(good)
	want := mapOf(good, binary.LittleEndian.Uint64(got[16:]))
	if all := want.Encode(); code != 0 || !bytes.Equal(got, all[:]) || want.Allocation == 0 {
		t.Fatalf("code %d, %x, want %x", code, got, all)
	}
	for name, change := range map[string]func(d *described){
		"where the map lies":       func(d *described) { d.shift = 32 },
		"type":                     func(d *described) { d.kind = 13 },
		"no dimensions":            func(d *described) { d.rank = 0 },
		"six dimensions":           func(d *described) { d.rank = 6 },
		"address":                  func(d *described) { d.address += 8 },
		"null":                     func(d *described) { d.address = 0 },
		"an empty dimension":       func(d *described) { d.dims[1] = 0 },
		"a large dimension":        func(d *described) { d.dims[0] = 1<<32 + 1 },
		"stride":                   func(d *described) { d.strides[0] = 88 },
		"a large stride":           func(d *described) { d.strides[0] = 1 << 40 },
		"an empty box":             func(d *described) { d.box[1] = 0 },
		"a large box":              func(d *described) { d.box[1] = 257 },
		"wider than the swizzle":   func(d *described) { d.box[0] = 72 },
		"wider than 64":            func(d *described) { d.swizzle = 2 },
		"wider than 32":            func(d *described) { d.swizzle, d.box[0] = 1, 32 },
		"half a piece":             func(d *described) { d.swizzle, d.box[0] = 0, 12 },
		"no step":                  func(d *described) { d.steps[0] = 0 },
		"a large step":             func(d *described) { d.steps[1] = 9 },
		"interleaved":              func(d *described) { d.interleave = 1 },
		"a swizzle":                func(d *described) { d.swizzle = 4 },
		"a promotion":              func(d *described) { d.promotion = 4 },
		"a filling":                func(d *described) { d.fill = 2 },
		"integers filled with NaN": func(d *described) { d.kind, d.fill = 1, 1 },
	} {
		d := good
		change(&d)
		if _, code := g.encode(d); code != 1 {
			t.Errorf("%s: code %d", name, code)
		}
	}
	for name, change := range map[string]func(d *described){
		"whole":      func(d *described) { d.box[1] = 256 },
		"unswizzled": func(d *described) { d.swizzle, d.box[0] = 0, 256 },
		"by 64":      func(d *described) { d.swizzle, d.box[0] = 2, 32 },
		"NaN":        func(d *described) { d.fill = 1 },
		"bytes":      func(d *described) { d.kind, d.box[0] = 0, 16 },
	} {
		d := good
		change(&d)
		if _, code := g.encode(d); code != 0 {
			t.Errorf("%s: code %d", name, code)
		}
	}
	old := newGPU(t, "cc=89")
	if _, code := old.encode(good); code != 801 {
		t.Errorf("on 8.9: code %d", code)
	}
}

// mapKernel is the kernel om_test_map as PTX.
const mapKernel = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry om_test_map(\n\t.param .u64 out,\n" +
	"\t.param .align 64 .b8 map[128]\n)\n{\n\tret;\n}\n"

// TestOnlyHopper: what is for 9.0 alone loads nowhere else.
func TestOnlyHopper(t *testing.T) {
	for cc, want := range map[int]driver.Code{80: 218, 90: 0, 100: 218} {
		g := newGPU(t, fmt.Sprint("cc=", cc))
		_, err := g.lib.LoadModule([]byte(mapKernel))
		var failed *driver.Error
		if errors.As(err, &failed) != (want != 0) || want != 0 && failed.Code != want {
			t.Errorf("%d: %v", cc, err)
		}
		if _, err := g.lib.LoadModule([]byte(strings.Replace(mapKernel, "90a", "80", 1))); err != nil {
			t.Errorf("%d: %v", cc, err)
		}
	}
}

// TestMapsOfGoneMemory: a map of memory that was freed is refused, and is another's where that is at the same place.
func TestMapsOfGoneMemory(t *testing.T) {
	for _, name := range []string{"there", "freed", "another's"} {
		t.Run(name, func(t *testing.T) {
			g := newGPU(t, "cc=90")
			m := must(g.lib.LoadModule([]byte(mapKernel)))(t)
			f := must(g.lib.Function(m, "om_test_map"))(t)
			out, tensor := must(g.lib.Alloc(64))(t), must(g.lib.Alloc(8192))(t)
			bytes, code := g.encode(halves(uint64(tensor)))
			if code != 0 {
				t.Fatal(code)
			}
			switch name {
			case "freed":
				g.check(g.lib.Free(tensor))
			case "another's": // as if others had had the place before
				m := mapOf(halves(uint64(tensor)), binary.LittleEndian.Uint64(bytes[16:])-1)
				all := m.Encode()
				bytes = all[:]
			}
			p := &driver.Parameters{Packed: make([]byte, 192), Offsets: []int32{0, 64}}
			binary.LittleEndian.PutUint64(p.Packed, uint64(out))
			copy(p.Packed[64:], bytes)
			err := g.lib.Launch(f, threads(1, 4), p, g.s)
			if want := name != "there"; (err != nil) != want || want && !strings.Contains(err.Error(), "tensor map of memory that is gone") {
				t.Error(err)
			}
		})
	}
}
