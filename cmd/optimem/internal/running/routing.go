//go:build !files

package running

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/replace"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/runtime"
)

// What passes of a model have shown of where rows of its layers with experts go is kept beside the calibration, a file
// for each model, so that plans expect as many hits as there were. Nobody needs it, and nothing but forecasts depends
// on it.

// A keptLayer is a layer in such a file. Earlier versions wrote distances alone, which say something as long as there are few
// ranks.
type keptLayer struct {
	First     int64   `json:"first"`
	Ranks     []int64 `json:"ranks,omitempty"`
	Distances []int64 `json:"distances,omitempty"`
}

// mostRoutingBytes bounds such a file.
const mostRoutingBytes = 64 << 20

// routingPath is where what is known of a model's routing is kept.
func routingPath(model string, ckpt *loader.Checkpoint) (string, error) {
	beside, err := CalibrationPath()
	if err != nil {
		return "", err
	}
	at, err := filepath.Abs(model)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, at)
	for i := range ckpt.Weights {
		w := &ckpt.Weights[i]
		_, _ = fmt.Fprintln(sum, w.Name, w.DType, w.Layout.Shape)
	}
	return filepath.Join(filepath.Dir(beside), "routing", hex.EncodeToString(sum.Sum(nil)[:16])+".json"), nil
}

// A routingError says that a file is no record of routing.
type routingError struct{ path, msg string }

func (e *routingError) Error() string { return e.path + ": no record of routing: " + e.msg }

// loadRouting reads a record; nothing where there is none.
func loadRouting(path string) (map[string]*slots.Curve, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostRoutingBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostRoutingBytes {
		return nil, &routingError{path, fmt.Sprintf("more than %d bytes", mostRoutingBytes)}
	}
	var kept map[string]keptLayer
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, &routingError{path, err.Error()}
	}
	all := make(map[string]*slots.Curve, len(kept))
	for module, layer := range kept {
		number := max(len(layer.Ranks), len(layer.Distances))
		if layer.Ranks == nil {
			layer.Ranks = make([]int64, min(number, slots.MostExperts))
		}
		if number > slots.MostExperts || len(layer.Ranks) < number || layer.First < 0 ||
			layer.Distances != nil && len(layer.Distances) < number {
			return nil, &routingError{path, fmt.Sprintf("%q of %d experts", module, number)}
		}
		for _, n := range slices.Concat(layer.Ranks, layer.Distances) {
			if n < 0 || n > 1<<50 {
				return nil, &routingError{path, fmt.Sprintf("%q: needed %d times", module, n)}
			}
		}
		all[module] = &slots.Curve{First: layer.First, Ranks: layer.Ranks, Distances: layer.Distances}
	}
	return all, nil
}

// saveRouting writes a record, in the place of the one before.
func saveRouting(path string, all map[string]*slots.Curve) error {
	kept := make(map[string]keptLayer, len(all))
	for module, c := range all {
		kept[module] = keptLayer{c.First, c.Ranks, c.Distances}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return replace.File(path, text)
}

// A RoutingRecord is what a command keeps of routing, and the trace that it writes.
type RoutingRecord struct {
	r      *Run
	path   string // "" for a record that cannot be kept
	before map[string]*slots.Curve
	file   *os.File
	trace  *bufio.Writer
	err    error
}

// RecordRouting has a session plan with what is known of a model's routing, and writes a trace where a file is named.
func (r *Run) RecordRouting(m *openModel, opts *runtime.Options, trace string) (*RoutingRecord, error) {
	k := &RoutingRecord{r: r}
	if path, err := routingPath(r.Model, m.Ckpt); err == nil {
		k.path = path
		if k.before, err = loadRouting(path); err != nil && !r.Quiet {
			r.Say("warning", fmt.Sprintf("what is known of the model's routing is not used: %v", err))
		}
	}
	opts.Routing = k.before
	if trace == "" {
		return k, nil
	}
	f, err := os.Create(trace)
	if err != nil {
		return nil, err
	}
	k.file, k.trace = f, bufio.NewWriter(f)
	opts.Routed = func(module string, rows int, experts []int32) {
		if k.err == nil {
			k.err = slots.WriteVisit(k.trace, module, rows, experts)
		}
	}
	return k, nil
}

// End keeps what a session has shown besides, before it is closed.
func (k *RoutingRecord) End(s *runtime.Session) error {
	if all, err := s.Routing(context.Background(), k.before); err == nil && len(all) > 0 && k.path != "" {
		if err := saveRouting(k.path, all); err != nil && k.r.Verbose {
			k.r.Note("the model's routing is not kept: %v", err)
		}
	}
	return k.Close()
}

// Close ends the trace.
func (k *RoutingRecord) Close() error {
	if k.file == nil {
		return nil
	}
	err := k.err
	if flushed := k.trace.Flush(); err == nil {
		err = flushed
	}
	if closed := k.file.Close(); err == nil {
		err = closed
	}
	k.file = nil
	return err
}

// expertRows says what a plan reads of experts.
func expertRows(t *ascii.Table, p *plan.Plan) {
	if len(p.Experts) == 0 {
		return
	}
	sets := p.Fixed.Slots
	slotText := fmt.Sprintf("%s that %d layers share", Counted(sets[0].Slots, "slot"), len(p.Experts))
	if len(sets) > 1 || len(p.Experts) == 1 {
		least, most := sets[0].Slots, sets[0].Slots
		for _, s := range sets {
			least, most = min(least, s.Slots), max(most, s.Slots)
		}
		slotText = Counted(most, "slot") + " in each layer"
		if least < most {
			slotText = fmt.Sprintf("%d to %d slots in each layer", least, most)
		}
	}
	t.Row("experts", fmt.Sprintf("%d in each of %s; %s, %s", len(p.Experts[0].Each), Counted(len(p.Experts), "layer"), slotText,
		ascii.FormatSize(p.ExpertSlotBytes())))
	r := p.Routed
	known := "as if any were as likely as the others"
	if r.Known {
		known = "as passes before have shown"
	}
	t.Row("experts read", fmt.Sprintf("nothing at best, %s expected (%.0f%% of those needed are there, %s), %s at worst",
		ascii.FormatSize(r.ExpectedBytes), 100*r.Hits, known, ascii.FormatSize(r.MostBytes)))
	t.Row("a pass", fmt.Sprintf("%s at best, %s expected, %s at worst", SecondsText(r.BestSeconds), SecondsText(p.Forecast.Seconds),
		SecondsText(r.WorstSeconds)))
}

// setExperts sets the keys of what a plan reads of experts.
func setExperts(o *jsonout.Object, p *plan.Plan) {
	if len(p.Experts) == 0 {
		return
	}
	slotsInAll := 0
	for _, s := range p.Fixed.Slots {
		slotsInAll += s.Slots
	}
	r := p.Routed
	o.Set("expert_layers", len(p.Experts))
	o.Set("experts", len(p.Experts[0].Each))
	o.Set("expert_slots", slotsInAll)
	o.Set("expert_slot_bytes", p.ExpertSlotBytes())
	o.Set("expert_bytes_best", 0)
	o.Set("expert_bytes_expected", r.ExpectedBytes)
	o.Set("expert_bytes_worst", r.MostBytes)
	o.Set("expert_hits_expected", r.Hits)
	o.Set("expert_hits_known", r.Known)
	o.Set("best_seconds", r.BestSeconds)
	o.Set("worst_seconds", r.WorstSeconds)
}

// A replay is what a trace takes through the slots of a plan.
type replay struct {
	passes, layers int
	count, least   slots.Count
	bytes, most    int64
}

// replayTrace plays a trace again through the slots of a plan.
func replayTrace(path string, p *plan.Plan) (*replay, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := slots.ReadTrace(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	room, places := p.Room(t)
	x := &replay{passes: len(t.Visits)}
	counts := slots.Replay(t, room, places)
	x.count, x.least = slots.Sum(counts), slots.Sum(slots.Least(t, room, places))
	for l, name := range t.Layers {
		if places[l].Set < 0 {
			continue
		}
		x.layers++
		for i := range p.Experts {
			if e := &p.Experts[i]; e.Path == name {
				x.bytes += counts[l].Reads * e.Each[0].ReadBytes()
				x.most += counts[l].Needs * e.Each[0].ReadBytes()
			}
		}
	}
	if x.layers == 0 {
		return nil, &slots.TraceError{Line: 1, Msg: "none of its layers has experts that the plan reads as they are needed: " + strconv.Quote(firstOf(t.Layers))}
	}
	return x, nil
}

// traceFailure gives an error of a trace its exit code.
func traceFailure(err error) error {
	var bad *slots.TraceError
	if errors.As(err, &bad) {
		return &command.Failure{Err: err, Code: command.ExitUnsafe, Hints: []string{"'optimem generate --routing FILE' writes one"}}
	}
	return err
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// rows says what the trace takes.
func (x *replay) rows(t *ascii.Table) {
	t.Row("trace", fmt.Sprintf("%s through %s: %s needed, %s read (%.1f%% there), %s of %s", Counted(x.passes, "pass"),
		Counted(x.layers, "layer"), Counted(int(x.count.Needs), "expert"), strconv.FormatInt(x.count.Reads, 10),
		100*x.count.Hits(),
		ascii.FormatSize(x.bytes), ascii.FormatSize(x.most)))
	more := ""
	if x.least.Reads > 0 {
		more = fmt.Sprintf(", of which these are %.2f times as many", float64(x.count.Reads)/float64(x.least.Reads))
	}
	t.Row("at least", fmt.Sprintf("%d reads by who knows what comes (Belady)%s", x.least.Reads, more))
}

// set sets the keys of it.
func (x *replay) set(o *jsonout.Object) {
	o.Set("trace_needs", x.count.Needs)
	o.Set("trace_reads", x.count.Reads)
	o.Set("trace_hit_rate", x.count.Hits())
	o.Set("trace_least_reads", x.least.Reads)
	o.Set("trace_read_bytes", x.bytes)
}
