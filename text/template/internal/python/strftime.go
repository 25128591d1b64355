package python

import (
	"fmt"
	"strings"
	"time"
)

// Strftime is C's, in the locale C.
func Strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := true
		if format[i] == '-' && i+1 < len(format) {
			i++
			pad = false
		}
		if err := appendField(&b, t, format[i], pad); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// layouts are the conversions that package time has, too.
var layouts = map[byte]string{
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'P': "pm", 'D': "01/02/06",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04",
	'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06",
	'X': "15:04:05",
}

// appendField writes what one conversion stands for; pad says that numbers have zeros in front.
func appendField(b *strings.Builder, t time.Time, verb byte, pad bool) error {
	two := func(n int) {
		if pad {
			fmt.Fprintf(b, "%02d", n)
		} else {
			fmt.Fprintf(b, "%d", n)
		}
	}
	hour12 := (t.Hour()+11)%12 + 1
	switch verb {
	case 'Y':
		fmt.Fprintf(b, "%d", t.Year())
	case 'C':
		two(t.Year() / 100)
	case 'y':
		two(t.Year() % 100)
	case 'm':
		two(int(t.Month()))
	case 'd':
		two(t.Day())
	case 'e':
		fmt.Fprintf(b, "%2d", t.Day())
	case 'H':
		two(t.Hour())
	case 'I':
		two(hour12)
	case 'M':
		two(t.Minute())
	case 'S':
		two(t.Second())
	case 'f':
		fmt.Fprintf(b, "%06d", t.Nanosecond()/1000)
	case 'j':
		if pad {
			fmt.Fprintf(b, "%03d", t.YearDay())
		} else {
			fmt.Fprintf(b, "%d", t.YearDay())
		}
	case 'U':
		two((t.YearDay() + 6 - int(t.Weekday())) / 7)
	case 'W':
		two((t.YearDay() + 6 - (int(t.Weekday())+6)%7) / 7)
	case 'G':
		year, _ := t.ISOWeek()
		fmt.Fprintf(b, "%d", year)
	case 'V':
		_, week := t.ISOWeek()
		two(week)
	case 'w':
		fmt.Fprintf(b, "%d", int(t.Weekday()))
	case 'u':
		fmt.Fprintf(b, "%d", (int(t.Weekday())+6)%7+1)
	case 's':
		fmt.Fprintf(b, "%d", t.Unix())
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case '%':
		b.WriteByte('%')
	case 'z', 'Z':
		// datetime.now() has no zone.
	default:
		layout, ok := layouts[verb]
		if !ok {
			return fmt.Errorf("%%%c in a format of time", verb)
		}
		b.WriteString(t.Format(layout))
	}
	return nil
}
