//go:build !nocuda

package main

// withCUDA says that the program can use GPUs.
const withCUDA = true
