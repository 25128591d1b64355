package devicetest

import (
	"bytes"
	"testing"

	"github.com/optimem/optimem/device"
)

// Copies checks that a device copies no part of what does not fit, and says so, and leaves what lies behind fewer bytes than a region
// has.
func Copies(t *testing.T, dev device.Device) {
	t.Helper()
	memory, err := dev.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	whole, half := device.Region{Memory: memory, Bytes: 16}, device.Region{Memory: memory, Bytes: 8}
	read := func() []byte {
		t.Helper()
		got := make([]byte, 16)
		if err := stream.CopyOut(got, whole); err != nil {
			t.Fatal(err)
		}
		if err := stream.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if err := stream.CopyIn(whole, []byte("0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	if err := stream.CopyIn(half, bytes.Repeat([]byte("x"), 9)); err == nil {
		t.Error("nine bytes go into eight")
	}
	nine := bytes.Repeat([]byte("y"), 9)
	if err := stream.CopyOut(nine, half); err == nil || string(nine) != "yyyyyyyyy" {
		t.Errorf("nine bytes of eight are %q: %v", nine, err)
	}
	if err := stream.CopyIn(half, []byte("zz")); err != nil {
		t.Error(err)
	}
	if got := read(); string(got) != "zz23456789abcdef" {
		t.Errorf("the device has %q", got)
	}
	for what, err := range map[string]error{"closing the stream": stream.Close(), "freeing": memory.Free()} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
