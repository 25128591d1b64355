package cells

import "github.com/optimem/optimem/tensor"

// maxFourierBytes bounds the constants of all Fourier transforms and windows of a graph.
const maxFourierBytes = 256 << 20

// Charge counts constants before they are made.
func (b *Builder) Charge(numbers int, d tensor.DType) error {
	b.fourierBytes += int64(numbers) * int64(d.Size())
	if b.fourierBytes > maxFourierBytes {
		return b.Unsupported(
			"Fourier transforms and windows of so many lengths that their numbers take more than %d bytes",
			maxFourierBytes,
		)
	}
	return nil
}

// Constants returns a tensor of numbers of a float dtype.
func (b *Builder) Constants(values []float64, d tensor.DType, shape ...int) (*Ref, error) {
	data := make([]byte, 0, len(values)*d.Size())
	for _, x := range values {
		p, err := encodeNumber(x, d)
		if err != nil {
			return nil, b.Unsupported("%v", err)
		}
		data = append(data, p...)
	}
	return b.Own(b.Graph.AddConst(&tensor.Tensor{DType: d, Layout: tensor.Contiguous(shape...), Data: data})), nil
}
