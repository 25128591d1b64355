#include "om.h"
#include "conv.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "finish.h"
#include "convolve.h"

// Convolutions of floats that are rounded to bfloat16, as convolve.h has them.
CONVOLUTIONS(om_conv_tensor_narrow, to_bf16, float)
