package tokenizer

import (
	"fmt"
	"strings"
)

// splitMerges reads lines of two tokens with a space between.
func splitMerges(lines []string, path string) ([]string, error) {
	pairs := make([]string, 0, 2*len(lines))
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, format(fmt.Sprintf("%s[%d]", path, i), "%q is not two tokens", clip(line))
		}
		pairs = append(pairs, left, right)
	}
	return pairs, nil
}
