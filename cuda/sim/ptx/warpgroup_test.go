package ptx_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/tensor"
)

// descriptor writes a descriptor of the ISA: addresses and offsets in pieces of 16 bytes.
func descriptor(start, leading, stride, mode int) uint64 {
	return uint64(start/16) | uint64(leading/16)<<16 | uint64(stride/16)<<32 | uint64(mode)<<62
}

// A layout is how NVIDIA draws a factor of 16 terms in shared memory: where row r and term k are, and the
// descriptor of that.
type layout struct {
	name                  string
	at                    func(r, k int) int
	leading, stride, mode int
	turned                int
}

// layouts are for slice s of 16 terms of those that lie together, if there are more.
var layouts = []layout{
	{"terms, plain", func(r, k int) int { return r/8*256 + k/8*128 + r%8*16 + k%8*2 }, 128, 256, 0, 0},
	{"terms, plain, columns of tiles first", func(r, k int) int { return r/8*128 + k/8*4096 + r%8*16 + k%8*2 }, 4096, 128, 0, 0},
	{"terms, by 32", func(r, k int) int { return r/8*256 + r%8*32 + patterns[1][r%8][k/8]*16 + k%8*2 }, 16, 256, 3, 0},
	{"terms, by 64", func(r, k int) int { return r/8*512 + r%8*64 + patterns[2][r%8][k/8]*16 + k%8*2 }, 16, 512, 2, 0},
	{"terms, by 128", func(r, k int) int { return r/8*1024 + r%8*128 + patterns[3][r%8][k/8]*16 + k%8*2 }, 16, 1024, 1, 0},
	{"rows, plain", func(r, k int) int { return r/8*256 + k/8*128 + k%8*16 + r%8*2 }, 128, 256, 0, 1},
	{"rows, by 32", func(r, k int) int { return r/16*512 + k/8*256 + k%8*32 + patterns[1][k%8][r%16/8]*16 + r%8*2 }, 512, 256, 3, 1},
	{"rows, by 64", func(r, k int) int { return r/32*1024 + k/8*512 + k%8*64 + patterns[2][k%8][r%32/8]*16 + r%8*2 }, 1024, 512, 2, 1},
	{"rows, by 128", func(r, k int) int { return r/64*2048 + k/8*1024 + k%8*128 + patterns[3][k%8][r%64/8]*16 + r%8*2 }, 2048, 1024, 1, 1},
}

// rightAt is where the right factor lies.
const rightAt = 32768

// group is a warpgroup's kernel: it brings 64 KiB to shared memory, multiplies, and gives each thread's sums away.
// FILL sets the sums before, PRODUCTS are to be replaced.
const group = `.reg .b64 %y<9>; ld.param.u64 %x1, [q]; shl.b32 %r3, %r0, 4;
	FILL: cvt.u64.u32 %x2, %r3; add.u64 %x3, %x1, %x2; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%x3]; add.u32 %r8, %r1, %r3;
	st.shared.v4.u32 [%r8], {%r4, %r5, %r6, %r7}; add.u32 %r3, %r3, 2048; setp.lt.u32 %p2, %r3, 65536; @%p2 bra FILL;
	fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p2, 0, 1; setp.ne.u32 %p3, 0, 0; shl.b32 %r9, %r0, 4; cvt.u64.u32 %x4, %r9; add.u64 %x4, %x4, %x1;
	ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%x4+65536];
	SUMS
	wgmma.fence.sync.aligned;
	PRODUCTS
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	mul.wide.u32 %x5, %r0, EACH; add.u64 %x5, %x5, %x0;
	STORES`

// grouped writes the kernel for products of so many columns.
func grouped(columns int, products string) string {
	var list, sums, stores []string
	for i := range columns / 2 {
		list = append(list, fmt.Sprintf("%%f%d", i))
		sums = append(sums, fmt.Sprintf("mov.f32 %%f%d, 0f40000000;", i))
		stores = append(stores, fmt.Sprintf("st.global.f32 [%%x5+%d], %%f%d;", 4*i, i))
	}
	return strings.NewReplacer("PRODUCTS", strings.ReplaceAll(products, "D,", "{"+strings.Join(list, ", ")+"},"), "SUMS", strings.Join(sums, " "),
		"STORES", strings.Join(stores, " "), "EACH", fmt.Sprint(columns*2)).Replace(group)
}

func wgmma(columns int, kind string) string {
	return fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s D, ", columns, kind, kind)
}

// leftValue and rightValue are the factors: whole numbers, so that sums are exact.
func leftValue(r, k int) float64  { return float64((r*7+k*5)%17 - 8) }
func rightValue(c, k int) float64 { return float64((c*3+k*11)%13-6) / 4 }

func putHalf(to []byte, kind string, x float64) {
	bits := tensor.Float16FromFloat32(float32(x))
	if kind == "bf16" {
		bits = uint16(math.Float32bits(float32(x)) >> 16)
	}
	binary.LittleEndian.PutUint16(to, bits)
}

// factors lays both factors out in 64 KiB, and behind those the left one as the threads have it in registers.
func factors(kind string, left, right layout, columns int) []byte {
	in := make([]byte, 65536+2048)
	for k := range 16 {
		for r := range 64 {
			putHalf(in[left.at(r, k):], kind, leftValue(r, k))
		}
		for c := range columns {
			putHalf(in[rightAt+right.at(c, k):], kind, rightValue(c, k))
		}
	}
	for thread := range 128 {
		for e := range 8 { // rows in twos, then columns eight on
			row, k := thread/32*16+thread%32/4+e/2%2*8, thread%4*2+e%2+e/4*8
			putHalf(in[65536+16*thread+2*e:], kind, leftValue(row, k))
		}
	}
	return in
}

// compareSums compares a warpgroup's sums with scale times the product and more.
func compareSums(out []byte, columns int, scale, more float64) error {
	for thread := range 128 {
		for i := range columns / 2 {
			row, c := thread/32*16+thread%32/4+i/2%2*8, i/4*8+thread%4*2+i%2
			want := more
			for k := range 16 {
				want += scale * leftValue(row, k) * rightValue(c, k)
			}
			if got := math.Float32frombits(binary.LittleEndian.Uint32(out[(thread*columns/2+i)*4:])); float64(got) != want {
				return fmt.Errorf("row %d, column %d: %v, want %v", row, c, got, want)
			}
		}
	}
	return nil
}

// TestWarpgroups multiplies factors that lie in every way that is known, of every number of columns, and from
// registers.
func TestWarpgroups(t *testing.T) {
	run := func(t *testing.T, kind string, left, right layout, columns int, products string, scale, more float64) {
		t.Helper()
		out := make([]byte, 128*columns*2)
		if err := runAsync(t, async(grouped(columns, products)), 128, 0, out, factors(kind, left, right, columns)); err != nil {
			t.Fatal(err)
		}
		if err := compareSums(out, columns, scale, more); err != nil {
			t.Error(err)
		}
	}
	of := func(l layout, at int) uint64 { return descriptor(at, l.leading, l.stride, l.mode) }
	for i, l := range layouts {
		other := layouts[(i*4+3)%len(layouts)]
		for _, kind := range []string{"f16", "bf16"} {
			t.Run(l.name+" by "+other.name+", "+kind, func(t *testing.T) {
				run(t, kind, l, other, 64, fmt.Sprintf("%s %d, %d, %%p2, 1, 1, %d, %d;", wgmma(64, kind), of(l, 0), of(other, rightAt), l.turned,
					other.turned), 1, 2)
				run(t, kind, other, l, 256, fmt.Sprintf("%s %d, %d, %%p3, 1, 1, %d, %d;", wgmma(256, kind), of(other, 0), of(l, rightAt), other.turned,
					l.turned), 1, 0)
			})
		}
	}
	l := layouts[4]
	for columns := 8; columns <= 256; columns += 8 {
		run(t, "f16", l, l, columns, fmt.Sprintf("%s {%%r10, %%r11, %%r12, %%r13}, %d, %%p2, 1, -1, 0;", wgmma(columns, "f16"), of(l, rightAt)), -1, 2)
	}
	// Sums go on, and signs cancel.
	once := fmt.Sprintf("%s %d, %d, %%p2, 1, 1, 0, 0;", wgmma(24, "bf16"), of(l, 0), of(l, rightAt))
	run(t, "bf16", l, l, 24, once+once+once, 3, 2)
	run(t, "bf16", l, l, 24, once+strings.Replace(once, "1, 1, 0", "-1, -1, 0", 1)+strings.Replace(once, "1, 1, 0", "-1, 1, 0", 1), 1, 2)
	// Slices of 16 terms of lines of 128 bytes begin 32 bytes on.
	for s := range 4 {
		slice := l
		slice.at = func(r, k int) int { return l.at(r, k+16*s) }
		run(t, "bf16", slice, slice, 32, fmt.Sprintf("%s %d, %d, %%p2, 1, 1, 0, 0;", wgmma(32, "bf16"), of(l, 32*s), of(l, rightAt+32*s)), 1, 2)
	}
}

// TestPlantedProducts: what a kernel must do beside its products is missed where it does not.
func TestPlantedProducts(t *testing.T) {
	l := layouts[4]
	right := descriptor(rightAt, l.leading, l.stride, l.mode)
	product := fmt.Sprintf("%s %d, %d, %%p2, 1, 1, 0, 0;", wgmma(16, "f16"), descriptor(0, l.leading, l.stride, l.mode), right)
	const wrong = "wrong sums"
	for _, c := range []struct{ name, old, now, want string }{
		{"right", "", "", ""},
		{"moved", "wgmma.commit", "mov.f32 %f99, %f0; mov.f32 %f0, %f99; wgmma.commit", ""},
		{"no fence", "wgmma.fence.sync.aligned;", "", "race: a product of a warpgroup without a wgmma.fence"},
		{"no wait", "wgmma.wait_group.sync.aligned 0;", "", "race: a register is used that products of the warpgroup use"},
		{"no wait for the last", "wait_group.sync.aligned 0", "wait_group.sync.aligned 1", "race: a register is used"},
		{"no wait for the second", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned;", "race: a register is used"},
		{"two groups", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned;", ""},
		{"no group", "wgmma.commit_group.sync.aligned;", "", "race: a register is used"},
		{"moved and used", "wgmma.commit", "mov.f32 %f99, %f0; add.f32 %f98, %f99, %f99; wgmma.commit", "race: a register is used"},
		{"written after the fence", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.f32 %f3, 0f00000000;", "was used, and no wgmma.fence lies between"},
		{"read after the fence", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; add.f32 %f99, %f3, %f3;", "was used, and no wgmma.fence lies between"},
		{"written by another name", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; add.f32 %f99, %f4, %f4; mov.f32 %f3, %f99;", "was used, and no wgmma.fence lies between"},
		{"fenced after it", "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.f32 %f3, 0f40000000; wgmma.fence.sync.aligned;", ""},
		{"another shape", "wgmma.commit", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, " + fmt.Sprint(right) +
			", %p2, 1, 1, 0; wgmma.commit", "is another's, in another way"},
		{"no fence of proxies", "fence.proxy.async.shared::cta;", "", "byte 0 of shared memory is read asynchronously, was written by thread [0 0 0] of block [0 0 0], and no fence.proxy.async"},
		{"no barrier", "bar.sync 0;", "", "byte 0 of shared memory is read, and was written by thread [0 0 0]"},
		{"written while it is read", "wgmma.commit", "@%p1 st.shared.u32 [%r1], %r4; wgmma.commit", "of shared memory is written, and was read by products of warpgroup 0"},
		{"written when it was read", "mul.wide", "@%p1 st.shared.u32 [%r1], %r4; mul.wide", ""},
		{"plain", fmt.Sprint(right), fmt.Sprint(descriptor(rightAt, l.leading, l.stride, 0)), wrong},
		{"by 64", fmt.Sprint(right), fmt.Sprint(descriptor(rightAt, l.leading, l.stride, 2)), wrong},
		{"stride", fmt.Sprint(right), fmt.Sprint(descriptor(rightAt, l.leading, 512, l.mode)), wrong},
		{"leading, which is not used", fmt.Sprint(right), fmt.Sprint(descriptor(rightAt, 512, l.stride, l.mode)), ""},
		{"begin", fmt.Sprint(right), fmt.Sprint(descriptor(rightAt+32, l.leading, l.stride, l.mode)), wrong},
		{"another begin of patterns", fmt.Sprint(right), fmt.Sprint(right | 1<<49), wrong},
		{"far", fmt.Sprint(right), fmt.Sprint(descriptor(1<<18-1024, l.leading, l.stride, l.mode)), "out of bounds: 16 bytes at 261120"},
		{"turned", "1, 1, 0, 0", "1, 1, 0, 1", wrong},
		{"a mbarrier's", "fence.proxy", "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 1; fence.proxy", "byte 0 of shared memory is an mbarrier's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := grouped(16, product)
			if !strings.Contains(text, c.old) {
				t.Fatalf("there is no %q", c.old)
			}
			out := make([]byte, 128*16*2)
			if c.name == "no wait for the second" {
				text = strings.Replace(text, "wait_group.sync.aligned 0", "wait_group.sync.aligned 1", 1)
			}
			err := runAsync(t, async(strings.Replace(text, c.old, c.now, 1)), 128, 0, out, factors("f16", l, l, 16))
			if err == nil {
				if err = compareSums(out, 16, 1, 2); err != nil {
					err = fmt.Errorf("%s: %w", wrong, err)
				}
			}
			var fault *ptx.Fault
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				c.want != wrong && (!errors.As(err, &fault) || fault.Line == 0)) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
	for threads, want := range map[int]string{64: "which has 64 threads", 192: "which has 64 threads"} {
		err := runAsync(t, async(grouped(16, product)), threads, 0, make([]byte, 192*16*2), factors("f16", l, l, 16))
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "race") {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
	apart := strings.Replace(product, fmt.Sprint(right), "%x6", 1)
	text := strings.Replace(grouped(16, apart), "setp.ne.u32 %p2, 0, 1;", "setp.ne.u32 %p2, 0, 1; cvt.u64.u32 %x6, %r0;", 1)
	if err := runAsync(t, async(text), 128, 0, make([]byte, 4096), factors("f16", l, l, 16)); err == nil || !strings.Contains(err.Error(), "the right descriptor is 0x1") {
		t.Error(err)
	}
}

// TestTargets: what is for newer architectures, or for one alone, is for no other.
func TestTargets(t *testing.T) {
	for body, ok := range map[string][]string{
		"wgmma.fence.sync.aligned;":                               {"8.0 sm_90a", "8.5 sm_90a"},
		"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;": {"8.0 sm_90a", "8.5 sm_90a", "8.0 sm_90"},
		bring2 + "[%r1], [%x8, {%r3, %r4}], [%r2];":               {"8.0 sm_90a", "8.5 sm_90a", "8.0 sm_90"},
		"mbarrier.init.shared::cta.b64 [%r2], 1;":                 {"8.0 sm_90a", "8.5 sm_90a", "8.0 sm_90", "7.8 sm_90a", "8.0 sm_80"},
	} {
		for _, target := range []string{"8.0 sm_90a", "8.5 sm_90a", "8.0 sm_90", "7.8 sm_90a", "8.0 sm_80", "8.0 sm_75"} {
			version, name, _ := strings.Cut(target, " ")
			m, err := ptx.Parse([]byte(strings.NewReplacer("8.0", version, "sm_90a", name).Replace(async(body))))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Kernel("k"); (err == nil) != slices.Contains(ok, target) {
				t.Errorf("%s for %s: %v", body, target, err)
			}
		}
	}
}

// TestAnyChange leaves out, doubles and exchanges statements of asynchronous kernels: whatever they are, they fail
// as they may.
func TestAnyChange(t *testing.T) {
	l := layouts[4]
	in := factors("f16", l, l, 8)
	product := fmt.Sprintf("%s %d, %d, %%p2, 1, 1, 0, 0;", wgmma(8, "f16"), descriptor(0, l.leading, l.stride, l.mode),
		descriptor(rightAt, l.leading, l.stride, l.mode))
	m := matrix(64, 64, 16, 64, 3)
	packed := m.Encode()
	for _, body := range []string{strings.ReplaceAll(brings, "BYTES", "2048"), refills, grouped(8, product+product)} {
		parts := strings.SplitAfter(body, ";")
		step := 1
		if testing.Short() {
			step = 4
		}
		for i := 0; i < len(parts)-1; i += step {
			for _, change := range [][]string{{}, {parts[i], parts[i]}, {parts[i+1], parts[i]}, {strings.ReplaceAll(parts[i], "%r2", "%r0")}, {"mov.u32 %r1, -128;", parts[i]},
				{"mov.u32 %r2, 228000;", parts[i]}} {
				text := strings.Join(parts[:i], "") + strings.Join(change, "") + strings.Join(parts[i+1:], "")
				module, err := ptx.Parse([]byte(async(text)))
				if err != nil {
					continue
				}
				k, err := module.Kernel("k")
				if err != nil {
					continue
				}
				launch := ptx.Launch{
					Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, MaxSteps: 100000, Parameters: make([]byte, 64+256), Seed: uint64(i),
					Memory: []ptx.Region{{Address: at, Data: make([]byte, 4096), Writes: true}, {Address: source, Data: in}},
				}
				binary.LittleEndian.PutUint64(launch.Parameters, at)
				binary.LittleEndian.PutUint64(launch.Parameters[8:], source)
				copy(launch.Parameters[64:], packed[:])
				var fault *ptx.Fault
				if err := k.Run(t.Context(), launch); err != nil && !errors.As(err, &fault) {
					t.Fatalf("%s: %v", text, err)
				}
			}
		}
	}
}
