//go:build !unix

package loader

import "testing"

func writePipe(t *testing.T) string {
	t.Helper()
	t.Skip("no named pipes")
	return ""
}
