//go:build !unix

package main

import "os"

// Signals that a command with a session obeys: there are none.
var giveBackSignals, goOnSignals []os.Signal
