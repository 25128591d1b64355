//go:build !unix

package blocked

import "time"

func processorTime() time.Duration { return 0 }
