//go:build !linux

package sysmem

func nodesBelow(string) []int { return nil }

func nodeBelow(string, string) (int, bool) { return 0, false }
