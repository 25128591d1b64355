package models

import "github.com/optimem/optimem/loader/exported"

// higherOrder are the ops that take graphs. Those that only change how Python runs are their graph's nodes.
var higherOrder = map[string]func(b *programBuilder, s *scope, n *exported.Node, args arguments) ([]any, error){}
