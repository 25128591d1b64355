package main

// bytesFamily writes what computes with factors of int8.
func bytesFamily(f *file) {
	for rows := 1; rows <= tileRows; rows++ {
		gemm(f, rows, i8)
	}
	for rows := 1; rows <= fewRows; rows++ {
		few(f, rows, i8)
		across(f, rows, i8)
	}
	panelWiden(f, i8)
	transpose8(f, i8)
}
