package serve

import "net/http"

// modelStats are the statistics of a version, as the protocol's extension has them.
type modelStats struct {
	Name           string           `json:"name"`
	Version        string           `json:"version"`
	LastInference  int64            `json:"last_inference"`
	InferenceCount int64            `json:"inference_count"`
	ExecutionCount int64            `json:"execution_count"`
	InferenceStats map[string]tally `json:"inference_stats"`
	BatchStats     []struct{}       `json:"batch_stats"`
	MemoryUsage    []memoryUsage    `json:"memory_usage"`
}

// memoryUsage is what a model holds of one kind of memory.
type memoryUsage struct {
	Type     string `json:"type"`
	ID       int64  `json:"id"`
	ByteSize int64  `json:"byte_size"`
}

// statsOf returns the statistics of a version. An execution is a pass, whoever shared it; an inference is a row of a request.
func statsOf(v *version) modelStats {
	m := modelStats{Name: v.model, Version: v.number, BatchStats: []struct{}{}, MemoryUsage: []memoryUsage{}}
	s := &v.stats
	s.mu.Lock()
	m.InferenceCount = s.rows
	if !s.last.IsZero() {
		m.LastInference = s.last.UnixMilli()
	}
	m.InferenceStats = map[string]tally{
		"success": s.success, "fail": s.fail, "queue": s.queue, "compute_input": s.input, "compute_infer": s.infer,
		"compute_output": s.output, "cache_hit": {}, "cache_miss": {},
	}
	s.mu.Unlock()
	if i := v.current(); i != nil {
		f := i.facts()
		m.ExecutionCount = f.passes
		m.MemoryUsage = append(m.MemoryUsage, memoryUsage{"CPU", 0, f.heldBytes})
	}
	return m
}

func (r *Registry) statistics(w http.ResponseWriter, list []*version) error {
	all := []modelStats{}
	for _, v := range list {
		if v.current() != nil || len(list) == 1 {
			all = append(all, statsOf(v))
		}
	}
	return writeJSON(w, 200, map[string]any{"model_stats": all})
}
