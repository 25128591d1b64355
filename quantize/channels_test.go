package quantize

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// heldBytes are a source in memory.
type heldBytes []byte

func (b heldBytes) Size() int64 { return int64(len(b)) }

func (b heldBytes) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, b[off:])
	return nil
}

// realLayer is a part of a real layer, with what it is given, which make_layer.py recorded.
func realLayer(t *testing.T) (*item, []float64) {
	t.Helper()
	file, err := os.Open("testdata/layer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Rows, Columns, Tokens int
		Weight, Given         []byte
		Scales                []float64
	}
	if err := json.NewDecoder(plain).Decode(&golden); err != nil {
		t.Fatal(err)
	}
	sums, row := make([]float64, golden.Columns*golden.Columns), make([]float64, golden.Columns)
	for i := range golden.Tokens {
		for k := range row {
			row[k] = float64(int8(golden.Given[i*golden.Columns+k])) * golden.Scales[k]
		}
		for k := range row {
			addTimes(sums[k*golden.Columns:][:golden.Columns], row, row[k])
		}
	}
	weight := tensor.Weight{
		Name: "q", DType: tensor.BFloat16, Layout: tensor.Contiguous(golden.Rows, golden.Columns),
		Extent: storage.Extent{Source: heldBytes(golden.Weight), Bytes: int64(len(golden.Weight))},
	}
	return &item{weight: weight, module: "q", rows: int64(golden.Rows), columns: int64(golden.Columns)}, sums
}

// outputError is the squared error of what a layer computes of its inputs, all their products counted, when its rows become codes
// as t says, by the sum of squares of what it computed before.
func outputError(t *testing.T, f *Folder, it *item, h *hessian, how *turned) float64 {
	t.Helper()
	lost, all := 0.0, 0.0
	room := newTryRoom(it, 1)
	for r := range it.rows {
		sum := make([]float64, 1)
		if err := f.tryRow(t.Context(), it, r, []*turned{how}, room); err != nil {
			t.Fatal(err)
		}
		h.weigh(room.off, sum)
		lost += sum[0]
		decode(room.numbers, room.raw, it.weight.DType)
		for i, v := range room.numbers {
			room.off[0][i] = float64(v)
		}
		sum[0] = 0
		h.weigh(room.off, sum)
		all += sum[0]
	}
	return relative(lost, all)
}

// TestChannelsOfRealLayer: what a real layer computes is off by less with scaled channels than without, also where
// codes have a zero point, and by no less with any other choice: inputs are taken as they come together.
func TestChannelsOfRealLayer(t *testing.T) {
	it, sums := realLayer(t)
	for _, c := range []struct {
		scheme Scheme
		most   float64 // of the error without scales
	}{
		{Scheme{Kind: "int4", Group: 32}, 0.8}, {Scheme{Kind: "int4", Group: 32, Minimum: true}, 0.96},
		{Scheme{Kind: "int4", Group: 128, Minimum: true}, 0.97}, {Scheme{Kind: "int8", Minimum: true}, 0.99},
	} {
		f := &Folder{opts: Options{Scheme: c.scheme}}
		f.channels = channels{make(map[string][]float32), make(map[string][]float32), make(map[string][]float64), make(map[string]bool), make(map[string]bool)}
		maker := &item{weight: tensor.Weight{Name: "norm"}}
		h := newHessian(append([]float64(nil), sums...), int(it.columns), false)
		if err := f.scale(t.Context(), &scaling{maker: maker, layers: []*item{it}}, h); err != nil {
			t.Fatal(err)
		}
		how := f.channels.of(it)
		none := &turned{columns: channelScales(h.squares, 0)}
		with, without := outputError(t, f, it, h, how), outputError(t, f, it, h, none)
		t.Logf("%+v: off by %.4f, %.4f without scales", c.scheme, with, without)
		if with > c.most*without {
			t.Errorf("%+v: off by %v, without scales %v", c.scheme, with, without)
		}
		for p := range powers {
			all := channels{columns: map[string][]float32{"q": channelScales(h.squares, float64(p)/powers)}, squares: map[string][]float64{"q": h.squares}}
			for _, alike := range []bool{false, true} {
				other := all.of(it)
				other.alike = alike
				if e := outputError(t, f, it, h, other); e < with*(1-1e-9) { // all rows were tried
					t.Errorf("%+v: power %d of %d, alike %v is off by %v, the choice by %v", c.scheme, p, powers, alike, e, with)
				}
			}
		}
	}
}
