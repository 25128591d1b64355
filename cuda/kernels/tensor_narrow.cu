#include "om.h"
#include "tile.h"
#include "pieces.h"
#include "tensor.h"
#include "product.h"

// Products of floats that are rounded to bfloat16.
PRODUCTS(om_tensor_narrow, to_bf16)
// Large ones are rounded on the way to shared memory.
PRODUCT(om_tensor_narrow_256, to_bf16, 128, 256, 4, 8, 256, 1)
