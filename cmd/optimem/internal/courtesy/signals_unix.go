//go:build unix

package courtesy

import (
	"os"
	"syscall"
)

// Signals that a command with a session obeys: [GiveBackSignals] have it give its memory back at once, [GoOnSignals] go on.
var (
	GiveBackSignals = []os.Signal{syscall.SIGUSR1}
	GoOnSignals     = []os.Signal{syscall.SIGUSR2}
)
