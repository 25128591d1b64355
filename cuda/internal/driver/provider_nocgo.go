//go:build gorgonia && !cgo && linux && (amd64 || arm64) && !nocuda

package driver

// A provider by gorgonia.org/cu calls C: a build without cgo ends with this name as its error, and does not quietly take
// another provider than the one that was asked for.
type provider = theTagGorgoniaNeedsCGO_ENABLED_1
