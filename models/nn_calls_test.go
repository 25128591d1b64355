package models

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/internal/zoo"
)

// A listener is a recorder that writes down the names of the ops that are called.
type listener struct {
	*recorder
	calls []string
}

func (l *listener) Call(op string, args []any, named layers.Named) ([]any, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(op, "aten::"), ".")
	l.calls = append(l.calls, name)
	return l.recorder.Call(op, args, named)
}

// TestNNCalls compares the ops that the classes call with those that PyTorch's exporter recorded for the same module,
// so that a pickled module and the program exported from it compute alike.
func TestNNCalls(t *testing.T) {
	cases, err := zoo.Modules("testdata/nn/nn.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, c := range cases {
		if len(c.Calls) == 0 {
			continue
		}
		ckpt, err := c.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		a, err := pickledArchitecture(ckpt)
		if err != nil {
			t.Fatal(err)
		}
		l := &listener{recorder: newRecorder(ckpt, graph.Standard())}
		args := make([]any, len(a.Inputs))
		for i, p := range a.Inputs {
			if in, ok := c.Inputs[p.Name]; ok {
				args[i] = l.Own(l.Graph.AddInput(p.Name, p.DType, in.Shape))
			}
		}
		if _, err := a.Trace(l, args); err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		compared++
		if diff := cmp.Diff(c.Calls, l.calls); diff != "" {
			t.Errorf("%s (-exported +called):\n%s", c.Name, diff)
		}
	}
	if compared < 400 {
		t.Errorf("%d cases compared", compared)
	}
}
