package layers

// lossClasses compare an output with a label. Models hold them beside what they run; running one is an error.
var lossClasses = func() Classes {
	all := make(Classes)
	for _, name := range []string{
		"BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
		"HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss",
		"MarginRankingLoss", "MultiLabelMarginLoss",
		"MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss",
		"SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
	} {
		all["torch.nn.modules.loss."+name] = Class{Forward: noForward}
	}
	return all
}()
