#include "om.h"
#include "conv.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "finish.h"
#include "convolve.h"

// Convolutions of floats that are rounded to bfloat16, as convolve.h has them.
CONVOLUTIONS(om_conv_tensor_narrow, to_bf16, float)
// Large ones are rounded on the way to shared memory.
CONVOLUTION(om_conv_tensor_narrow_256, to_bf16, float, 128, 256, 4, 8, 1)
