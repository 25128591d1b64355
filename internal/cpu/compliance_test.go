package cpu_test

import (
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestCompliance runs every op that PyTorch was recorded with.
func TestCompliance(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	devicetest.Run(t, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		return cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
	})
}

// TestEncodedCompliance runs the ops that read blocks of codes.
func TestEncodedCompliance(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	devicetest.RunEncoded(t, func(string) bool { return true }, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		return cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
	})
}

// TestStateCompliance runs the ops that walk sequences with a state.
func TestStateCompliance(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	devicetest.RunStates(t, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		return cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
	})
}
