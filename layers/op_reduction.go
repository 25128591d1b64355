package layers

var reductionOps = []OpDef{}
