//go:build race

package cpu

// raceDetector says that tests run with it: it drops some of what a sync.Pool keeps, so that allocations mean nothing.
const raceDetector = true
