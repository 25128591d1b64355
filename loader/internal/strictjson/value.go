package strictjson

import (
	"math"
	"strconv"

	"github.com/optimem/optimem/loader/internal/fault"
)

// String reads a string.
func (d *Decoder) String() (string, error) {
	text, err := d.Text()
	if err != nil {
		return "", err
	}
	return d.intern.get(d, text)
}

// Text reads a string into memory that the decoder uses again: the bytes are good until the next call.
func (d *Decoder) Text() ([]byte, error) {
	if err := d.begin(String); err != nil {
		return nil, err
	}
	return d.text()
}

// Number reads a number and returns its text.
func (d *Decoder) Number() (string, error) {
	text, err := d.number()
	if err != nil {
		return "", err
	}
	if err := d.charge(int64(len(text)) + 16); err != nil {
		return "", err
	}
	return string(text), nil
}

// Int reads a number that must be an integer of 64 bits, without fraction or exponent.
func (d *Decoder) Int() (int64, error) {
	text, err := d.number()
	if err != nil {
		return 0, err
	}
	if len(text) < 19 { // cannot overflow
		n, digits := int64(0), text
		if text[0] == '-' {
			digits = text[1:]
		}
		for _, c := range digits {
			if c < '0' || c > '9' {
				return 0, d.failToken("%s is not an integer", text)
			}
			n = n*10 + int64(c-'0')
		}
		if text[0] == '-' {
			n = -n
		}
		return n, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, d.failToken("%.40s is not an integer of 64 bits", text)
	}
	return n, nil
}

// Float reads a number. One that is too large for a float64 is an error.
func (d *Decoder) Float() (float64, error) {
	text, err := d.number()
	if err != nil {
		return 0, err
	}
	switch string(text) {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, d.failToken("%.40s does not fit a float of 64 bits", text)
	}
	return f, nil
}

// Bool reads true or false.
func (d *Decoder) Bool() (bool, error) {
	if err := d.begin(Bool); err != nil {
		return false, err
	}
	if d.buf[d.pos] == 't' {
		return true, d.literal("true")
	}
	return false, d.literal("false")
}

// Null reads null.
func (d *Decoder) Null() error {
	if err := d.begin(Null); err != nil {
		return err
	}
	return d.literal("null")
}

// IsNull reads the next value if it is null and reports whether it was.
func (d *Decoder) IsNull() (bool, error) {
	k, err := d.Kind()
	if err != nil || k != Null {
		return false, err
	}
	return true, d.Null()
}

// failToken makes an error about the value read last the decoder's final one.
func (d *Decoder) failToken(format string, args ...any) error {
	if d.err == nil {
		d.err = d.Errorf(fault.ErrFormat, format, args...)
	}
	return d.err
}
