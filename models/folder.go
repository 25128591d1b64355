package models

import (
	"fmt"

	"github.com/optimem/optimem/loader"
)

// useFolder makes m the model of a Hugging Face folder: the architecture that config.json names.
func (m *Model) useFolder(ckpt *loader.Checkpoint, opts Options) error {
	return &UnsupportedError{What: fmt.Sprintf("a %s folder", ckpt.Format), Hint: exportHint}
}
