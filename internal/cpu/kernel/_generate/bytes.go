package main

// bytesFamily writes what computes with factors of int8.
func bytesFamily() {
	for _, s := range sets {
		for rows := 1; rows <= min(halfRows, s.rows); rows++ {
			s.gemm(rows, i8)
		}
		for rows := 1; rows <= fewRows; rows++ {
			s.few(rows, i8)
		}
		for rows := 1; rows <= s.acrossRows(); rows++ {
			s.across(rows, i8)
		}
		s.panelWiden(i8)
	}
	transpose8(i8)
}
