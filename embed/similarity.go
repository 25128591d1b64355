package embed

import "math"

// similarities are what vectors are compared by; more is more alike.
var similarities = map[string]func(a, b []float32) float64{
	"dot": dot,
	"cosine": func(a, b []float32) float64 {
		const least = 1e-12
		return dot(a, b) / (max(math.Sqrt(dot(a, a)), least) * max(math.Sqrt(dot(b, b)), least))
	},
	"euclidean": func(a, b []float32) float64 {
		s := 0.0
		for i, x := range a {
			d := float64(x) - float64(b[i])
			s += d * d
		}
		return -math.Sqrt(s)
	},
	"manhattan": func(a, b []float32) float64 {
		s := 0.0
		for i, x := range a {
			s += math.Abs(float64(x) - float64(b[i]))
		}
		return -s
	},
}

// Compare tells how alike two vectors of the folder are, as the folder's [Folder.Similarity] has it: cosine and dot are
// products, the others distances below zero.
func (f *Folder) Compare(a, b []float32) float64 { return similarities[f.similarity](a, b) }
