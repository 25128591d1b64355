package models

// einsumTargets are sums of products over named dimensions.
var einsumTargets = []atenOp{}
