// Package lint is the rules of this repository as a test: who may import whom, what a library may never do, how files
// and packages are named, and that the documents name only what exists. It parses every Go file itself, whatever its
// build tags, because a test that asks the go command is cached and misses violations.
//
// It does not know what a package is for, and it judges no style that gofmt, vet or staticcheck judges already. Each
// rule is tested on sources that break it.
//
//	go test ./internal/lint
package lint
