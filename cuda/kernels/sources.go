package kernels

import "embed"

// Sources are what the images are made from. Programs that do not ask for them do not have them.
//
//go:embed *.cu *.h
var Sources embed.FS
