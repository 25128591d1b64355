package models

import "github.com/optimem/optimem/models/aten"

// An UnsupportedError lists what a model needs and optimem lacks, all of it.
type UnsupportedError = aten.UnsupportedError

// A Missing is an op or class that optimem lacks.
type Missing = aten.Missing
