package tokenizer

import "os"

// Open reads a tokenizer.
func Open(path string) (*Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(b)
}
