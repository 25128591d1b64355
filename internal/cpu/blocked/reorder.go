package blocked

// To writes a value in blocks that it reads by the strides of its four dimensions [N, C, H, W].
func To(pool Pool, n, channels, height, width int, src []float32, strides [4]int, dst []float32) {
	blocks := Blocks(channels)
	pool.For(n*blocks*height, max(1, grain/(width*Lanes)), func(from, to int) {
		for i := from; i < to; i++ {
			image, block, y := i/(blocks*height), i/height%blocks, i%height
			at := image*strides[0] + block*Lanes*strides[1] + y*strides[2]
			row := dst[i*width*Lanes:][:width*Lanes]
			used := min(Lanes, channels-block*Lanes)
			for lane := range Lanes {
				if lane >= used {
					for x := range width {
						row[x*Lanes+lane] = 0
					}
					continue
				}
				p := at + lane*strides[1]
				for x := range width {
					row[x*Lanes+lane] = src[p]
					p += strides[3]
				}
			}
		}
	})
}

// From writes a value in blocks as contiguous [N, C, H, W].
func From(pool Pool, n, channels, height, width int, src, dst []float32) {
	blocks, pixels := Blocks(channels), height*width
	pool.For(n*channels, max(1, grain/pixels), func(from, to int) {
		for i := from; i < to; i++ {
			image, c := i/channels, i%channels
			in := src[(image*blocks+c/Lanes)*pixels*Lanes:][:pixels*Lanes]
			out := dst[i*pixels:][:pixels]
			for p := range out {
				out[p] = in[p*Lanes+c%Lanes]
			}
		}
	})
}
