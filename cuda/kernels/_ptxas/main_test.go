package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/kernels/_ptxas/told"
)

const said = `ptxas info    : 136 bytes gmem
ptxas info    : Compiling entry function 'om_a' for 'sm_90'
ptxas info    : Function properties for om_a
    176 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 176 bytes cumulative stack size
ptxas info    : Function properties for other_at
    16 bytes stack frame, 1 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'om_b' for 'sm_90'
ptxas info    : Function properties for om_b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
`

// TestParse: what a function takes that a kernel calls is the kernel's.
func TestParse(t *testing.T) {
	uses := told.Parse(said)
	if a := (use{Registers: 40, Frame: 176, Stores: 5, Loads: 8}); len(uses) != 2 || uses["om_a"] != a || uses["om_b"] != (use{Registers: 12}) {
		t.Errorf("%+v", uses)
	}
}

// TestCompare: a kernel that is above the list, or not in it, fails; one below it does not.
func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Dir(listPath), 0o755); err != nil {
		t.Fatal(err)
	}
	a, b := place{90, "om_a"}, place{90, "om_b"}
	found := map[place]use{a: {Registers: 40, Frame: 176, Stores: 5, Loads: 8}, b: {Registers: 12}}
	if err := os.WriteFile(listPath, []byte(list([]place{a, b}, found)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b use
		want string
	}{
		{found[a], found[b], ""},
		{use{Registers: 200, Frame: 176, Stores: 4, Loads: 0}, found[b], ""},
		{use{Registers: 40, Frame: 177, Stores: 5, Loads: 8}, found[b], "90 om_a 177 5 8"},
		{use{Registers: 40, Frame: 176, Stores: 6, Loads: 8}, found[b], "90 om_a 176 6 8"},
		{found[a], use{Registers: 12, Frame: 0, Stores: 0, Loads: 4}, "90 om_b 0 0 4"},
	} {
		err := compare([]place{a, b}, map[place]use{a: c.a, b: c.b})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v %+v: %v, want %q", c.a, c.b, err, c.want)
		}
	}
}

// TestPartIsNotWritten: a list that would forget a capability is not written.
func TestPartIsNotWritten(t *testing.T) {
	before := capabilities
	defer func() { capabilities = before }()
	if err := run(true, false, false, "", "90"); !errors.Is(err, errPart) {
		t.Errorf("a list of one capability is written over that of all: %v", err)
	}
}
