package main

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// npyHeader matches what NumPy writes in front of an array of float32 in C order.
var npyHeader = regexp.MustCompile(`^\{'descr': '<f4', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n$`)

// readNPY reads an array of float32 as numpy.save writes it. Its shape ends in that of a picture.
func readNPY(r io.Reader) ([]float32, error) {
	prefix := make([]byte, 10)
	if err := readFull(r, prefix); err != nil {
		return nil, err
	}
	if string(prefix[:8]) != "\x93NUMPY\x01\x00" {
		return nil, refuse("the body is no .npy file of version 1")
	}
	header := make([]byte, binary.LittleEndian.Uint16(prefix[8:]))
	if err := readFull(r, header); err != nil {
		return nil, err
	}
	found := npyHeader.FindSubmatch(header)
	if found == nil {
		return nil, refuse("the array is not one of float32 in C order")
	}
	pixels := 1
	var shape []int
	for _, text := range strings.Split(strings.TrimRight(string(found[1]), ", "), ",") {
		d, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || d < 1 || d > maxPictures {
			return nil, refuse("a shape of (%s) is not that of 1 to %d pictures", found[1], maxPictures)
		}
		if pixels *= d; pixels > maxPictures*side*side {
			return nil, refuse("more than %d pictures", maxPictures)
		}
		shape = append(shape, d)
	}
	if n := len(shape); n < 2 || shape[n-1] != side || shape[n-2] != side {
		return nil, refuse("pictures are %d × %d", side, side)
	}
	data := make([]byte, 4*pixels)
	if err := readFull(r, data); err != nil {
		return nil, err
	}
	if n, _ := io.ReadFull(r, prefix[:1]); n > 0 {
		return nil, refuse("something follows the array")
	}
	list := make([]float32, pixels)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return list, nil
}

func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if large := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &large) {
		return err
	}
	return refuse("the array is cut short: %v", err)
}
