#include "om.h"
#include "conv.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "finish.h"
#include "convolve.h"

// Convolutions of bfloat16, as convolve.h has them.
CONVOLUTIONS(om_conv_tensor_bf16, of_bf16, om_bf16)
SUM(bf16, om_bf16)
