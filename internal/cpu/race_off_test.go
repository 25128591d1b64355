//go:build !race

package cpu

// raceDetector says that tests run with the race detector.
const raceDetector = false
