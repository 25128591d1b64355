package serve

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A metric is a family of lines in Prometheus's text format.
type metric struct {
	name, kind, help string
	lines            []string
}

// An exposition gathers metrics in the order in which they were first named.
type exposition struct {
	order []*metric
	named map[string]*metric
}

func (x *exposition) family(name, kind, help string) *metric {
	if m := x.named[name]; m != nil {
		return m
	}
	m := &metric{name: name, kind: kind, help: help}
	x.named[name] = m
	x.order = append(x.order, m)
	return m
}

// labels writes pairs of names and values.
func labels(pairs ...string) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(pairs[i+1])
		parts = append(parts, pairs[i]+`="`+escaped+`"`)
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (x *exposition) add(name, kind, help string, value float64, pairs ...string) {
	m := x.family(name, kind, help)
	m.lines = append(m.lines, name+labels(pairs...)+" "+strconv.FormatFloat(value, 'g', -1, 64))
}

func (x *exposition) counter(name, help string, value float64, pairs ...string) {
	x.add(name, "counter", help, value, pairs...)
}

func (x *exposition) gauge(name, help string, value float64, pairs ...string) {
	x.add(name, "gauge", help, value, pairs...)
}

func (x *exposition) histogram(name, help string, h *histogram, pairs ...string) {
	m := x.family(name, "histogram", help)
	total := int64(0)
	for i, n := range h.buckets {
		total += n
		le := strconv.FormatFloat((time.Millisecond << i).Seconds(), 'g', -1, 64)
		m.lines = append(m.lines, fmt.Sprintf("%s_bucket%s %d", name, labels(append(slices.Clone(pairs), "le", le)...), total))
	}
	m.lines = append(m.lines,
		fmt.Sprintf("%s_bucket%s %d", name, labels(append(slices.Clone(pairs), "le", "+Inf")...), h.count),
		fmt.Sprintf("%s_sum%s %s", name, labels(pairs...), strconv.FormatFloat(h.sum.Seconds(), 'g', -1, 64)),
		fmt.Sprintf("%s_count%s %d", name, labels(pairs...), h.count))
}

// write writes all of them.
func (x *exposition) write(to io.Writer) error {
	var b strings.Builder
	for _, m := range x.order {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for _, line := range m.lines {
			b.WriteString(line + "\n")
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// metrics tells Prometheus.
func (r *Registry) metrics(w http.ResponseWriter, _ *http.Request) error {
	x := &exposition{named: make(map[string]*metric)}
	r.serverMetrics(x)
	for _, v := range r.all() {
		v.metrics(x)
		if i := v.current(); i != nil {
			runnerMetrics(x, v.model, i.facts())
		}
		if r.opts.TritonMetrics {
			v.tritonMetrics(x)
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = x.write(w)
	return nil
}

func (r *Registry) serverMetrics(x *exposition) {
	r.counts.mu.Lock()
	for _, status := range sortedCodes(r.counts.codes) {
		x.counter("optimem_http_responses_total", "Answers of the server, by status.", float64(r.counts.codes[status]), "code", strconv.Itoa(status))
	}
	if t := r.opts.Traces; t != nil {
		x.counter("optimem_spans_sent_total", "Spans that the collector took.", float64(t.Sent()))
		x.counter("optimem_spans_dropped_total", "Spans that were lost, since the collector was slow or refused them.", float64(t.Dropped()))
	}
	x.counter("optimem_panics_total", "Requests that ended in a panic.", float64(r.counts.panics))
	x.histogram("optimem_refusal_duration_seconds", "How long it took to refuse requests because there are too many, what they sent included.",
		&r.counts.refusals)
	r.counts.mu.Unlock()
	x.gauge("optimem_body_bytes", "Bytes of requests that are under way.", float64(r.bodies.heldBytes()))
	x.gauge("optimem_body_limit_bytes", "Most bytes of requests that are under way.", float64(r.opts.MaxBodies))
	x.gauge("optimem_memory_budget_bytes", "Budget of all models together.", float64(r.opts.Memory))
	ready := 0.0
	if r.isReady() {
		ready = 1
	}
	x.gauge("optimem_ready", "Whether requests are taken.", ready)
	if pool := r.Pool(); pool != nil {
		m := pool.Metrics()
		x.gauge("optimem_pool_budget_bytes", "Budget of the models in the pool.", float64(m.BudgetBytes))
		x.gauge("optimem_pool_held_bytes", "What models in the pool may hold now.", float64(m.HeldBytes))
		x.gauge("optimem_pool_peak_bytes", "The most that models in the pool might hold.", float64(m.PeakBytes))
		x.counter("optimem_evictions_total", "How often a model's weights gave way to another model.", float64(m.Freed))
	}
}

func sortedCodes(codes map[int]int64) []int {
	var all []int
	for c := range codes {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

func (v *version) metrics(x *exposition) {
	s := &v.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, code := range sortedCodes(s.codes) {
		x.counter("optimem_requests_total", "Requests to a model, by the status of the answer; 499 is a client that went away.",
			float64(s.codes[code]), "model", v.model, "version", v.number, "code", strconv.Itoa(code))
	}
	x.histogram("optimem_request_duration_seconds", "How long requests took.", &s.took, "model", v.model, "version", v.number)
	x.histogram("optimem_queue_duration_seconds", "How long requests waited for their pass.", &s.queued, "model", v.model, "version", v.number)
	x.gauge("optimem_queue_requests", "Requests that wait or run.", float64(s.waiting()), "model", v.model, "version", v.number)
	x.counter("optimem_refused_total", "Requests that were refused at once.", float64(s.refused.Load()), "model", v.model, "version", v.number)
}

// runnerMetrics are those of an open model.
func runnerMetrics(x *exposition, model string, f facts) {
	x.counter("optimem_passes_total", "Passes of a model.", float64(f.passes), "model", model)
	x.counter("optimem_joined_total", "Requests that went through another one's pass.", float64(f.joined), "model", model)
	x.counter("optimem_pass_seconds_total", "How long passes took together.", f.passing.Seconds(), "model", model)
	x.gauge("optimem_pass_expected_seconds", "What a pass takes, as the last ones took or as it is planned.", f.passSeconds, "model", model)
	x.counter("optimem_moved_bytes_total", "Bytes of weights that were brought for passes.", float64(f.movedBytes), "model", model)
	x.counter("optimem_loaded_bytes_total", "Bytes that were read from files.", float64(f.loadedBytes), "model", model)
	x.counter("optimem_stall_seconds_total", "How long ops waited for weights.", f.stall.Seconds(), "model", model)
	x.counter("optimem_pass_rows_total", "Rows of tokens that went through passes.", float64(f.rows), "model", model)
	x.counter("optimem_tokens_total", "Tokens that were written.", float64(f.tokens), "model", model)
	for _, p := range []struct {
		purpose string
		bytes   int64
	}{
		{"weights", f.weightBytes}, {"caches", f.cacheBytes}, {"ring", f.ringBytes}, {"activations", f.activationBytes}, {"work", f.workBytes},
	} {
		x.gauge("optimem_memory_bytes", "What a model's memory is for, as its last plan has it.", float64(p.bytes), "model", model, "purpose", p.purpose)
	}
	x.gauge("optimem_held_bytes", "What a model holds now.", float64(f.heldBytes), "model", model)
	if f.allBytes > 0 {
		x.gauge("optimem_load_progress_ratio", "How much of a model's weights stay in memory.",
			min(float64(f.weightBytes)/float64(f.allBytes), 1), "model", model)
	}
}

// tritonMetrics are counters with the names of NVIDIA Triton's, for dashboards and scalers that read these.
func (v *version) tritonMetrics(x *exposition) {
	m := statsOf(v)
	pair := []string{"model", v.model, "version", v.number}
	x.counter("nv_inference_request_success", "Requests that were answered.", float64(m.InferenceStats["success"].Count), pair...)
	v.stats.mu.Lock()
	reasons := map[string]int64{"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 0}
	for code, n := range v.stats.codes {
		switch {
		case code == 200:
		case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
			reasons["REJECTED"] += n
		case code == statusClientGone:
			reasons["CANCELED"] += n
		case code == http.StatusInternalServerError:
			reasons["BACKEND"] += n
		default:
			reasons["OTHER"] += n
		}
	}
	v.stats.mu.Unlock()
	for _, reason := range []string{"REJECTED", "CANCELED", "BACKEND", "OTHER"} {
		x.counter("nv_inference_request_failure", "Requests that failed.", float64(reasons[reason]), append(slices.Clone(pair), "reason", reason)...)
	}
	x.counter("nv_inference_count", "Rows that were inferred.", float64(m.InferenceCount), pair...)
	x.counter("nv_inference_exec_count", "Passes.", float64(m.ExecutionCount), pair...)
	x.gauge("nv_inference_pending_request_count", "Requests that wait or run.", float64(v.stats.waiting()), pair...)
	for name, key := range map[string]string{
		"nv_inference_request_duration_us": "success", "nv_inference_queue_duration_us": "queue",
		"nv_inference_compute_input_duration_us": "compute_input", "nv_inference_compute_infer_duration_us": "compute_infer",
		"nv_inference_compute_output_duration_us": "compute_output",
	} {
		x.counter(name, "Time of requests, in microseconds.", float64(m.InferenceStats[key].NS/1000), pair...)
	}
}
