package models

import "github.com/optimem/optimem/loader"

// useScript makes m the program of a TorchScript archive.
func (m *Model) useScript(ckpt *loader.Checkpoint, opts Options) error {
	return &UnsupportedError{What: "a TorchScript program", Hint: exportHint}
}
