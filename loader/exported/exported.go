package exported

// A Program is one exported program.
type Program struct{}
