//go:build !unix

package sysmem

// PeakRSS returns the most memory in bytes that the process ever held, 0 where it is not known.
func PeakRSS() int64 { return 0 }
