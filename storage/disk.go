package storage

import "fmt"

// A Disk names what the bytes of a source lie on: sources on different ones are read at the same time without slowing
// each other down. It is what the system calls a device number, and means something on one host until it is started
// again. The zero value is a disk that is not known; sources of which nobody knows where they lie count as on one.
type Disk uint64

// DiskOfNumbers returns the disk with a major and a minor device number.
func DiskOfNumbers(major, minor uint32) Disk { return Disk(major)<<32 | Disk(minor) }

// String writes the device number as Linux does, and "unknown" for the zero value.
func (d Disk) String() string {
	if d == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d:%d", d>>32, uint32(d))
}

// ParseDisk reads what [Disk.String] writes.
func ParseDisk(s string) (Disk, error) {
	if s == "unknown" {
		return 0, nil
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(s, "%d:%d", &major, &minor); err != nil || DiskOfNumbers(major, minor).String() != s {
		return 0, fmt.Errorf("%q is not a device number", s)
	}
	return DiskOfNumbers(major, minor), nil
}

// A PlacedSource knows on which disk its bytes lie.
type PlacedSource interface {
	Source
	Disk() Disk
}

// DiskOf returns the disk that a source reads from, that of its raw source where it makes its bytes of another's.
func DiskOf(s Source) Disk {
	for s != nil {
		if p, ok := s.(PlacedSource); ok {
			return p.Disk()
		}
		over, ok := s.(interface{ Raw() Source })
		if !ok {
			break
		}
		s = over.Raw()
	}
	return 0
}

var _ PlacedSource = (*File)(nil)

// Disk implements [PlacedSource]: the disk that the file lies on, the whole one where that is divided.
func (s *File) Disk() Disk { return s.disk }
