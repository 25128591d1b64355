package layers

var convOps = []OpDef{}
