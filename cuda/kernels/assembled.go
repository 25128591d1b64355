package kernels

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// assembledHead is what a file with an assembled image begins with. A hash of the rest follows.
const assembledHead = "optimem assembled kernels 1\n"

// MaxAssembledBytes is the most that an assembled image may have.
const MaxAssembledBytes = 16 << 20

// AssembledName returns the name of the file that holds a family's image, assembled for GPUs of a compute capability alone, as in
// 86 for 8.6. driver is the release of the driver that assembled it, as in 12040 for 12.4; 0 is none: what NVIDIA's assembler
// wrote for any driver that takes it.
func AssembledName(family string, capability, driver int, image []byte) string {
	h := sha256.Sum256(image)
	name := fmt.Sprintf("%s.sm%d.%s", family, capability, hex.EncodeToString(h[:8]))
	if driver != 0 {
		name += fmt.Sprintf(".%d", driver)
	}
	return name + ".cubin"
}

// PackAssembled returns what a file with an assembled image holds.
func PackAssembled(cubin []byte) []byte {
	h := sha256.Sum256(cubin)
	return bytes.Join([][]byte{[]byte(assembledHead), h[:], cubin}, nil)
}

// UnpackAssembled returns the assembled image of such a file, which fails where the file is not as it was written.
func UnpackAssembled(file []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(file, []byte(assembledHead))
	if !ok || len(rest) <= sha256.Size || len(rest) > sha256.Size+MaxAssembledBytes {
		return nil, fmt.Errorf("%d bytes are no assembled kernels", len(file))
	}
	cubin := rest[sha256.Size:]
	if h := sha256.Sum256(cubin); !bytes.Equal(h[:], rest[:sha256.Size]) {
		return nil, fmt.Errorf("%d bytes of assembled kernels are not what was written", len(cubin))
	}
	return cubin, nil
}
