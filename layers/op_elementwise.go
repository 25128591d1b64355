package layers

import "fmt"

// Elementwise ops take operands of one shape: whoever builds the graph expands them (by a stride of zero) and casts them
// to the dtype that PyTorch computes in.
var elementwiseOps = []OpDef{
	{Kind: "cast", Shape: castShape},
	{Kind: "relu", Shape: sameAsFirst},
	{Kind: "add", Shape: sameShapes}, // In[0] + alpha × In[1]
}

// castShape is the rule of "cast": the operand's shape with the dtype of attribute "dtype".
func castShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	return []Spec{{DType: a.DType("dtype"), Shape: in[0].Shape}}, nil
}

// sameAsFirst is the rule of ops whose result is like their first operand.
func sameAsFirst(in []Spec, _ Attrs) ([]Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("no operands")
	}
	return []Spec{in[0]}, nil
}

// sameShapes is the rule of ops over operands that are all alike.
func sameShapes(in []Spec, _ Attrs) ([]Spec, error) {
	for _, s := range in {
		if s.DType != in[0].DType || !s.Shape.Equal(in[0].Shape) {
			return nil, fmt.Errorf("%v %v × %v %v", in[0].DType, in[0].Shape, s.DType, s.Shape)
		}
	}
	return sameAsFirst(in, nil)
}
