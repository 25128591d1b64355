#include "om.h"
#include "conv.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "finish.h"
#include "convolve.h"
#include "hopper.h"
#include "hopper_conv.h"

// Convolutions of bfloat16 by wgmma.
HOPPER_CONVOLUTIONS(om_hopper_conv_bf16, of_bf16)
