package torchvision

import "github.com/optimem/optimem/layers"

// alexnets is AlexNet: torchvision/models/alexnet.py.
var alexnets = &family{
	classes: layers.Classes{"torchvision.models.alexnet.AlexNet": layers.Unary(featuresForward)},
	names:   []string{"alexnet"},
	make: func(_ string, o Options) *layers.Module {
		return alexnet{[5]int{64, 192, 384, 256, 256}, [2]int{4096, 4096}, o.classes()}.module()
	},
	infer: inferAlexnet,
}

// An alexnet is the sizes of one: what its convolutions and its hidden linear layers give, and its classes.
type alexnet struct {
	channels [5]int
	hidden   [2]int
	classes  int
}

func (a alexnet) module() *layers.Module {
	c, relu := a.channels, func() *layers.Module { return layers.ReLU(layers.InPlace) }
	pool := func() *layers.Module { return layers.MaxPool2d(3, layers.Stride(2)) }
	return layers.New("torchvision.models.alexnet.AlexNet", nil).
		Add("features", layers.Sequential(
			layers.Conv2d(3, c[0], 11, layers.Stride(4), layers.Padding(2)), relu(), pool(),
			layers.Conv2d(c[0], c[1], 5, layers.Padding(2)), relu(), pool(),
			layers.Conv2d(c[1], c[2], 3, layers.Padding(1)), relu(),
			layers.Conv2d(c[2], c[3], 3, layers.Padding(1)), relu(),
			layers.Conv2d(c[3], c[4], 3, layers.Padding(1)), relu(), pool())).
		Add("avgpool", layers.AdaptiveAvgPool2d(6)).
		Add("classifier", layers.Sequential(
			layers.Dropout(0.5), layers.Linear(c[4]*6*6, a.hidden[0]), relu(),
			layers.Dropout(0.5), layers.Linear(a.hidden[0], a.hidden[1]), relu(),
			layers.Linear(a.hidden[1], a.classes)))
}

func inferAlexnet(s shapes) []candidate {
	if s.size("features.0.weight", 2) != 11 {
		return nil
	}
	var a alexnet
	for i, at := range []string{"0", "3", "6", "8", "10"} {
		a.channels[i] = s.size("features."+at+".weight", 0)
	}
	a.hidden = [2]int{s.size("classifier.1.weight", 0), s.size("classifier.4.weight", 0)}
	a.classes = s.classes("classifier.6.weight")
	return []candidate{{"alexnet", a.module()}}
}
