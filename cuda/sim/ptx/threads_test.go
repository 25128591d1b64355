package ptx_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim/ptx"
	"github.com/optimem/optimem/tensor"
)

// entry writes the kernel k, which has its thread's number in the block as %r0, four bytes of memory for each as [%x1], and
// 256 bytes of shared memory, of which four for each as [%x3].
func entry(body string) string {
	return head + `.visible .entry k(.param .u64 p) {
	.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %x<9>; .reg .f32 %f<9>; .shared .align 16 .b8 tile[256]; .local .align 8 .b8 own[16];
	ld.param.u64 %x0, [p];
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %x1, %r0, 4;
	mov.u64 %x2, tile;
	add.u64 %x3, %x2, %x1;
	add.u64 %x1, %x0, %x1;
	mov.u32 %r1, %ctaid.x;
	` + body + "\nret;\n}\n"
}

// TestFaults: what threads must not do is found, and said of whom.
func TestFaults(t *testing.T) {
	const barrier = "bar.sync 0;"
	for _, c := range []struct {
		name, body, want string
		blocks, threads  int
	}{
		{"behind the end", "st.global.u32 [%x1+4], %r0;", "[0 0 0] thread [31 0 0]: out of bounds: 4 bytes at 0x10000000080, 0 bytes behind an operand's end", 1, 32},
		{"before the begin", "ld.global.u32 %r2, [%x1-4];", "thread [0 0 0]: out of bounds: 4 bytes at 0xfffffffffc, 4 bytes before", 1, 32},
		{"null", "mov.u64 %x4, 0; ld.global.u8 %r2, [%x4];", "out of bounds: 1 bytes at 0x0", 1, 1},
		{"another space", "ld.global.u32 %r2, [%x3];", "out of bounds", 1, 1},
		{"shared memory", "st.shared.u32 [%x3+252], %r0;", "thread [1 0 0]: out of bounds: 4 bytes at 256 of 256 bytes of shared memory", 1, 32},
		{"local memory", "mov.u64 %x4, own; st.local.u64 [%x4+16], %x0;", "out of bounds: 8 bytes at 16 of 16 bytes of local memory", 1, 1},
		{"generic", "cvta.shared.u64 %x4, %x3; st.u32 [%x4], %r0; " + barrier + " ld.u32 %r2, [%x4+256];", "thread [0 0 0]: out of bounds: 4 bytes at 256", 1, 32},
		{"a parameter", "mov.b64 %x4, p; cvta.param.u64 %x4, %x4; ld.u64 %x4, [%x4];", "", 1, 32},
		{"behind the parameters", "mov.b64 %x4, p; cvta.param.u64 %x4, %x4; ld.u64 %x4, [%x4+8];", "out of bounds: 8 bytes at 8 of 8 bytes of parameters", 1, 1},
		{"a parameter written", "mov.b64 %x4, p; cvta.param.u64 %x4, %x4; st.u64 [%x4], %x0;", "a parameter of the kernel", 1, 1},
		{"misaligned", "ld.global.u32 %r2, [%x1+2];", "misaligned: 4 bytes at 0x10000000002", 1, 1},
		{"vectors too", "ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%x2+8];", "misaligned: 16 bytes at 0x8", 1, 1},
		{"nobody wrote", "ld.shared.u32 %r2, [%x3];", "uninitialised shared memory: byte 0 was not", 1, 1},
		{"nobody of the block", "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%x3], %r0; ld.shared.u32 %r2, [%x3];", "block [1 0 0] thread [0 0 0]: uninitialised", 2, 1},
		{"read of another's", "st.shared.u32 [%x3], %r0; ld.shared.u32 %r2, [%x2];", "thread [1 0 0]: race: byte 0 of shared memory is read, and was written by thread [0 0 0] of block [0 0 0]", 1, 32},
		{"in order", "st.shared.u32 [%x3], %r0; " + barrier + " ld.shared.u32 %r2, [%x2];", "", 1, 64},
		{"written too early", "st.shared.u32 [%x3], %r0;" + barrier + "ld.shared.u32 %r2, [%x2]; st.shared.u32 [%x3], %r0;", "", 1, 1},
		{"written after others read", "st.shared.u32 [%x3], %r0;" + barrier + "ld.shared.u32 %r2, [%x2+4]; st.shared.u32 [%x3], %r0;", "thread [1 0 0]: race: byte 4 of shared memory is written, and was read by thread [0 0 0]", 1, 32},
		{"a warp's order", "st.shared.u32 [%x3], %r0; bar.warp.sync -1; ld.shared.u32 %r2, [%x2];", "", 1, 32},
		{"not a block's", "st.shared.u32 [%x3], %r0; bar.warp.sync -1; ld.shared.u32 %r2, [%x2];", "thread [32 0 0]: race: byte 0", 1, 64},
		{"one element by all", "st.global.u32 [%x0], %r0;", "thread [1 0 0]: race: byte 0 of an operand is written, and was written by thread [0 0 0]", 1, 2},
		{"one element by blocks", "st.global.u32 [%x1], %r0;" + barrier, "block [1 0 0] thread [0 0 0]: race", 2, 2},
		{"barriers part no blocks", "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%x1], %r0; " + barrier + " @!%p1 st.global.u32 [%x1], %r0;", "block [1 0 0] thread [0 0 0]: race", 2, 1},
		{"a block's read of another's", "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%x1], %r0; @!%p1 ld.global.u32 %r2, [%x1];", "block [1 0 0] thread [0 0 0]: race: byte 0 of an operand is read", 2, 1},
		{"a write of what blocks read", "setp.eq.u32 %p1, %r1, 2; @!%p1 ld.global.u32 %r2, [%x0]; @%p1 st.global.u32 [%x0], %r1;", "is written, and was read by threads of several blocks", 3, 1},
		{"atomically", "atom.global.add.u32 %r2, [%x0], 1; red.global.max.s32 [%x0+4], %r0;", "", 3, 32},
		{"beside atoms", "atom.global.add.u32 %r2, [%x0], 1; ld.global.u32 %r2, [%x0];", "race", 1, 2},
		{"read beside an atom", "setp.eq.u32 %p1, %r0, 0; @%p1 atom.global.add.u32 %r2, [%x0], 1; @!%p1 ld.global.u32 %r2, [%x0];", "thread [1 0 0]: race: byte 0 of an operand is read", 1, 2},
		{"written after another of the warp read", `ld.global.u32 %r2, [%x0]; setp.eq.u32 %p1, %r0, 1; @%p1 bra A; shfl.sync.idx.b32 %r2, %r0, 0, 31, 0x5;
		setp.eq.u32 %p2, %r0, 0; @%p2 st.global.u32 [%x0], %r0; A: mov.u32 %r2, 1;`, "thread [0 0 0]: race: byte 0 of an operand is written", 1, 3},
		{"written after another warp read", `ld.global.u32 %r2, [%x0]; setp.lt.u32 %p1, %r0, 32; @!%p1 bra A; bar.warp.sync -1;
		setp.eq.u32 %p2, %r0, 0; @%p2 st.global.u32 [%x0], %r0; A: mov.u32 %r2, 1;`, "thread [0 0 0]: race: byte 0 of an operand is written", 1, 64},
		{"a barrier for some", "setp.eq.u32 %p1, %r0, 0; @%p1 bra A; bar.sync 0; bra.uni B;\nA: bar.sync 0; B: mov.u32 %r2, 1;", "line 13: block [0 0 0] thread [1 0 0]: divergence: the thread waits here, thread [0 0 0] at the barrier of line 14", 1, 32},
		{"after others ended", "setp.eq.u32 %p1, %r0, 0; @%p1 ret; bar.sync 0;", "", 1, 32},
		{"a shuffle for some", "setp.eq.u32 %p1, %r0, 0; @%p1 bra A; shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1; A: bar.sync 0;", "divergence: shfl.sync.bfly.b32 waits for threads 0xffffffff", 1, 32},
		{"not of the mask", "shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xf;", "thread [4 0 0]: divergence: shfl.sync.bfly.b32: the thread is not among those", 1, 32},
		{"a lane that is not there", "shfl.sync.down.b32 %r2, %r0, 4, 31, -1;", "lane 8 is asked for its value and takes no part", 1, 8},
		{"trap", "trap;", "trap: the kernel gives up", 1, 1},
		{"for ever", "A: bra.uni A;", "too long", 1, 1},
		{"waiting for ever", "A: ld.volatile.global.u32 %r2, [%x0]; setp.ne.u32 %p1, %r2, 9; @%p1 bra A; bar.sync 0;", "too long", 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ptx.Launch{Grid: [3]int{c.blocks, 1, 1}, Block: [3]int{c.threads, 1, 1}, MaxSteps: 3 << 20}
			err := launch(t, entry(c.body), l, make([]byte, 128))
			var fault *ptx.Fault
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &fault) || fault.Line == 0 || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
}

// TestBadLaunch refuses what no driver would take.
func TestBadLaunch(t *testing.T) {
	for want, l := range map[string]ptx.Launch{
		"a grid of":                {Block: [3]int{1025, 1, 1}},
		"threads":                  {Block: [3]int{64, 64, 1}},
		"bytes of shared memory":   {SharedBytes: 1 << 20},
		"places for":               {Ran: make([]bool, 1)},
		"blocks of [1024 1 1] thr": {Grid: [3]int{1 << 28, 1, 1}, Block: [3]int{1024, 1, 1}},
	} {
		var fault *ptx.Fault
		if err := launch(t, entry(""), l, nil); !errors.As(err, &fault) || fault.Kind != ptx.BadLaunch || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, _ := ptx.Parse([]byte(entry("")))
	k, _ := m.Kernel("k")
	l := ptx.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Parameters: make([]byte, 8)}
	if err := k.Run(ctx, l); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// words runs a body in a warp and returns what its threads wrote.
func words(t *testing.T, body string) [32]uint32 {
	t.Helper()
	data := make([]byte, 128)
	if err := launch(t, entry(body+"\nst.global.u32 [%x1], %r2;"), ptx.Launch{Block: [3]int{32, 1, 1}}, data); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var list [32]uint32
	for i := range list {
		list[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return list
}

// TestExchanges: threads of a warp give each other values, all of them and those of a branch.
func TestExchanges(t *testing.T) {
	for body, want := range map[string]func(lane int) int{
		"shfl.sync.bfly.b32 %r2, %r0, 5, 31, -1;":                                            func(lane int) int { return lane ^ 5 },
		"shfl.sync.up.b32 %r2, %r0, 3, 0, -1;":                                               func(lane int) int { return map[bool]int{true: lane - 3, false: lane}[lane >= 3] },
		"shfl.sync.down.b32 %r2|%p1, %r0, 3, 31, -1; @!%p1 mov.u32 %r2, 99;":                 func(lane int) int { return map[bool]int{true: lane + 3, false: 99}[lane < 29] },
		"shfl.sync.idx.b32 %r2, %r0, 2, 0x181f, -1;":                                         func(lane int) int { return lane&^7 + 2 },
		"setp.lt.u32 %p1, %r0, 5; vote.sync.ballot.b32 %r2, %p1, -1;":                        func(int) int { return 31 },
		"setp.lt.u32 %p1, %r0, 5; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;": func(int) int { return 1 },
		"setp.lt.u32 %p1, %r0, 5; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;": func(int) int { return 0 },
		`setp.lt.u32 %p1, %r0, 8; @%p1 bra A; shfl.sync.idx.b32 %r2, %r0, 9, 31, 0xffffff00; bra.uni B;
		A: shfl.sync.idx.b32 %r2, %r0, 1, 31, 0xff; B: mov.u32 %r3, 0;`: func(lane int) int { return map[bool]int{true: 1, false: 9}[lane < 8] },
	} {
		for lane, got := range words(t, body) {
			if got != uint32(want(lane)) {
				t.Errorf("%s: lane %d has %d, want %d", body, lane, got, want(lane))
			}
		}
	}
}

// product is a warp's product of matrices of 16×16 and 16×8 halves, which are copied to shared memory four words at a time
// and read from there a matrix at a time. Results are written as the ISA says that threads have them.
const product = `
	mul.lo.u32 %r2, %r0, 16; cvt.u64.u32 %x4, %r2; add.u64 %x5, %x2, %x4; add.u64 %x6, %x0, %x4;
	cp.async.cg.shared.global [%x5], [%x6], 16;
	setp.lt.u32 %p1, %r0, 16;
	@%p1 cp.async.ca.shared.global [%x5+512], [%x6+512], 16;
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	and.b32 %r3, %r0, 15; shl.b32 %r3, %r3, 5; shr.u32 %r4, %r0, 4; shl.b32 %r4, %r4, 4; add.u32 %r3, %r3, %r4;
	cvt.u64.u32 %x7, %r3; add.u64 %x7, %x2, %x7;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%x7];
	and.b32 %r8, %r0, 15; shl.b32 %r8, %r8, 4; cvt.u64.u32 %x7, %r8; add.u64 %x7, %x2, %x7;
	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r8, %r9}, [%x7+512];
	mov.f32 %f5, 0f3F800000;
	mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%f1, %f2, %f3, %f4}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f5, %f5, %f5, %f5};
	shr.u32 %r10, %r0, 2; shl.b32 %r10, %r10, 5; and.b32 %r11, %r0, 3; shl.b32 %r11, %r11, 3; add.u32 %r10, %r10, %r11;
	cvt.u64.u32 %x7, %r10; add.u64 %x7, %x0, %x7;
	st.global.v2.f32 [%x7+768], {%f1, %f2};
	st.global.v2.f32 [%x7+1024], {%f3, %f4};`

func wide(body string) string {
	return strings.Replace(entry(body), "tile[256]", "tile[768]", 1)
}

// TestTensorCores multiplies in a warp, and finds copies that were not waited for.
func TestTensorCores(t *testing.T) {
	for _, kind := range []string{"f16", "bf16"} {
		data := make([]byte, 768+16*8*4)
		value := func(i int) float32 { return float32(i*i%17-8) / 4 }
		for i := range 16*16 + 16*8 {
			bits := tensor.Float16FromFloat32(value(i))
			if kind == "bf16" {
				bits = uint16(math.Float32bits(value(i)) >> 16)
			}
			binary.LittleEndian.PutUint16(data[2*i:], bits)
		}
		warp := ptx.Launch{Block: [3]int{32, 1, 1}}
		text := strings.ReplaceAll(wide(product), "TYPE", kind)
		if err := launch(t, text, warp, data); err != nil {
			t.Fatal(err)
		}
		for i := range 16 {
			for j := range 8 {
				want := float32(1)
				for k := range 16 {
					want += value(i*16+k) * value(256+k*8+j)
				}
				if got := math.Float32frombits(binary.LittleEndian.Uint32(data[768+4*(8*i+j):])); got != want {
					t.Fatalf("%s: %d, %d: %v, want %v", kind, i, j, got, want)
				}
			}
		}
		for change, want := range map[string]string{
			"cp.async.wait_group 0;": "still being copied to",
			"bar.sync 0;":            "race",
			"@%p1 cp":                "out of bounds",
		} {
			to := ""
			if change[0] == '@' {
				to = "cp"
			}
			if err := launch(t, strings.Replace(text, change, to, 1), warp, data); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("without %s: %v, not %q", change, err, want)
			}
		}
		if err := launch(t, text, ptx.Launch{Block: [3]int{16, 1, 1}}, data); err == nil || !strings.Contains(err.Error(), "divergence") {
			t.Errorf("half a warp: %v", err)
		}
	}
}

// TestTensorFloats multiplies 16×8 by 8×8 of 32 bits, of which the lower 13 do not count.
func TestTensorFloats(t *testing.T) {
	data := make([]byte, 4*(16*8+8*8)+16*8*4)
	value := func(i int) float32 { return float32(i*i%17-8) / 4 }
	for i := range 16*8 + 8*8 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(value(i))|uint32(i%2)<<12)
	}
	body := `shr.u32 %r2, %r0, 2; and.b32 %r3, %r0, 3;
	mul.lo.u32 %r4, %r2, 32; mad.lo.u32 %r4, %r3, 4, %r4; cvt.u64.u32 %x4, %r4; add.u64 %x4, %x0, %x4;
	ld.global.u32 %r5, [%x4]; ld.global.u32 %r6, [%x4+256]; ld.global.u32 %r7, [%x4+16]; ld.global.u32 %r8, [%x4+272];
	mul.lo.u32 %r4, %r3, 32; mad.lo.u32 %r4, %r2, 4, %r4; cvt.u64.u32 %x5, %r4; add.u64 %x5, %x0, %x5;
	ld.global.u32 %r9, [%x5+512]; ld.global.u32 %r10, [%x5+640];
	mov.f32 %f5, 0f00000000;
	mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r5, %r6, %r7, %r8}, {%r9, %r10}, {%f5, %f5, %f5, %f5};
	mul.lo.u32 %r4, %r2, 32; mad.lo.u32 %r4, %r3, 8, %r4; cvt.u64.u32 %x4, %r4; add.u64 %x4, %x0, %x4;
	st.global.v2.f32 [%x4+768], {%f1, %f2}; st.global.v2.f32 [%x4+1024], {%f3, %f4};`
	if err := launch(t, entry(body), ptx.Launch{Block: [3]int{32, 1, 1}}, data); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		for j := range 8 {
			want := float32(0)
			for k := range 8 {
				want += value(i*8+k) * value(128+k*8+j)
			}
			if got := math.Float32frombits(binary.LittleEndian.Uint32(data[768+4*(8*i+j):])); got != want {
				t.Fatalf("%d, %d: %v, want %v", i, j, got, want)
			}
		}
	}
}

// TestDynamicShared: dynamic shared memory lies behind the kernel's own.
func TestDynamicShared(t *testing.T) {
	text := strings.Replace(entry("mov.u64 %x4, more; st.shared.u32 [%x4+12], %r0; sub.u64 %x4, %x4, %x2; st.global.u64 [%x0], %x4;"),
		".visible", ".extern .shared .align 16 .b8 more[];\n.visible", 1)
	data := make([]byte, 8)
	if err := launch(t, text, ptx.Launch{SharedBytes: 16}, data); err != nil || data[1] != 1 {
		t.Error(err, data)
	}
	if err := launch(t, text, ptx.Launch{SharedBytes: 12}, data); err == nil || !strings.Contains(err.Error(), "of 268 bytes of shared") {
		t.Error(err)
	}
}

// FuzzRun: no text makes reading or running it fail in another way than it may.
func FuzzRun(f *testing.F) {
	f.Add(entry("st.global.u32 [%x1], %r0;"))
	f.Add(wide(strings.ReplaceAll(product, "TYPE", "f16")))
	f.Add(async(strings.ReplaceAll(brings, "BYTES", "2048")))
	f.Add(async(refills))
	f.Add(async(grouped(8, wgmma(8, "f16")+" 1, 2, %p2, 1, 1, 0, 0;")))
	f.Add(head + `.global .align 4 .b8 table[4] = {1, 2, 3, 4};
		.func (.param .b64 r) f(.param .b64 a) { .reg .f64 %d<3>; ld.param.f64 %d1, [a]; sqrt.rn.f64 %d2, %d1; st.param.f64 [r], %d2; ret; }
		.visible .entry k(.param .u64 p) { .reg .f64 %d<3>; { .param .b64 a; .param .b64 r; st.param.f64 [a+0], 0d4000000000000000;
		call.uni (r), f, (a); ld.param.f64 %d1, [r+0]; } bar.sync 0; trap; }`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ptx.Parse([]byte(text))
		var wrong *ptx.SyntaxError
		if err != nil {
			if !errors.As(err, &wrong) {
				t.Fatal(err)
			}
			return
		}
		for i, name := range m.Kernels() {
			if i > 3 {
				break
			}
			k, err := m.Kernel(name)
			if err != nil {
				if !errors.As(err, &wrong) {
					t.Fatal(err)
				}
				continue
			}
			l := ptx.Launch{Grid: [3]int{2, 1, 1}, Block: [3]int{33, 1, 1}, SharedBytes: 64, MaxSteps: 5000}
			l.Parameters = make([]byte, k.ParameterBytes())
			for i := 0; i+8 <= len(l.Parameters); i += 8 {
				binary.LittleEndian.PutUint64(l.Parameters[i:], at)
			}
			l.Memory = []ptx.Region{{Address: at, Data: make([]byte, 256), Writes: true}}
			var fault *ptx.Fault
			if err := k.Run(t.Context(), l); err != nil && !errors.As(err, &fault) {
				t.Fatal(err)
			}
		}
	})
}
