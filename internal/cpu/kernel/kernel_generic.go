//go:build (!amd64 && !arm64) || noasm

package kernel

// All returns nothing: there is no assembly for this build.
func All() []*Set { return nil }

func transpose8(int, *byte, int, *float32, int) {}

func transpose8i8(int, *byte, int, *float32, int) {}

func transpose8bf16(int, *byte, int, *float32, int) {}

func transpose8f16(int, *byte, int, *float32, int) {}

func transpose8words(int, *uint16, int, *uint16, int) {}
