package ptx_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim/ptx"
)

// source is where the tensors of these tests lie; results are written at at.
const source = at + 1<<30

// async writes the kernel k, which has its thread's number as %r0, maps as %x8 and %x9, the tile as %r1 and the
// mbarriers as %r2.
func async(body string) string {
	return `.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q, .param .align 64 .b8 m0[128], .param .align 64 .b8 m1[128]) {
	.reg .pred %p<4>; .reg .b32 %r<40>; .reg .b64 %x<20>; .reg .f32 %f<140>;
	.shared .align 1024 .b8 tile[65536]; .shared .align 8 .b8 bars[64];
	ld.param.u64 %x0, [p]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, bars; setp.eq.u32 %p1, %r0, 0;
	mov.b64 %x8, m0; cvta.param.u64 %x8, %x8; mov.b64 %x9, m1; cvta.param.u64 %x9, %x9;
	` + body + "\nret;\n}\n"
}

// runAsync runs a kernel over results, a tensor and maps.
func runAsync(t testing.TB, text string, threads int, seed uint64, out, in []byte, maps ...ptx.TensorMap) error {
	t.Helper()
	k := kernelOf(t, text)
	l := ptx.Launch{
		Grid: [3]int{1, 1, 1}, Block: [3]int{threads, 1, 1}, MaxSteps: 50 << 20, Seed: seed, Parameters: make([]byte, 64+256),
		Memory: []ptx.Region{{Address: at, Data: out, Writes: true}, {Address: source, Data: in}},
	}
	binary.LittleEndian.PutUint64(l.Parameters, at)
	binary.LittleEndian.PutUint64(l.Parameters[8:], source)
	for i, m := range maps {
		b := m.Encode()
		copy(l.Parameters[64+128*i:], b[:])
	}
	return k.Run(t.Context(), l)
}

// matrix is the map of rows × columns of two bytes, of which a box is copied.
func matrix(rows, columns, boxRows, boxColumns, swizzle int) ptx.TensorMap {
	return ptx.TensorMap{
		Type: 1, Rank: 2, Address: source, Dims: [5]uint64{uint64(columns), uint64(rows), 1, 1, 1},
		Strides: [4]uint64{uint64((2*columns + 15) / 16 * 16)}, Box: [5]uint16{uint16(boxColumns), uint16(boxRows), 1, 1, 1},
		Steps: [5]uint16{1, 1, 1, 1, 1}, Swizzle: uint8(swizzle),
	}
}

// begin has the first thread make an mbarrier for one arrival, await waits for its phase 0 and dump gives the tile
// away, four bytes of each thread at a time.
const (
	begin = `@!%p1 bra BEGUN; mbarrier.init.shared::cta.b64 [%r2], 1; fence.proxy.async.shared::cta; BEGUN: bar.sync 0;`
	await = `WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;`
	dump  = `mov.u32 %r10, %ntid.x; shl.b32 %r10, %r10, 2; shl.b32 %r11, %r0, 2;
	DUMP: add.u32 %r12, %r1, %r11; ld.shared.u32 %r13, [%r12]; cvt.u64.u32 %x10, %r11; add.u64 %x10, %x10, %x0;
	st.global.u32 [%x10], %r13; add.u32 %r11, %r11, %r10; setp.lt.u32 %p2, %r11, BYTES; @%p2 bra DUMP;`
	bring2 = `cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes `
)

// brings is a kernel that copies a box of 16 lines of 128 bytes from column 8 and row 3 on.
const brings = begin + `@!%p1 bra BROUGHT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048; mov.u32 %r3, 8; mov.u32 %r4, 3;
	` + bring2 + `[%r1], [%x8, {%r3, %r4}], [%r2]; BROUGHT: ` + await + dump

// patterns are where the pieces of 16 bytes of eight lines of 32, 64 and 128 bytes lie, as NVIDIA draws them.
var patterns = map[int][8][]int{
	1: {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 0}, {1, 0}, {1, 0}, {1, 0}},
	2: {{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 0, 3, 2}, {1, 0, 3, 2}, {2, 3, 0, 1}, {2, 3, 0, 1}, {3, 2, 1, 0}, {3, 2, 1, 0}},
	3: {
		{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
		{4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0},
	},
}

// TestBoxes copies boxes in every pattern, across every edge of a tensor, whenever the copies are made.
func TestBoxes(t *testing.T) {
	const rows, columns, pitch = 37, 100, 208
	in := make([]byte, rows*pitch)
	for r := range rows {
		for c := range columns {
			binary.LittleEndian.PutUint16(in[r*pitch+2*c:], uint16(1+r*columns+c))
		}
	}
	for swizzle, wide := range []int{24, 16, 32, 64} {
		for _, from := range [][2]int{{0, 0}, {8, 3}, {60, 30}, {-5, -2}, {96, 0}, {0, 40}, {-200, 0}} {
			for seed := range uint64(2) {
				const high = 16
				body := strings.NewReplacer("2048", fmt.Sprint(high*wide*2), "BYTES", fmt.Sprint(high*wide*2), "%r3, 8", fmt.Sprint("%r3, ", from[0]),
					"%r4, 3", fmt.Sprint("%r4, ", from[1])).Replace(brings)
				out := make([]byte, high*wide*2)
				if err := runAsync(t, async(body), 32, seed, out, in, matrix(rows, columns, high, wide, swizzle)); err != nil {
					t.Fatalf("swizzle %d, from %v: %v", swizzle, from, err)
				}
				for r := range high {
					for c := range wide {
						want := uint16(0)
						if x, y := from[0]+c, from[1]+r; x >= 0 && x < columns && y >= 0 && y < rows {
							want = uint16(1 + y*columns + x)
						}
						piece := c / 8
						if p, ok := patterns[swizzle]; ok {
							piece = p[r%8][piece]
						}
						if got := binary.LittleEndian.Uint16(out[r*wide*2+piece*16+c%8*2:]); got != want {
							t.Fatalf("swizzle %d, from %v: row %d, column %d: %d, want %d", swizzle, from, r, c, got, want)
						}
					}
				}
			}
		}
	}
}

// TestOneDimension copies a run.
func TestOneDimension(t *testing.T) {
	in := make([]byte, 400)
	for i := range in {
		in[i] = byte(i)
	}
	body := strings.NewReplacer("2d.", "1d.", "2048", "64", "BYTES", "64", "{%r3, %r4}", "{%r3}").Replace(brings)
	m := matrix(1, 200, 1, 32, 0)
	m.Rank = 1
	out := make([]byte, 64)
	if err := runAsync(t, async(body), 4, 0, out, in, m); err != nil || !bytes.Equal(out, in[16:80]) {
		t.Error(err, out)
	}
}

// refills is a kernel of two warps: thread 32 brings four lots through two places, and the first warp reads them
// and says so.
const refills = `@!%p1 bra BEGUN; mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.init.shared::cta.b64 [%r2+8], 1;
	mbarrier.init.shared::cta.b64 [%r2+16], 32; mbarrier.init.shared::cta.b64 [%r2+24], 32; fence.proxy.async.shared::cta; BEGUN: bar.sync 0;
	mov.u32 %r20, 0; setp.ge.u32 %p3, %r0, 32; @%p3 bra BRINGS;
	READS: and.b32 %r21, %r20, 1; shr.u32 %r22, %r20, 1; shl.b32 %r23, %r21, 3; add.u32 %r23, %r23, %r2; shl.b32 %r24, %r21, 11; add.u32 %r24, %r24, %r1;
	FULL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r23], %r22; @!%p2 bra FULL;
	shl.b32 %r25, %r0, 2; add.u32 %r24, %r24, %r25; ld.shared.u32 %r26, [%r24]; shl.b32 %r27, %r20, 7; add.u32 %r27, %r27, %r25; cvt.u64.u32 %x10, %r27;
	add.u64 %x10, %x10, %x0; mbarrier.arrive.shared::cta.b64 _, [%r23+16]; st.global.u32 [%x10], %r26;
	add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 4; @%p2 bra READS; ret;
	BRINGS: setp.ne.u32 %p3, %r0, 32; @%p3 ret; mov.u32 %r3, 0;
	NEXT: and.b32 %r21, %r20, 1; shr.u32 %r22, %r20, 1; xor.b32 %r22, %r22, 1; shl.b32 %r23, %r21, 3; add.u32 %r23, %r23, %r2; shl.b32 %r24, %r21, 11; add.u32 %r24, %r24, %r1;
	{ .reg .pred over; FULL: mbarrier.try_wait.parity.shared::cta.b64 over, [%r23+16], %r22; @!over bra FULL; }
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r23], 2048; shl.b32 %r4, %r20, 4;
	` + bring2 + `[%r24], [%x8, {%r3, %r4}], [%r23];
	add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 4; @%p2 bra NEXT;`

// TestPlantedWaits: what a kernel must do beside its copies is missed where it does not.
func TestPlantedWaits(t *testing.T) {
	in := make([]byte, 64*128)
	for i := range in {
		in[i] = byte(i / 128 * 3)
	}
	m := matrix(64, 64, 16, 64, 3)
	kernel := strings.ReplaceAll(brings, "BYTES", "2048")
	for _, c := range []struct{ name, kernel, old, now, want string }{
		{"right", kernel, "", "", ""},
		{"refills", refills, "", "", ""},
		{"no wait", kernel, await, "", "race: byte 0 of shared memory is still being copied to"},
		{"no loop", kernel, "@!%p2 bra WAIT;", "", "still being copied to"},
		{"the phase before", kernel, "%p2, [%r2], 0", "%p2, [%r2], 1", "still being copied to"},
		{"too many bytes", kernel, "2048; mov", "2064; mov", "waits for ever for phase 0, of parity 0, of the mbarrier at 65536: 0 of 1 arrivals and 16 bytes are missing"},
		{"too few bytes", kernel, "2048; mov", "2032; mov", "0 of 1 arrivals and -16 bytes are missing"},
		{"nobody arrives", kernel, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 2048", "1 of 1 arrivals and 0 bytes"},
		{"no bytes", kernel, "arrive.expect_tx.shared::cta.b64 _, [%r2], 2048", "arrive.shared::cta.b64 _, [%r2]", "race: byte 0 of shared memory is still being copied to"},
		{"no fence", kernel, "fence.proxy.async.shared::cta;", "", "no fence.proxy.async lies between that and the copy"},
		{"a fence for mbarriers", kernel, "fence.proxy.async.shared::cta;", "fence.mbarrier_init.release.cluster;", ""},
		{"no barrier", kernel, "bar.sync 0;", "", "thread [1 0 0]: race: the mbarrier at 65536 is used, and was initialised by thread [0 0 0]"},
		{"no init", kernel, "mbarrier.init.shared::cta.b64 [%r2], 1;", "", "there is no mbarrier at 0x10000"},
		{"twice", kernel, "[%r2], 1;", "[%r2], 1; mbarrier.init.shared::cta.b64 [%r2], 1;", "byte 65536 of shared memory is an mbarrier's"},
		{"anew", kernel, "[%r2], 1;", "[%r2], 1; mbarrier.inval.shared::cta.b64 [%r2]; mbarrier.init.shared::cta.b64 [%r2], 1;", ""},
		{"for nobody", kernel, "[%r2], 1;", "[%r2], 0;", "an mbarrier for 0 arrivals"},
		{"too many arrive", kernel, "[%r2], 1;", "[%r2], 1; mbarrier.arrive.shared::cta.b64 _, [%r2], 2;", "2 arrivals at the mbarrier at 65536, of whose 1 in phase 0 only 1 are missing"},
		{"read", kernel, "fence.proxy", "ld.shared.u32 %r3, [%r2]; fence.proxy", "is an mbarrier's"},
		{"written", kernel, "fence.proxy", "st.shared.u32 [%r2], %r3; fence.proxy", "is an mbarrier's"},
		{"written before", kernel, "fence.proxy", "st.shared.u32 [%r1], %r3; fence.proxy", ""},
		{"written before, no fence", kernel, "bar.sync 0;", "@%p1 st.shared.u32 [%r1], %r3; bar.sync 0;", "byte 0 of shared memory is copied to asynchronously, was written by thread [0 0 0]"},
		{"written while copied", kernel, await, "bar.sync 0; st.shared.u32 [%r1], %r3;" + await, "still being copied to"},
		{"copied twice", kernel, bring2, bring2 + "[%r1], [%x8, {%r3, %r4}], [%r2]; " + bring2, "another copy to it is under way"},
		{"where", kernel, "[%r1], [%x8", "[%r1+64], [%x8", "misaligned: a box copied to 0x40"},
		{"onto mbarriers", kernel, "[%r1], [%x8", "[%r1+64512], [%x8", "out of bounds"},
		{"no map", kernel, "[%x8, {", "[%x9, {", "is no tensor map"},
		{"half a map", kernel, "[%x8, {", "[%x0, {", "tensor map"},
		{"another rank", kernel, "2d", "1d", "%r3}"},
		{"nobody waits", kernel, await + strings.ReplaceAll(dump, "BYTES", "2048"), "", "the block ends, and nobody waited for the copy"},
		{"for a while", kernel, "try_wait", "test_wait", ""},
		{"a state", kernel, "try_wait.parity.shared::cta.b64 %p2, [%r2], 0", "try_wait.shared::cta.b64 %p2, [%r2], %x15", ""},
		{"a state to come", kernel, "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0", "mov.u64 %x15, 1; WAIT: mbarrier.try_wait.shared::cta.b64 %p2, [%r2], %x15", "waits for ever for phase 1"},
		{"a parity of 2", kernel, "%p2, [%r2], 0", "%p2, [%r2], 2", "a parity of 2"},
		{"polls for ever", kernel, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048", "mov.u32 %r5, 0; POLL: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra POLL", "polls the mbarrier at 65536 for ever"},
		{"full too early", refills, "%r22; @!%p2 bra FULL", "1; @!%p2 bra FULL", "uninitialised"},
		{"empty too early", refills, "%r22; @!over bra FULL", "1; @!over bra FULL", "thread [32 0 0]: barrier: 1 arrivals at the mbarrier at 65536, of whose 1 in phase 0 only 0"},
		{"nobody waits for readers", refills, "@!over bra FULL;", "", "thread [32 0 0]: barrier: 1 arrivals at the mbarrier at 65536, of whose 1 in phase 0 only 0"},
		{"readers go", refills, "mbarrier.arrive.shared::cta.b64 _, [%r23+16];", "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r23+16];", "thread [32 0 0] for phase 0, of parity 0, of the mbarrier at 65552: 31 of 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(c.kernel, c.old) {
				t.Fatalf("there is no %q", c.old)
			}
			text := async(strings.Replace(c.kernel, c.old, c.now, 1))
			if c.name == "another rank" {
				text = strings.Replace(text, "{%r3, %r4}", "{%r3}", 1)
				c.want = "the map is of 2 dimensions, the copy of 1"
			}
			out := make([]byte, 2048)
			err := runAsync(t, text, 64, 0, out, in, m)
			var fault *ptx.Fault
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &fault) || fault.Line == 0 || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
}

// TestEarlyReaders: a reader that says that it has read before it has is found whenever the copies are made.
func TestEarlyReaders(t *testing.T) {
	in := make([]byte, 64*128)
	text := async(strings.NewReplacer("mbarrier.arrive.shared::cta.b64 _, [%r23+16];", "",
		"shl.b32 %r25, %r0, 2;", "mbarrier.arrive.shared::cta.b64 _, [%r23+16]; shl.b32 %r25, %r0, 2;").Replace(refills))
	for seed := range uint64(8) {
		err := runAsync(t, text, 64, seed, make([]byte, 2048), in, matrix(64, 64, 16, 64, 3))
		if err == nil || !strings.Contains(err.Error(), "race: byte") {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := runAsync(t, async(refills), 64, seed, make([]byte, 2048), in, matrix(64, 64, 16, 64, 3)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestMemoryOfMaps: a copy reads only what its launch has.
func TestMemoryOfMaps(t *testing.T) {
	in := make([]byte, 64*128-16)
	text := async(strings.NewReplacer("BYTES", "2048", "%r4, 3", "%r4, 48").Replace(brings))
	err := runAsync(t, text, 32, 0, make([]byte, 2048), in, matrix(64, 64, 16, 64, 3))
	if err == nil || !strings.Contains(err.Error(), "out of bounds: 112 bytes") {
		t.Error(err)
	}
	m := matrix(64, 64, 16, 64, 3)
	m.Address += 1 << 40
	if err := runAsync(t, text, 32, 0, make([]byte, 2048), in, m); err == nil || !strings.Contains(err.Error(), "out of bounds") {
		t.Error(err)
	}
}
