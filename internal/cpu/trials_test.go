package cpu

import "testing"

// trials is how many of n trials a test makes when it is to be short: under the race detector, which makes Go many times
// slower, an eighth.
func trials(n int) int {
	if raceDetector && testing.Short() {
		return max(1, n/8)
	}
	return n
}
