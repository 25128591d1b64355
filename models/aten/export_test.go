package aten

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
)

// SharedMemory builds a call and returns which memory each result is in, or is kept equal to, by the numbers of the results, and
// which memories the call changes.
func SharedMemory(ops *graph.Registry, target string, args map[string]any) (shared map[int]string, changed map[string]bool, err error) {
	s, err := buildSingle(ops, target, args)
	if err != nil {
		return nil, nil, err
	}
	shared, changed = make(map[int]string), make(map[string]bool)
	for name, c := range s.cells {
		changed[name] = *c != s.before[name]
		for i, r := range call.Refs(s.Results) {
			if r == nil {
				continue
			}
			if s.SameMemory(r.Memory(), c) {
				shared[i] = name
			}
		}
	}
	return shared, changed, nil
}
