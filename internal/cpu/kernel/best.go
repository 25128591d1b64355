package kernel

import "sync"

// Best returns the fastest set that the processor can run, nil where there is none.
var Best = sync.OnceValue(func() *Set {
	for _, s := range All() {
		return s
	}
	return nil
})
