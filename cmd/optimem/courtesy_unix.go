//go:build unix

package main

import (
	"os"
	"syscall"
)

// Signals that a command with a session obeys: one has it give its memory back at once, the other go on.
var (
	giveBackSignals = []os.Signal{syscall.SIGUSR1}
	goOnSignals     = []os.Signal{syscall.SIGUSR2}
)
