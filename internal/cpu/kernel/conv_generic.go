//go:build (!amd64 && !arm64) || noasm

package kernel

// fastConvSets returns nothing: there is no assembly for this build.
func fastConvSets() []*ConvSet { return nil }
