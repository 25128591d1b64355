package layers

var normOps = []OpDef{}
