package adapt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/tensor"
)

// A recording is what toma tried on scripted failures: testdata/make_sizes.py wrote it.
type recording struct {
	Sequences []struct {
		Kind, Cache string
		Calls       []scripted
	}
	Faults struct {
		Dimension [][]int `json:"dimension=1 of the decorator"`
		Arguments string  `json:"further arguments of chunked"`
		Context   [][]int `json:"context= beside other options"`
		Outermost []int   `json:"two calls at the outermost level"`
		Smaller   []int   `json:"a smaller initial size"`
	}
}

// A scripted call fails for want of memory above a limit and at the given tries, and for another reason at one.
type scripted struct {
	Initial, Start, End int
	Limit, Other        *int
	Fails               []int
	Free                int64
	Ends                string
	Tries               json.RawMessage
}

var (
	errShort = adapt.OutOfMemory(errors.New("no memory left"))
	errOther = errors.New("another error")
)

func recorded(t *testing.T) *recording {
	t.Helper()
	text, err := os.ReadFile("testdata/sizes.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// The sizes tried, their order and how calls end are toma's, where nothing grows.
func TestSizesAreTomas(t *testing.T) {
	r := recorded(t)
	if len(r.Sequences) < 60 {
		t.Fatalf("%d sequences", len(r.Sequences))
	}
	remember := map[string]adapt.Remember{"never": adapt.Never, "always": adapt.Always, "by free": adapt.ByFree}
	for i, s := range r.Sequences {
		var free int64
		var site *adapt.Site
		if s.Cache != "simple" {
			site = adapt.NewSite(adapt.Options{Remember: remember[s.Cache], Free: func() int64 { return free }})
		}
		for j, c := range s.Calls {
			free = c.Free
			tries, ends := c.run(t, s.Kind, site)
			if string(tries) != string(c.Tries) || ends != c.Ends {
				t.Errorf("sequence %d, %s, %s, call %d: %s, %s; toma: %s, %s", i, s.Kind, s.Cache, j, tries, ends, c.Tries, c.Ends)
			}
		}
	}
}

// run makes the call, and returns what it tried and how it ended.
func (c *scripted) run(t *testing.T, kind string, site *adapt.Site) (json.RawMessage, string) {
	t.Helper()
	try := 0
	outcome := func(size int) error {
		at := try
		try++
		switch {
		case c.Other != nil && at == *c.Other:
			return errOther
		case slices.Contains(c.Fails, at), c.Limit != nil && size > *c.Limit:
			return errShort
		}
		return nil
	}
	var err error
	var tried any
	if ctx := context.Background(); kind == "batch" {
		sizes := []int{}
		err = adapt.Batch(ctx, site, c.Initial, func(_ context.Context, n int) error {
			sizes = append(sizes, n)
			return outcome(n)
		})
		tried = sizes
	} else {
		parts := [][2]int{}
		part := func(_ context.Context, lo, hi int) error {
			parts = append(parts, [2]int{lo, hi})
			return outcome(hi - lo)
		}
		if kind == "range" {
			err = adapt.Range(ctx, site, c.Start, c.End, c.Initial, part)
		} else {
			rows := make([]int64, c.End)
			for i := range rows {
				rows[i] = int64(i)
			}
			all := tensor.Of(rows, len(rows))
			err = adapt.Chunks(ctx, site, all, 0, c.Initial, func(ctx context.Context, p *tensor.Tensor, lo, hi int) error {
				if got, err := tensor.Slice[int64](p); err != nil || !slices.Equal(got, rows[lo:hi]) {
					t.Errorf("rows %d to %d are %v, %v", lo, hi, got, err)
				}
				return part(ctx, lo, hi)
			})
		}
		tried = parts
	}
	text, _ := json.Marshal(tried)
	switch {
	case err == nil:
		return text, "well"
	case errors.Is(err, errOther):
		return text, "another error"
	case adapt.IsOutOfMemory(err) && errors.Is(err, errShort):
		return text, "out of memory"
	}
	return text, err.Error()
}

// toma cut dimension 0 whatever its decorator was told.
func TestChunksCutTheDimensionAskedFor(t *testing.T) {
	if got := recorded(t).Faults.Dimension; fmt.Sprint(got) != "[[2 6] [2 6]]" {
		t.Fatalf("toma: %v", got)
	}
	values := make([]float32, 24)
	for i := range values {
		values[i] = float32(i)
	}
	all := tensor.Of(values, 4, 6)
	for _, dim := range []int{1, -1} {
		var shapes, firsts []string
		err := adapt.Chunks(context.Background(), nil, all, dim, 4, func(_ context.Context, p *tensor.Tensor, lo, hi int) error {
			shapes = append(shapes, fmt.Sprint(p.Layout.Shape, lo, hi))
			columns, err := tensor.Slice[float32](p.Contiguous())
			firsts = append(firsts, fmt.Sprint(columns[:3]))
			return err
		})
		if err != nil || fmt.Sprint(shapes) != "[[4 4] 0 4 [4 2] 4 6]" || fmt.Sprint(firsts) != "[[0 1 2] [4 5 10]]" {
			t.Errorf("dimension %d: %v %v, %v", dim, shapes, firsts, err)
		}
	}
	if fmt.Sprint(all.Layout.Shape, all.Layout.Offset) != "[4 6] 0" {
		t.Errorf("the tensor itself became %v", all.Layout)
	}
	for _, dim := range []int{2, -3} {
		err := adapt.Chunks(context.Background(), nil, all, dim, 4, nil)
		if err == nil || err.Error() != fmt.Sprintf("dimension %d of a tensor of shape [4 6]", dim) {
			t.Errorf("dimension %d: %v", dim, err)
		}
	}
}

// toma's chunked passed further arguments twice, and its function failed. Here they are what a closure knows, and what it
// writes to a part is written to the tensor.
func TestChunksUseWhatTheCallerKnows(t *testing.T) {
	if got := recorded(t).Faults.Arguments; got != "TypeError" {
		t.Fatalf("toma: %v", got)
	}
	values, factor := []float32{1, 2, 3, 4, 5}, float32(3)
	err := adapt.Chunks(context.Background(), nil, tensor.Of(values, 5), 0, 2,
		func(_ context.Context, p *tensor.Tensor, _, _ int) error {
			part, err := tensor.Slice[float32](p)
			for i := range part {
				part[i] *= factor
			}
			return err
		})
	if err != nil || fmt.Sprint(values) != "[3 6 9 12 15]" {
		t.Errorf("%v, %v", values, err)
	}
}

// limited appends each size to a list and has memory for nine.
func limited(sizes *[]int) func(context.Context, int) error {
	return func(_ context.Context, n int) error {
		*sizes = append(*sizes, n)
		if n > 9 {
			return errShort
		}
		return nil
	}
}

// toma dropped context= beside other options, so functions that were to share what they learn did not.
func TestFunctionsShareASite(t *testing.T) {
	if got := recorded(t).Faults.Context; fmt.Sprint(got) != "[[64 32 16 8] [64 32 16 8]]" {
		t.Fatalf("toma: %v", got)
	}
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always})
	var first, second []int
	err := errors.Join(adapt.Batch(context.Background(), site, 64, limited(&first)),
		adapt.Batch(context.Background(), site, 64, limited(&second)))
	if err != nil || fmt.Sprint(first, second) != "[64 32 16 8] [8]" {
		t.Errorf("%v, %v, %v", first, second, err)
	}
}

// toma left the outermost frame out of its keys, so two calls of a function by one module shared a size.
func TestSitesShareNothing(t *testing.T) {
	if got := recorded(t).Faults.Outermost; fmt.Sprint(got) != "[64 32 16 8 8]" {
		t.Fatalf("toma: %v", got)
	}
	var here, there adapt.Site
	var sizes []int
	err := errors.Join(adapt.Batch(context.Background(), &here, 64, limited(&sizes)),
		adapt.Batch(context.Background(), &there, 64, limited(&sizes)))
	if err != nil || fmt.Sprint(sizes) != "[64 32 16 8 64 32 16 8]" {
		t.Errorf("%v, %v", sizes, err)
	}
}

// toma's later calls exceeded a smaller initial size, and stayed at what an earlier, smaller one was. Only a refusal is
// remembered.
func TestInitialSizesBoundEachCall(t *testing.T) {
	if got := recorded(t).Faults.Smaller; fmt.Sprint(got) != "[8 8]" {
		t.Fatalf("toma: %v", got)
	}
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always})
	var sizes []int
	for _, initial := range []int{8, 4, 9, 30, 4, 9} {
		if err := adapt.Batch(context.Background(), site, initial, limited(&sizes)); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(sizes) != "[8 4 9 30 15 7 4 7]" {
		t.Errorf("%v", sizes)
	}
}
