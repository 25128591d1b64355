//go:build !linux && !files

package running

import "errors"

// dropCached fails: there is no such call.
func dropCached(string) error { return errors.New("this system cannot drop a file from it") }
