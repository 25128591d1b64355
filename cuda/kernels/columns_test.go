package kernels

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestColumns has every text come back as it was, whatever its numbers look like.
func TestColumns(t *testing.T) {
	for _, text := range []string{
		"", "\n", "\n\n", "ret;", "ret;\n",
		"add.s32 %r12,%r3,-7;\nadd.s32 %r13,%r12,1;\n$L__BB3_14:\nld.global.u32 %r1,[%rd2+4096];\n",
		"mov.f32 %f1,0f3F800000;\nmov.u64 %rd1,18446744073709551615;\nmov %p1;\n%tid.x\n",
		"007 0 00 1.5 x1 9a %r07 %r BB BB1 BB01_2 1000000000 999999999 -1",
		"%r999999999 %r0 %r999999999\n%r1",
	} {
		columns, err := split([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := join(columns, len(text)); err != nil || string(back) != text {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	}
	if _, err := split([]byte("a\x00b")); err == nil {
		t.Error("a zero byte is taken for a hole")
	}
	columns, err := split([]byte(strings.Repeat("ret;\n", 100)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := join(columns, 400); err == nil {
		t.Error("text may be longer than its limit")
	}
}

// TestColumnsDamaged refuses columns that were cut short anywhere, or gives some text, and never panics.
func TestColumnsDamaged(t *testing.T) {
	whole, err := split([]byte("add.s32 %r12,%r3,-7;\n$L__BB3_14:\nld.global.u32 %r1,[%rd2+4096];\nadd.s32 %r13,%r4,-8;\n"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := join(whole[:n], 1000); n < 100 && !errors.Is(err, errColumns) {
			t.Errorf("of %d bytes %d are enough: %v", len(whole), n, err)
		}
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[n] ^= 1 << bit
			_, _ = join(damaged, 1000)
		}
	}
}

func FuzzColumns(f *testing.F) {
	f.Add([]byte("add.s32 %r12,%r3,-7;\n$L__BB3_14:\n[%rd2+4096];\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		columns, err := split(text)
		if err != nil {
			return
		}
		if back, err := join(columns, len(text)); err != nil || !bytes.Equal(back, text) {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	})
}

// TestColumnsThatEnd: a number that its column does not have any more is an error, not the one before it.
func TestColumnsThatEnd(t *testing.T) {
	for order, want := range map[string]string{"\x00": "%r7", "\x00\x00": ""} {
		packed := appendPart(appendPart(nil, []byte("%r\x00\n")), []byte(order))
		packed = appendPart(appendPart(packed, []byte("%r")), []byte{14})
		got, err := join(packed, 100)
		if string(got) != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, errColumns) {
			t.Errorf("%d lines of a column of one number: %q, %v", len(order), got, err)
		}
	}
}
