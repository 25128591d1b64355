package layers

var resampleOps = []OpDef{}
