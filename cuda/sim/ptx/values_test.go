package ptx_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/tensor"
)

const head = ".version 7.8\n.target sm_80\n.address_size 64\n"

// at is where the kernels of these tests find their memory.
const at = 1 << 40

// kernelOf returns the kernel k of a text.
func kernelOf(t testing.TB, text string) *ptx.Kernel {
	t.Helper()
	m, err := ptx.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("k")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// launch runs the kernel k of a text over memory.
func launch(t testing.TB, text string, l ptx.Launch, data []byte) error {
	t.Helper()
	k := kernelOf(t, text)
	l.Parameters = binary.LittleEndian.AppendUint64(nil, at)
	l.Memory = []ptx.Region{{Address: at, Data: data, Writes: true}}
	for d := range 3 {
		l.Grid[d], l.Block[d] = max(l.Grid[d], 1), max(l.Block[d], 1)
	}
	return k.Run(t.Context(), l)
}

// one computes instructions of one thread: their operands are %x1, %x2 and %x3, and the low bits of those as %r1 …, %h1 …,
// %f1 … and %d1 …; %x4 is the result.
func one(t testing.TB, body string, in ...uint64) uint64 {
	t.Helper()
	data := make([]byte, 32)
	for i, x := range in {
		binary.LittleEndian.PutUint64(data[8*i:], x)
	}
	text := head + `.visible .entry k(.param .u64 p) {
		.reg .pred %p<4>; .reg .b16 %h<5>; .reg .b32 %r<5>; .reg .b64 %x<5>; .reg .f32 %f<5>; .reg .f64 %d<5>;
		ld.param.u64 %x0, [p];
		ld.global.u64 %x1, [%x0]; ld.global.u64 %x2, [%x0+8]; ld.global.u64 %x3, [%x0+16]; mov.u64 %x4, 0;`
	for i := 1; i < 4; i++ {
		text += strings.ReplaceAll("cvt.u32.u64 %rN, %xN; cvt.u16.u64 %hN, %xN; mov.b32 %fN, %rN; mov.b64 %dN, %xN;\n", "N", fmt.Sprint(i))
	}
	text += body + ";\nst.global.u64 [%x0+24], %x4;\nret;\n}\n"
	if err := launch(t, text, ptx.Launch{}, data); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return binary.LittleEndian.Uint64(data[24:])
}

// results of 32 and 16 bits and predicates as %x4.
const (
	from32  = "; cvt.u64.u32 %x4, %r4"
	from16  = "; cvt.u64.u16 %x4, %h4"
	fromF   = "; mov.b32 %r4, %f4" + from32
	fromD   = "; mov.b64 %x4, %d4"
	fromP   = "; selp.u64 %x4, 1, 0, %p1"
	negZero = 1 << 31
)

func f32(x float32) uint64 { return uint64(math.Float32bits(x)) }
func f64(x float64) uint64 { return math.Float64bits(x) }

// TestInstructions computes what is exact.
func TestInstructions(t *testing.T) {
	minus := func(x int64) uint64 { return uint64(-x) }
	low := func(x int64) uint64 { return uint64(uint32(-x)) }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		body string
		in   []uint64
		want uint64
	}{
		{"add.s32 %r4, %r1, %r2" + from32, []uint64{1 << 31, 1 << 31}, 0},
		{"sub.s64 %x4, %x1, %x2", []uint64{3, 5}, minus(2)},
		{"mul.lo.s32 %r4, %r1, %r2" + from32, []uint64{low(7), 6}, low(42)},
		{"mul.wide.s32 %x4, %r1, %r2", []uint64{low(7), 6}, minus(42)},
		{"mul.wide.u32 %x4, %r1, %r2", []uint64{1<<32 - 1, 1<<32 - 1}, (1<<32 - 1) * (1<<32 - 1)},
		{"mul.hi.s64 %x4, %x1, %x2", []uint64{minus(1), 5}, minus(1)},
		{"mul.hi.u32 %r4, %r1, %r2" + from32, []uint64{1 << 31, 6}, 3},
		{"mad.lo.s32 %r4, %r1, %r2, %r3" + from32, []uint64{5, 6, low(1)}, 29},
		{"mad.wide.u32 %x4, %r1, %r2, %x3", []uint64{1 << 31, 4, 9}, 1<<33 + 9},
		{"div.s64 %x4, %x1, %x2", []uint64{minus(7), 2}, minus(3)},
		{"rem.s64 %x4, %x1, %x2", []uint64{minus(7), 2}, minus(1)},
		{"div.s64 %x4, %x1, %x2", []uint64{1 << 63, minus(1)}, 1 << 63},
		{"div.u32 %r4, %r1, %r2" + from32, []uint64{low(2), 2}, 1<<31 - 1},
		{"div.u32 %r4, %r1, %r2" + from32, []uint64{7, 0}, 1<<32 - 1},
		{"shl.b32 %r4, %r1, %r2" + from32, []uint64{1, 32}, 0},
		{"shr.s32 %r4, %r1, %r2" + from32, []uint64{low(8), 1}, low(4)},
		{"shr.s64 %x4, %x1, 63", []uint64{minus(8)}, minus(1)},
		{"shr.u16 %h4, %h1, 7" + from16, []uint64{0x8000}, 0x100},
		{"min.s32 %r4, %r1, %r2" + from32, []uint64{low(1), 1}, low(1)},
		{"max.u64 %x4, %x1, %x2", []uint64{minus(1), 1}, minus(1)},
		{"add.cc.u32 %r4, %r1, %r2; addc.u32 %r4, 0, 0" + from32, []uint64{1 << 31, 1 << 31}, 1},
		{"sub.cc.u32 %r4, %r1, %r2; subc.u32 %r4, 5, 0" + from32, []uint64{1, 2}, 4},
		{"add.cc.u64 %x4, %x1, %x2; addc.u64 %x4, 7, 0", []uint64{1 << 63, 1 << 63}, 8},
		{"mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 0" + from32, []uint64{1 << 31, 3, 1 << 31}, 2},
		{"clz.b64 %r4, %x1" + from32, []uint64{1 << 40}, 23},
		{"clz.b32 %r4, %r1" + from32, []uint64{0}, 32},
		{"popc.b32 %r4, %r1" + from32, []uint64{0xf0f}, 8},
		{"brev.b32 %r4, %r1" + from32, []uint64{1}, 1 << 31},
		{"bfi.b64 %x4, %x1, %x2, 8, 4", []uint64{0xff, 0}, 0xf00},
		{"bfe.s32 %r4, %r1, 4, 4" + from32, []uint64{0x80}, low(8)},
		{"bfe.u32 %r4, %r1, 4, 4" + from32, []uint64{0x180}, 8},
		{"prmt.b32 %r4, %r1, %r2, 30212" + from32, []uint64{0x33221100, 0x77665544}, 0x77660044},
		{"prmt.b32 %r4, %r1, %r2, 8" + from32, []uint64{0x80, 0}, 0x808080ff},
		{"shf.l.wrap.b32 %r4, %r1, %r2, 8" + from32, []uint64{0xab000000, 0x1}, 0x1ab},
		{"lop3.b32 %r4, %r1, %r2, %r3, 0x96" + from32, []uint64{12, 10, 6}, 12 ^ 10 ^ 6},
		{"dp4a.s32.s32 %r4, %r1, %r2, %r3" + from32, []uint64{0xff010203, 0x01020304, 100}, 100 - 1 + 2 + 6 + 12},
		{"abs.s64 %x4, %x1", []uint64{minus(9)}, 9},
		{"neg.s32 %r4, %r1" + from32, []uint64{9}, low(9)},
		{"not.b32 %r4, %r1" + from32, []uint64{0}, 1<<32 - 1},
		{"mov.b64 {%r4, _}, %x1" + from32, []uint64{7<<32 | 5}, 5},
		{"mov.b64 %x4, {%r1, %r2}", []uint64{5, 7}, 7<<32 | 5},
		{"{ .reg .b32 %r4; mov.u32 %r4, 3; } mov.u32 %r4, 4" + from32, nil, 4},

		{"cvt.s64.s8 %x4, %h1", []uint64{0x1ff}, minus(1)},
		{"cvt.u64.u16 %x4, %h1", []uint64{0xffff}, 0xffff},
		{"cvt.s64.s32 %x4, %r1", []uint64{low(3)}, minus(3)},
		{"cvt.rn.f32.s64 %f4, %x1" + fromF, []uint64{1<<24 + 1}, f32(1 << 24)},
		{"cvt.rn.f64.u64 %d4, %x1" + fromD, []uint64{math.MaxUint64}, f64(1 << 64)},
		{"cvt.rzi.s64.f32 %x4, %f1", []uint64{f32(-2.9)}, minus(2)},
		{"cvt.rzi.s32.f32 %r4, %f1" + from32, []uint64{f32(nan)}, 0},
		{"cvt.rzi.s32.f32 %r4, %f1" + from32, []uint64{f32(inf)}, 1<<31 - 1},
		{"cvt.rzi.u32.f32 %r4, %f1" + from32, []uint64{f32(-1)}, 0},
		{"cvt.rzi.s64.f64 %x4, %d1", []uint64{f64(1e30)}, math.MaxInt64},
		{"cvt.rni.s32.f64 %r4, %d1" + from32, []uint64{f64(2.5)}, 2},
		{"cvt.rni.f32.f32 %f4, %f1" + fromF, []uint64{f32(3.5)}, f32(4)},
		{"cvt.rmi.f64.f64 %d4, %d1" + fromD, []uint64{f64(-0.5)}, f64(-1)},
		{"cvt.rpi.f32.f32 %f4, %f1" + fromF, []uint64{f32(-0.5)}, negZero},
		{"cvt.rn.f32.f64 %f4, %d1" + fromF, []uint64{f64(1 + 1.0/(1<<25))}, f32(1)},
		{"cvt.sat.f32.f32 %f4, %f1" + fromF, []uint64{f32(nan)}, 0},
		{"cvt.sat.f32.f32 %f4, %f1" + fromF, []uint64{f32(7)}, f32(1)},
		{"cvt.rna.tf32.f32 %r4, %f1" + from32, []uint64{0x3f801000}, 0x3f802000},
		{"cvt.rn.bf16x2.f32 %r4, %f1, %f2" + from32, []uint64{f32(1), f32(-2)}, 0x3f80c000},
		{"cvt.rn.f16x2.f32 %r4, %f1, %f2" + from32, []uint64{f32(1), f32(-2)}, 0x3c00c000},

		{"max.f32 %f4, %f1, %f2" + fromF, []uint64{f32(nan), f32(2)}, f32(2)},
		{"max.f32 %f4, %f1, %f2" + fromF, []uint64{negZero, 0}, 0},
		{"min.f32 %f4, %f1, %f2" + fromF, []uint64{0, negZero}, negZero},
		{"add.f32 %f4, %f1, %f2" + fromF, []uint64{f32(inf), f32(-inf)}, 0x7fffffff},
		{"add.rz.f32 %f4, %f1, %f2" + fromF, []uint64{f32(1 << 24), f32(1.5)}, f32(1<<24 + 0)},
		{"add.ftz.f32 %f4, %f1, %f2" + fromF, []uint64{1, f32(2)}, f32(2)},
		{"mul.ftz.f32 %f4, %f1, %f2" + fromF, []uint64{0x00800000, f32(0.5)}, 0},
		{"mul.rz.f32 %f4, %f1, %f2" + fromF, []uint64{f32(1 + 1.0/(1<<23)), f32(1.5)}, f32(1.5 + 1.0/(1<<23))},
		{"fma.rn.f32 %f4, %f1, %f2, %f3" + fromF, []uint64{f32(3), f32(5), f32(-15)}, 0},
		{"fma.rm.f32 %f4, %f1, %f2, %f3" + fromF, []uint64{f32(3), f32(5), f32(-15)}, negZero},
		{"fma.rn.f64 %d4, %d1, %d2, %d3" + fromD, []uint64{f64(1 + 1.0/(1<<30)), f64(1 - 1.0/(1<<30)), f64(-1)}, f64(-1.0 / (1 << 60))},
		{"div.rn.f32 %f4, %f1, %f2" + fromF, []uint64{f32(1), f32(3)}, f32(1 / float32(3))},
		{"sqrt.rn.f32 %f4, %f1" + fromF, []uint64{f32(2)}, f32(float32(math.Sqrt2))},
		{"rcp.rn.f64 %d4, %d1" + fromD, []uint64{f64(3)}, f64(1.0 / 3)},
		{"rcp.approx.ftz.f64 %d4, %d1" + fromD, []uint64{f64(3)}, f64(1.0/3) &^ (1<<32 - 1)},
		{"rcp.approx.ftz.f64 %d4, %d1" + fromD, []uint64{1}, f64(math.Inf(1))},
		{"ex2.approx.ftz.f32 %f4, %f1" + fromF, []uint64{f32(-130)}, 0},
		{"ex2.approx.f32 %f4, %f1" + fromF, []uint64{f32(-130)}, 1 << 19},
		{"lg2.approx.f32 %f4, %f1" + fromF, []uint64{0}, f32(-inf)},
		{"abs.f32 %f4, %f1" + fromF, []uint64{negZero}, 0},
		{"neg.f64 %d4, %d1" + fromD, []uint64{0}, 1 << 63},

		{"setp.lt.s32 %p1, %r1, %r2" + fromP, []uint64{low(1), 0}, 1},
		{"setp.lt.u32 %p1, %r1, %r2" + fromP, []uint64{low(1), 0}, 0},
		{"setp.ge.s16 %p1, %h1, %h2" + fromP, []uint64{0xffff, 0}, 0},
		{"setp.lt.f32 %p1, %f1, %f2" + fromP, []uint64{f32(nan), 0}, 0},
		{"setp.ltu.f32 %p1, %f1, %f2" + fromP, []uint64{f32(nan), 0}, 1},
		{"setp.neu.f64 %p1, %d1, %d2" + fromP, []uint64{f64(math.NaN()), 0}, 1},
		{"setp.ne.f64 %p1, %d1, %d2" + fromP, []uint64{f64(math.NaN()), 0}, 0},
		{"setp.nan.f32 %p1, %f1, %f1" + fromP, []uint64{f32(nan)}, 1},
		{"setp.num.f32 %p1, %f1, %f1" + fromP, []uint64{f32(nan)}, 0},
		{"setp.eq.f32 %p1, %f1, %f2" + fromP, []uint64{negZero, 0}, 1},
		{"setp.eq.s32 %p2, %r1, 1; setp.gt.and.s32 %p1|%p3, %r1, 0, %p2" + fromP, []uint64{1}, 1},
		{"setp.eq.s32 %p1, %r1, 1; @%p1 bra A; mov.u64 %x4, 3; bra.uni B; A: mov.u64 %x4, 4; B: mov.u64 %x4, %x4", []uint64{1}, 4},
		{"setp.eq.s32 %p1, %r1, 1; @!%p1 mov.u64 %x4, 3", []uint64{1}, 0},
		{"mov.pred %p2, 1; xor.pred %p1, %p2, 1; not.pred %p1, %p1" + fromP, nil, 1},
	} {
		if got := one(t, c.body, c.in...); got != c.want {
			t.Errorf("%s of %#x: %#x, want %#x", c.body, c.in, got, c.want)
		}
	}
}

// TestRounding compares sums, products and both in one with exact ones, rounded.
func TestRounding(t *testing.T) {
	modes := map[string]big.RoundingMode{
		"rn": big.ToNearestEven, "rz": big.ToZero, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf,
	}
	random := rand.New(rand.NewPCG(1, 2))
	number := func() float32 {
		return float32(math.Ldexp(float64(random.IntN(1<<24)-1<<23), random.IntN(60)-30))
	}
	exact := func(x float32) *big.Float { return new(big.Float).SetPrec(500).SetFloat64(float64(x)) }
	for range 400 {
		a, b, c := number(), number(), number()
		sum, product := new(big.Float).SetPrec(500), new(big.Float).SetPrec(500)
		sum.Add(exact(a), exact(b))
		product.Mul(exact(a), exact(b))
		fused := new(big.Float).SetPrec(500).Add(product, exact(c))
		for name, mode := range modes {
			for op, all := range map[string]*big.Float{"add": sum, "mul": product, "fma": fused} {
				rounded := new(big.Float).SetMode(mode).SetPrec(24).Set(all)
				want, _ := rounded.Float32()
				body := fmt.Sprintf("%s.%s.f32 %%f4, %%f1, %%f2", op, name)
				if op == "fma" {
					body += ", %f3"
				}
				got := one(t, body+fromF, f32(a), f32(b), f32(c))
				if got != f32(want) && want != 0 {
					t.Fatalf("%s of %v %v %v: %v, want %v", body, a, b, c, math.Float32frombits(uint32(got)), want)
				}
			}
		}
	}
}

// TestHalves goes through all half floats, and rounds to them.
func TestHalves(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1 << 11 {
		bits := uint16(i * 32771 / 5)
		got := one(t, "cvt.f32.f16 %f4, %h1"+fromF, uint64(bits))
		if want := tensor.Float16ToFloat32(bits); want == want && got != f32(want) {
			t.Fatalf("%#x: %#x, want %v", bits, got, want)
		}
		x := float32(math.Ldexp(random.Float64()*2-1, random.IntN(45)-28))
		got = one(t, "cvt.rn.f16.f32 %h4, %f1"+from16, f32(x))
		if want := tensor.Float16FromFloat32(x); got != uint64(want) {
			t.Fatalf("%v: %#x, want %#x", x, got, want)
		}
	}
}

// TestSyntax refuses what is not known, and says where.
func TestSyntax(t *testing.T) {
	kernel := func(body string) string {
		return head + ".visible .entry k()\n{\n.reg .b32 %r<3>;\n" + body + "\nret;\n}\n"
	}
	for text, want := range map[string]string{
		"":                  "no version",
		"\x00":              "line 1: '\\x00' is no part of PTX",
		head + ".texref a;": "line 4: .texref is not known",
		head + ".shared .b8 a[999999]; .shared .b8 b[1];":   "bytes of shared memory",
		kernel("fma.maybe.f32 %r1, %r2;"):                   "line 7: fma.maybe.f32 ",
		kernel("add.s32 %r1, %r2;"):                         "line 7: add.s32 has 2 operands",
		kernel("mov.u32 %r9, 1;"):                           "\"%r9\" is no register",
		kernel("mov.u32 1, %r1;"):                           "is no register",
		kernel("bra there;"):                                "line 7: there is no label there",
		kernel("a: a:"):                                     "the label a is there twice",
		kernel("@%r1 bra a; a:"):                            "%r1 is no predicate",
		kernel("bar.sync 0, 32;"):                           "barriers of some threads only",
		kernel("add.rn.bf16 %r1, %r1, %r1;"):                "add.rn.bf16 is not known",
		kernel("ld.global.v2.b64 {%r1}, [%r1];"):            "of 1 registers",
		kernel(".reg .b32 %s<65000>; .reg .b32 %t<65000>;"): "more than 65536 registers",
		head + ".func f() { call.uni f, (); ret; }\n.visible .entry k() { call.uni f, (); ret; }\n": "f calls itself",
		head + ".visible .entry k() { {{{{":                                   "where a name must be",
		head + ".visible .entry k() { ret; }\n.visible .entry k() { ret; }\n": "k is there twice",
	} {
		m, err := ptx.Parse([]byte(text))
		if err == nil {
			_, err = m.Kernel("k")
		}
		var wrong *ptx.SyntaxError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}
