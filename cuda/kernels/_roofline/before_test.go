package main

import (
	"strings"
	"testing"
)

const saidOfPtxas = `ptxas info    : 136 bytes gmem
ptxas info    : Compiling entry function 'om_a' for 'sm_90'
ptxas info    : Function properties for om_a
    176 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 176 bytes cumulative stack size
ptxas info    : Compiling entry function 'om_b' for 'sm_90'
ptxas info    : Function properties for om_b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
`

// TestCompared: kernels of both states count, those that changed or have products are listed, and others are not.
func TestCompared(t *testing.T) {
	found := taken(saidOfPtxas)
	if a := (spent{registers: 40, frame: 176, stores: 4, loads: 8}); len(found) != 2 || found["om_a"] != a || found["om_b"].registers != 12 {
		t.Fatalf("%+v", found)
	}
	was, is := make(map[where]spent), make(map[where]spent)
	for name, x := range found {
		was[where{90, name}], is[where{90, name}] = x, spent{registers: 8, all: 7}
	}
	was[where{90, "om_old"}], is[where{90, "om_new"}] = spent{frame: 1000}, spent{frame: 1000}
	product := spent{registers: 255, all: 900}
	count(&product, parse([]byte(said)))
	was[where{80, "om_c"}], is[where{80, "om_c"}] = product, product
	text := compared("abc of a day", was, is)
	for _, want := range []string{
		"at abc of a day and", "\n90 all 2: 1 176 1 12, now 0 0 0 0\n",
		"\n90 om_a 40 176 4 8 0, now 8 0 0 0 7\n", "\n80 om_c 255 0 0 0 900 7/1, now 255 0 0 0 900 7/1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, other := range []string{"om_b", "om_old", "om_new"} {
		if strings.Contains(text, other) {
			t.Errorf("%s is in\n%s", other, text)
		}
	}
}
