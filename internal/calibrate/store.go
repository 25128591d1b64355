package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/replace"
	"github.com/optimem/optimem/storage"
)

// A Host is what rates are true of: a processor, threads, and this program's kernels for it.
type Host struct {
	CPU     string
	Threads int
}

func (h Host) key() string {
	key := h.CPU + " / " + strconv.Itoa(h.Threads)
	if !cpu.Vectors() { // as in a build without assembly, which is many times slower
		key += " / Go"
	}
	return key
}

// A Record is rates as they are written.
type Record struct {
	FLOPsPerSecond       float64                `json:"flops_per_second"`
	KindFLOPsPerSecond   map[graph.Kind]float64 `json:"kind_flops_per_second"`
	MemoryBytesPerSecond float64                `json:"memory_bytes_per_second"`
	OpSeconds            float64                `json:"op_seconds"`
	CopyBytesPerSecond   float64                `json:"copy_bytes_per_second"`
	CopySeconds          float64                `json:"copy_seconds"`
	DiskBytesPerSecond   float64                `json:"disk_bytes_per_second"`
	ReadSeconds          float64                `json:"read_seconds"`
	CachedBytesPerSecond float64                `json:"cached_bytes_per_second"`
	// DecodeBytesPerSecond is what a processor makes of packed files; files of before have none.
	DecodeBytesPerSecond float64 `json:"decode_bytes_per_second,omitempty"`
	// Disks are those of single disks, by device number.
	Disks map[string]DiskRecord `json:"disks,omitempty"`
	// Products are rates by size: rows, columns, depth and operations per second.
	Products map[string][][4]float64 `json:"product_flops_per_second"`
}

// A DiskRecord is what is known of one disk.
type DiskRecord struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
	ReadSeconds    float64 `json:"read_seconds"`
}

// RecordOf returns rates as they are written.
func RecordOf(r cost.Rates) Record {
	products := make(map[string][][4]float64)
	for class, points := range r.Points {
		for _, p := range points {
			products[class] = append(products[class], [4]float64{float64(p.M), float64(p.N), float64(p.K), p.FLOPs})
		}
	}
	var disks map[string]DiskRecord
	for disk, d := range r.Disks {
		if disks == nil {
			disks = make(map[string]DiskRecord)
		}
		disks[disk.String()] = DiskRecord{d.Bytes, d.ReadSeconds}
	}
	return Record{
		r.FLOPs, r.KindFLOPs, r.MemoryBytes, r.OpSeconds, r.CopyBytes, r.CopySeconds, r.DiskBytes, r.ReadSeconds,
		r.CachedBytes, r.DecodeBytes, disks, products,
	}
}

// Rates returns what was measured.
func (r Record) Rates() cost.Rates {
	var points map[string][]cost.Point
	for class, products := range r.Products {
		for _, p := range products {
			if points == nil {
				points = make(map[string][]cost.Point)
			}
			points[class] = append(
				points[class], cost.Point{M: int64(p[0]), N: int64(p[1]), K: int64(p[2]), FLOPs: p[3]},
			)
		}
	}
	var disks map[storage.Disk]cost.Disk
	for name, d := range r.Disks {
		disk, err := storage.ParseDisk(name)
		if err != nil {
			continue // see valid
		}
		if disks == nil {
			disks = make(map[storage.Disk]cost.Disk)
		}
		disks[disk] = cost.Disk{Bytes: d.BytesPerSecond, ReadSeconds: d.ReadSeconds}
	}
	return cost.Rates{
		Disks: disks, Points: points,
		FLOPs: r.FLOPsPerSecond, KindFLOPs: r.KindFLOPsPerSecond, MemoryBytes: r.MemoryBytesPerSecond,
		OpSeconds: r.OpSeconds, CopyBytes: r.CopyBytesPerSecond, CopySeconds: r.CopySeconds,
		DiskBytes: r.DiskBytesPerSecond, ReadSeconds: r.ReadSeconds,
		CachedBytes: r.CachedBytesPerSecond, DecodeBytes: r.DecodeBytesPerSecond, Measured: true,
	}
}

// valid reports whether all rates are ones that a plan can be costed from. Zero stands for a guess.
func (r Record) valid() bool {
	for _, x := range []float64{
		r.FLOPsPerSecond, r.MemoryBytesPerSecond, r.OpSeconds, r.CopyBytesPerSecond, r.CopySeconds,
		r.DiskBytesPerSecond, r.ReadSeconds, r.CachedBytesPerSecond, r.DecodeBytesPerSecond,
	} {
		if !(x >= 0) {
			return false
		}
	}
	for name, d := range r.Disks {
		if _, err := storage.ParseDisk(name); err != nil || !(d.BytesPerSecond > 0) || !(d.ReadSeconds >= 0) {
			return false
		}
	}
	for _, x := range r.KindFLOPsPerSecond {
		if !(x > 0) {
			return false
		}
	}
	for _, products := range r.Products {
		for _, p := range products {
			if !(p[0] >= 0 && p[1] >= 0 && p[2] >= 0 && max(p[0], p[1], p[2]) <= maxProduct && p[3] > 0) {
				return false
			}
		}
	}
	return r.FLOPsPerSecond > 0
}

// maxProduct bounds the sizes of products, which are whole numbers.
const maxProduct = 1 << 53

// version is that of the file's format and of what the numbers mean; others are measured again.
const version = 2

type file struct {
	Version int               `json:"version"`
	Hosts   map[string]Record `json:"hosts"`
}

// maxFileBytes bounds a file that is no calibration.
const maxFileBytes = 4 << 20

// Load returns the rates of a host, false where the file does not have them or is not there.
func Load(path string, h Host) (cost.Rates, bool, error) {
	f, err := read(path)
	if err != nil {
		return cost.Rates{}, false, err
	}
	r, ok := f.Hosts[h.key()]
	if !ok {
		return cost.Rates{}, false, nil
	}
	if !r.valid() {
		return cost.Rates{}, false, fmt.Errorf("%s: rates of %s are not numbers that can be", path, h.key())
	}
	return r.Rates(), true, nil
}

// Save adds the rates of a host to a file, in place of those that it had, but for disks that were not measured now.
func Save(path string, h Host, rates cost.Rates) error {
	f, err := read(path)
	if err != nil {
		f = file{} // what cannot be read is of no use
	}
	if f.Hosts == nil {
		f.Hosts = make(map[string]Record)
	}
	f.Version = version
	record := RecordOf(rates)
	for disk, d := range f.Hosts[h.key()].Disks { // those of other models' disks stay
		if _, ok := record.Disks[disk]; !ok && record.Disks != nil {
			record.Disks[disk] = d
		}
	}
	f.Hosts[h.key()] = record
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return replace.File(path, append(text, '\n'))
}

// correctable is how far a rate has to be from what was calibrated to take its place.
const correctable = 0.15

// Correct puts the rate at which a disk was read in the place of the calibrated one, where these differ by more than 15 %. It returns
// the one from before, 0 where the host was not calibrated, and whether the file has changed: in one go, as [Save] changes it.
func Correct(path string, h Host, disk storage.Disk, bytesPerSecond float64) (before float64, changed bool, err error) {
	rates, ok, err := Load(path, h)
	if err != nil || !ok {
		return 0, false, err
	}
	known := rates.On(disk)
	before = known.DiskBytes
	if before <= 0 || math.Abs(bytesPerSecond/before-1) <= correctable || !(bytesPerSecond > 0) ||
		math.IsInf(bytesPerSecond, 0) {
		return before, false, nil
	}
	if rates.Disks == nil {
		rates.Disks = make(map[storage.Disk]cost.Disk)
	}
	rates.Disks[disk] = cost.Disk{Bytes: bytesPerSecond, ReadSeconds: known.ReadSeconds}
	return before, true, Save(path, h, rates)
}

// read returns what is in a file, nothing where there is none, or one of another version.
func read(path string) (file, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file{}, nil
	}
	if err == nil && !info.Mode().IsRegular() { // opening a named pipe would wait
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return file{}, err
	}
	r, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes))
	if err != nil {
		return file{}, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return file{}, fmt.Errorf("%s: %w", path, err)
	}
	if f.Version != version {
		return file{}, nil
	}
	return f, nil
}
