//go:build !files

package running

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A bare number counts parameters, as the Python original does; a number with a unit is bytes.
func TestLimitFlag(t *testing.T) {
	for _, tt := range []struct {
		text string
		set  bool
		want plan.Limit
	}{
		{"1e9", false, plan.Limit{N: 1e9, Unit: plan.Params}},
		{"0", false, plan.Limit{N: 0, Unit: plan.Params}},
		{"25.", false, plan.Limit{N: 25, Unit: plan.Params}},
		{"2GiB", false, plan.Limit{N: 2 << 30, Unit: plan.Bytes}},
		{"500MB", false, plan.Limit{N: 500e6, Unit: plan.Bytes}},
		{"4096B", false, plan.Limit{N: 4096, Unit: plan.Bytes}},
		{"-1", true, plan.Limit{}},
		{"7", true, plan.Limit{N: 7, Unit: plan.Params}},
	} {
		l := limitFlag{set: tt.set}
		if err := l.Set(tt.text); err != nil || l.Limit != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.text, l.Limit, err, tt.want)
		}
	}
	for _, text := range []string{"", "-1", "-2", "2G", "many"} {
		if err := new(limitFlag).Set(text); err == nil {
			t.Errorf("%q is a limit", text)
		}
	}
	if err := (&limitFlag{set: true}).Set("-2"); err == nil {
		t.Error("-2 is a limit")
	}
}

// openShape is an input whose sizes are open where they are named.
func openShape(name string, dims ...string) models.Port {
	p := models.Port{Name: name, DType: tensor.Float32, Dims: dims, Shape: make(tensor.Shape, len(dims))}
	for i := range dims {
		p.Shape[i] = -1
	}
	return p
}

// Sizes that nobody gives are assumed: one row, what the program was exported with, what such inputs have; within the
// program's constraints, and the same for one symbol everywhere.
func TestCompleteShapes(t *testing.T) {
	static := models.Port{Name: "x", DType: tensor.Float32, Shape: tensor.Shape{2, 4}, Dims: []string{"", ""}}
	ckpt := &loader.Checkpoint{Program: &loader.Program{Exported: &exported.Program{
		Ranges: []exported.Range{{Symbol: "two", Min: 2, Max: 8}, {Symbol: "few", Min: 1, Max: 16}},
		Hints:  map[string]int64{"hinted": 77},
	}}}
	tokens := []models.Port{openShape("ids", "b", "hinted"), openShape("mask", "b", "hinted"), openShape("scale", "few")}
	for _, tt := range []struct {
		name  string
		flags ModelFlags
		ports []models.Port
		given map[string]tensor.Shape
		want  string // shapes in the ports' order
		note  string
		fails string
	}{
		{"a picture", ModelFlags{}, []models.Port{openShape("x", "b", "c", "h", "w")}, nil,
			"[1 3 224 224]", "assumed --shape x=1,3,224,224", ""},
		{"fixed", ModelFlags{}, []models.Port{static}, nil, "[2 4]", "", ""},
		{"hints", ModelFlags{}, tokens, nil, "[1 77] [1 77] [1]", "assumed --shape ids=1,77 --shape mask=1,77", ""},
		{"constraints", ModelFlags{}, []models.Port{openShape("x", "two", "few")}, nil, "[2 16]", "x=2,16", ""},
		{"a symbol in two places", ModelFlags{}, []models.Port{openShape("x", "b", "n", "h", "w"), openShape("m", "b", "n")}, nil,
			"[1 3 224 224] [1 3]", "assumed --shape x=1,3,224,224 --shape m=1,3", ""},
		{"rows", ModelFlags{batch: 5}, tokens, nil, "[5 77] [5 77] [5]", "ids=5,77", ""},
		{"learned", ModelFlags{}, tokens, map[string]tensor.Shape{"ids": {3, 9}}, "[3 9] [3 9] [1]", "scale=1", ""},
		{"another axis", ModelFlags{batch: 5, batchAxes: []string{"x=1"}}, []models.Port{openShape("x", "s", "b")}, nil,
			"[128 5]", "x=128,5", ""},
		{"rows that are given otherwise", ModelFlags{batch: 5}, tokens, map[string]tensor.Shape{"ids": {3, 9}}, "", "",
			"input ids has 3 rows"},
		{"rows beside a fixed input", ModelFlags{batch: 5}, []models.Port{openShape("y", "b"), static}, nil,
			"[5] [2 4]", "", ""},
		{"no shape at all", ModelFlags{}, []models.Port{{Name: "x", DType: tensor.Float32}}, nil, "", "",
			"--shape or --input has to say which"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr strings.Builder
			r := &Run{Line: &command.Line{Stderr: &stderr}, ModelFlags: tt.flags, Cmd: &cobra.Command{}}
			var err error
			if r.axes, err = r.parseBatchAxes(); err != nil {
				t.Fatal(err)
			}
			shapes := make(map[string]tensor.Shape)
			var made []models.Port
			for _, p := range tt.ports {
				if shape, ok := tt.given[p.Name]; ok {
					shapes[p.Name] = shape
				} else {
					made = append(made, p)
				}
			}
			r.ranges = symbolRanges(ckpt)
			err = r.completeShapes(ckpt, tt.ports, made, shapes)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v, want %q", err, tt.fails)
				}
				return
			}
			var got []string
			for _, p := range tt.ports {
				got = append(got, shapes[p.Name].String())
			}
			if strings.Join(got, " ") != tt.want || err != nil {
				t.Errorf("got %v, %v, want %s", got, err, tt.want)
			}
			if note := stderr.String(); (note == "") != (tt.note == "") || !strings.Contains(note, tt.note) {
				t.Errorf("said %q, want %q", note, tt.note)
			}
		})
	}
}
