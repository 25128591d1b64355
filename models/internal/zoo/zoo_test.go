package zoo

import (
	"math"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestHash holds the hash to the vectors of models/testdata/README.md.
func TestHash(t *testing.T) {
	for _, v := range []struct {
		name string
		key  uint64
		h    [3]uint64
	}{
		{"conv1.weight", 0x69a29a2cee47d254, [3]uint64{0x8b8a08a85128a1b0, 0xbec2eba82f6f054f, 0x05de32eeed3c84ab}},
		{"input:x", 0x80c43e2d5926f491, [3]uint64{0x09cfd104e93425ac, 0x5198ef3fa38a9f8b, 0x26a5fc4c157ccce2}},
	} {
		if got := Key(v.name); got != v.key {
			t.Errorf("key of %s is %#x, want %#x", v.name, got, v.key)
		}
		for i, want := range v.h {
			if got := hash(v.key, int64(i)); got != want {
				t.Errorf("hash %d of %s is %#x, want %#x", i, v.name, got, want)
			}
		}
	}
	h := &hashed{dtype: tensor.Float32, n: 3, key: Key("fc.bias"), offset: 1, scale: 0.1}
	p := make([]byte, 12)
	if err := h.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[float32](&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(3), Data: p})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.9955302477, 0.9961463809, 0.9560126066} {
		if math.Abs(float64(got[i])-want) > 5e-11+5e-8*want/2 {
			t.Errorf("value %d of fc.bias is %.10g, want %.10g", i, got[i], want)
		}
	}
	ids := &hashed{dtype: tensor.Int64, n: 6, key: Key("input:ids"), high: 200}
	p = make([]byte, 48)
	if err := ids.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range []byte{85, 11, 118, 176, 99, 10} {
		if p[8*i] != want {
			t.Errorf("id %d is %d, want %d", i, p[8*i], want)
		}
	}
}
