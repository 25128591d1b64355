package runtime_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestEvents: an observer is told of the weights that stay, then of every group in the plan's order with the plan's
// bytes, then of the pass; in every mode, on both sides of a plan with two.
func TestEvents(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, m := range smallModes() {
		var events []optimem.Event
		counted := 0
		m.opts.Observe = optimem.TeeObserver(
			func(e optimem.Event) { events = append(events, e) }, nil, func(optimem.Event) { counted++ },
		)
		s := open(t, m, model)
		for pass := range 2 {
			events = nil
			runDigits(t, s, pictures(1))
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {1, 1, 8, 8}})
			if err != nil {
				t.Fatal(err)
			}
			var loaded, groups int
			for i, e := range events {
				switch e.Kind {
				case optimem.WeightsLoaded:
					early := m.opts.Once && groups == len(p.Groups) // the pass began before they were there
					if loaded++; groups > 0 && !early || e.Group != -1 || e.LoadedBytes <= 0 {
						t.Errorf("%s on %s: event %d is %+v", m.name, m.opts.Device, i, e)
					}
				case optimem.GroupDone:
					want := &p.Groups[groups]
					if e.Group != groups || e.Path != want.Path || want.Paged() && e.LoadedBytes != want.SlotBytes || e.Compute <= 0 {
						t.Errorf("%s on %s: group %d (%s) is told as %+v", m.name, m.opts.Device, groups, want.Path, e)
					}
					groups++
				case optimem.PassDone:
					if i != len(events)-1 || e.Took <= 0 || e.Instances != 1 {
						t.Errorf("%s on %s: event %d of %d is %+v", m.name, m.opts.Device, i, len(events), e)
					}
				default:
					t.Errorf("%s on %s: %+v", m.name, m.opts.Device, e)
				}
			}
			if groups != len(p.Groups) || pass > 0 && loaded > 0 || events[len(events)-1].Kind != optimem.PassDone {
				t.Errorf("%s on %s, pass %d: %d of %d groups, %d loads", m.name, m.opts.Device, pass, groups, len(p.Groups), loaded)
			}
		}
		if counted < len(events) {
			t.Errorf("the second observer was told %d times", counted)
		}
		if got := s.Metrics(); got.Compute <= 0 || got.Passing < got.Compute || got.MovedBytes > 0 != (got.MovedPerSecond() > 0) {
			t.Errorf("%s on %s: %+v", m.name, m.opts.Device, got)
		}
	}
}

// TestLog: the log has a line for each step, at the level that it deserves.
func TestLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	model := build(t, digitsModel, nil)
	s, _ := emulate(t, model, plan.Auto, optimem.Options{Memory: 600 << 10, Observe: optimem.LogObserver(log), ObserveOps: true},
		emulated.Options{MemoryBytes: 1 << 20, FailAlloc: 4})
	runDigits(t, s, pictures(1))
	seen := make(map[string]int)
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var entry struct{ Level, Msg, Cause, Path string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprint(entry.Level, " ", entry.Msg)]++
		if entry.Level == "WARN" && !strings.Contains(entry.Cause, "out of memory") {
			t.Errorf("%s does not say why", line)
		}
	}
	if seen["DEBUG group done"] < 3 || seen["DEBUG op done"] < seen["DEBUG group done"] || seen["INFO weights loaded"] == 0 || seen["INFO pass done"] != 1 ||
		seen["WARN planned for less memory"] == 0 || len(seen) != 5 {
		t.Errorf("the log has %v", seen)
	}
}
