package main

import (
	"math"
	"strings"
	"testing"
)

const said = `
        /*0000*/                   MOV R1, c[0x0][0x28] ;                   /* 0x00000a0000017a02 */
                                                                            /* 0x000fe20000000f00 */
        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;                 /* 0x000000000204783b */
        /*0020*/              @!P0 BRA 0x50 ;                               /* 0x0000002000008947 */
        /*0030*/                   LDGSTS.E.BYPASS.128 [R8], [R6.64] ;      /* 0x0000000006087fae */
        /*0040*/                   IADD3 R2, R2, 0x10, RZ ;                 /* 0x0000001002027810 */
        /*0050*/                   HMMA.16816.F32.BF16 R12, R4, R16, R12 ;  /* 0x00000010040c723c */
        /*0060*/               @P1 BRA P2, 0x10 ;                           /* 0xffffffa000001947 */
        /*0070*/               @P1 BRA 0x10 ;                               /* 0xffffff9000001947 */
        /*0080*/                   EXIT ;                                   /* 0x000000000000794d */
        /*0090*/                   BRA 0x90;                                /* 0xfffffff000007947 */
`

// TestLongestWay: of two ways through a loop the one with more of each counts, and loops without products do not.
func TestLongestWay(t *testing.T) {
	text := parse([]byte(said))
	if len(text) != 10 || text[2].target != 0x50 || text[2].always || !text[9].always {
		t.Fatalf("%+v", text)
	}
	loops := loopsOf(text)
	if want := (loop{longest: 7, products: 1, reads: 4, copies: 1, depth: 16, all: 7}); len(loops) != 2 || loops[1] != want {
		t.Errorf("%+v, want %+v last", loops, want)
	}
}

const saidOf70 = `
        /*0000*/                   LDG.E.128.SYS R4, [R2] ;                                    /* 0x0000000002047381 */
        /*0010*/                   STS.128 [R8], R4 ;                                          /* 0x0000000408007388 */
        /*0020*/                   LDS.U.128 R4, [R2] ;                                        /* 0x0000000002047984 */
        /*0030*/                   LDS.U.64 R4, [R2] ;                                         /* 0x0000000002047984 */
        /*0040*/                   HMMA.884.F32.F32.STEP0 R8, R4.reuse.ROW, R6.reuse.COL, R8 ; /* 0x0000000604087236 */
        /*0050*/              @!P0 BRA 0x20 ;                                                  /* 0xffffffc000008947 */
        /*0060*/              @!P1 BRA 0x0 ;                                                   /* 0xffffff9000009947 */
        /*0070*/                   EXIT ;                                                      /* 0x000000000000794d */
`

// TestLoopInLoop: a loop within that over the terms counts as often as it runs, and is none of its own.
func TestLoopInLoop(t *testing.T) {
	loops := loopsOf(parse([]byte(saidOf70)))
	if want := (loop{longest: 7 + 3*4, products: 4, reads: 4 + 4*6, copies: 1, depth: 2, all: 7}); len(loops) != 1 || loops[0] != want {
		t.Errorf("%+v, want %+v", loops, want)
	}
	of75 := strings.ReplaceAll(saidOf70, "HMMA.884.F32.F32.STEP0", "HMMA.1688.F32")
	loops = loopsOf(parse([]byte(of75)))
	if want := (loop{longest: 7 + 4, products: 2, reads: 4 + 2*6, copies: 1, depth: 8, all: 7}); len(loops) != 1 || loops[0] != want {
		t.Errorf("%+v, want %+v", loops, want)
	}
}

// TestReaches: what takes longest bounds, and that is the tensor cores where nothing else takes as long.
func TestReaches(t *testing.T) {
	m := machine{80, 256, 0, 65536}
	for _, c := range []struct {
		of   loop
		want float64
		by   string
	}{
		{loop{longest: 100, products: 64, reads: 10, depth: 16}, 100, "tensor"},
		{loop{longest: 1024, products: 64, reads: 10, depth: 16}, 50, "issue"},
		{loop{longest: 100, products: 64, reads: 224, depth: 16}, 50, "shared"},
	} {
		percent, by := m.reaches(&c.of, &family{size: 2, read: 2, lines: 256, warps: 4}, 255, 0)
		if by != c.by || math.Abs(percent-c.want) > 2 {
			t.Errorf("%+v: %.1f by %s, want %v by %s", c.of, percent, by, c.want, c.by)
		}
	}
}
