package models_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// stateful opens a program whose attributes live from call to call, with what PyTorch gave.
func stateful(t *testing.T, name string) (*models.Model, []zoo.Case) {
	t.Helper()
	ref := readReference(t, filepath.Join(scriptFolder, name+".ref.json.gz"))
	model, err := models.Build(openScript(t, filepath.Join(scriptFolder, name+".script.pt.gz"), ref), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model, ref.Cases
}

// values returns the inputs of a case.
func values(t *testing.T, c zoo.Case) optimem.Values {
	t.Helper()
	in := make(optimem.Values, len(c.Inputs))
	for name, f := range c.Inputs {
		var err error
		if in[name], err = f.Tensor(name); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// answers compares what a call gave.
func answers(t *testing.T, i int, out optimem.Values, c zoo.Case) {
	t.Helper()
	for _, want := range c.Outputs {
		if _, err := compareSample(out[want.Name], want); err != nil {
			t.Errorf("call %d: output %s: %v", i, want.Name, err)
		}
	}
}

// TestScriptStates: what attributes keep from call to call, the answers depend on, in every mode and also where calls between them
// fail or are cancelled.
func TestScriptStates(t *testing.T) {
	for _, name := range []string{"speech", "recalls", "remembers"} {
		for mode, start := range map[string]func(*models.Model, func(optimem.Event)) (*optimem.Session, error){
			"resident": func(m *models.Model, observe func(optimem.Event)) (*optimem.Session, error) {
				return optimem.Resident(t.Context(), m, optimem.Options{Threads: 1, Observe: observe})
			},
			"page": func(m *models.Model, observe func(optimem.Event)) (*optimem.Session, error) {
				return optimem.Page(t.Context(), m, optimem.Options{
					Threads: 1, Observe: observe, Memory: 40 << 10, MaxGroup: plan.Limit{N: 1, Unit: plan.Bytes},
				})
			},
			"chunk": func(m *models.Model, observe func(optimem.Event)) (*optimem.Session, error) {
				return optimem.Chunk(t.Context(), m, optimem.Options{
					Threads: 1, Observe: observe, Device: "emu:memory=1MiB", Capacity: plan.Limit{N: 100, Unit: plan.Bytes},
				})
			},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				model, cases := stateful(t, name)
				stop := func() {}
				session, err := start(model, func(optimem.Event) { stop() })
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				for i, c := range cases {
					in := values(t, c)
					ctx, cancel := context.WithCancel(t.Context())
					stop = cancel
					if _, err := session.Run(ctx, in); !errors.Is(err, context.Canceled) {
						t.Fatalf("call %d: cancelled: %v", i, err)
					}
					stop = func() {}
					out, err := session.Run(t.Context(), in)
					if err != nil {
						t.Fatalf("call %d: %v", i, err)
					}
					answers(t, i, out, c)
				}
			})
		}
	}
}

// TestScriptStatesInto: so do calls into the caller's memory, and a session begins where the archive does.
func TestScriptStatesInto(t *testing.T) {
	model, cases := stateful(t, "speech")
	for range 2 {
		session, err := optimem.Resident(t.Context(), model, optimem.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			in := values(t, c)
			out := optimem.Values{"output_0": tensor.Of(make([]float32, in["x"].Layout.Shape[0]), in["x"].Layout.Shape[0])}
			if err := session.RunInto(t.Context(), in, out); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			answers(t, i, out, c)
		}
		if err := session.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScriptStatesAreNoBatch: rows that are to be computed apart cannot leave something for each other.
func TestScriptStatesAreNoBatch(t *testing.T) {
	model, cases := stateful(t, "speech")
	session, err := optimem.Resident(t.Context(), model, optimem.Options{Threads: 1, BatchAxes: map[string]int{"x": 0, "output_0": 0}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	in := values(t, cases[0])
	if !model.SetNumber("sr", in["sr"]) {
		t.Fatal("sr is no number")
	}
	for _, when := range []string{"before", "after"} {
		var refused *optimem.NotBatchableError
		if _, err := session.RunBatch(t.Context(), in); !errors.As(err, &refused) {
			t.Errorf("%s a call: %v", when, err)
		}
		if _, err := session.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScriptStatesThatNeverSettle: a program that would need another graph for every call is refused at the first, with the
// attribute.
func TestScriptStatesThatNeverSettle(t *testing.T) {
	for name, attribute := range map[string]string{"counts": "attribute calls", "grows": "attribute all"} {
		if refused := refusedScript(t, name); !strings.HasPrefix(refused.Missing[0].Name, attribute) {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// TestScriptStatesOfOtherModels: what no graph of a model left, none is for.
func TestScriptStatesOfOtherModels(t *testing.T) {
	model, _ := stateful(t, "remembers")
	if _, err := model.GraphOf(t.Context(), models.Call{Inputs: map[string]tensor.Shape{"x": {2, 3}}, After: "x"}); err == nil {
		t.Error("a graph after a call that there was not")
	}
}

// TestScriptBuffersOfOtherShapes: what a call makes of a buffer, a call of another shape finds, though its own way through the code
// only reads it.
func TestScriptBuffersOfOtherShapes(t *testing.T) {
	model, err := models.Build(scriptOf(t,
		"if torch.eq(torch.size(x, 0), 2):\n  b = torch.add_(self.b, x)\nelse:\n  pass\nreturn torch.mul(self.b, 2)"), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i, c := range []struct {
		rows int
		want float32
	}{{1, 0}, {2, 2}, {1, 2}, {2, 4}, {1, 4}} {
		x := make([]float32, 3*c.rows)
		for i := range x {
			x[i] = 1
		}
		out, err := session.Run(t.Context(), optimem.Values{"x": tensor.Of(x, c.rows, 3)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tensor.Slice[float32](out["output_0"]); err != nil || got[0] != c.want || got[5] != c.want {
			t.Errorf("call %d: %v, want %v, %v", i, got, c.want, err)
		}
	}
}
