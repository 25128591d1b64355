//go:build !nocuda && !files

package main

// withCUDA says that the program can use GPUs.
const withCUDA = true
