package ziparchive

import (
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

// checkName returns the class and the reason why a record may not have this name, or nil.
//
//lint:ignore ST1008 the class is a finding, not a failure of the function
func checkName(name string) (class error, why string) {
	switch {
	case name == "":
		return fault.ErrFormat, "the record has no name"
	case !utf8.ValidString(name):
		return fault.ErrFormat, "the name is not UTF-8"
	case strings.ContainsRune(name, '\\'):
		return fault.ErrUnsafe, "the name holds a backslash"
	case strings.HasPrefix(name, "/"):
		return fault.ErrUnsafe, "the name is an absolute path"
	case len(name) >= 2 && name[1] == ':' && isLetter(name[0]):
		return fault.ErrUnsafe, "the name begins with a drive letter"
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] == 0x7f {
			return fault.ErrUnsafe, "the name holds a control character"
		}
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		switch part {
		case "..":
			return fault.ErrUnsafe, "the name climbs out of its folder"
		case "", ".":
			return fault.ErrUnsafe, "the name has an empty part"
		}
	}
	return nil, ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// fold maps names that one file system or another holds for equal to one string: letters lose their case, a folder its
// slash.
func fold(name string) string {
	name = strings.TrimSuffix(name, "/")
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return strings.ToLower(strings.ToUpper(name))
		}
	}
	return strings.ToLower(name)
}
