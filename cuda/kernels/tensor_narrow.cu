#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"

// Products of floats that are rounded to bfloat16.
PRODUCTS(om_tensor_narrow, to_bf16)
