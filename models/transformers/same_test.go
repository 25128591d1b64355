package transformers

import (
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/layers"
)

// TestSameAs: a type that is another by a name of its own has that one's classes and weights.
func TestSameAs(t *testing.T) {
	for kind, same := range sameAs {
		f := familyNamed(kind)
		if f == nil || f.Model != same {
			t.Errorf("%s is %v, want %s", kind, f, same)
			continue
		}
		class := f.Heads[1].Class
		_, err := FromConfig(fmt.Appendf(nil, `{"model_type": %q, "architectures": [%q], "num_hidden_layers": 1}`, kind, class), nil)
		var mismatch *layers.MismatchError
		_, other := FromConfig(fmt.Appendf(nil, `{"model_type": %q, "architectures": ["OwnForCausalLM"], "num_hidden_layers": 1}`, kind), nil)
		if !errors.As(other, &mismatch) || mismatch.Arch != class {
			t.Errorf("%s with a class of its own: %v", kind, other)
		}
		if !errors.As(err, &mismatch) || mismatch.Arch != class {
			t.Errorf("%s (%s) without weights: %v", kind, class, err)
		}
	}
}
