package runtime

import "github.com/optimem/optimem/pager"

// An Event is what [Options.Observe] is told: a step of a pass that is done.
type Event = pager.Event
