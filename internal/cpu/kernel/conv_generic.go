//go:build !amd64 || noasm

package kernel

// There is no assembly for this build: All returns nothing.
var conv512, conv256 *ConvSet
