// Package lint checks the rules of this repository in a test: who may import whom, what a library must not do, how
// files and packages are named, and that the documents mention only what exists. It parses every Go file itself,
// whatever its build tags, because a test that asks the go command is cached and misses violations.
//
// It does not know what a package is for, and leaves style to gofmt, vet and staticcheck. Each rule is tested on
// sources that break it.
//
//	go test ./internal/lint
package lint
