//go:build !linux

package loader

import "testing"

func makeFIFO(string) bool { return false }

func dropCache(testing.TB, *fileSource, int64, int64) {}

func probeByReading(*fileSource, bool) {}
