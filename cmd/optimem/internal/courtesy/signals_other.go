//go:build !unix

package courtesy

import "os"

// Signals that a command with a session obeys: there are none here.
var GiveBackSignals, GoOnSignals []os.Signal
