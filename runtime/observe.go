package runtime

import (
	"log/slog"
	"time"

	"github.com/optimem/optimem/pager"
)

// An Event is what [Options.Observe] is told: a step of a session that is done.
type Event = pager.Event

// The kinds of events.
const (
	// GroupDone ends a group of a pass: with the bytes that were brought for it, how long its ops waited for them, and how
	// long they took.
	GroupDone = pager.GroupDone
	// WeightsLoaded ends the bringing of the weights that stay, before a pass or with the last group of one.
	WeightsLoaded = pager.WeightsLoaded
	// PassDone ends a pass: with how long it took and how many micro-batches went through it. Its groups have been told
	// of by then.
	PassDone = pager.PassDone
	// Replanned says that the device refused memory, why, and how much the smaller plan takes.
	Replanned = pager.Replanned
	// OpDone ends an op of one micro-batch, where [Options.ObserveOps] asks for it: which op of the plan's graph it was, of
	// which module and kind, for which micro-batch, and how long it took until the device was done. On a simulated device
	// that is by the device's own clock, but for what the CPU beside it computes.
	OpDone = pager.OpDone
	// LoadDone ends the bringing of the weights of a group, where [Options.ObserveLoads] asks for it: when they were read, and when
	// they were copied to a device with memory of its own. It is told with a group's end, of that pass or of the one before.
	LoadDone = pager.LoadDone
)

// Clock returns the time on the clock of a device that is simulated, and false for a device whose clock is the wall's.
func (s *Session) Clock() (time.Duration, bool) {
	return s.machine.Clock()
}

// told returns an observer that tells the given one, nil where there is none, and of which plan the pass is.
func (s *Session) told(observe func(Event)) func(Event) {
	if observe == nil {
		return nil
	}
	return func(e Event) {
		e.Plan = s.passes
		observe(e)
	}
}

// TeeObserver returns an observer that tells several, in order. Those that are nil are left out.
func TeeObserver(observers ...func(Event)) func(Event) {
	return func(e Event) {
		for _, observe := range observers {
			if observe != nil {
				observe(e)
			}
		}
	}
}

// LogObserver returns an observer that writes a log: groups and ops at the level of debugging, what happens once a pass as
// information, and that memory was refused as a warning.
func LogObserver(log *slog.Logger) func(Event) {
	return func(e Event) {
		switch e.Kind {
		case GroupDone:
			log.Debug("group done", "group", e.Group, "path", e.Path, "loaded_bytes", e.LoadedBytes,
				"stall", e.Stall, "compute", e.Compute)
		case OpDone:
			log.Debug("op done", "op", e.Op, "kind", e.OpKind, "path", e.Path, "group", e.Group, "instance", e.Instance,
				"took", e.Took)
		case WeightsLoaded:
			log.Info("weights loaded", "loaded_bytes", e.LoadedBytes, "took", e.Took)
		case PassDone:
			log.Info("pass done", "took", e.Took, "instances", e.Instances)
		case Replanned:
			log.Warn("planned for less memory", "cause", e.Err, "peak_bytes", e.PeakBytes, "instances", e.Instances)
		}
	}
}
