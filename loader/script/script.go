package script

// A Program is the parsed code of a TorchScript archive.
type Program struct{}
