//go:build !unix

package kernel

import "testing"

func guarded(_ *testing.T, x []float32) []float32 { return append([]float32(nil), x...) }
