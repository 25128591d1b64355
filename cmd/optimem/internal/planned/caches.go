package planned

import (
	"fmt"

	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/plan"
)

// CacheBytes is what keys and values, and states, take at last: in memory, or where they wait.
func CacheBytes(p *plan.Plan) (bytes int64) {
	known := make(map[string]bool)
	for _, c := range p.Caches {
		if !known[c.Name] {
			bytes += plan.AlignUp(p.Lowered.Graph.Values[c.Value].Bytes(), p.Target.AlignBytes)
		}
		known[c.Name] = true
	}
	return bytes
}

// CachesWait says that keys and values wait, in the host's memory or in a file in a folder.
func CachesWait(p *plan.Plan, folder string) string {
	if !p.Target.Direct {
		return fmt.Sprintf(
			"keys and values wait in %s of the host's memory while other layers are computed, and take %s of the device's",
			ascii.FormatSize(p.WaitingBytes()), ascii.FormatSize(p.CacheBytes))
	}
	return fmt.Sprintf("keys and values wait in a file of %s in %s while other layers are computed, and take %s of memory",
		ascii.FormatSize(p.CacheAwayBytes), folder, ascii.FormatSize(p.CacheBytes))
}

// CachesBegin says what a pass is like for which keys and values have not grown.
func CachesBegin(p *plan.Plan) string {
	return fmt.Sprintf("keys and values have %s and grow to that: %s moved per token", ascii.FormatSize(p.CacheBytes),
		ascii.FormatSize(p.MovedBytes+p.Routed.ExpectedBytes))
}
