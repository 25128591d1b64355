package models

import (
	"github.com/optimem/optimem/models/aten/cells"
)

// An UnsupportedError lists what a model needs and optimem lacks, all of it.
type UnsupportedError = cells.UnsupportedError

// A Missing is an op or class that optimem lacks.
type Missing = cells.Missing
