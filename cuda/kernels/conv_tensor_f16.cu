#include "om.h"
#include "conv.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "finish.h"
#include "convolve.h"

// Convolutions of half floats, as convolve.h has them.
CONVOLUTIONS(om_conv_tensor_f16, of_f16, om_f16)
SUM(f16, om_f16)
